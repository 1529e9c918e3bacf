// SPDX-License-Identifier: Apache-2.0
//
// What layers call. Each operation checks its shapes, cuts the work into tasks whose boundaries come from
// the shapes alone, and runs the kernels of the chosen instruction set on them. Because a kernel's output
// bits do not depend on its neighbours either, results are the same for any number of threads.
//
// Activations are [tokens, width] float32. A matrix product takes them packed: pack() normalises (if asked)
// and lays them out once, and every product of the same input shares the result.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include <qwenlite/kernels/checked.hpp>
#include <qwenlite/kernels/ops_arguments.hpp>
#include <qwenlite/kernels/threads.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

class OpsScratch;

/// The operations of one model: kernels, threads and precision. Cheap to copy.
///
/// With `checked`, every result is compared with that of the scalar kernels, and the first number that
/// differs by more than rounding can explain ends the operation with an Error (`numeric`) that names it; see
/// checked.hpp. This is for finding faults: it is ten times slower or worse, and allocates.
class Ops {
 public:
  Ops(const kernels::KernelTable& table, Executor& executor, Precision precision, bool checked = false)
      : table_(&table), executor_(&executor), precision_(precision), checked_(checked) {}

  [[nodiscard]] const kernels::KernelTable& table() const noexcept { return *table_; }
  [[nodiscard]] Executor& executor() const noexcept { return *executor_; }
  [[nodiscard]] Precision precision() const noexcept { return precision_; }
  [[nodiscard]] bool checked() const noexcept { return checked_; }

  /// The same with another precision, or without checks.
  [[nodiscard]] Ops with(Precision precision) const noexcept {
    return {*table_, *executor_, precision, checked_};
  }
  [[nodiscard]] Ops unchecked() const noexcept { return {*table_, *executor_, precision_, false}; }

  /// The layout in which products with weights of a format take their input.
  [[nodiscard]] kernels::PackLayout layout(Format format) const { return table_->layout(format, precision_); }

  /// Packs x [tokens, width] for products with weights of `formats`; with a norm, packs its result.
  /// Valid until the next pack() on the same scratch, and while x is.
  [[nodiscard]] Packed pack(ConstMatrix<float> x, const NormSpec* norm, FormatSet formats,
                            OpsScratch& scratch) const;

  /// Several products of one packed input in a single parallel pass.
  void matmul(const Packed& x, std::span<const Product> products, OpsScratch& scratch) const;

  /// out[tokens, intermediate] = silu(gate x) * (up x), in one pass (SwiGLU).
  void gated_matmul(const Packed& x, const WeightView& gate, const WeightView& up, Matrix<float> out,
                    OpsScratch& scratch) const;

  /// Decodes rows `tokens[i]` of a stored matrix into out[i].
  void embed(const WeightView& table, std::span<const int> tokens, Matrix<float> out) const;

  /// RMS norm over each head of x [tokens, heads * head_dim], then rotary embedding of the first
  /// 2 * angles.half dimensions of each. In place.
  void norm_and_rotate(Matrix<float> x, Index head_dim, const NormSpec& norm, const Angles& angles) const;

  /// Queries of a projection that gives each head's query and then its gate: x is
  /// [tokens, heads * 2 * head_dim], out [tokens, heads * head_dim].
  void take_queries(ConstMatrix<float> x, Index head_dim, Matrix<float> out) const;

  /// out *= sigmoid(gates of the same x).
  void apply_gates(ConstMatrix<float> x, Index head_dim, Matrix<float> out) const;

  /// out[t] = RMS norm of x[t].
  void rms_norm(ConstMatrix<float> x, const NormSpec& norm, Matrix<float> out) const;

  /// Causal grouped-query attention of all pieces in one parallel pass. q and out are
  /// [tokens, num_heads * head_dim]; query head h reads key/value head h / (num_heads / num_kv_heads).
  template <class Kv>
  void attend(std::span<const Piece<Kv>> pieces, const AttentionShape& shape, ConstMatrix<float> q,
              Matrix<float> out, OpsScratch& scratch) const;

 private:
  void matmul_strip(const Packed& x, const WeightView& w, Index first_row, Index rows, float* out,
                    Index out_stride, bool accumulate, std::byte* scratch) const;

  const kernels::KernelTable* table_;
  Executor* executor_;
  Precision precision_;
  bool checked_;
};

/// Memory that operations need while they run. One per session or batch, used by one caller at a time;
/// sized at creation, so that a step allocates nothing.
class OpsScratch {
 public:
  OpsScratch(const Ops& ops, const OpsLimits& limits);

  [[nodiscard]] const OpsLimits& limits() const noexcept { return limits_; }
  [[nodiscard]] Index bytes() const noexcept { return workers_.bytes() + partials_.bytes() + packed_bytes_; }

 private:
  friend class Ops;
  [[nodiscard]] std::byte* worker(int id) const noexcept { return workers_.data() + id * worker_bytes_; }

  OpsLimits limits_;
  std::array<AlignedBuffer, kernels::layout_count> packed_;  ///< by PackLayout
  Index packed_bytes_ = 0;
  AlignedBuffer workers_;   ///< [concurrency][worker_bytes_]
  AlignedBuffer partials_;  ///< partial attention results, one for each task that covers one span
  Index worker_bytes_ = 0;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#include <qwenlite/kernels/ops_attention.hpp>

#ifndef QWENLITE_COMPILED
#include <qwenlite/kernels/checked-inl.hpp>
#include <qwenlite/kernels/ops_matmul-inl.hpp>
#endif
