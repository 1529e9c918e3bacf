// SPDX-License-Identifier: Apache-2.0
//
// Blockwise attention on AVX2: up to sixteen query rows over the blocks of one span, with the online
// softmax. Scores are a matrix product with the block's keys as rows; outputs are chains over ascending
// keys, eight dimensions a vector. A row meets exactly the keys it sees, in the same order whoever shares
// the call, so its bits do not depend on the other rows nor on what lies beyond its last key.
//
// Compressed keys and values become bf16 a plane at a time; scores and probabilities are scaled.
#pragma once

#include <cstdint>

#include <qwenlite/kernels/avx2_kv.hpp>
#include <qwenlite/kernels/avx2_matmul.hpp>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx2 {

/// Scratch of one attention call.
struct SpanScratch {
  float* q = nullptr;          ///< [16 rows][head_dim rounded up to 32], the tail zero
  float* scores = nullptr;     ///< [16 rows][64 keys], then probabilities
  std::byte* plane = nullptr;  ///< keys, then values, of a compressed format as bf16

  SpanScratch(std::byte* memory, Index head_dim)
      : q(reinterpret_cast<float*>(memory)),
        scores(q + max_query_rows * round_up(head_dim, 32)),
        plane(reinterpret_cast<std::byte*>(scores + max_query_rows * block_positions)) {}
};

inline Index attend_scratch_bytes(Index head_dim) {
  return max_query_rows * (round_up(head_dim, 32) + block_positions) * 4 + unpacked_bytes(head_dim);
}

/// Keys or values as the products take them: where they lie, or unpacked.
struct BlockPlane {
  const std::byte* data = nullptr;
  Index dims = 0;  ///< of a position
};

[[nodiscard]] inline BlockPlane keys_of(const KvBlock& block, Index head_dim, Index keys, std::byte* memory) {
  if (!is_compressed(block.format)) return {block.k, head_dim};
  unpack_keys(block, head_dim, keys, memory);
  return {memory, padded_dim(head_dim)};
}
[[nodiscard]] inline BlockPlane values_of(const KvBlock& block, Index head_dim, Index keys,
                                          std::byte* memory) {
  if (!is_compressed(block.format)) return {block.v, head_dim};
  unpack_values(block, head_dim, ceil_div(keys, 2), memory);
  return {memory, padded_dim(head_dim)};
}

/// Multiplies all rows of scores, or of probabilities, by the scales of a compressed plane's positions.
inline void scale_positions(const SpanArgs& a, const KvBlock& block, const std::byte* plane, float* scores) {
  if (!is_compressed(block.format)) return;
  const float* const scales = kv_scales(block.format, a.head_dim, plane);
  for (Index j = 0; j < block_positions; j += 8) {
    const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(scales + j), _mm256_set1_ps(factor_of(block.format)));
    for (Index r = 0; r < a.rows; ++r) {
      float* const at = scores + r * block_positions + j;
      _mm256_storeu_ps(at, _mm256_mul_ps(_mm256_loadu_ps(at), scale));
    }
  }
}

/// Turns the `visible` scores of a row into probabilities relative to the new running maximum and extends
/// the running sum; returns the factor for what was accumulated before.
inline float block_softmax(float* scores, Index visible, float scale, float& running_max,
                           float& running_sum) {
  const __m256 hidden = _mm256_set1_ps(-__builtin_inff());
  __m256 top = _mm256_set1_ps(running_max);
  for_lanes(visible, [&](Index j, Index n) {
    const __m256 scaled = _mm256_mul_ps(load(scores + j, n), _mm256_set1_ps(scale));
    const __m256 masked = _mm256_blendv_ps(hidden, scaled, _mm256_castsi256_ps(first_lanes(n)));
    _mm256_storeu_ps(scores + j, masked);  // 64 scores a row: the last vector is whole, too
    top = _mm256_max_ps(top, masked);
  });
  const float maximum = max_lanes(top);
  const __m256 shift = _mm256_set1_ps(maximum);
  __m256 total = _mm256_setzero_ps();
  for (Index j = 0; j < visible; j += 8) {
    const __m256 p = exp(_mm256_sub_ps(_mm256_loadu_ps(scores + j), shift));
    _mm256_storeu_ps(scores + j, p);
    total = _mm256_add_ps(total, p);
  }
  const float shrink = _mm256_cvtss_f32(exp(_mm256_set1_ps(running_max - maximum)));
  running_max = maximum;
  running_sum = __builtin_fmaf(running_sum, shrink, sum_lanes(total));
  return shrink;
}

/// n (1..8) dimensions of two neighbouring positions, as stored in v [32][head_dim][2].
struct PairBf16 {
  static constexpr Index bytes = 4;
  static void load(const std::byte* p, Index n, __m256& even, __m256& odd) {
    const __m256i raw = _mm256_castps_si256(avx2::load(reinterpret_cast<const float*>(p), n));
    even = _mm256_castsi256_ps(_mm256_slli_epi32(raw, 16));
    odd = _mm256_castsi256_ps(_mm256_and_si256(raw, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
  }
};
struct PairF32 {
  static constexpr Index bytes = 8;
  static void load(const std::byte* p, Index n, __m256& even, __m256& odd) {
    const auto* values = reinterpret_cast<const float*>(p);
    const __m256 low = avx2::load(values, 2 * n);
    const __m256 high = avx2::load(values + 8, 2 * n - 8);
    const __m256 evens = _mm256_shuffle_ps(low, high, 0x88);  // dimensions 0 1 4 5 | 2 3 6 7
    const __m256 odds = _mm256_shuffle_ps(low, high, 0xDD);
    even = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(evens), 0xD8));
    odd = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(odds), 0xD8));
  }
};

/// Probabilities [rows][64] of neighbouring query rows, the values of a block and the rows' outputs.
struct Weighing {
  const float* p = nullptr;
  const std::byte* v = nullptr;  ///< [pairs][v_dims][2]
  Index v_dims = 0;
  const std::byte* next = nullptr;  ///< values of the block that follows, if they are worth asking for
  float* out = nullptr;             ///< [rows][head_dim]
  Index head_dim = 0;
};

/// out[r][d] += sum over pairs [first, last) of p[r][j] v[j][d], for R rows and D vectors of dimensions from
/// d0 on (with D = 1 of only n dimensions).
template <class Pair, int R, int D>
inline void weigh_values(const Weighing& w, Index first, Index last, Index d0, Index n) {
  __m256 sums[static_cast<std::size_t>(R)][static_cast<std::size_t>(D)];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int d = 0; d < D; ++d) sums[r][d] = load(w.out + r * w.head_dim + d0 + d * 8, n);
  }
  for (Index j = first; j < last; ++j) {
    const Index at = (j * w.v_dims + d0) * Pair::bytes;
    const std::byte* const v = w.v + at;
    const float* p = w.p + j * 2;
    if (w.next != nullptr) {
#pragma GCC unroll 8
      for (int line = 0; line < D * 8 * Pair::bytes; line += 64) {
        prefetch(w.next + at + line);
      }
    }
#pragma GCC unroll 8
    for (int d = 0; d < D; ++d) {
      __m256 even;
      __m256 odd;
      Pair::load(v + d * 8 * Pair::bytes, n, even, odd);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        sums[r][d] = _mm256_fmadd_ps(_mm256_set1_ps(p[r * block_positions]), even, sums[r][d]);
        sums[r][d] = _mm256_fmadd_ps(_mm256_set1_ps(p[r * block_positions + 1]), odd, sums[r][d]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int d = 0; d < D; ++d) store(w.out + r * w.head_dim + d0 + d * 8, n, sums[r][d]);
  }
}

/// All dimensions of R rows. Vectors that fill no whole tile, as of no published head_dim, go row by row.
template <class Pair, int R>
inline void weigh_pairs(const Weighing& w, Index first, Index last) {
  if (first >= last) return;
  constexpr int vectors = 8 / R;  // eight chains
  Index d = 0;
  for (; d + vectors * 8 <= w.head_dim; d += vectors * 8) {
    weigh_values<Pair, R, vectors>(w, first, last, d, 8);
  }
  Weighing row = w;
  for (int r = 0; d < w.head_dim && r < R; ++r) {
    for (Index i = d; i < w.head_dim; i += 8) {
      weigh_values<Pair, 1, 1>(row, first, last, i, smaller(8, w.head_dim - i));
    }
    row.p += block_positions;
    row.out += w.head_dim;
  }
}

/// The last key of a row that sees an odd number of them: its pair's second position stays out.
template <class Pair>
inline void weigh_even(const Weighing& w, Index pair) {
  for_lanes(w.head_dim, [&](Index d, Index n) {
    __m256 even;
    __m256 odd;
    Pair::load(w.v + (pair * w.v_dims + d) * Pair::bytes, n, even, odd);
    store(w.out + d, n, _mm256_fmadd_ps(_mm256_set1_ps(w.p[pair * 2]), even, load(w.out + d, n)));
  });
}

/// Adds the values of one block to the outputs of all rows: four rows together as far as all of them see,
/// then each alone.
template <class Pair>
inline void weigh_block(const SpanArgs& a, const BlockPlane& v, const std::byte* next, const Index* visible,
                        const float* scores) {
  for (Index r0 = 0; r0 < a.rows; r0 += 4) {
    const Index group = smaller(4, a.rows - r0);
    Weighing w{.p = scores + r0 * block_positions,
               .v = v.data,
               .v_dims = v.dims,
               .next = r0 == 0 ? next : nullptr,
               .out = a.out + r0 * a.head_dim,
               .head_dim = a.head_dim};
    Index common = 0;
    if (group == 4) {
      common = smaller(smaller(visible[r0], visible[r0 + 1]), smaller(visible[r0 + 2], visible[r0 + 3])) / 2;
      weigh_pairs<Pair, 4>(w, 0, common);
    }
    for (Index r = r0; r < r0 + group; ++r) {
      weigh_pairs<Pair, 1>(w, common, visible[r] / 2);
      if (visible[r] % 2 != 0) weigh_even<Pair>(w, visible[r] / 2);
      w.p += block_positions;
      w.out += a.head_dim;
      w.next = nullptr;  // once is enough
    }
  }
}

/// Bytes from one address to another, which may belong to different objects.
[[nodiscard]] inline Index distance(const std::byte* from, const std::byte* to) {
  return static_cast<Index>(reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from));
}

/// scores[r][j] = q_r . k_j for the first `keys` keys of a block.
inline void multiply_keys(const SpanArgs& a, const KvBlock& block, const KvBlock& next, const BlockPlane& k,
                          Index keys, const SpanScratch& s) {
  Strip strip{.weights = k.data,
              .row_bytes = k.dims * 2,
              .rows = keys,
              .in = k.dims,
              .x = s.q,
              .x_stride = round_up(a.head_dim, 32),
              .out = s.scores,
              .out_stride = block_positions};
  if (block.format == KvFormat::f32) {
    strip.row_bytes = k.dims * 4;
    return multiply<LoadF32, false>(strip, a.rows);
  }
  if (block.format == KvFormat::bf16) strip.ahead = distance(k.data, next.k);
  multiply_directly<LoadBf16>(strip, a.rows);
}

inline void attend_block(const SpanArgs& a, const KvBlock& block, const KvBlock& next, const SpanScratch& s) {
  Index visible[max_query_rows];
  Index keys = 0;  // seen by any row
  for (Index r = 0; r < a.rows; ++r) {
    const Index seen = smaller(a.last[r] - block.first + 1, block.count);
    visible[r] = seen < 0 ? 0 : seen;
    if (seen > keys) keys = seen;
  }
  if (keys == 0) return;
  const BlockPlane k = keys_of(block, a.head_dim, keys, s.plane);
  multiply_keys(a, block, next, k, keys, s);
  scale_positions(a, block, block.k, s.scores);
  for (Index r = 0; r < a.rows; ++r) {
    if (visible[r] == 0) continue;
    float* out = a.out + r * a.head_dim;
    const __m256 shrink = _mm256_set1_ps(
        block_softmax(s.scores + r * block_positions, visible[r], a.scale, a.max[r], a.sum[r]));
    for_lanes(a.head_dim,
              [&](Index d, Index n) { store(out + d, n, _mm256_mul_ps(load(out + d, n), shrink)); });
  }
  scale_positions(a, block, block.v, s.scores);
  const BlockPlane v = values_of(block, a.head_dim, keys, s.plane);
  const std::byte* const ahead = is_compressed(block.format) ? nullptr : next.v;
  if (block.format == KvFormat::f32) {
    weigh_block<PairF32>(a, v, ahead, visible, s.scores);
  } else {
    weigh_block<PairBf16>(a, v, ahead, visible, s.scores);
  }
}

inline void attend_span(const SpanArgs& a) {
  const SpanScratch s(a.scratch, a.head_dim);
  const Index stride = round_up(a.head_dim, 32);
  const bool rotated = a.blocks[0].format == KvFormat::int4;
  for (Index r = 0; r < a.rows; ++r) {
    a.max[r] = -__builtin_inff();
    a.sum[r] = 0;
    std::memset(a.out + r * a.head_dim, 0, static_cast<std::size_t>(a.head_dim) * sizeof(float));
    std::memset(s.q + r * stride, 0, static_cast<std::size_t>(stride) * sizeof(float));
    std::memcpy(s.q + r * stride, a.q + a.q_offset[r], static_cast<std::size_t>(a.head_dim) * sizeof(float));
    if (rotated) rotate(s.q + r * stride, a.head_dim);
  }
  for (Index b = 0; b < a.block_count; ++b) attend_block(a, a.blocks[b], a.next_of(b), s);
  for (Index r = 0; r < a.rows && rotated; ++r) rotate(a.out + r * a.head_dim, a.head_dim);
}

/// Two partial softmax results become one: each is scaled to the common maximum.
inline void merge_span(const MergeArgs& a) {
  for (Index r = 0; r < a.rows; ++r) {
    if (a.span_sum[r] == 0) continue;  // the later span had no visible key
    const float top = a.max[r] > a.span_max[r] ? a.max[r] : a.span_max[r];
    const __m256 keep = exp(_mm256_set1_ps(a.max[r] - top));
    const __m256 take = exp(_mm256_set1_ps(a.span_max[r] - top));
    const auto fold = [&](__m256 earlier, __m256 later) {
      return _mm256_fmadd_ps(earlier, keep, _mm256_mul_ps(later, take));
    };
    a.max[r] = top;
    a.sum[r] = _mm256_cvtss_f32(fold(_mm256_set1_ps(a.sum[r]), _mm256_set1_ps(a.span_sum[r])));
    float* out = a.out + r * a.head_dim;
    const float* later = a.span_out + r * a.head_dim;
    for_lanes(a.head_dim,
              [&](Index d, Index n) { store(out + d, n, fold(load(out + d, n), load(later + d, n))); });
  }
}

}  // namespace kernels::avx2
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
