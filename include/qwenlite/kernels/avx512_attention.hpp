// SPDX-License-Identifier: Apache-2.0
//
// Blockwise attention on AVX-512: up to sixteen query rows over the blocks of one span, with the online
// softmax. Scores are tiles of the same dot product as a matrix product (keys as rows); outputs are chains
// over ascending keys, sixteen dimensions a vector. A masked probability is an exact zero and leaves a chain
// of finite values as it is, so a row's bits do not depend on which other rows share the call.
//
// int8 is read where it lies; fp8 and int4 become bf16 a plane at a time. Scores and probabilities are
// scaled.
#pragma once

#include <type_traits>

#include <qwenlite/kernels/avx2_int8.hpp>
#include <qwenlite/kernels/avx512.hpp>
#include <qwenlite/kernels/avx512_delta.hpp>
#include <qwenlite/kernels/avx512_kv.hpp>
#include <qwenlite/kernels/avx512_quantised.hpp>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), \
                             apply_to = function)
#else
// GCC 12 warns inside its own 512-bit intrinsics (an "undefined" operand that is never read).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx512 {

/// Scratch of one attention call.
struct SpanScratch {
  float* q = nullptr;          ///< [16 rows][head_dim rounded up to 32], the tail zero
  float* scores = nullptr;     ///< [16 rows][64 keys], then probabilities
  std::byte* plane = nullptr;  ///< keys, then values, of a format that is unpacked

  SpanScratch(std::byte* memory, Index head_dim)
      : q(reinterpret_cast<float*>(memory)),
        scores(q + max_query_rows * round_up(head_dim, 32)),
        plane(reinterpret_cast<std::byte*>(scores + max_query_rows * block_positions)) {}
};

inline Index attend_scratch_bytes(Index head_dim) {
  return max_query_rows * (round_up(head_dim, 32) + block_positions) * 4 + unpacked_bytes(head_dim);
}

/// Multiplies `rows` rows of 64 scores or probabilities by the scales of their positions.
inline void scale_positions(float* scores, Index rows, const float* scales, float factor) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(scales + i * 16), _mm512_set1_ps(factor));
    for (Index r = 0; r < rows; ++r) {
      float* const at = scores + r * block_positions + i * 16;
      _mm512_storeu_ps(at, _mm512_mul_ps(_mm512_loadu_ps(at), scale));
    }
  }
}

/// Turns a row of scores into probabilities relative to the new running maximum and extends the running
/// sum; returns the factor for what was accumulated before. Keys from `visible` on become exact zeros.
inline float block_softmax(float* scores, Index visible, float scale, float& running_max,
                           float& running_sum) {
  __m512 v[4];
  __m512 top = _mm512_set1_ps(running_max);
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    const __mmask16 m = first_lanes(visible - i * 16 > 0 ? visible - i * 16 : 0);
    v[i] = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, scores + i * 16), _mm512_set1_ps(scale));
    v[i] = _mm512_mask_blend_ps(m, _mm512_set1_ps(-__builtin_inff()), v[i]);
    top = _mm512_max_ps(top, v[i]);
  }
  const float maximum = max_lanes(top);
  const __m512 shift = _mm512_set1_ps(maximum);
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    v[i] = exp(_mm512_sub_ps(v[i], shift));
    _mm512_storeu_ps(scores + i * 16, v[i]);
  }
  const __m512 total = _mm512_add_ps(_mm512_add_ps(v[0], v[1]), _mm512_add_ps(v[2], v[3]));
  const __m128 shrink = _mm512_castps512_ps128(exp(_mm512_sub_ps(_mm512_set1_ps(running_max), shift)));
  running_max = maximum;
  running_sum = _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(running_sum), shrink, _mm_set_ss(sum_lanes(total))));
  return _mm_cvtss_f32(shrink);
}

/// Sixteen dimensions of two neighbouring positions, as stored in v [32][head_dim][2], or (int8) in rows of
/// their own, `row` bytes apart.
struct PairBf16 {
  static constexpr Index bytes = 4;
  static void prefetch_next(const std::byte* p, std::size_t /*vector*/, Index /*row*/) { prefetch(p); }
  static void load(const std::byte* p, Index /*row*/, __mmask16 m, __m512& even, __m512& odd) {
    const __m512i raw = _mm512_maskz_loadu_epi32(m, p);
    even = _mm512_castsi512_ps(_mm512_slli_epi32(raw, 16));
    odd = _mm512_castsi512_ps(_mm512_and_si512(raw, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
  }
};
struct PairF32 {
  static constexpr Index bytes = 8;
  static void prefetch_next(const std::byte* p, std::size_t /*vector*/, Index /*row*/) { prefetch(p); }
  static void load(const std::byte* p, Index /*row*/, __mmask16 m, __m512& even, __m512& odd) {
    const __m512 low = _mm512_castpd_ps(_mm512_maskz_loadu_pd(static_cast<__mmask8>(m), p));
    const __m512 high = _mm512_castpd_ps(_mm512_maskz_loadu_pd(static_cast<__mmask8>(m >> 8U), p + 64));
    const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odds = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    even = _mm512_permutex2var_ps(low, evens, high);
    odd = _mm512_permutex2var_ps(low, odds, high);
  }
};

struct PairInt8 {
  static constexpr Index bytes = 1;
  /// A cache line holds four vectors of one position.
  static void prefetch_next(const std::byte* p, std::size_t vector, Index row) {
    if (vector % 4 < 2) prefetch(vector % 4 == 0 ? p : p + row - 16);
  }
  /// A vector that begins beyond a row's codes reads what follows them, its scales at the last; those lanes
  /// are dropped.
  static void load(const std::byte* p, Index row, __mmask16 /*m*/, __m512& even, __m512& odd) {
    even = Int8Codes::all(p);
    odd = Int8Codes::all(p + row);
  }
};

/// Probabilities [rows][64] of neighbouring query rows, the values they weigh and the rows' outputs.
struct Weighing {
  const float* p = nullptr;
  const float* shrink = nullptr;  ///< [rows] factor of what was accumulated before
  const std::byte* v = nullptr;
  const std::byte* next = nullptr;  ///< values of the block that follows, if they are worth asking for
  Index row = 0;                    ///< bytes of values of one position
  Index pairs = 0;
  Index head_dim = 0;
  float* out = nullptr;  ///< [rows][head_dim]
};

/// out[r][d] = out[r][d] * shrink[r] + sum_j p[r][j] v[j][d] for R rows and D vectors of dimensions from d0.
template <class Pair, int R, std::size_t D>
inline void weigh_values(const Weighing& w, Index d0) {
  const Lanes<D> lanes(w.head_dim - d0);
  Block<R, D> sum;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    load_row(w.out + r * w.head_dim + d0, lanes, sum.at[r]);
    multiply_row(w.shrink[r], sum.at[r]);
  }
  for (Index j = 0; j < w.pairs; ++j) {
    const Index at = j * 2 * w.row + d0 * Pair::bytes;
#pragma GCC unroll 16
    for (std::size_t d = 0; d < D; ++d) {
      const Index here = at + static_cast<Index>(d) * 16 * Pair::bytes;
      if (w.next != nullptr) Pair::prefetch_next(w.next + here, d, w.row);
      __m512 even;
      __m512 odd;
      Pair::load(w.v + here, w.row, lanes.at[d], even, odd);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const float* weight = w.p + r * block_positions + j * 2;
        sum.at[r][d] = _mm512_fmadd_ps(_mm512_set1_ps(weight[0]), even, sum.at[r][d]);
        sum.at[r][d] = _mm512_fmadd_ps(_mm512_set1_ps(weight[1]), odd, sum.at[r][d]);
        if constexpr (R * D > 16) sum.at[r][d] = in_order(sum.at[r][d]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) store_row(sum.at[r], lanes, w.out + r * w.head_dim + d0);
}

/// Calls f(row, std::integral_constant<int, R>) for runs of R <= 6 rows.
template <class F>
inline void for_rows(Index rows, const F& f) {
  for_columns(rows, [&](Index row, Index n) {
    switch (n) {
      case 1: return f(row, std::integral_constant<int, 1>());
      case 2: return f(row, std::integral_constant<int, 2>());
      case 3: return f(row, std::integral_constant<int, 3>());
      case 4: return f(row, std::integral_constant<int, 4>());
      case 5: return f(row, std::integral_constant<int, 5>());
      default: return f(row, std::integral_constant<int, 6>());
    }
  });
}

/// Asks for the keys of the next block while tiles of so many rows multiply `dims` numbers of each of this
/// block's: each tile for as many of its bytes as the tile has rows.
[[nodiscard]] inline Ahead ask_for_keys(const KvBlock& next, Index head_dim, Index dims, Index tile_rows) {
  const Index bytes = tile_rows * kv_row_bytes(next.format, head_dim);
  const Index stream = ceil_div(dims, 32) * 64;
  return {next.k, stream, ceil_div(bytes, stream), bytes};
}

/// scores[r][j] = q_r . k_j for the first `keys` keys of a block: a product with the keys as weights, `dims`
/// numbers a row.
template <class Step>
inline void multiply_keys(const SpanArgs& a, const std::byte* k, const KvBlock& next, Index dims, Index keys,
                          const SpanScratch& s) {
  const Tile all{.w = k,
                 .w_stride = dims * Step::bytes,
                 .x = s.q,
                 .x_stride = round_up(a.head_dim, 32),
                 .in = dims,
                 .out = s.scores,
                 .out_stride = block_positions};
  for_columns(a.rows, [&](Index row, Index n) {
    Tile t = from_column(all, row);
    if (row == 0) t.ahead = ask_for_keys(next, a.head_dim, dims, rows_of_tile(n));
    multiply_columns<Step>(t, keys, n);
  });
}

/// Adds the values of a block's first `keys` keys to the outputs of all rows.
template <class Pair>
inline void weigh_block(const SpanArgs& a, const Weighing& all) {
  for_rows(a.rows, [&](Index r, auto rows) {
    constexpr int R = rows.value;
    constexpr std::size_t vectors = R <= 2 ? 8 : 4;  // enough chains to hide latency
    Weighing w = all;
    w.p += r * block_positions;
    w.shrink += r;
    w.out += r * a.head_dim;
    if (r > 0) w.next = nullptr;  // once is enough
    for (Index d = 0; d < a.head_dim; d += static_cast<Index>(vectors) * 16) {
      weigh_values<Pair, R, vectors>(w, d);
    }
  });
}

inline void score_block(const SpanArgs& a, const KvBlock& block, const KvBlock& next, Index keys,
                        const SpanScratch& s) {
  const Index padded = padded_dim(a.head_dim);
  switch (block.format) {
    case KvFormat::bf16: return multiply_keys<StepInOrder<LoadBf16>>(a, block.k, next, a.head_dim, keys, s);
    case KvFormat::f32: return multiply_keys<StepF32>(a, block.k, next, a.head_dim, keys, s);
    case KvFormat::int8: multiply_keys<StepInOrder<Int8Codes>>(a, block.k, next, padded, keys, s); break;
    case KvFormat::fp8:
    case KvFormat::int4:
      unpack_keys(block, a.head_dim, keys, s.plane);
      multiply_keys<StepInOrder<LoadBf16>>(a, s.plane, next, padded, keys, s);
      break;
  }
  scale_positions(s.scores, a.rows, kv_scales(block.format, a.head_dim, block.k), factor_of(block.format));
}

/// Adds what the probabilities in s.scores take of the block's first 2 * pairs values.
inline void weigh_scores(const SpanArgs& a, const KvBlock& block, const std::byte* next, Index pairs,
                         const float* shrink, const SpanScratch& s) {
  Weighing w{.p = s.scores,
             .shrink = shrink,
             .v = block.v,
             .next = next,
             .row = kv_row_bytes(block.format, a.head_dim),
             .pairs = pairs,
             .head_dim = a.head_dim,
             .out = a.out};
  if (block.format == KvFormat::bf16) return weigh_block<PairBf16>(a, w);
  if (block.format == KvFormat::f32) return weigh_block<PairF32>(a, w);
  scale_positions(s.scores, a.rows, kv_scales(block.format, a.head_dim, block.v), factor_of(block.format));
  if (block.format == KvFormat::int8) return weigh_block<PairInt8>(a, w);
  unpack_values(block, a.head_dim, pairs, s.plane);
  w.v = s.plane;
  w.next = nullptr;
  w.row = padded_dim(a.head_dim) * 2;
  weigh_block<PairBf16>(a, w);
}

/// Keys of a block that any row sees.
[[nodiscard]] inline Index visible_keys(const SpanArgs& a, const KvBlock& block) {
  Index keys = 0;
  for (Index r = 0; r < a.rows; ++r) {
    const Index visible = a.last[r] - block.first + 1;
    keys = visible > keys ? visible : keys;
  }
  return keys > block.count ? block.count : keys;
}

/// Turns the scores [rows][64] of a block into probabilities, and tells each row's factor for what was
/// accumulated before.
inline void take_probabilities(const SpanArgs& a, const KvBlock& block, Index keys, float* all_scores,
                               float* shrink) {
  for (Index r = 0; r < a.rows; ++r) {
    float* scores = all_scores + r * block_positions;
    const Index visible = a.last[r] - block.first + 1 < keys ? a.last[r] - block.first + 1 : keys;
    if (visible > 0) {
      shrink[r] = block_softmax(scores, visible, a.scale, a.max[r], a.sum[r]);
    } else {
      shrink[r] = 1;
#pragma GCC unroll 16
      for (int i = 0; i < 4; ++i) _mm512_storeu_ps(scores + i * 16, _mm512_setzero_ps());
    }
  }
}

inline void attend_block(const SpanArgs& a, const KvBlock& block, const KvBlock& next, const SpanScratch& s) {
  const Index keys = visible_keys(a, block);
  if (keys <= 0) return;
  score_block(a, block, next, keys, s);
  float shrink[max_query_rows];
  take_probabilities(a, block, keys, s.scores, shrink);
  weigh_scores(a, block, next.v, (keys + 1) / 2, shrink, s);
}

inline void attend_span(const SpanArgs& a) {
  const SpanScratch s(a.scratch, a.head_dim);
  const Index q_stride = round_up(a.head_dim, 32);
  const bool rotated = a.blocks[0].format == KvFormat::int4;
  for (Index r = 0; r < a.rows; ++r) {
    a.max[r] = -__builtin_inff();
    a.sum[r] = 0;
    _mm512_storeu_ps(s.q + (r + 1) * q_stride - 16, _mm512_setzero_ps());
    for_lanes(a.head_dim, [&](Index d, __mmask16 m) {
      _mm512_storeu_ps(s.q + r * q_stride + d, _mm512_maskz_loadu_ps(m, a.q + a.q_offset[r] + d));
      _mm512_mask_storeu_ps(a.out + r * a.head_dim + d, m, _mm512_setzero_ps());
    });
    if (rotated) rotate(s.q + r * q_stride, a.head_dim);
  }
  for (Index b = 0; b < a.block_count; ++b) attend_block(a, a.blocks[b], a.next_of(b), s);
  for (Index r = 0; r < a.rows && rotated; ++r) rotate(a.out + r * a.head_dim, a.head_dim);
}

inline void merge_span(const MergeArgs& a) {
  for (Index r = 0; r < a.rows; ++r) {
    if (a.span_sum[r] == 0) continue;  // the later span had no visible key
    const float top = a.max[r] > a.span_max[r] ? a.max[r] : a.span_max[r];
    const __m512 keep = exp(_mm512_set1_ps(a.max[r] - top));
    const __m512 take = exp(_mm512_set1_ps(a.span_max[r] - top));
    const auto fold = [&](__m512 earlier, __m512 later) {
      return _mm512_fmadd_ps(earlier, keep, _mm512_mul_ps(later, take));
    };
    a.max[r] = top;
    a.sum[r] = _mm512_cvtss_f32(fold(_mm512_set1_ps(a.sum[r]), _mm512_set1_ps(a.span_sum[r])));
    float* out = a.out + r * a.head_dim;
    const float* span_out = a.span_out + r * a.head_dim;
    for_lanes(a.head_dim, [&](Index d, __mmask16 m) {
      const __m512 folded = fold(_mm512_maskz_loadu_ps(m, out + d), _mm512_maskz_loadu_ps(m, span_out + d));
      _mm512_mask_storeu_ps(out + d, m, folded);
    });
  }
}

inline constexpr KernelTable table = [] {
  KernelTable t = scalar::table;
  t.name = "avx512";
  t.pack = pack;
  t.layout = layout;
  t.matmul = matmul;
  t.matmul_scratch_bytes = matmul_scratch_bytes;
  t.matmul_quantised = matmul_quantised;
  t.quantised_scratch_bytes = quantised_scratch_bytes;
  t.matmul_int8 = avx2::matmul_int8;  // vectors twice as long gain little without dot products of bytes
  t.int8_scratch_bytes = avx2::int8_scratch_bytes;
  t.rms_norm = rms_norm;
  t.rope = rope;
  t.silu_mul = silu_mul;
  t.sigmoid_mul = sigmoid_mul;
  t.decode_row = decode_row;
  t.decode_quantised = decode_quantised;
  t.attend_span = attend_span;
  t.attend_scratch_bytes = attend_scratch_bytes;
  t.merge_span = merge_span;
  t.conv1d = conv1d;
  t.delta_keys = delta_keys;
  t.delta_rows = delta_rows;
  t.delta_close = delta_close;
  return t;
}();

}  // namespace kernels::avx512
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
