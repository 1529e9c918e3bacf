// SPDX-License-Identifier: Apache-2.0
//
// The tiny checkpoints and their stored results, and ways to run a model on them.
#pragma once

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include <qwenlite/models/any_model.hpp>

#include "catch_any.hpp"
#include "kernels/kernel_tables.hpp"

namespace models_test {

using Json = nlohmann::ordered_json;
using qwenlite::Index;

inline const std::vector<std::string> dense_checkpoints{"qwen3-tiny", "qwen3-tiny-untied-sharded",
                                                        "qwen3-tiny-yarn"};

inline const std::vector<std::string> hybrid_checkpoints{"qwen3.5-tiny", "qwen3.5-tiny-gqa"};
inline const std::vector<std::string> all_checkpoints{"qwen3-tiny", "qwen3-tiny-untied-sharded",
                                                      "qwen3-tiny-yarn", "qwen3.5-tiny", "qwen3.5-tiny-gqa"};

inline std::string checkpoint_path(const std::string& name) {
  return std::string(QWENLITE_TEST_DATA) + "/checkpoints/" + name;
}

inline Json golden_of(const std::string& name) {
  std::ifstream file(checkpoint_path(name) + "/golden.json");
  REQUIRE(file.good());
  return Json::parse(file);
}

/// Token ids below 512, the same for the same seed.
inline std::vector<int> random_tokens(Index count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> tokens;
  for (Index i = 0; i < count; ++i) tokens.push_back(static_cast<int>(random() % 512));
  return tokens;
}

inline std::span<const int> part_of(const std::vector<int>& tokens, Index first, Index count) {
  return std::span(tokens).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

/// The rows of a result, copied out.
using Rows = std::vector<std::vector<float>>;

inline Rows copied(const qwenlite::ConstMatrix<float>& m) {
  Rows rows;
  for (Index t = 0; t < m.rows(); ++t) {
    const float* row = m.data() + t * m.outerStride();
    rows.emplace_back(row, row + m.cols());
  }
  return rows;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Index of the first row whose bits differ, or -1.
inline Index first_difference(const Rows& a, const Rows& b) {
  if (a.size() != b.size()) return static_cast<Index>(std::min(a.size(), b.size()));
  for (std::size_t t = 0; t < a.size(); ++t) {
    if (!same_bits(a[t], b[t])) return static_cast<Index>(t);
  }
  return -1;
}

inline double largest(const Rows& rows) {
  double most = 0;
  for (const auto& row : rows) {
    for (const float v : row) most = std::max(most, std::abs(static_cast<double>(v)));
  }
  return most;
}

inline double largest_difference(const Rows& a, const Rows& b) {
  double most = 0;
  for (std::size_t t = 0; t < a.size(); ++t) {
    for (std::size_t i = 0; i < a[t].size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(a[t][i]) - static_cast<double>(b[t][i])));
    }
  }
  return most;
}

/// Root mean square of the difference, as a part of that of b.
inline double mean_error(const Rows& a, const Rows& b) {
  double off = 0;
  double size = 0;
  for (std::size_t t = 0; t < a.size(); ++t) {
    for (std::size_t i = 0; i < a[t].size(); ++i) {
      off += std::pow(static_cast<double>(a[t][i]) - static_cast<double>(b[t][i]), 2);
      size += std::pow(static_cast<double>(b[t][i]), 2);
    }
  }
  return std::sqrt(off / size);
}

}  // namespace models_test
