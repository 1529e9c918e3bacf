// SPDX-License-Identifier: Apache-2.0
//
// One unit of a program: opens a checkpoint and continues a prompt greedily. Compiled twice under different
// -m flags, with QWENLITE_UNIT as the name of its only function, and linked together.
#include <vector>

#include <qwenlite/model.hpp>

std::vector<int> QWENLITE_UNIT(const char* directory, const std::vector<int>& prompt) {
  const qwenlite::Checkpoint files(directory);
  const qwenlite::AnyModel model =
      qwenlite::open(files, {.threads = 2, .precision = qwenlite::Precision::exact});
  auto session = model.new_session({.max_tokens = 512});
  std::vector<int> ids;
  qwenlite::generate(model, session, prompt,
                     {.max_new_tokens = 16, .sampling = {.temperature = 0.0}, .ignore_eos = true},
                     [&](int token) {
                       ids.push_back(token);
                       return true;
                     });
  return ids;
}
