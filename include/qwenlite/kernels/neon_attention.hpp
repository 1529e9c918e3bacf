// SPDX-License-Identifier: Apache-2.0
//
// Blockwise attention on NEON: up to sixteen query rows over the blocks of one span, with the online
// softmax. Scores are a matrix product with the block's keys as rows; outputs are chains over ascending
// keys, four dimensions a vector. A row meets exactly the keys it sees, in the same order whoever shares
// the call, so its bits do not depend on the other rows nor on what lies beyond its last key.
//
// Compressed keys and values become bf16 a plane at a time; scores and probabilities are scaled.
#pragma once

#include <qwenlite/kernels/neon_kv.hpp>
#include <qwenlite/kernels/neon_matmul.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::neon {

/// Scratch of one attention call.
struct SpanScratch {
  float* q = nullptr;          ///< [16 rows][head_dim rounded up to 32], the tail zero
  float* scores = nullptr;     ///< [16 rows][64 keys], then probabilities
  std::byte* plane = nullptr;  ///< keys, then values, of a compressed format as bf16
  std::byte* panel = nullptr;  ///< for the product of keys and queries

  SpanScratch(std::byte* memory, Index head_dim)
      : q(reinterpret_cast<float*>(memory)),
        scores(q + max_query_rows * round_up(head_dim, 32)),
        plane(reinterpret_cast<std::byte*>(scores + max_query_rows * block_positions)),
        panel(plane + unpacked_bytes(head_dim)) {}
};

inline Index attend_scratch_bytes(Index head_dim) {
  return max_query_rows * (round_up(head_dim, 32) + block_positions) * 4 + unpacked_bytes(head_dim) +
         matmul_scratch_bytes(block_positions, padded_dim(head_dim), max_query_rows);
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
  for (Index j = 0; j < block_positions; j += 4) {
    const float32x4_t scale = vmulq_f32(vld1q_f32(scales + j), vdupq_n_f32(factor_of(block.format)));
    for (Index r = 0; r < a.rows; ++r) {
      float* const at = scores + r * block_positions + j;
      vst1q_f32(at, vmulq_f32(vld1q_f32(at), scale));
    }
  }
}

/// Turns the `visible` scores of a row into probabilities relative to the new running maximum and extends
/// the running sum; returns the factor for what was accumulated before.
inline float block_softmax(float* scores, Index visible, float scale, float& running_max,
                           float& running_sum) {
  const float32x4_t hidden = vdupq_n_f32(-__builtin_inff());
  float32x4_t top = vdupq_n_f32(running_max);
  for_lanes(visible, [&](Index j, Index n) {
    const float32x4_t scaled = vmulq_f32(load(scores + j, n), vdupq_n_f32(scale));
    const float32x4_t masked = vbslq_f32(first_lanes(n), scaled, hidden);
    vst1q_f32(scores + j, masked);  // 64 scores a row: the last vector is whole, too
    top = vmaxq_f32(top, masked);
  });
  const float maximum = vmaxvq_f32(top);
  const float32x4_t shift = vdupq_n_f32(maximum);
  float32x4_t total = vdupq_n_f32(0);
  for (Index j = 0; j < visible; j += 4) {
    const float32x4_t p = exp(vsubq_f32(vld1q_f32(scores + j), shift));
    vst1q_f32(scores + j, p);
    total = vaddq_f32(total, p);
  }
  const float shrink = exp(running_max - maximum);
  running_max = maximum;
  running_sum = __builtin_fmaf(running_sum, shrink, sum_lanes(total));
  return shrink;
}

/// n (1..4) dimensions of two neighbouring positions, as stored in v [32][head_dim][2].
struct PairBf16 {
  static constexpr Index bytes = 4;
  static void load(const std::byte* p, Index n, float32x4_t& even, float32x4_t& odd) {
    const uint32x4_t raw = vreinterpretq_u32_f32(neon::load(reinterpret_cast<const float*>(p), n));
    even = vreinterpretq_f32_u32(vshlq_n_u32(raw, 16));
    odd = vreinterpretq_f32_u32(vandq_u32(raw, vdupq_n_u32(0xFFFF0000U)));
  }
};
struct PairF32 {
  static constexpr Index bytes = 8;
  static void load(const std::byte* p, Index n, float32x4_t& even, float32x4_t& odd) {
    const auto* values = reinterpret_cast<const float*>(p);
    const float32x4_t low = neon::load(values, 2 * n);
    const float32x4_t high = neon::load(values + 4, 2 * n - 4);
    even = vuzp1q_f32(low, high);
    odd = vuzp2q_f32(low, high);
  }
};

/// Probabilities [rows][64] of neighbouring query rows, the values of a block and the rows' outputs.
struct Weighing {
  const float* p = nullptr;
  const std::byte* v = nullptr;  ///< [pairs][v_dims][2]
  Index v_dims = 0;
  float* out = nullptr;  ///< [rows][head_dim]
  Index head_dim = 0;
};

/// out[r][d] += sum over pairs [first, last) of p[r][j] v[j][d], for R rows and D vectors of dimensions from
/// d0 on (with D = 1 of only n dimensions).
template <class Pair, int R, int D>
inline void weigh_values(const Weighing& w, Index first, Index last, Index d0, Index n) {
  float32x4_t sums[static_cast<std::size_t>(R)][static_cast<std::size_t>(D)];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int d = 0; d < D; ++d) sums[r][d] = load(w.out + r * w.head_dim + d0 + d * 4, n);
  }
  for (Index j = first; j < last; ++j) {
    const std::byte* v = w.v + (j * w.v_dims + d0) * Pair::bytes;
    const float* p = w.p + j * 2;
#pragma GCC unroll 8
    for (int d = 0; d < D; ++d) {
      float32x4_t even;
      float32x4_t odd;
      Pair::load(v + d * 4 * Pair::bytes, n, even, odd);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        sums[r][d] = vfmaq_n_f32(sums[r][d], even, p[r * block_positions]);
        sums[r][d] = vfmaq_n_f32(sums[r][d], odd, p[r * block_positions + 1]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int d = 0; d < D; ++d) store(w.out + r * w.head_dim + d0 + d * 4, n, sums[r][d]);
  }
}

/// All dimensions of R rows.
template <class Pair, int R>
inline void weigh_pairs(const Weighing& w, Index first, Index last) {
  if (first >= last) return;
  constexpr int vectors = R == 1 ? 8 : 4;  // eight or sixteen chains
  Index d = 0;
  for (; d + vectors * 4 <= w.head_dim; d += vectors * 4) {
    weigh_values<Pair, R, vectors>(w, first, last, d, 4);
  }
  for (; d < w.head_dim; d += 4) weigh_values<Pair, R, 1>(w, first, last, d, smaller(4, w.head_dim - d));
}

/// The last key of a row that sees an odd number of them: its pair's second position stays out.
template <class Pair>
inline void weigh_even(const Weighing& w, Index pair) {
  for_lanes(w.head_dim, [&](Index d, Index n) {
    float32x4_t even;
    float32x4_t odd;
    Pair::load(w.v + (pair * w.v_dims + d) * Pair::bytes, n, even, odd);
    store(w.out + d, n, vfmaq_n_f32(load(w.out + d, n), even, w.p[pair * 2]));
  });
}

/// Adds the values of one block to the outputs of all rows: four rows together as far as all of them see,
/// then each alone.
template <class Pair>
inline void weigh_block(const SpanArgs& a, const BlockPlane& v, const Index* visible, const float* scores) {
  for (Index r0 = 0; r0 < a.rows; r0 += 4) {
    const Index group = smaller(4, a.rows - r0);
    Weighing w{scores + r0 * block_positions, v.data, v.dims, a.out + r0 * a.head_dim, a.head_dim};
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
    }
  }
}

/// visible[r]: how many of the block's keys row r sees. Returns the most.
inline Index visible_keys(const SpanArgs& a, const KvBlock& block, Index* visible) {
  Index keys = 0;
  for (Index r = 0; r < a.rows; ++r) {
    const Index seen = smaller(a.last[r] - block.first + 1, block.count);
    visible[r] = seen < 0 ? 0 : seen;
    if (seen > keys) keys = seen;
  }
  return keys;
}

inline void attend_block(const SpanArgs& a, const KvBlock& block, const SpanScratch& s) {
  Index visible[max_query_rows];
  const Index keys = visible_keys(a, block, visible);
  if (keys == 0) return;
  const BlockPlane k = keys_of(block, a.head_dim, keys, s.plane);
  matmul({.weights = k.data,
          .format = block.format == KvFormat::f32 ? Format::f32 : Format::bf16,
          .row_bytes = k.dims * (block.format == KvFormat::f32 ? 4 : 2),
          .rows = keys,
          .in = k.dims,
          .packed = reinterpret_cast<const std::byte*>(s.q),
          .columns = a.rows,
          .out = s.scores,
          .out_stride = block_positions,
          .scratch = s.panel});
  scale_positions(a, block, block.k, s.scores);
  for (Index r = 0; r < a.rows; ++r) {
    if (visible[r] == 0) continue;
    float* out = a.out + r * a.head_dim;
    const float32x4_t shrink =
        vdupq_n_f32(block_softmax(s.scores + r * block_positions, visible[r], a.scale, a.max[r], a.sum[r]));
    for_lanes(a.head_dim, [&](Index d, Index n) { store(out + d, n, vmulq_f32(load(out + d, n), shrink)); });
  }
  scale_positions(a, block, block.v, s.scores);
  const BlockPlane v = values_of(block, a.head_dim, keys, s.plane);
  if (block.format == KvFormat::f32) {
    weigh_block<PairF32>(a, v, visible, s.scores);
  } else {
    weigh_block<PairBf16>(a, v, visible, s.scores);
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
  for (Index b = 0; b < a.block_count; ++b) attend_block(a, a.blocks[b], s);
  for (Index r = 0; r < a.rows && rotated; ++r) rotate(a.out + r * a.head_dim, a.head_dim);
}

/// Two partial softmax results become one: each is scaled to the common maximum.
inline void merge_span(const MergeArgs& a) {
  for (Index r = 0; r < a.rows; ++r) {
    if (a.span_sum[r] == 0) continue;  // the later span had no visible key
    const float top = a.max[r] > a.span_max[r] ? a.max[r] : a.span_max[r];
    const float32x4_t keep = exp(vdupq_n_f32(a.max[r] - top));
    const float32x4_t take = exp(vdupq_n_f32(a.span_max[r] - top));
    const auto fold = [&](float32x4_t earlier, float32x4_t later) {
      return vfmaq_f32(vmulq_f32(later, take), earlier, keep);
    };
    a.max[r] = top;
    a.sum[r] = vgetq_lane_f32(fold(vdupq_n_f32(a.sum[r]), vdupq_n_f32(a.span_sum[r])), 0);
    float* out = a.out + r * a.head_dim;
    const float* later = a.span_out + r * a.head_dim;
    for_lanes(a.head_dim,
              [&](Index d, Index n) { store(out + d, n, fold(load(out + d, n), load(later + d, n))); });
  }
}

}  // namespace kernels::neon
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
