// SPDX-License-Identifier: Apache-2.0
//
// --family: the chat template that the programs render with where a directory brings one that is not known.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include <qwenlite/text/tokenizer.hpp>

#include "programs/command_line.hpp"
#include "programs/out_of_memory.hpp"

namespace programs {

inline void add_family_option(CLI::App& app, std::string& family) {
  app.add_option("--family", family,
                 "chat template to use when the directory's is not a known one: qwen3 or qwen3.5")
      ->check(one_of({"qwen3", "qwen3.5"}));
}

/// The tokenizer of a checkpoint, with the template of `family` unless that is empty.
inline qwenlite::Tokenizer open_tokenizer(const std::string& directory, const std::string& family) {
  qwenlite::TokenizerOptions how;
  if (family == "qwen3") how.family = qwenlite::ChatFamily::qwen3;
  if (family == "qwen3.5") how.family = qwenlite::ChatFamily::qwen3_5;
  return with_memory_for("the tokenizer", [&] { return qwenlite::Tokenizer(directory, how); });
}

/// Throws the library's `unsupported` for a template that is not known, with the option that helps.
inline void require_template(const qwenlite::Tokenizer& tokenizer) {
  try {
    tokenizer.chat_template().require_known();
  } catch (const qwenlite::Error& e) {
    throw qwenlite::Error(e.code(), std::string(e.what()) + " (here: --family qwen3 or --family qwen3.5)");
  }
}

}  // namespace programs
