// SPDX-License-Identifier: Apache-2.0
//
// GPTQ (arXiv:2210.17323): rounding that knows what the weights are multiplied with. Columns are rounded one
// after the other, and what rounding a column changes in the outputs, for inputs like those of a calibration
// text, is taken back in the columns that are still to come.
//
// With H = sum x x^T over inputs x, and H^-1 = U^T U for an upper triangle U, an error e in column i of a row
// is made up for by subtracting e / U_ii * U_ij from every later column j. Rows do not depend on each other.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <qwenlite/quantize/round_to_nearest.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Sum of x x^T over the inputs of a product, [width, width], in double.
class InputMoments {
 public:
  explicit InputMoments(Index width) : width_(width), sums_(static_cast<std::size_t>(width * width)) {}

  /// Adds the rows of x [tokens, width]. Throws `bad_argument` for another width.
  void add(const ConstMatrix<float>& x);

  [[nodiscard]] Index width() const noexcept { return width_; }
  [[nodiscard]] Index tokens() const noexcept { return tokens_; }
  /// Row-major; both triangles.
  [[nodiscard]] std::span<const double> sums() const noexcept { return sums_; }

 private:
  Index width_;
  Index tokens_ = 0;
  std::vector<double> sums_;
};

struct GptqOptions {
  /// Added to the diagonal of H, as a part of its mean: keeps rare inputs from deciding.
  double damping = 0.01;
  /// Columns with the largest inputs are rounded first, while there are many others to make up for them.
  /// Scales then follow from the weights as they were; without it, from the weights as they have become.
  bool act_order = false;
  /// Search for the best clipping of each group, as in choose_rounding().
  bool search = false;
};

/// Quantises float32 weights [rows, cols], row-major, for inputs with these moments. Throws `bad_argument`
/// when the widths differ or there were no inputs, `bad_tensor` as round_to_nearest() does.
[[nodiscard]] QuantisedMatrix gptq(std::span<const float> weights, Index rows, const InputMoments& inputs,
                                   const WeightFormat& format, Executor& executor,
                                   const GptqOptions& options = {});

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#include <qwenlite/quantize/gptq-inl.hpp>
