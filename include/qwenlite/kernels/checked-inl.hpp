// SPDX-License-Identifier: Apache-2.0
//
// Implementation of checked.hpp: comparisons, how far a kernel may be from the scalar one, and operations on
// rows. Packing and products, attention and the delta rule have files of their own.
//
// The scalar kernels sum in double, so a difference is the other kernel's rounding. With u = 2^-24, one
// rounding to float32 is off by at most u of the number rounded; a sum of n terms by (longest chain) * u of
// the sum of their absolute values. Chains: rows meet in lanes of four or more, so n / 4 and a few steps for
// the lanes; tiles add term after term, n, or 3 n when inputs come in three parts. No rounding can
// exceed these bounds, and a lost, doubled or misplaced term of ordinary size exceeds them by far.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <mutex>
#include <string>

#include <qwenlite/kernels/ops.hpp>
#include <qwenlite/kernels/scalar.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::checked {

inline constexpr double u = 0x1p-24;
inline constexpr double vanishing = 1e-36;  ///< kernels may take denormal numbers for zero

/// What a sum of n products may be off by, as a part of the sum of their absolute values.
[[nodiscard]] inline double sum_bound(Index n, PackLayout layout) {
  const bool lanes = keeps_f32(layout) || layout == PackLayout::rows_int8 ||
                     layout == PackLayout::rows_bf16 || layout == PackLayout::blocks_bf16;
  const Index chain = lanes ? n / 4 : rounds_to_bf16(layout) ? n : 3 * n;
  return static_cast<double>(chain + 8) * u;
}

/// What an RMS norm of n numbers may be off by, relative to each result: the mean is a sum of positive
/// terms, and its root, the division and two products round once each.
[[nodiscard]] inline double norm_bound(Index n) {
  return static_cast<double>(n / 4 + 16) * u;
}

/// `bound` of a number's size, and what may vanish.
[[nodiscard]] inline float relative(double bound, float number) {
  return static_cast<float>(bound * std::abs(static_cast<double>(number)) + vanishing);
}

/// Two finite numbers within `slack`, or none: what becomes of infinities depends on the order of sums.
[[nodiscard]] inline bool agree(double found, double expected, double slack) {
  if (std::isfinite(found) && std::isfinite(expected)) return !(std::abs(found - expected) > slack);
  return !std::isfinite(found) && !std::isfinite(expected);
}

/// One comparison: memory for the threads that take part, and the first number that differs, counted over the
/// output.
class Comparison {
 public:
  /// `floats` of memory for each worker.
  Comparison(const Ops& ops, Index floats)
      : ops_(ops), each_(round_up(floats, 16)), memory_(each_ * ops.executor().concurrency() * 4) {}

  [[nodiscard]] float* memory(int worker) const noexcept { return memory_.floats() + worker * each_; }

  /// Calls compare(unit, worker) for every unit.
  void run(Index units, TaskRef compare) const { ops_.executor().run(units, compare); }

  void judge(Index row, Index column, double found, double expected, double slack);

  /// `count` numbers of a row, from `column` on; slack as float.
  void judge(Index row, Index column, const float* found, const float* expected_and_slack, Index count) {
    for (Index i = 0; i < count; ++i) {
      judge(row, column + i, static_cast<double>(found[i]), static_cast<double>(expected_and_slack[i]),
            static_cast<double>(expected_and_slack[count + i]));
    }
  }

  /// Throws what was found, if anything: "WHAT (ISA): token T, COLUMN C: found F, expected E ...". Columns of
  /// heads are told apart by `head_dim`.
  void report(const MessageText& what, const char* column_name, const char* rule, Index head_dim = 0) const;

 private:
  const Ops& ops_;
  Index each_;
  AlignedBuffer memory_;
  std::mutex mutex_;  // of what follows
  bool any_ = false;
  Index row_ = 0;
  Index column_ = 0;
  double found_ = 0;
  double expected_ = 0;
  double slack_ = 0;
};

inline void Comparison::judge(Index row, Index column, double found, double expected, double slack) {
  if (agree(found, expected, slack)) return;
  const std::scoped_lock lock(mutex_);
  if (any_ && (row_ < row || (row_ == row && column_ < column))) return;
  any_ = true;
  row_ = row;
  column_ = column;
  found_ = found;
  expected_ = expected;
  slack_ = slack;
}

[[nodiscard]] inline std::string text_of(double value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general, 9).ptr;
  return {digits, end};
}

inline void Comparison::report(const MessageText& what, const char* column_name, const char* rule,
                               Index head_dim) const {
  if (!any_) return;
  std::string text = "QWENLITE_CHECK: ";
  what.append_to(text);
  const std::string column = head_dim == 0
                                 ? joined({column_name, column_})
                                 : joined({"head ", column_ / head_dim, ", dimension ", column_ % head_dim});
  throw Error(
      ErrorCode::numeric,
      {text, " (", ops_.table().name, " kernels, ", name_of(ops_.precision()), " precision): token ", row_,
       ", ", column},
      text_of(found_),
      {text_of(expected_), " as the scalar kernel has it, within ", text_of(slack_), " (", rule, ")"});
}

/// The numbers of a matrix, row after row.
[[nodiscard]] inline AlignedBuffer copied(const ConstMatrix<float>& m) {
  AlignedBuffer values(m.size() * 4);
  for (Index t = 0; t < m.rows(); ++t) {
    std::copy_n(m.data() + t * m.outerStride(), m.cols(), values.floats() + t * m.cols());
  }
  return values;
}
[[nodiscard]] inline ConstMatrix<float> unwritable(const Matrix<float>& m) {
  return {m.data(), m.rows(), m.cols(), Eigen::OuterStride<>(m.outerStride())};
}

// ------------------------------------------------------------------------------------ row by row

/// Compares rows of `out`: expected(t, worker) puts the row, and after it the slack of each number, into the
/// worker's memory.
inline void compare_rows(Comparison& comparison, const Matrix<float>& out, TaskRef expected) {
  auto task = [&](Index t, int worker) {
    expected(t, worker);
    comparison.judge(t, 0, out.data() + t * out.outerStride(), comparison.memory(worker), out.cols());
  };
  comparison.run(out.rows(), TaskRef(task));
}

QWENLITE_INLINE void embed(const Ops& plain, const WeightView& table, std::span<const int> tokens,
                           const Matrix<float>& out) {
  plain.embed(table, tokens, out);
  Comparison comparison(plain, 2 * table.cols);  // the slack stays zero
  auto expected = [&](Index t, int worker) {
    float* const row = comparison.memory(worker);
    const Index id = tokens[static_cast<std::size_t>(t)];
    for (Index i = 0; i < table.cols; ++i) row[i] = decode(table, id, i);
  };
  compare_rows(comparison, out, TaskRef(expected));
  comparison.report({"embedding of ", name_of(table.format), " rows of ", table.cols}, "element ",
                    "decoding is exact");
}

QWENLITE_INLINE void rms_norm(const Ops& plain, const ConstMatrix<float>& x, const NormSpec& norm,
                              Matrix<float> out) {
  const AlignedBuffer before = copied(x);  // out may be the same memory
  plain.rms_norm(x, norm, out);
  const Index width = out.cols();
  Comparison comparison(plain, 2 * width);
  auto expected = [&](Index t, int worker) {
    float* const row = comparison.memory(worker);
    scalar::rms_norm(before.floats() + t * width, norm.weight, norm.epsilon, row);
    for (Index i = 0; i < width; ++i) row[width + i] = relative(norm_bound(width), row[i]);
  };
  compare_rows(comparison, out, TaskRef(expected));
  comparison.report({"RMS norm [", out.rows(), ", ", width, "]"}, "element ", "float32 sum of squares");
}

/// Rounding is measured against the length of the pair that is rotated, which the rotation keeps.
QWENLITE_INLINE void norm_and_rotate(const Ops& plain, Matrix<float> x, Index head_dim, const NormSpec& norm,
                                     const Angles& angles) {
  const AlignedBuffer before = copied(unwritable(x));
  plain.norm_and_rotate(x, head_dim, norm, angles);
  const Index width = x.cols();
  const Index half = angles.half;
  Comparison comparison(plain, 2 * width);
  auto expected = [&](Index t, int worker) {
    float* const row = comparison.memory(worker);
    for (Index first = 0; first < width; first += head_dim) {
      scalar::rms_norm(before.floats() + t * width + first, norm.weight, norm.epsilon, row + first);
      scalar::rope(row + first, 2 * half, angles.cos + t * half, angles.sin + t * half);
      for (Index d = 0; d < head_dim; ++d) {
        const Index other = d < half ? d + half : d < 2 * half ? d - half : d;
        const float length = std::hypot(row[first + d], row[first + other]);
        row[width + first + d] = relative(norm_bound(head_dim), length);
      }
    }
  };
  compare_rows(comparison, x, TaskRef(expected));
  comparison.report({"RMS norm and rotary embedding [", x.rows(), ", ", width, "] in heads of ", head_dim},
                    "", "float32 sum of squares and rotation", head_dim);
}

}  // namespace kernels::checked
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#include <qwenlite/kernels/checked_attention-inl.hpp>
#include <qwenlite/kernels/checked_matmul-inl.hpp>
