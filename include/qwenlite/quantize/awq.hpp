// SPDX-License-Identifier: Apache-2.0
//
// AWQ (arXiv:2306.00978): columns that meet large inputs are made larger before they are rounded, and so take
// a smaller part of their group's error; what makes the inputs is divided by as much. The network computes
// the same, but for rounding.
//
// How much is s = mean(|x|)^a, or that over the size of the column's weights to the power 1 - a, normed, for
// the a of a grid whose rounded weights give the least error of the outputs for the inputs of a calibration
// text; a = 0 alone is rounding to nearest. Several matrices that share an input share its scales. What they
// are folded into (AwqFold) is a norm, or a projection's rows. Then each group is clipped as far as that
// makes its part of the outputs better.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/quantize/layer_matrices.hpp>
#include <qwenlite/quantize/output_error.hpp>
#include <qwenlite/quantize/round_to_nearest.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Products whose columns can be scaled, and what is divided by the scales in return. Names are without the
/// layer's prefix.
struct AwqFold {
  std::string source;  ///< a norm's weight, or a matrix whose rows make the inputs
  bool is_norm = true;
  float offset = 0;                  ///< of the norm: what is added to each stored element
  std::vector<std::string> targets;  ///< quantised matrices [.., width]
  std::vector<std::string> others;   ///< matrices with the same input that stay as they are, but for scales
  std::vector<Index> places;         ///< for each column, the element or row of the source that makes it
  Index size = 0;                    ///< elements or rows of the source
};

/// The folds of a layer of `shape` with attention, or with the gated delta rule; norm weights count as
/// `offset` + weight.
template <class Shape>
[[nodiscard]] std::vector<AwqFold> awq_folds(const Shape& shape, bool attention, float offset);

/// A layer under way. Names are without its prefix.
struct LayerTensors {
  std::vector<LayerMatrix> matrices;
  std::map<std::string, std::vector<float>> others;  ///< norms and small matrices that folds change

  /// The matrix whose name ends so; null if there is none.
  [[nodiscard]] LayerMatrix* find(std::string_view name) noexcept {
    for (LayerMatrix& matrix : matrices) {
      if (matrix.name.ends_with(name)) return &matrix;
    }
    return nullptr;
  }
};

/// Multiplies the columns of what a fold names with `scales`, and divides what makes the inputs by as much.
void fold_scales(const AwqFold& fold, std::span<const float> scales, LayerTensors& layer);

/// Rounds a matrix whose columns were scaled: each group with the clipping of its range that gives the least
/// error of its part of the outputs, for inputs with these moments (as they are without the scales). Throws
/// `bad_tensor` as round_to_nearest() does.
[[nodiscard]] QuantisedMatrix awq_round(const LayerMatrix& matrix, const InputMoments& inputs,
                                        const WeightFormat& format, Executor& executor);

/// The scales of the columns [width] with the least error of the outputs of all `matrices`, when they are
/// rounded to `format`, for inputs with these moments. Columns with one place have one scale.
[[nodiscard]] std::vector<float> awq_scales(std::span<LayerMatrix* const> matrices,
                                            const InputMoments& inputs, const AwqFold& fold,
                                            const WeightFormat& format, const Ops& ops);

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#include <qwenlite/quantize/awq-inl.hpp>
