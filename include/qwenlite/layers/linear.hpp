// SPDX-License-Identifier: Apache-2.0
//
// Linear (torch.nn.Linear without bias) and Embedding (torch.nn.Embedding). Both are views of weights
// where they lie; a tied head is a Linear over the embedding's matrix.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <qwenlite/checkpoint/weights.hpp>
#include <qwenlite/kernels/ops.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// y = W x, with W [out, in] in any weight format.
class Linear {
 public:
  explicit Linear(const WeightView& weight) : weight_(weight) {}

  /// Takes `NAME.weight` from the scope, in the format chosen for its use. Throws as Weights::product() does.
  Linear(const Weights& scope, std::string_view name, Index out, Index in, MatrixUse use = MatrixUse::layer)
      : weight_(scope.product(std::string(name) + ".weight", out, in, use)) {}

  [[nodiscard]] const WeightView& weight() const noexcept { return weight_; }
  [[nodiscard]] Format format() const noexcept { return weight_.format; }

  /// The product with a packed input that goes to `out` [tokens, out]: stored, or added with `accumulate`.
  [[nodiscard]] Product into(const Matrix<float>& out, bool accumulate = false) const {
    return {weight_, out, accumulate};
  }

 private:
  WeightView weight_;
};

/// One stored row per token id.
class Embedding {
 public:
  /// Takes `NAME.weight` [vocab_size, hidden_size], as Linear does.
  Embedding(const Weights& scope, std::string_view name, Index vocab_size, Index hidden_size)
      : weight_(scope.product(std::string(name) + ".weight", vocab_size, hidden_size, MatrixUse::embedding)) {
  }

  /// out[i] = row tokens[i]; out is [tokens, hidden_size].
  void lookup(const Ops& ops, std::span<const int> tokens, const Matrix<float>& out) const {
    ops.embed(weight_, tokens, out);
  }

  /// The output layer that shares this matrix (tie_word_embeddings).
  [[nodiscard]] Linear tied_head() const { return Linear(weight_); }

 private:
  WeightView weight_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
