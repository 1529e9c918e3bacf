// SPDX-License-Identifier: Apache-2.0
//
// Blockwise attention for keys and values that fit bf16 at bf16 precision, with dot products of bf16: scores
// are a matrix product with the block's keys as weights; the online softmax runs in float32; probabilities
// rounded to bf16 meet values two positions at a time, as the cache stores them. An output is one chain over
// ascending pairs of positions, in which a masked probability is an exact zero; so a row's bits do not depend
// on which other rows share the call. Everything else runs on the kernels of avx512_attention.hpp.
//
// Compressed keys and values become bf16 a plane at a time; scores and probabilities are scaled in float32.
#pragma once

#include <qwenlite/kernels/avx512_bf16_matmul.hpp>

#if defined(__clang__)
#pragma clang attribute push(                                                               \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c"))), \
    apply_to = function)
#else
// GCC 12 warns inside its own 512-bit intrinsics (an "undefined" operand that is never read).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx512_bf16 {

/// Scratch of one attention call, laid out one after another.
struct SpanScratch {
  float* scores = nullptr;             ///< [16 rows][64 keys], then probabilities
  std::byte* probabilities = nullptr;  ///< [16 rows][64 keys] bf16
  std::byte* q = nullptr;              ///< query rows, packed as rows_bf16
  std::byte* plane = nullptr;          ///< keys, then values, of a compressed format as bf16

  SpanScratch(std::byte* memory, Index head_dim)
      : scores(reinterpret_cast<float*>(memory)),
        probabilities(memory + max_query_rows * block_positions * 4),
        q(probabilities + max_query_rows * block_positions * 2),
        plane(q + packed_bytes(PackLayout::rows_bf16, max_query_rows, head_dim)) {}
};

inline Index attend_scratch_bytes(Index head_dim) {
  const Index own = max_query_rows * block_positions * 6 +
                    packed_bytes(PackLayout::rows_bf16, max_query_rows, head_dim) + unpacked_bytes(head_dim);
  const Index weaker = avx512::attend_scratch_bytes(head_dim);
  return own > weaker ? own : weaker;
}

/// Keys [positions][dims] or values [pairs of positions][dims][2] of a block, as bf16.
struct BlockPlane {
  const std::byte* data = nullptr;
  Index dims = 0;
};

[[nodiscard]] inline BlockPlane keys_of(const KvBlock& block, Index head_dim, Index keys, std::byte* memory) {
  if (block.format == KvFormat::bf16) return {block.k, head_dim};
  avx512::unpack_keys(block, head_dim, keys, memory);
  return {memory, padded_dim(head_dim)};
}
[[nodiscard]] inline BlockPlane values_of(const KvBlock& block, Index head_dim, Index pairs,
                                          std::byte* memory) {
  if (block.format == KvFormat::bf16) return {block.v, head_dim};
  avx512::unpack_values(block, head_dim, pairs, memory);
  return {memory, padded_dim(head_dim)};
}

/// Multiplies the scores or probabilities of all rows by the scales of a compressed plane.
inline void scale_positions(const SpanArgs& a, const KvBlock& block, const std::byte* plane, float* scores) {
  if (!is_compressed(block.format)) return;
  avx512::scale_positions(scores, a.rows, kv_scales(block.format, a.head_dim, plane),
                          factor_of(block.format));
}

/// How many times fewer bytes a plane of this format has than one of bf16, as a power of two.
[[nodiscard]] constexpr Index compression(KvFormat format) noexcept {
  return format == KvFormat::bf16 ? 0 : format == KvFormat::int4 ? 2 : 1;
}

/// scores[r][j] = q_r . k_j for the first `keys` keys of a block.
inline void multiply_keys(const SpanArgs& a, const KvBlock& next, const BlockPlane& k, Index keys,
                          const SpanScratch& s) {
  const Tile all{.w = k.data,
                 .w_stride = k.dims * 2,
                 .x = s.q,
                 .x_stride = packed_bytes(PackLayout::rows_bf16, 1, a.head_dim),
                 .in = k.dims,
                 .out = s.scores,
                 .out_stride = block_positions};
  for_columns(a.rows, [&](Index row, Index n) {
    Tile t = from_column(all, row);
    if (row == 0) t.ahead = avx512::ask_for_keys(next, a.head_dim, k.dims, avx512::rows_of_tile(n));
    multiply_columns(t, keys, n);
  });
}

/// Probabilities of neighbouring query rows, the values they weigh and the rows' outputs.
struct Weighing {
  const std::byte* p = nullptr;   ///< [rows][64] bf16
  const float* shrink = nullptr;  ///< [rows] factor of what was accumulated before
  const std::byte* v = nullptr;
  const std::byte* next = nullptr;  ///< values of the block that follows, if they are worth asking for
  Index next_compression = 0;       ///< of these
  Index pair_bytes = 0;             ///< from one pair of positions to the next
  Index pairs = 0;
  Index head_dim = 0;
  float* out = nullptr;  ///< [rows][head_dim]
};

/// out[r][d] = out[r][d] * shrink[r] + sum_j p[r][j] v[j][d] for R rows and D vectors of dimensions from d0.
template <int R, std::size_t D>
inline void weigh_values(const Weighing& w, Index d0) {
  const avx512::Lanes<D> lanes(w.head_dim - d0);
  avx512::Block<R, D> sum;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    avx512::load_row(w.out + r * w.head_dim + d0, lanes, sum.at[r]);
    avx512::multiply_row(w.shrink[r], sum.at[r]);
  }
  for (Index j = 0; j < w.pairs; ++j) {
    const Index at = j * w.pair_bytes + d0 * 4;
    __m512i v[D];
#pragma GCC unroll 16
    for (std::size_t d = 0; d < D; ++d) {
      const Index here = at + static_cast<Index>(d) * 64;
      if (w.next != nullptr) avx512::prefetch(w.next + (here >> w.next_compression));
      v[d] = _mm512_maskz_loadu_epi32(lanes.at[d], w.v + here);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      std::int32_t both;
      std::memcpy(&both, w.p + (r * block_positions + j * 2) * 2, sizeof both);
      const __m512i p = _mm512_set1_epi32(both);
#pragma GCC unroll 16
      for (std::size_t d = 0; d < D; ++d) sum.at[r][d] = add_products(sum.at[r][d], v[d], p);
    }
  }
  // A sum that vanished may be zero of either sign, which adding zeros to it can change: make it positive.
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (std::size_t d = 0; d < D; ++d) sum.at[r][d] = _mm512_add_ps(sum.at[r][d], _mm512_setzero_ps());
    avx512::store_row(sum.at[r], lanes, w.out + r * w.head_dim + d0);
  }
}

/// Adds the values of a block to the outputs of all rows.
inline void weigh_block(const SpanArgs& a, const Weighing& all) {
  avx512::for_rows(a.rows, [&](Index r, auto rows) {
    constexpr int R = rows.value;
    constexpr std::size_t vectors = R <= 2 ? 8 : 4;  // enough chains to hide latency
    Weighing w = all;
    w.p += r * block_positions * 2;
    w.shrink += r;
    w.out += r * a.head_dim;
    if (r > 0) w.next = nullptr;  // once is enough
    for (Index d = 0; d < a.head_dim; d += static_cast<Index>(vectors) * 16) weigh_values<R, vectors>(w, d);
  });
}

inline void round_probabilities(Index rows, const SpanScratch& s) {
  for (Index i = 0; i < rows * block_positions; i += 32) {
    const __m512i rounded = to_bf16(_mm512_load_ps(s.scores + i), _mm512_load_ps(s.scores + i + 16));
    _mm512_store_si512(s.probabilities + i * 2, rounded);
  }
}

inline void attend_block(const SpanArgs& a, const KvBlock& block, const KvBlock& next, const SpanScratch& s) {
  const Index keys = avx512::visible_keys(a, block);
  if (keys <= 0) return;
  multiply_keys(a, next, keys_of(block, a.head_dim, keys, s.plane), keys, s);
  scale_positions(a, block, block.k, s.scores);
  float shrink[max_query_rows];
  avx512::take_probabilities(a, block, keys, s.scores, shrink);
  scale_positions(a, block, block.v, s.scores);
  round_probabilities(a.rows, s);
  const Index pairs = (keys + 1) / 2;
  const BlockPlane v = values_of(block, a.head_dim, pairs, s.plane);
  weigh_block(a, {.p = s.probabilities,
                  .shrink = shrink,
                  .v = v.data,
                  .next = next.v,
                  .next_compression = compression(next.format),
                  .pair_bytes = v.dims * 4,
                  .pairs = pairs,
                  .head_dim = a.head_dim,
                  .out = a.out});
}

inline void attend_span(const SpanArgs& a) {
  const KvFormat format = a.blocks[0].format;
  if (a.precision != Precision::bf16 || format == KvFormat::f32) return avx512::attend_span(a);
  const SpanScratch s(a.scratch, a.head_dim);
  std::memset(a.out, 0, static_cast<std::size_t>(a.rows * a.head_dim) * sizeof(float));
  for (Index r = 0; r < a.rows; ++r) {
    a.max[r] = -__builtin_inff();
    a.sum[r] = 0;
    const float* q = a.q + a.q_offset[r];
    if (format == KvFormat::int4) {
      std::memcpy(s.scores, q, static_cast<std::size_t>(a.head_dim) * sizeof(float));
      rotate(s.scores, a.head_dim);
      q = s.scores;
    }
    round_row(a.head_dim, s.q + r * packed_bytes(PackLayout::rows_bf16, 1, a.head_dim),
              [&](Index d, __mmask16 m) { return _mm512_maskz_loadu_ps(m, q + d); });
  }
  for (Index b = 0; b < a.block_count; ++b) attend_block(a, a.blocks[b], a.next_of(b), s);
  for (Index r = 0; r < a.rows && format == KvFormat::int4; ++r) rotate(a.out + r * a.head_dim, a.head_dim);
}

}  // namespace kernels::avx512_bf16
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
