// SPDX-License-Identifier: Apache-2.0
//
// GPTQ (arXiv:2210.17323): rounding that knows what the weights are multiplied with. Columns are rounded one
// after the other, and what rounding a column changes in the outputs, for inputs like those of a calibration
// text, is taken back in the columns that are still to come.
//
// With H = sum x x^T over inputs x, and H^-1 = U^T U for an upper triangle U, an error e in column i of a row
// is made up for by subtracting e / U_ii * U_ij from every later column j. Rows do not depend on each other.
#pragma once

#include <span>
#include <vector>

#include <qwenlite/quantize/input_moments.hpp>
#include <qwenlite/quantize/round_to_nearest.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

struct GptqOptions {
  /// Added to the diagonal of H, as a part of its mean: keeps rare inputs from deciding.
  double damping = 0.01;
  /// Columns with the largest inputs are rounded first, while there are many others to make up for them.
  /// Scales then follow from the weights as they were; without it, from the weights as they have become.
  bool act_order = false;
  /// Search for the best clipping of each group, as in choose_rounding().
  bool search = false;
};

/// What GPTQ makes of the moments of inputs, once for all matrices that share them: the order of columns, and
/// the factor U. Throws `bad_argument` when there were no inputs, `numeric` when they are not finite or all
/// zero, or the damping is too small.
class GptqInputs {
 public:
  GptqInputs(const InputMoments& inputs, Executor& executor, const GptqOptions& options = {});

  [[nodiscard]] Index width() const noexcept { return static_cast<Index>(order_.size()); }
  [[nodiscard]] const GptqOptions& options() const noexcept { return options_; }
  /// Columns in the order in which they are rounded.
  [[nodiscard]] const std::vector<Index>& order() const noexcept { return order_; }
  /// U_ij at [(n - 1 - i) * n + n - 1 - j], i and j counted in that order.
  [[nodiscard]] std::span<const double> factor() const noexcept { return factor_; }

 private:
  GptqOptions options_;
  std::vector<Index> order_;
  std::vector<double> factor_;
};

/// Quantises float32 weights [rows, cols], row-major, for such inputs. Throws `bad_argument` when the widths
/// differ, `bad_tensor` as round_to_nearest() does.
[[nodiscard]] QuantisedMatrix gptq(std::span<const float> weights, Index rows, const GptqInputs& inputs,
                                   const WeightFormat& format, Executor& executor);

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#include <qwenlite/quantize/gptq-inl.hpp>
