// SPDX-License-Identifier: Apache-2.0
//
// The subcommands of inspect. Each prints for people, or one JSON object with `json`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <qwenlite/checkpoint/checkpoint.hpp>
#include <qwenlite/tensor.hpp>

#include "programs/run_options.hpp"

namespace inspect {

using qwenlite::Index;

struct Options {
  std::string directory;
  bool json = false;
  programs::RunOptions run;

  std::string ids;                  // "1,2,3" or "@file.json"
  std::optional<std::string> text;  // tokenize; else standard input
  bool special = false;
  std::string family;  // of the chat template, when it is not known by its text

  std::optional<std::string> positions;  // logits
  std::optional<std::string> at;
  bool all = false;
  bool mtp = false;
  Index top = 5;

  Index n = 16;  // generate
  bool ignore_eos = false;

  Index tokens = 0;  // explain

  std::string out;  // trace
};

/// Ids of "1,2,3" or of a file "@ids.json" with a JSON array. Wrong text on the command line is wrong
/// usage, a file that cannot be read is a failure.
[[nodiscard]] std::vector<int> parse_ids(const std::string& text, const char* option);

/// The same, of at least one id (or position: `what` an option is about).
[[nodiscard]] std::vector<int> some_ids(const std::string& text, const char* option,
                                        const char* what = "token id");

/// Wrong usage unless the model was made for so many tokens, which come from this option (or these).
void check_context(const qwenlite::Checkpoint& files, const char* option, Index tokens);

void show_config(const Options& options);
void show_tensors(const Options& options);
void tokenize(const Options& options);
void detokenize(const Options& options);
void render_template(const Options& options);
void show_logits(const Options& options);
void generate(const Options& options);
void explain(const Options& options);
void trace(const Options& options);

}  // namespace inspect
