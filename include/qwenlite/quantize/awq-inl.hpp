// SPDX-License-Identifier: Apache-2.0
//
// Implementation of awq.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include <qwenlite/quantize/awq.hpp>
#include <qwenlite/quantize/throwing_tasks.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace scaling {

/// 0, 1, ... size - 1.
[[nodiscard]] inline std::vector<Index> each(Index size) {
  std::vector<Index> places(static_cast<std::size_t>(size));
  std::iota(places.begin(), places.end(), Index{0});
  return places;
}

/// Heads of an attention layer: column h * head_dim + d is made by row h / (heads / kv_heads) * head_dim + d
/// of v_proj.
template <class Shape>
[[nodiscard]] std::vector<Index> value_rows(const Shape& shape) {
  const Index head_dim = shape.head_dim;
  const Index together = shape.num_attention_heads / shape.num_key_value_heads;
  std::vector<Index> places;
  for (Index c = 0; c < shape.num_attention_heads * head_dim; ++c) {
    places.push_back(c / head_dim / together * head_dim + c % head_dim);
  }
  return places;
}

/// Means of |x|, over all inputs and the columns of one place, spread to the columns again.
[[nodiscard]] inline std::vector<double> magnitudes(const InputMoments& inputs, const AwqFold& fold) {
  std::vector<double> sums(static_cast<std::size_t>(fold.size));
  std::vector<double> counts(static_cast<std::size_t>(fold.size));
  for (std::size_t c = 0; c < fold.places.size(); ++c) {
    const auto place = static_cast<std::size_t>(fold.places[c]);
    sums[place] += inputs.magnitudes()[c];
    counts[place] += static_cast<double>(inputs.tokens());
  }
  std::vector<double> means;
  for (const Index place : fold.places) {
    const auto at = static_cast<std::size_t>(place);
    means.push_back(sums[at] / counts[at]);
  }
  return means;
}

/// Means over rows of |w| as a part of the largest of its group, for each column of matrices side by side,
/// and over the columns of one place.
[[nodiscard]] inline std::vector<double> weight_sizes(std::span<LayerMatrix* const> matrices,
                                                      const AwqFold& fold, Index group) {
  std::vector<double> sizes(static_cast<std::size_t>(fold.size));
  for (const LayerMatrix* matrix : matrices) {
    for (Index r = 0; r < matrix->rows; ++r) {
      const float* const row = matrix->row(r);
      for (Index first = 0; first < matrix->cols; first += group) {
        const Index last = std::min(first + group, matrix->cols);
        float most = 1e-9F;
        for (Index c = first; c < last; ++c) most = std::max(most, std::abs(row[c]));
        for (Index c = first; c < last; ++c) {
          const auto place = static_cast<std::size_t>(fold.places[static_cast<std::size_t>(c)]);
          sizes[place] += static_cast<double>(std::abs(row[c]) / most);
        }
      }
    }
  }
  std::vector<double> spread;
  for (const Index place : fold.places) spread.push_back(sizes[static_cast<std::size_t>(place)]);
  return spread;
}

/// input^exponent / weight^other, such that the largest and the smallest are equally far from 1.
[[nodiscard]] inline std::vector<float> scales_of(const std::vector<double>& inputs, double exponent,
                                                  const std::vector<double>& weights, double other) {
  std::vector<double> scales;
  for (std::size_t c = 0; c < inputs.size(); ++c) {
    scales.push_back(std::pow(std::max(inputs[c], 1e-4), exponent) /
                     std::pow(std::max(weights[c], 1e-4), other));
  }
  const auto [least, most] = std::minmax_element(scales.begin(), scales.end());
  const double middle = std::sqrt(*least * *most);
  std::vector<float> normed;
  for (const double s : scales) normed.push_back(static_cast<float>(s / middle));
  return normed;
}

/// What rounding changes in a row whose elements are scaled before it.
inline void rounding_errors(const float* row, std::span<const float> scales, const WeightFormat& format,
                            float* errors) {
  const auto cols = static_cast<Index>(scales.size());
  const Index group = format.group_of(cols);
  std::vector<float> scaled(scales.size());
  for (std::size_t c = 0; c < scales.size(); ++c) scaled[c] = row[c] * scales[c];
  for (Index first = 0; first < cols; first += group) {
    const auto count = static_cast<std::size_t>(std::min(group, cols - first));
    const std::span<const float> values(scaled.data() + first, count);
    const GroupRounding chosen = choose_rounding(values, format);
    const auto step = static_cast<float>(chosen.scale);
    for (std::size_t i = 0; i < count; ++i) {
      const auto c = static_cast<std::size_t>(first) + i;
      const int u = nearest(values[i], chosen, format.format);
      errors[c] = static_cast<float>(u - chosen.zero) * step / scales[c] - row[c];
    }
  }
}

/// The error of a matrix's outputs when its columns are scaled before rounding.
[[nodiscard]] inline double error_with(const LayerMatrix& matrix, std::span<const float> scales,
                                       const WeightFormat& format, const Ops& ops, OutputError& outputs) {
  constexpr Index together = OutputError::most_rows;
  const AlignedBuffer errors(together * matrix.cols * 4);
  double sum = 0;
  for (Index first = 0; first < matrix.rows; first += together) {
    const Index count = std::min(together, matrix.rows - first);
    const auto task = [&](Index r, int /*worker*/) {
      rounding_errors(matrix.row(first + r), scales, format, errors.floats() + r * matrix.cols);
    };
    run_throwing(ops.executor(), count, task);
    sum += outputs.of({errors.floats(), count, matrix.cols, Eigen::OuterStride<>(matrix.cols)});
  }
  return sum;
}

/// Moments of the elements of one group, as they are when the columns are scaled.
class GroupMoments {
 public:
  GroupMoments(const InputMoments& inputs, const LayerMatrix& matrix, Index first, Index count)
      : count_(count), moments_(static_cast<std::size_t>(count * count)) {
    const Index n = inputs.width();
    const double tokens = static_cast<double>(std::max<Index>(inputs.tokens(), 1));
    for (Index i = 0; i < count; ++i) {
      for (Index j = 0; j < count; ++j) {
        const double scale = static_cast<double>(matrix.column_scale[static_cast<std::size_t>(first + i)]) *
                             static_cast<double>(matrix.column_scale[static_cast<std::size_t>(first + j)]);
        const double sum = inputs.sums()[static_cast<std::size_t>((first + i) * n + first + j)];
        moments_[static_cast<std::size_t>(i * count + j)] = static_cast<float>(sum / tokens / scale);
      }
    }
  }

  /// errors^T H errors.
  [[nodiscard]] float error(const std::vector<float>& errors) const noexcept {
    float sum = 0;
    for (Index i = 0; i < count_; ++i) {
      const float* const row = moments_.data() + i * count_;
      float product = 0;
      for (Index j = 0; j < count_; ++j) product += row[j] * errors[static_cast<std::size_t>(j)];
      sum += product * errors[static_cast<std::size_t>(i)];
    }
    return sum;
  }

 private:
  Index count_;
  std::vector<float> moments_;
};

/// The clipping of a group with the least error.
[[nodiscard]] inline GroupRounding clipped_best(std::span<const float> values, const WeightFormat& format,
                                                const GroupMoments& moments) {
  GroupRounding best;
  float least = 0;
  std::vector<float> clipped(values.size());
  std::vector<float> errors(values.size());
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  for (int percent = 100; percent >= 50; percent -= 5) {
    const float part = static_cast<float>(percent) / 100;
    for (std::size_t i = 0; i < values.size(); ++i) {
      clipped[i] = std::clamp(values[i], std::min(0.0F, *low * part), std::max(0.0F, *high * part));
    }
    const GroupRounding rounding = choose_rounding(clipped, format);
    const auto step = static_cast<float>(rounding.scale);
    for (std::size_t i = 0; i < values.size(); ++i) {
      errors[i] =
          static_cast<float>(nearest(values[i], rounding, format.format) - rounding.zero) * step - values[i];
    }
    const float error = moments.error(errors);
    if (percent < 100 && !(error < least)) continue;
    least = error;
    best = rounding;
  }
  return best;
}

}  // namespace scaling

template <class Shape>
std::vector<AwqFold> awq_folds(const Shape& shape, bool attention, float offset) {
  const Index width = shape.hidden_size;
  const Index gated = shape.intermediate_size;
  std::vector<AwqFold> folds;
  AwqFold mixer_in{
      .source = "input_layernorm.weight",
      .offset = offset,
      .targets = {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
      .others = {},
      .places = scaling::each(width),
      .size = width};
  if (attention) {
    folds.push_back(mixer_in);
    folds.push_back({.source = "self_attn.v_proj.weight",
                     .is_norm = false,
                     .targets = {"self_attn.o_proj.weight"},
                     .others = {},
                     .places = scaling::value_rows(shape),
                     .size = shape.num_key_value_heads * shape.head_dim});
  } else if constexpr (requires { shape.linear_value_head_dim; }) {
    mixer_in.targets = {"linear_attn.in_proj_qkv.weight", "linear_attn.in_proj_z.weight"};
    mixer_in.others = {"linear_attn.in_proj_b.weight", "linear_attn.in_proj_a.weight"};
    folds.push_back(mixer_in);
    AwqFold out{.source = "linear_attn.norm.weight",
                .targets = {"linear_attn.out_proj.weight"},
                .others = {},
                .places = scaling::each(shape.linear_num_value_heads * shape.linear_value_head_dim),
                .size = shape.linear_value_head_dim};
    for (Index& place : out.places) place %= out.size;  // all heads share the norm
    folds.push_back(std::move(out));
  }
  folds.push_back({.source = "post_attention_layernorm.weight",
                   .offset = offset,
                   .targets = {"mlp.gate_proj.weight", "mlp.up_proj.weight"},
                   .others = {},
                   .places = scaling::each(width),
                   .size = width});
  folds.push_back({.source = "mlp.up_proj.weight",
                   .is_norm = false,
                   .targets = {"mlp.down_proj.weight"},
                   .others = {},
                   .places = scaling::each(gated),
                   .size = gated});
  return folds;
}

inline void fold_scales(const AwqFold& fold, std::span<const float> scales, LayerTensors& layer) {
  require(scales.size() == fold.places.size(), "awq: found scales for another number of columns");
  for (const std::string& target : fold.targets) layer.find(target)->scale_columns(scales);
  for (const std::string& other : fold.others) {
    std::vector<float>& elements = layer.others.at(other);
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i] *= scales[i % scales.size()];
  }
  std::vector<float> of_place(static_cast<std::size_t>(fold.size), 1.0F);
  for (std::size_t c = 0; c < scales.size(); ++c) {
    of_place[static_cast<std::size_t>(fold.places[c])] = scales[c];
  }
  if (fold.is_norm) {
    std::vector<float>& norm = layer.others.at(fold.source);
    for (std::size_t i = 0; i < norm.size(); ++i) {
      norm[i] = (norm[i] + fold.offset) / of_place[i] - fold.offset;
    }
    return;
  }
  LayerMatrix& source = *layer.find(fold.source);
  for (Index r = 0; r < fold.size; ++r) source.scale_row(r, 1 / of_place[static_cast<std::size_t>(r)]);
}

inline QuantisedMatrix awq_round(const LayerMatrix& matrix, const InputMoments& inputs,
                                 const WeightFormat& format, Executor& executor) {
  require(matrix.cols == inputs.width(), "awq: found weights of another width than the inputs");
  const Index group = format.group_of(matrix.cols);
  std::vector<scaling::GroupMoments> moments;
  for (Index first = 0; first < matrix.cols; first += group) {
    moments.emplace_back(inputs, matrix, first, std::min(group, matrix.cols - first));
  }
  QuantisedMatrix out(format, matrix.rows, matrix.cols);
  std::atomic<bool> finite{true};
  const auto task = [&](Index r, int /*worker*/) {
    std::vector<std::uint8_t> numbers(static_cast<std::size_t>(round_up(matrix.cols, quantised_block)));
    int zero = 0;
    for (Index g = 0; g < std::ssize(moments); ++g) {
      const auto count = static_cast<std::size_t>(std::min(group, matrix.cols - g * group));
      const std::span<const float> values(matrix.row(r) + g * group, count);
      const GroupRounding chosen =
          scaling::clipped_best(values, format, moments[static_cast<std::size_t>(g)]);
      for (std::size_t i = 0; i < count; ++i) {
        if (!std::isfinite(values[i])) finite = false;
        numbers[static_cast<std::size_t>(g * group) + i] =
            static_cast<std::uint8_t>(nearest(values[i], chosen, format.format));
      }
      if (!std::isfinite(static_cast<float>(chosen.scale))) finite = false;
      out.set_group(r, g, chosen.scale, chosen.zero);
      zero = chosen.zero;
    }
    std::fill(numbers.begin() + matrix.cols, numbers.end(), static_cast<std::uint8_t>(zero));
    out.set_row(r, numbers.data());
  };
  run_throwing(executor, matrix.rows, task);
  if (!finite) refuse_to_quantise(format);
  return out;
}

inline std::vector<float> awq_scales(std::span<LayerMatrix* const> matrices, const InputMoments& inputs,
                                     const AwqFold& fold, const WeightFormat& format, const Ops& ops) {
  require(std::ssize(fold.places) == inputs.width(), "awq: found inputs of another width than the fold's");
  constexpr int steps = 20;
  const std::vector<double> magnitudes = scaling::magnitudes(inputs, fold);
  const std::vector<double> sizes = scaling::weight_sizes(matrices, fold, format.group_of(inputs.width()));
  OutputError outputs(inputs, ops);
  std::vector<float> best;
  double least = 0;
  for (int step = 0; step < 2 * steps; ++step) {
    const double exponent = static_cast<double>(step / 2) / steps;
    const double other = step % 2 == 0 ? 0 : 1 - exponent;
    std::vector<float> scales = scaling::scales_of(magnitudes, exponent, sizes, other);
    double error = 0;
    for (const LayerMatrix* matrix : matrices) {
      error += scaling::error_with(*matrix, scales, format, ops, outputs);
    }
    if (!best.empty() && !(error < least)) continue;
    least = error;
    best = std::move(scales);
  }
  return best;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
