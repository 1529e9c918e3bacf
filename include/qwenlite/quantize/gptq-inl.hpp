// SPDX-License-Identifier: Apache-2.0
//
// Implementation of gptq.hpp.
#pragma once

#include <Eigen/Cholesky>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include <qwenlite/quantize/gptq.hpp>
#include <qwenlite/quantize/throwing_tasks.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace rounding {

/// The columns in the order in which they are rounded.
[[nodiscard]] inline std::vector<Index> column_order(const InputMoments& inputs, bool act_order) {
  const Index n = inputs.width();
  std::vector<Index> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), Index{0});
  if (!act_order) return order;
  const auto size = [&](Index i) { return inputs.sums()[static_cast<std::size_t>(i * n + i)]; };
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return size(a) > size(b); });
  return order;
}

using SquareMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// The inverse of a lower triangle [n, n], row-major, in blocks of columns: above its diagonal a block is
/// zero.
[[nodiscard]] inline std::vector<double> inverted(std::vector<double>& lower, Index n, Executor& executor) {
  std::vector<double> inverse(static_cast<std::size_t>(n * n), 0.0);
  Eigen::Map<SquareMatrix> from(lower.data(), n, n);
  Eigen::Map<SquareMatrix> to(inverse.data(), n, n);
  constexpr Index block = 64;
  const auto task = [&](Index i, int /*worker*/) {
    const Index first = i * block;
    const Index rest = n - first;
    auto columns = to.block(first, first, rest, std::min(block, rest));
    columns.diagonal().setOnes();
    from.bottomRightCorner(rest, rest).triangularView<Eigen::Lower>().solveInPlace(columns);
  };
  run_throwing(executor, ceil_div(n, block), task);
  return inverse;
}

/// U with (H + damping)^-1 = U^T U, columns in `order`: the inverse of the upper R with H = R R^T. R is what
/// the Cholesky decomposition of H gives when rows and columns are taken from the last to the first, and in
/// that order, row-major, the result stays: U_ij is at [(n - 1 - i) * n + n - 1 - j].
[[nodiscard]] inline std::vector<double> reversed_factor(const InputMoments& inputs, double damping,
                                                         const std::vector<Index>& order,
                                                         Executor& executor) {
  const Index n = inputs.width();
  const std::span<const double> sums = inputs.sums();
  double trace = 0;
  for (Index i = 0; i < n; ++i) trace += sums[static_cast<std::size_t>(i * n + i)];
  require(inputs.tokens() > 0, "gptq: found no inputs to round for");
  if (!std::isfinite(trace)) throw Error(ErrorCode::numeric, "gptq: found inputs that are not finite");
  if (trace == 0) {
    throw Error(ErrorCode::numeric, "gptq", "inputs that are all zero", "some that are not, to round for");
  }
  std::vector<double> h(static_cast<std::size_t>(n * n));
  for (Index a = 0; a < n; ++a) {
    const Index row = order[static_cast<std::size_t>(n - 1 - a)];
    for (Index b = 0; b < n; ++b) {
      const Index column = order[static_cast<std::size_t>(n - 1 - b)];
      h[static_cast<std::size_t>(a * n + b)] = sums[static_cast<std::size_t>(row * n + column)];
    }
    h[static_cast<std::size_t>(a * n + a)] += damping * trace / static_cast<double>(n);
  }
  Eigen::Map<SquareMatrix> matrix(h.data(), n, n);
  const Eigen::LLT<Eigen::Ref<SquareMatrix>, Eigen::Lower> factor(matrix);  // in place
  if (factor.info() != Eigen::Success) {
    throw Error(ErrorCode::numeric,
                "gptq: the moments of the inputs are not positive definite; more damping helps");
  }
  return inverted(h, n, executor);
}

/// One row under way.
class GptqRow {
 public:
  GptqRow(std::span<const float> weights, const std::vector<Index>& order, const WeightFormat& format,
          const GptqOptions& options)
      : format_(format), options_(options), group_(format.group_of(std::ssize(weights))), order_(order) {
    const Index n = std::ssize(weights);
    groups_.resize(static_cast<std::size_t>(ceil_div(n, group_)));
    numbers_.resize(static_cast<std::size_t>(round_up(n, quantised_block)));
    for (const Index column : order)
      w_.push_back(static_cast<double>(weights[static_cast<std::size_t>(column)]));
    if (!options.act_order) return;
    for (Index g = 0; g < std::ssize(groups_); ++g) {
      const Index first = g * group_;
      choose(g, weights.subspan(static_cast<std::size_t>(first),
                                static_cast<std::size_t>(std::min(group_, n - first))));
    }
  }

  /// Rounds the column that is i-th in order; `factors` are U_ij for j from i on, backwards in memory.
  void round_column(Index i, const double* factors) {
    const Index column = order_[static_cast<std::size_t>(i)];
    if (!options_.act_order && i % group_ == 0) choose_from_current(i);
    const GroupRounding& group = groups_[static_cast<std::size_t>(column / group_)];
    double& w = w_[static_cast<std::size_t>(i)];
    const int u = nearest(static_cast<float>(w), group, format_.format);
    numbers_[static_cast<std::size_t>(column)] = static_cast<std::uint8_t>(u);
    const double error =
        (w - (u - group.zero) * static_cast<double>(static_cast<float>(group.scale))) / factors[0];
    for (Index j = i; j < std::ssize(w_); ++j) w_[static_cast<std::size_t>(j)] -= error * factors[i - j];
  }

  /// False when a weight or a scale is not finite.
  [[nodiscard]] bool store(Index r, const QuantisedMatrix& out) {
    bool finite = true;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      finite = finite && std::isfinite(static_cast<float>(groups_[g].scale));
      out.set_group(r, static_cast<Index>(g), groups_[g].scale, groups_[g].zero);
    }
    for (const double w : w_) finite = finite && std::isfinite(w);
    std::fill(numbers_.begin() + std::ssize(w_), numbers_.end(),
              static_cast<std::uint8_t>(groups_.back().zero));
    out.set_row(r, numbers_.data());
    return finite;
  }

 private:
  void choose(Index g, std::span<const float> values) {
    groups_[static_cast<std::size_t>(g)] = choose_rounding(values, format_, options_.search);
  }
  void choose_from_current(Index i) {
    const Index last = std::min(i + group_, std::ssize(w_));
    std::vector<float> values;
    for (Index j = i; j < last; ++j) values.push_back(static_cast<float>(w_[static_cast<std::size_t>(j)]));
    choose(i / group_, values);
  }

  WeightFormat format_;
  GptqOptions options_;
  Index group_;
  const std::vector<Index>& order_;
  std::vector<double> w_;  // in the order of rounding
  std::vector<GroupRounding> groups_;
  std::vector<std::uint8_t> numbers_;
};

}  // namespace rounding

inline GptqInputs::GptqInputs(const InputMoments& inputs, Executor& executor, const GptqOptions& options)
    : options_(options),
      order_(rounding::column_order(inputs, options.act_order)),
      factor_(rounding::reversed_factor(inputs, options.damping, order_, executor)) {}

inline QuantisedMatrix gptq(std::span<const float> weights, Index rows, const GptqInputs& inputs,
                            const WeightFormat& format, Executor& executor) {
  const Index n = inputs.width();
  require(std::ssize(weights) == rows * n, "gptq: found weights of another width than the inputs");
  QuantisedMatrix out(format, rows, n);
  std::atomic<bool> finite{true};
  constexpr Index strip = 8;  // rows that share a pass over the factor
  const auto task = [&](Index i, int /*worker*/) {
    std::vector<rounding::GptqRow> part;
    const Index last = std::min(rows, (i + 1) * strip);
    for (Index r = i * strip; r < last; ++r) {
      part.emplace_back(weights.subspan(static_cast<std::size_t>(r * n), static_cast<std::size_t>(n)),
                        inputs.order(), format, inputs.options());
    }
    for (Index c = 0; c < n; ++c) {
      const double* diagonal = inputs.factor().data() + (n - 1 - c) * (n + 1);
      for (rounding::GptqRow& row : part) row.round_column(c, diagonal);
    }
    for (Index r = i * strip; r < last; ++r) {
      if (!part[static_cast<std::size_t>(r - i * strip)].store(r, out)) finite = false;
    }
  };
  run_throwing(executor, ceil_div(rows, strip), task);
  if (!finite) refuse_to_quantise(format);
  return out;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
