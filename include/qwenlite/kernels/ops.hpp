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
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include <qwenlite/kernels/table.hpp>
#include <qwenlite/kernels/threads.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Memory aligned to 64 bytes, zeroed, never resized.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(Index bytes)
      : data_(bytes > 0 ? static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), alignment))
                        : nullptr),
        bytes_(bytes) {
    if (bytes > 0) std::memset(data_.get(), 0, static_cast<std::size_t>(bytes));
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] float* floats() const noexcept { return reinterpret_cast<float*>(data_.get()); }
  [[nodiscard]] Index bytes() const noexcept { return data_ != nullptr ? bytes_ : 0; }

 private:
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(std::byte* p) const noexcept { ::operator delete(p, alignment); }
  };
  std::unique_ptr<std::byte, Free> data_;
  Index bytes_ = 0;
};

/// A set of weight formats, one bit each.
class FormatSet {
 public:
  constexpr FormatSet() = default;
  constexpr FormatSet(std::initializer_list<Format> formats) {
    for (const Format f : formats) insert(f);
  }
  constexpr void insert(Format f) noexcept { bits_ |= 1U << static_cast<unsigned>(f); }
  [[nodiscard]] constexpr bool contains(Format f) const noexcept {
    return (bits_ >> static_cast<unsigned>(f) & 1U) != 0;
  }

 private:
  unsigned bits_ = 0;
};

/// Activations ready for matrix products, in every layout that the products to come will need.
struct Packed {
  std::array<const std::byte*, kernels::layout_count> data{};  ///< by PackLayout; null where not packed
  Index columns = 0;                                           ///< tokens
  Index in = 0;
};

/// RMS normalisation: x * rsqrt(mean(x^2) + epsilon) * weight.
struct NormSpec {
  VectorView weight{};  ///< [width]
  float epsilon = 1e-6F;
};

/// One product of a packed input: out[tokens, weight.rows] = weight * x, or += with `accumulate`.
struct Product {
  WeightView weight{};
  Matrix<float> out;
  bool accumulate = false;
};

/// A run of consecutive tokens of one sequence inside a batch: rows [row, row + count) of the activations
/// stand at positions [position, position + count) of the sequence, whose keys and values `cache` holds
/// (any class with `KvBlock block(layer, kv_head, index) const`).
template <class Kv>
struct Piece {
  const Kv* cache = nullptr;
  Index row = 0;
  Index count = 0;
  Index position = 0;
};

/// Cosine and sine of the rotary angles of each token: [tokens, half] each, half = rotary_dim / 2.
struct Angles {
  const float* cos = nullptr;
  const float* sin = nullptr;
  Index half = 0;
};

/// The sizes of one attention call.
struct AttentionShape {
  Index layer = 0;
  Index num_heads = 0;
  Index num_kv_heads = 0;
  Index head_dim = 0;
  float scale = 1;
};

/// Sizes that bound the scratch memory of a run of operations.
struct OpsLimits {
  Index tokens = 1;                                           ///< most activation rows in one call
  Index width = 1;                                            ///< widest input of a product
  Index head_dim = 1;                                         ///< of attention
  Index num_heads = 1;                                        ///< of attention
  Index num_kv_heads = 1;                                     ///< of attention
  Index pieces = 1;                                           ///< most sequences in one attention call
  Index max_tokens = 1;                                       ///< longest sequence
  FormatSet formats{Format::bf16, Format::f16, Format::f32};  ///< of the weights
};

class OpsScratch;

/// The operations of one model: kernels, threads and precision. Cheap to copy.
class Ops {
 public:
  Ops(const kernels::KernelTable& table, Executor& executor, Precision precision)
      : table_(&table), executor_(&executor), precision_(precision) {}

  [[nodiscard]] const kernels::KernelTable& table() const noexcept { return *table_; }
  [[nodiscard]] Executor& executor() const noexcept { return *executor_; }
  [[nodiscard]] Precision precision() const noexcept { return precision_; }

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

  /// out[t] = RMS norm of x[t].
  void rms_norm(ConstMatrix<float> x, const NormSpec& norm, Matrix<float> out) const;

  /// Causal grouped-query attention of all pieces in one parallel pass. q and out are
  /// [tokens, num_heads * head_dim]; query head h reads key/value head h / (num_heads / num_kv_heads).
  template <class Kv>
  void attend(std::span<const Piece<Kv>> pieces, const AttentionShape& shape, ConstMatrix<float> q,
              Matrix<float> out, OpsScratch& scratch) const;

 private:
  [[nodiscard]] kernels::PackLayout layout(Format format) const { return table_->layout(format, precision_); }
  void matmul_strip(const Packed& x, const WeightView& w, Index first_row, Index rows, float* out,
                    Index out_stride, bool accumulate, std::byte* scratch) const;

  const kernels::KernelTable* table_;
  Executor* executor_;
  Precision precision_;
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
#include <qwenlite/kernels/ops_matmul.hpp>
