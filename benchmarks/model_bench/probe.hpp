// SPDX-License-Identifier: Apache-2.0
//
// Measurements that need a process of their own: its peak memory with nothing but the model and one test in
// it, the time to open a checkpoint, and the time from the start of the process to the first token.
// model_bench runs itself with --probe for them.
#pragma once

#include <string>

#include "../work.hpp"
#include "options.hpp"
#include "speed_test.hpp"

namespace bench {

/// What a probe found.
struct Probe {
  Index peak_rss_bytes = 0;
  double open_seconds = 0;         ///< checkpoint and network, up to the first session
  double first_token_seconds = 0;  ///< from the start of the process; only of "first"
};

/// How a model of one configuration is opened.
struct Configuration {
  std::string directory;
  std::string isa;
  int threads = 0;
  std::optional<WeightChoice> weights;  ///< that opening it quantises to; empty: as stored
  WeightFormats formats;                ///< of its matrices when it is open
  bool packed = false;                  ///< the files hold quantised weights: formats unknown
  std::string stored_name;              ///< of weights that are not quantised while opening
  qwenlite::KvFormat kv = qwenlite::KvFormat::bf16;
  std::optional<qwenlite::Precision> precision;  ///< empty: that of the kernels
};

/// What to open it with, but for threads.
[[nodiscard]] qwenlite::OpenOptions open_options(const Configuration& configuration);

/// The argument of --probe.
[[nodiscard]] std::string probe_of(const TestSpec& spec);

/// Starts this program anew for one probe and waits for its answer. Throws std::runtime_error if it fails.
[[nodiscard]] Probe run_probe(const Configuration& configuration, const std::string& probe);

/// The other side: runs the probe and prints the answer.
void answer_probe(const Options& options);

/// Prompt of the first token: five ids.
inline constexpr Index first_token_prompt = 5;

}  // namespace bench
