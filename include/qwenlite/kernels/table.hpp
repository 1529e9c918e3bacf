// SPDX-License-Identifier: Apache-2.0
//
// KernelTable: the arithmetic of one instruction set as a row of function pointers, and the argument
// structs they take. ops.hpp is the only caller; it checks shapes and splits work into tasks.
//
// Every kernel keeps one rule: the bits of one output depend on its inputs and sizes alone, never on
// how many other outputs (columns, rows, queries) are computed in the same call. In attention that holds for
// finite keys and values: a masked probability is a zero, and zero times NaN is NaN.
#pragma once

#include <qwenlite/kernels/delta.hpp>
#include <qwenlite/kernels/formats.hpp>
#include <qwenlite/kernels/int8_activations.hpp>
#include <qwenlite/kernels/quantised.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels {

/// How packed activations lie in memory. `columns` are tokens, `in` is the inner dimension.
enum class PackLayout : std::uint8_t {
  rows_f32,      ///< [columns][in rounded up to 32] float32, the tail zero
  tiles_bf16,    ///< [columns/16][in/32][16 pairs][16 columns][2] bf16: right operands of tile products
  tiles_bf16x3,  ///< [columns/16][in/32][3 parts][16][16][2]: high, middle, low part of each float32
  pairs_bf16,    ///< [columns/2][in rounded up to 32, /4][2 columns][4] bf16: two columns side by side
  split_f32,     ///< as rows_f32, but of each 32 elements the even ones come first, then the odd ones
  rows_int8,     ///< column after column, as int8_activations.hpp describes
  rows_bf16,     ///< [columns][in rounded up to 32] bf16, the tail zero
  blocks_bf16,   ///< rows_bf16 rounded up to 128, each 128 elements as [4 parts][16 lanes][2 halves]
};
inline constexpr Index layout_count = 8;

/// Whether products with weights of a format take activations in rows_int8: the same on every table.
[[nodiscard]] constexpr bool takes_int8(Format format, Precision precision) noexcept {
  return precision == Precision::int8 && (format == Format::int8 || format == Format::int4);
}

/// Place in PackLayout::blocks_bf16 of element i of a block: elements 16 p + l and 64 + 16 p + l of a block
/// are neighbours, as they are in the words of a block of int4 shifted by 4 p bits.
[[nodiscard]] constexpr Index place_in_block(Index i) noexcept {
  return i % 64 / 16 * 32 + i % 16 * 2 + i / 64;
}

/// Whether activations are rounded to bf16 on the way into it.
[[nodiscard]] constexpr bool rounds_to_bf16(PackLayout layout) noexcept {
  return layout == PackLayout::tiles_bf16 || layout == PackLayout::pairs_bf16 ||
         layout == PackLayout::rows_bf16 || layout == PackLayout::blocks_bf16;
}

/// Whether activations keep their float32 bits, in rows.
[[nodiscard]] constexpr bool keeps_f32(PackLayout layout) noexcept {
  return layout == PackLayout::rows_f32 || layout == PackLayout::split_f32;
}

[[nodiscard]] constexpr Index packed_bytes(PackLayout layout, Index columns, Index in) noexcept {
  if (keeps_f32(layout)) return columns * round_up(in, 32) * 4;
  if (layout == PackLayout::rows_int8) return columns * int8_column_bytes(in);
  if (layout == PackLayout::rows_bf16) return columns * round_up(in, 32) * 2;
  if (layout == PackLayout::blocks_bf16) return columns * round_up(in, quantised_block) * 2;
  if (layout == PackLayout::pairs_bf16) return round_up(columns, 2) * round_up(in, 32) * 2;
  const Index tiles = ceil_div(columns, 16) * ceil_div(in, 32) * 1024;
  return layout == PackLayout::tiles_bf16 ? tiles : tiles * 3;
}

/// Packs columns [first, last) of x; `first` is a multiple of 16. With a norm weight each column is
/// RMS-normalised on the way: x * rsqrt(mean(x^2) + epsilon) * (weight + its offset). Columns that only pad
/// the last group of 16 become zero.
struct PackArgs {
  const float* x = nullptr;  ///< [columns, in], row stride x_stride (elements)
  Index x_stride = 0;
  Index in = 0;
  Index first = 0;
  Index last = 0;
  VectorView norm_weight{};  ///< [in], or data == nullptr for none
  float epsilon = 0;
  PackLayout layout = PackLayout::rows_f32;
  std::byte* out = nullptr;  ///< start of the whole packed buffer (64-byte aligned)
};

/// One strip of a product: out[t][r] (=|+=) sum_i weights[r][i] * x[t][i] for `rows` rows and all columns.
struct MatmulArgs {
  const std::byte* weights = nullptr;  ///< first row of the strip, as stored, any alignment
  Format format = Format::bf16;
  Index row_bytes = 0;
  GroupPlanes planes{};  ///< of a quantised format, from the first row of the strip on
  Index rows = 0;
  Index in = 0;
  const std::byte* packed = nullptr;  ///< activations in layout(format, precision)
  PackLayout layout = PackLayout::rows_f32;
  Index columns = 0;
  float* out = nullptr;  ///< out[t * out_stride + r]
  Index out_stride = 0;
  bool accumulate = false;       ///< add the finished sum to out (residual), else store it
  bool one_stream = false;       ///< one column: may read row after row and leave prefetching to the CPU
  std::byte* scratch = nullptr;  ///< as many bytes as the kernel's function of its name says, 64-byte aligned

  /// The strip as a matrix of its own.
  [[nodiscard]] WeightView strip() const noexcept { return {weights, rows, in, format, planes}; }
};

/// Attention of `rows` query rows over the blocks of one span, as a partial result:
/// max[r] = m, sum[r] = sum_j exp(s_rj - m), out[r] = sum_j exp(s_rj - m) v_j, where
/// s_rj = scale * (q_r . k_j) over keys at positions <= last[r]. Blocks go in ascending order with the
/// online softmax; a block with no visible key for a row leaves that row untouched (initially
/// max = -inf, sum = 0, out = 0). Keys and values of int4 are stored rotated: the kernel turns its copies of
/// the queries alike, and the outputs back.
struct SpanArgs {
  const float* q = nullptr;  ///< row r at q + q_offset[r]
  const Index* q_offset = nullptr;
  const Index* last = nullptr;  ///< [rows] last visible absolute position
  Index rows = 0;               ///< 1..max_query_rows
  Index head_dim = 0;
  float scale = 1;
  Precision precision = Precision::exact;
  const KvBlock* blocks = nullptr;  ///< of one format
  Index block_count = 0;            ///< 1..16
  const KvBlock* after = nullptr;   ///< of the same format, which the caller attends to next; or none
  float* max = nullptr;             ///< [rows]
  float* sum = nullptr;             ///< [rows]
  float* out = nullptr;             ///< [rows][head_dim]
  std::byte* scratch = nullptr;     ///< attend_scratch_bytes(head_dim), 64-byte aligned

  /// The block to ask memory for while block b is at work; b itself when none is known.
  [[nodiscard]] const KvBlock& next_of(Index b) const {
    if (b + 1 < block_count) return blocks[b + 1];
    return after != nullptr ? *after : blocks[b];
  }
};
inline constexpr Index max_query_rows = 16;

/// A partial attention result of up to sixteen rows: [16] maximum, [16] sum, [16][head_dim] output.
struct PartialResult {
  float* max;
  float* sum;
  float* out;

  explicit PartialResult(float* memory)
      : max(memory), sum(memory + max_query_rows), out(memory + 2 * max_query_rows) {}
  static constexpr Index floats(Index head_dim) { return max_query_rows * (head_dim + 2); }
};

/// Folds a later span's partial result into an earlier one's, in place.
struct MergeArgs {
  float* max = nullptr;
  float* sum = nullptr;
  float* out = nullptr;
  const float* span_max = nullptr;
  const float* span_sum = nullptr;
  const float* span_out = nullptr;
  Index rows = 0;
  Index head_dim = 0;
};

/// The arithmetic of one instruction set. Tables are constants; a stronger one starts as a copy of the
/// next weaker one and replaces what it does better.
struct KernelTable {
  /// "scalar", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx", "neon", "neon_bf16"
  const char* name = "";
  Precision default_precision = Precision::exact;

  /// The layout in which matmul takes activations for weights of this format.
  PackLayout (*layout)(Format format, Precision precision) = nullptr;
  void (*pack)(const PackArgs& args) = nullptr;
  void (*matmul)(const MatmulArgs& args) = nullptr;
  Index (*matmul_scratch_bytes)(Index rows, Index in, Index columns) = nullptr;
  /// The same for weights of a quantised format.
  void (*matmul_quantised)(const MatmulArgs& args) = nullptr;
  Index (*quantised_scratch_bytes)(Index rows, Index in, Index columns) = nullptr;
  /// The same for int8 and int4 weights and activations in rows_int8; all tables give the same bits.
  void (*matmul_int8)(const MatmulArgs& args) = nullptr;
  Index (*int8_scratch_bytes)(Index rows, Index in, Index columns) = nullptr;

  /// out[i] = x[i] * rsqrt(mean(x^2) + epsilon) * (weight[i] + weight.offset); in place is allowed.
  void (*rms_norm)(const float* x, VectorView weight, float epsilon, float* out) = nullptr;
  /// Rotates pairs (i, i + rotary_dim/2) of x in place by angles given as cos[rotary_dim/2], sin[...].
  void (*rope)(float* x, Index rotary_dim, const float* cos, const float* sin) = nullptr;
  /// out[i] = gate[i] / (1 + exp(-gate[i])) * up[i]; in place is allowed.
  void (*silu_mul)(const float* gate, const float* up, float* out, Index n) = nullptr;
  /// out[i] = x[i] / (1 + exp(-gate[i])); in place is allowed.
  void (*sigmoid_mul)(const float* gate, const float* x, float* out, Index n) = nullptr;
  /// Decodes a stored row to float32 (embedding lookup), and a row of a quantised matrix.
  void (*decode_row)(Format format, const std::byte* row, Index n, float* out) = nullptr;
  void (*decode_quantised)(const WeightView& matrix, Index row, float* out) = nullptr;

  void (*attend_span)(const SpanArgs& args) = nullptr;
  Index (*attend_scratch_bytes)(Index head_dim) = nullptr;
  void (*merge_span)(const MergeArgs& args) = nullptr;

  // Gated DeltaNet layers; see delta.hpp.
  void (*conv1d)(const Conv1dArgs& args) = nullptr;
  void (*delta_keys)(const DeltaKeysArgs& args) = nullptr;
  void (*delta_rows)(const DeltaRowsArgs& args) = nullptr;
  void (*delta_close)(const DeltaCloseArgs& args) = nullptr;
};

}  // namespace kernels
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
