// SPDX-License-Identifier: Apache-2.0
//
// OutputError: how far the results of a product are from the right ones, for the inputs of a calibration
// text, when its weights are off by known amounts. No input is multiplied again: with H = sum x x^T, rows d
// of what the weights are off by give sum (d x)^2 = d H d^T.
#pragma once

#include <vector>

#include <qwenlite/quantize/input_moments.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

class OutputError {
 public:
  /// Rows that of() takes at once.
  static constexpr Index most_rows = 256;

  /// For inputs with these moments, computed with `ops`, which must live as long.
  OutputError(const InputMoments& inputs, const Ops& ops)
      : ops_(ops),
        width_(inputs.width()),
        tokens_(static_cast<double>(std::max<Index>(inputs.tokens(), 1))),
        moments_(width_ * width_ * 4),
        products_(most_rows * width_ * 4),
        scratch_(ops, {.tokens = most_rows, .width = width_, .formats = {Format::f32}}) {
    for (std::size_t i = 0; i < inputs.sums().size(); ++i) {
      moments_.floats()[i] = static_cast<float>(inputs.sums()[i] / tokens_);
    }
  }

  /// Sum over all inputs of the squares of rows * x; rows is [at most most_rows, width].
  [[nodiscard]] double of(const ConstMatrix<float>& rows) {
    const WeightView weights{moments_.data(), width_, width_, Format::f32};
    const Product product{
        weights, {products_.floats(), rows.rows(), width_, Eigen::OuterStride<>(width_)}, false};
    const Packed packed = ops_.pack(rows, nullptr, {Format::f32}, scratch_);
    ops_.matmul(packed, {&product, 1}, scratch_);
    double sum = 0;
    for (Index r = 0; r < rows.rows(); ++r) {
      const float* const row = rows.data() + r * rows.outerStride();
      const float* const product_row = products_.floats() + r * width_;
      for (Index c = 0; c < width_; ++c) {
        sum += static_cast<double>(row[c]) * static_cast<double>(product_row[c]);
      }
    }
    return sum * tokens_;
  }

 private:
  const Ops& ops_;
  Index width_;
  double tokens_;
  AlignedBuffer moments_;   // [width, width], per token
  AlignedBuffer products_;  // [most_rows, width]
  OpsScratch scratch_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
