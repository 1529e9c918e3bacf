// SPDX-License-Identifier: Apache-2.0
//
// Blockwise attention on AMX tiles, for keys and values that fit bf16 at bf16 precision: keys (left) times
// queries (right) give scores with a query per vector lane, the online softmax runs in float32 across the
// lanes, and probabilities (left) times values (right, as the cache stores them) give the block's share of
// the output.
//
// Sixteen query rows are always computed; a row's bits depend on no other. Masked probabilities are exact
// zeros, and a row that sees nothing of a block is not written at all. Everything else runs on AVX-512.
//
// Compressed keys and values become bf16 a plane at a time; scores and probabilities are scaled in float32.
#pragma once

#include <qwenlite/kernels/amx_matmul.hpp>

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
namespace kernels::amx {

/// Scratch of one attention call, laid out one after another.
struct SpanScratch {
  float* scores = nullptr;             ///< [64 keys][16 queries]
  float* product = nullptr;            ///< 2 tiles: scores or outputs as they leave the tiles
  std::byte* probabilities = nullptr;  ///< 2 tiles [16 queries][32 keys] bf16
  std::byte* tails = nullptr;          ///< 2 tiles: padded last blocks of keys, padded last values
  std::byte* plane = nullptr;          ///< keys, then values, of a compressed format as bf16
  std::byte* q = nullptr;              ///< [head_dim/32] tiles [16 pairs][16 queries][2] bf16

  SpanScratch(std::byte* memory, Index head_dim)
      : scores(reinterpret_cast<float*>(memory)),
        product(reinterpret_cast<float*>(memory + 4 * tile_bytes)),
        probabilities(memory + 6 * tile_bytes),
        tails(memory + 8 * tile_bytes),
        plane(memory + 10 * tile_bytes),
        q(plane + unpacked_bytes(head_dim)) {}
};

inline Index attend_scratch_bytes(Index head_dim) {
  const Index own = (10 + ceil_div(head_dim, 32)) * tile_bytes + unpacked_bytes(head_dim);
  const Index weaker = avx512::attend_scratch_bytes(head_dim);
  return own > weaker ? own : weaker;
}

/// Keys or values as tiles take them: where they lie, or unpacked.
struct BlockPlane {
  const std::byte* data = nullptr;
  Index dims = 0;  ///< of a position
};

/// The first `groups` times 32 keys, or values, of a block.
[[nodiscard]] inline BlockPlane keys_of(const KvBlock& block, Index head_dim, Index groups,
                                        std::byte* memory) {
  if (block.format == KvFormat::bf16) return {block.k, head_dim};
  avx512::unpack_keys(block, head_dim, groups * 32, memory);
  return {memory, padded_dim(head_dim)};
}
[[nodiscard]] inline BlockPlane values_of(const KvBlock& block, Index head_dim, Index groups,
                                          std::byte* memory) {
  if (block.format == KvFormat::bf16) return {block.v, head_dim};
  avx512::unpack_values(block, head_dim, groups * 16, memory);
  return {memory, padded_dim(head_dim)};
}

/// Multiplies the scores or probabilities of the first `keys` positions by the scales of a compressed plane.
inline void scale_positions(const SpanArgs& a, const KvBlock& block, const std::byte* plane, Index keys,
                            float* scores) {
  if (!is_compressed(block.format)) return;
  const float* const scales = kv_scales(block.format, a.head_dim, plane);
  const float factor = factor_of(block.format);
  for (Index j = 0; j < keys; ++j) {
    const __m512 scale = _mm512_set1_ps(scales[j] * factor);
    _mm512_store_ps(scores + j * 16, _mm512_mul_ps(_mm512_load_ps(scores + j * 16), scale));
  }
}

/// Running maximum and sum of the softmax, one lane per query row.
struct SoftmaxState {
  __m512 max;
  __m512 sum;
};

/// Packs the query rows, row r at q + q_offset[r], as right operands; missing rows and dimensions are zero.
inline void pack_queries(const SpanArgs& a, const float* rows_at, const Index* q_offset, std::byte* out) {
  for (Index d = 0; d < a.head_dim; d += 32, out += tile_bytes) {
    __m512i rows[16];
    for (int r = 0; r < 16; ++r) {
      if (r >= a.rows) {
        rows[r] = _mm512_setzero_si512();
        continue;
      }
      const float* q = rows_at + q_offset[r] + d;
      rows[r] = to_bf16(_mm512_maskz_loadu_ps(lanes_from(d, a.head_dim), q),
                        _mm512_maskz_loadu_ps(lanes_from(d + 16, a.head_dim), q + 16));
    }
    transpose(rows);
    for (int pair = 0; pair < 16; ++pair) _mm512_store_si512(out + pair * 64, rows[pair]);
  }
}

/// scores[j][r] = k_j . q_r for the first `keys` keys, computed 32 keys at a time.
inline void block_scores(const BlockPlane& keys_plane, Index keys, const SpanScratch& s) {
  const Index dims = keys_plane.dims;
  const Index stride = dims * 2;
  const Index blocks = ceil_div(dims, 32);
  const Right queries{s.q, 64, tile_bytes};
  for (Index j = 0; j < keys; j += 32) {
    Left left[2];
    for (Index g = 0; g < 2; ++g) {
      const std::byte* k = keys_plane.data + (j + g * 16) * stride;
      left[g] = {.data = k, .stride = stride, .step = 64};
      if (dims % 32 == 0) continue;
      copy_tile(k + (blocks - 1) * 64, stride, 16, dims % 32, s.tails + g * tile_bytes);
      left[g].tail = s.tails + g * tile_bytes;
    }
    multiply_tiles<2, 1, 1>(left, &queries, blocks, s.scores + j * 16);
  }
}

/// Turns scores into probabilities relative to the new running maximum, in place, and extends the running
/// sum; returns the factors for what was accumulated before. visible[r] is the number of keys row r sees.
inline __m512 block_softmax(float* scores, Index keys, __m512i visible, float scale, SoftmaxState& state) {
  const __mmask16 seeing = _mm512_cmpgt_epi32_mask(visible, _mm512_setzero_si512());
  const auto sees = [&](Index j) {
    return _mm512_cmpgt_epi32_mask(visible, _mm512_set1_epi32(static_cast<int>(j)));
  };
  __m512 top = state.max;
  for (Index j = 0; j < keys; ++j) {
    const __m512 scaled = _mm512_mul_ps(_mm512_load_ps(scores + j * 16), _mm512_set1_ps(scale));
    _mm512_store_ps(scores + j * 16, scaled);
    top = _mm512_mask_max_ps(top, sees(j), top, scaled);
  }
  __m512 total = _mm512_setzero_ps();
  for (Index j = 0; j < keys; ++j) {
    const __m512 p = avx512::exp(_mm512_sub_ps(_mm512_load_ps(scores + j * 16), top));
    const __m512 masked = _mm512_maskz_mov_ps(sees(j), p);
    _mm512_store_ps(scores + j * 16, masked);
    total = _mm512_add_ps(total, masked);
  }
  const __m512 shrink = avx512::exp(_mm512_sub_ps(state.max, top));
  state.sum = _mm512_mask_mov_ps(state.sum, seeing, _mm512_fmadd_ps(state.sum, shrink, total));
  state.max = top;
  return shrink;
}

/// Rounds the probabilities of 32 keys to bf16, as a left operand [16 queries][32 keys].
inline void pack_probabilities(const float* scores, std::byte* out) {
  // Word 16 * h + r of a rounded pair of vectors is key 2 i + h of query r; bring the two keys together.
  alignas(64) std::uint16_t order[32];
  for (int r = 0; r < 16; ++r) {
    order[2 * r] = static_cast<std::uint16_t>(r);
    order[2 * r + 1] = static_cast<std::uint16_t>(16 + r);
  }
  const __m512i interleave = _mm512_load_si512(order);
  __m512i rows[16];
  for (int i = 0; i < 16; ++i) {
    const float* pair = scores + i * 32;
    rows[i] = _mm512_permutexvar_epi16(interleave, to_bf16(_mm512_load_ps(pair), _mm512_load_ps(pair + 16)));
  }
  transpose(rows);
  for (int r = 0; r < 16; ++r) _mm512_store_si512(out + r * 64, rows[r]);
}

/// out[r][d] = out[r][d] * shrink[r] + sum_j p[r][j] v[j][d] for 16 dimensions from d0 on and the rows of
/// `seeing`.
inline void add_outputs(const SpanArgs& a, const float* product, Index d0, __mmask16 seeing,
                        const float* shrink) {
  const __mmask16 dims = lanes_from(d0, a.head_dim);
  for (Index r = 0; r < a.rows; ++r) {
    if ((static_cast<unsigned>(seeing) >> static_cast<unsigned>(r) & 1U) == 0) continue;
    float* out = a.out + r * a.head_dim + d0;
    const __m512 before = _mm512_maskz_loadu_ps(dims, out);
    const __m512 after = _mm512_fmadd_ps(before, _mm512_set1_ps(shrink[r]), _mm512_load_ps(product + r * 16));
    _mm512_mask_storeu_ps(out, dims, after);
  }
}

/// Weighs the block's values, 32 or 16 dimensions at a time, over one or two groups of 32 keys.
inline void block_outputs(const SpanArgs& a, const BlockPlane& values, Index groups, __mmask16 seeing,
                          __m512 shrink, const SpanScratch& s) {
  alignas(64) float factors[16];
  _mm512_store_ps(factors, shrink);
  const Left p{.data = s.probabilities, .stride = 64, .step = tile_bytes};
  const Index stride = values.dims * 4;  // of a pair of positions
  Index d = 0;
  for (; d + 32 <= a.head_dim; d += 32) {
    const std::byte* v = values.data + d * 4;
    const Right right[2] = {{v, stride, 16 * stride}, {v + 64, stride, 16 * stride}};
    multiply_tiles<1, 2, 1>(&p, right, groups, s.product);
    add_outputs(a, s.product, d, seeing, factors);
    add_outputs(a, s.product + 256, d + 16, seeing, factors);
  }
  for (; d < a.head_dim; d += 16) {
    Right right{values.data + d * 4, stride, 16 * stride};
    if (a.head_dim - d < 16) {
      for (Index g = 0; g < groups; ++g) {
        copy_tile(right.data + g * right.step, stride, 16, 2 * (a.head_dim - d), s.tails + g * tile_bytes);
      }
      right = {s.tails, 64, tile_bytes};
    }
    multiply_tiles<1, 1, 1>(&p, &right, groups, s.product);
    add_outputs(a, s.product, d, seeing, factors);
  }
}

inline void attend_block(const SpanArgs& a, const KvBlock& block, const SpanScratch& s, SoftmaxState& state) {
  alignas(64) std::int32_t counts[16] = {};
  Index keys = 0;  // seen by any row
  for (Index r = 0; r < a.rows; ++r) {
    const Index seen = a.last[r] - block.first + 1 < block.count ? a.last[r] - block.first + 1 : block.count;
    counts[r] = static_cast<std::int32_t>(seen < 0 ? 0 : seen);
    if (seen > keys) keys = seen;
  }
  if (keys == 0) return;
  const Index groups = ceil_div(keys, 32);
  block_scores(keys_of(block, a.head_dim, groups, s.plane), keys, s);
  scale_positions(a, block, block.k, keys, s.scores);
  for (Index j = keys; j < groups * 32; ++j) _mm512_store_ps(s.scores + j * 16, _mm512_setzero_ps());
  const __m512i visible = _mm512_load_si512(counts);
  const __m512 shrink = block_softmax(s.scores, keys, visible, a.scale, state);
  scale_positions(a, block, block.v, keys, s.scores);
  for (Index g = 0; g < groups; ++g) {
    pack_probabilities(s.scores + g * 512, s.probabilities + g * tile_bytes);
  }
  const __mmask16 seeing = _mm512_cmpgt_epi32_mask(visible, _mm512_setzero_si512());
  block_outputs(a, values_of(block, a.head_dim, groups, s.plane), groups, seeing, shrink, s);
}

/// Packs the queries turned as keys of int4 are. They fit where keys and values are unpacked later.
inline void pack_rotated_queries(const SpanArgs& a, const SpanScratch& s) {
  auto* const rotated = reinterpret_cast<float*>(s.plane);  // [16][head_dim], of [64][head_dim] bf16
  Index offsets[max_query_rows];
  for (Index r = 0; r < a.rows; ++r) {
    offsets[r] = r * a.head_dim;
    std::memcpy(rotated + offsets[r], a.q + a.q_offset[r],
                static_cast<std::size_t>(a.head_dim) * sizeof(float));
    rotate(rotated + offsets[r], a.head_dim);
  }
  pack_queries(a, rotated, offsets, s.q);
}

inline void attend_span(const SpanArgs& a) {
  const KvFormat format = a.blocks[0].format;
  if (a.precision != Precision::bf16 || format == KvFormat::f32) return avx512::attend_span(a);
  const SpanScratch s(a.scratch, a.head_dim);
  const TileScope tiles;
  std::memset(a.out, 0, static_cast<std::size_t>(a.rows * a.head_dim) * sizeof(float));
  if (format == KvFormat::int4) {
    pack_rotated_queries(a, s);
  } else {
    pack_queries(a, a.q, a.q_offset, s.q);
  }
  SoftmaxState state{_mm512_set1_ps(-__builtin_inff()), _mm512_setzero_ps()};
  for (Index b = 0; b < a.block_count; ++b) attend_block(a, a.blocks[b], s, state);
  _mm512_mask_storeu_ps(a.max, first_lanes(a.rows), state.max);
  _mm512_mask_storeu_ps(a.sum, first_lanes(a.rows), state.sum);
  for (Index r = 0; r < a.rows && format == KvFormat::int4; ++r) rotate(a.out + r * a.head_dim, a.head_dim);
}

}  // namespace kernels::amx
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
