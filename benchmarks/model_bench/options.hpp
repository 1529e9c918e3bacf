// SPDX-License-Identifier: Apache-2.0
//
// The command line of model_bench.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/kernels/weight_words.hpp>

namespace bench {

using qwenlite::Index;

/// A command line that asks for something impossible: one line for the user, exit status 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What weights are computed with: a stored format, or one that opening the model quantises them to.
struct WeightChoice {
  qwenlite::WeightFormat layers;
  std::optional<qwenlite::WeightFormat> embedding;  ///< empty: what the library chooses

  /// As on the command line: "int8:128", "int4:64/int8:128".
  [[nodiscard]] std::string word() const {
    return word_of(layers) + (embedding ? "/" + word_of(*embedding) : "");
  }
};

/// Empty when a word is none.
[[nodiscard]] std::optional<WeightChoice> weight_choice_of(std::string_view word);

struct Options {
  std::string shape;      ///< a built-in shape, or
  std::string directory;  ///< a checkpoint
  std::vector<Index> prefill;
  std::vector<Index> decode_context;
  std::vector<Index> batch{1};
  std::vector<WeightChoice> weights;  ///< empty for a directory: as it is stored
  std::vector<qwenlite::KvFormat> kv{qwenlite::KvFormat::bf16};
  std::vector<qwenlite::Precision> precision;  ///< empty: that of the kernels
  std::vector<int> threads;                    ///< 0 stands for the default
  std::vector<std::string> isas;               ///< empty: the one the library chooses
  int repeats = 5;
  Index bandwidth_mb = 1024;
  bool json = false;
  bool help = false;

  // How model_bench runs itself and is run by compare.py.
  std::string probe;       ///< "prefill:N", "decode:CONTEXT:BATCH" or "first": run it once, alone
  std::string started_at;  ///< steady clock in nanoseconds when this process was started
  bool on_demand = false;  ///< answer requests from standard input
};

/// Throws UsageError.
[[nodiscard]] Options parse_options(int argc, char** argv);

extern const char* const usage;

}  // namespace bench
