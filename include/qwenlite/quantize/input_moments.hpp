// SPDX-License-Identifier: Apache-2.0
//
// InputMoments: what is kept of the inputs that a product meets while a calibration text is read: which
// elements are large, and which go together. GPTQ and AWQ ask for nothing else.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include <qwenlite/kernels/ops.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Sums over the inputs x of a product: of x x^T, [width, width], and of |x|, [width], in double.
class InputMoments {
 public:
  explicit InputMoments(Index width)
      : width_(width),
        sums_(static_cast<std::size_t>(width * width)),
        magnitudes_(static_cast<std::size_t>(width)) {}

  /// Adds the rows of x [tokens, width]. Products of up to 512 rows are summed in float32, by the kernels and
  /// on the threads of `ops`. Throws `bad_argument` for another width.
  void add(const ConstMatrix<float>& x, const Ops& ops);

  [[nodiscard]] Index width() const noexcept { return width_; }
  [[nodiscard]] Index tokens() const noexcept { return tokens_; }
  /// Row-major; both triangles.
  [[nodiscard]] std::span<const double> sums() const noexcept { return sums_; }
  [[nodiscard]] std::span<const double> magnitudes() const noexcept { return magnitudes_; }

 private:
  void add_piece(const ConstMatrix<float>& x, const Ops& ops);

  Index width_;
  Index tokens_ = 0;
  std::vector<double> sums_;
  std::vector<double> magnitudes_;
};

inline void InputMoments::add(const ConstMatrix<float>& x, const Ops& ops) {
  require(x.cols() == width_, "InputMoments: found inputs of another width");
  constexpr Index together = 512;
  for (Index first = 0; first < x.rows(); first += together) {
    const Index count = std::min(together, x.rows() - first);
    add_piece({x.data() + first * x.outerStride(), count, width_, Eigen::OuterStride<>(x.outerStride())},
              ops);
  }
}

/// x^T x as a product of weights and inputs that are both x^T: elements of an input are its rows.
inline void InputMoments::add_piece(const ConstMatrix<float>& x, const Ops& ops) {
  const Index count = x.rows();
  const AlignedBuffer turned(width_ * count * 4);     // [width, count]
  const AlignedBuffer products(width_ * width_ * 4);  // [width, width]
  float* const elements = turned.floats();
  auto turn = [&](Index i, int /*worker*/) {
    double sum = 0;
    for (Index t = 0; t < count; ++t) {
      const float value = x.data()[t * x.outerStride() + i];
      elements[i * count + t] = value;
      sum += std::abs(static_cast<double>(value));
    }
    magnitudes_[static_cast<std::size_t>(i)] += sum;
  };
  ops.executor().run(width_, TaskRef(turn));

  OpsScratch scratch(ops, {.tokens = width_, .width = count, .formats = {Format::f32}});
  const ConstMatrix<float> inputs(elements, width_, count, Eigen::OuterStride<>(count));
  const Packed packed = ops.pack(inputs, nullptr, {Format::f32}, scratch);
  const WeightView weights{turned.data(), width_, count, Format::f32};
  const Product product{weights, {products.floats(), width_, width_, Eigen::OuterStride<>(width_)}, false};
  ops.matmul(packed, {&product, 1}, scratch);

  auto sum = [&](Index i, int /*worker*/) {
    const float* const from = products.floats() + i * width_;
    double* const to = sums_.data() + i * width_;
    for (Index j = 0; j < width_; ++j) to[j] += static_cast<double>(from[j]);
  };
  ops.executor().run(width_, TaskRef(sum));
  tokens_ += count;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
