// SPDX-License-Identifier: Apache-2.0
//
// All figures of one run of model_bench. Everything is interleaved: each repeat measures, for each figure,
// the machine's limits and then the figure, so that a busy neighbour slows both; figures are medians.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "../machine.hpp"
#include "../roofline.hpp"
#include "../work.hpp"
#include "options.hpp"
#include "probe.hpp"
#include "speed_test.hpp"

namespace bench {

/// One line of the result: a configuration and a test, with one sample of everything for each repeat.
struct Figure {
  Configuration configuration;
  TestSpec spec;
  double flop_in_products = 0;  ///< of one token, in the weights' matrices that it passes
  double flop_in_mixing = 0;    ///< of one token, on average, in attention and the delta rule
  double bytes_of_step = 0;     ///< read by one decode step; 0 for prefill
  Index peak_rss_bytes = 0;
  std::vector<double> tokens_per_s{};
  std::vector<double> roofline_ratio{};  ///< empty where the roof is unknown
  std::vector<Roofline> roofline{};
};

/// (threads, kernels): the limits measured beside all figures with them.
using RooflineKey = std::pair<int, std::string>;

struct Report {
  std::string model;
  Machine machine = this_machine();
  std::map<RooflineKey, std::vector<Roofline>> rooflines{};
  std::vector<Figure> figures{};
  double open_seconds = 0;
  double first_token_seconds = 0;
};

/// Measures everything that was asked for. Says on standard error what it leaves out.
[[nodiscard]] Report measure(const Options& options);

/// Answers "prefill N" and "decode CONTEXT" from standard input with the seconds and tokens of one
/// measurement, a line each, until the input ends: for comparisons interleaved by somebody else.
void serve_measurements(const Options& options);

}  // namespace bench
