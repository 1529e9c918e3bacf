// SPDX-License-Identifier: Apache-2.0
#include "take.hpp"

int main(int, char** argv) {
  return take(qwenlite::Checkpoint(argv[1]));
}
