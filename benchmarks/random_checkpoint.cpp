// SPDX-License-Identifier: Apache-2.0
//
// Writes a checkpoint directory of a built-in shape with random weights: for other programs to run on.
//
//   random_checkpoint SHAPE DIRECTORY [bf16|f16|f32]
#include "random_checkpoint.hpp"

#include <cstdio>
#include <filesystem>

int main(int argc, char** argv) try {
  using enum qwenlite::Format;
  const bench::BuiltInShape* const shape = argc > 1 ? bench::built_in_shape(argv[1]) : nullptr;
  qwenlite::Format format = bf16;
  bool known = argc == 3;
  for (const qwenlite::Format f : {bf16, f16, f32}) {
    if (argc != 4 || name_of(f) != argv[3]) continue;
    format = f;
    known = true;
  }
  if (shape == nullptr || !known) {
    std::fprintf(stderr, "usage: random_checkpoint SHAPE DIRECTORY [bf16|f16|f32]; shapes:");
    for (const bench::BuiltInShape& s : bench::built_in_shapes) {
      std::fprintf(stderr, " %.*s", static_cast<int>(s.name.size()), s.name.data());
    }
    std::fputs("\n", stderr);
    return 2;
  }
  std::filesystem::create_directories(argv[2]);
  bench::write_random_checkpoint(argv[2], *shape, format);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "random_checkpoint: %s\n", e.what());
  return 1;
}
