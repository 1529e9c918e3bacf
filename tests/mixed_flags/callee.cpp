// SPDX-License-Identifier: Apache-2.0
#include "take.hpp"

int take(const qwenlite::Checkpoint& files) {
  return files.config().num_hidden_layers > 0 ? 0 : 1;
}
