// SPDX-License-Identifier: Apache-2.0
//
// How the programs run a network, as options: threads, storage of weights, keys and values, precision, chunk.
#pragma once

#include <limits>
#include <optional>
#include <string>

#include <qwenlite/tensor.hpp>

#include "programs/command_line.hpp"
#include "programs/weight_format.hpp"

namespace programs {

inline CLI::Validator a_kv_format() {
  return one_of({"bf16", "f32", "int8", "fp8", "int4", "none"});
}

struct RunOptions {
  int threads = 0;  // 0: as many as the process may use
  std::string kv = "bf16";
  std::string weights;                   // empty: as stored
  std::string embedding_weights;         // empty: what follows from weights
  std::string precision;                 // empty: the default of the kernels
  std::optional<qwenlite::Index> chunk;  // empty: the library's default
  /// What the names of these options begin with, for messages.
  const char* prefix = "--";

  [[nodiscard]] bool cached() const { return kv != "none"; }
};

/// `shown`: they are in the help. Commands that compute nothing take them too, so that one list of options
/// suits all commands.
inline void add_run_options(CLI::App& app, RunOptions& options, bool shown = true,
                            const char* default_chunk = "512") {
  const std::string group = shown ? "Options" : unlisted;
  app.add_option("--threads", options.threads,
                 "threads to compute with; 0 (default): one for each core of the process")
      ->group(group)
      ->check(number_in(0, 4096));
  app.add_option("--kv", options.kv,
                 "keys and values are kept as bf16 (default) or f32, compressed as int8, fp8 or int4 (an "
                 "experiment), or not at all: none recomputes them")
      ->group(group)
      ->check(a_kv_format());
  app.add_option("--weights", options.weights,
                 "quantise weights while opening: int8 (or int8:row, the same: a scale for each row), int4, "
                 "fp8, or with a group of 32, 64 or 128: int4:32, int4:64:zeros, int8:128; or the format "
                 "that they are stored in: bf16, f16, f32 (default: as stored)")
      ->group(group)
      ->check(a_weight_format());
  app.add_option("--embedding-weights", options.embedding_weights,
                 "the same for embedding and output matrix (default: int8 if weights are quantised)")
      ->group(group)
      ->check(a_weight_format());
  app.add_option(
         "--precision", options.precision,
         "inputs of matrix products: bf16, exact, or int8 where weights are int8 or int4 (default: that "
         "of the instruction set)")
      ->group(group)
      ->check(one_of({"bf16", "exact", "int8"}));
  app.add_option("--chunk", options.chunk,
                 std::string("tokens of a prompt that pass through the network together (default: ") +
                     default_chunk + ")")
      ->group(group)
      ->check(number_in<qwenlite::Index>(1, 1 << 20));
}

}  // namespace programs
