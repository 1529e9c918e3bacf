// SPDX-License-Identifier: Apache-2.0
//
// Runs the same generation in a unit compiled for any CPU and in one compiled for a stronger one, in turns,
// and prints the ids: main CHECKPOINT ID...
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

std::vector<int> weak_ids(const char* directory, const std::vector<int>& prompt);
std::vector<int> strong_ids(const char* directory, const std::vector<int>& prompt);

int main(int argc, char** argv) try {
  if (argc < 3) return 2;
  std::vector<int> prompt;
  for (int i = 2; i < argc; ++i) prompt.push_back(std::atoi(argv[i]));
  const std::vector<int> weak = weak_ids(argv[1], prompt);
  const std::vector<int> strong = strong_ids(argv[1], prompt);
  const std::vector<int> again = weak_ids(argv[1], prompt);
  for (const int id : strong) std::printf("%d ", id);
  std::puts("");
  return weak == strong && weak == again ? 0 : 1;
} catch (const std::exception& e) {
  std::printf("%s\n", e.what());
  return 1;
}
