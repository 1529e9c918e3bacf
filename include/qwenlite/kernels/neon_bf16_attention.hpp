// SPDX-License-Identifier: Apache-2.0
//
// Blockwise attention for keys and values that fit bf16 at bf16 precision, on Arm CPUs with bf16 products:
// scores are a matrix product with the block's keys as weights; the online softmax runs in float32;
// probabilities rounded to bf16 meet values two positions at a time, as the cache stores them. An output is
// one chain over groups of eight positions up to the row's last key, where probabilities beyond it are exact
// zeros; so a row's bits depend on no other row. Everything else runs on the kernels of neon_attention.hpp.
//
// Compressed keys and values become bf16 a plane at a time; scores and probabilities are scaled in float32.
#pragma once

#include <qwenlite/kernels/neon_bf16_matmul.hpp>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+bf16")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::neon_bf16 {

inline constexpr Index group_positions = 8;  ///< whose probabilities fill a register

/// Scratch of one attention call, laid out one after another.
struct SpanScratch {
  float* scores = nullptr;             ///< [16 rows][64 keys], then probabilities
  std::byte* probabilities = nullptr;  ///< [16 rows][64 keys] bf16
  std::byte* q = nullptr;              ///< query rows, packed as pairs of columns
  std::byte* plane = nullptr;          ///< keys, then values, of a compressed format as bf16
  std::byte* panel = nullptr;          ///< for the product of keys and queries

  SpanScratch(std::byte* memory, Index head_dim)
      : scores(reinterpret_cast<float*>(memory)),
        probabilities(memory + max_query_rows * block_positions * 4),
        q(probabilities + max_query_rows * block_positions * 2),
        plane(q + packed_bytes(PackLayout::pairs_bf16, max_query_rows, head_dim)),
        panel(plane + unpacked_bytes(head_dim)) {}
};

inline Index attend_scratch_bytes(Index head_dim) {
  const Index own =
      max_query_rows * block_positions * 6 + packed_bytes(PackLayout::pairs_bf16, max_query_rows, head_dim) +
      unpacked_bytes(head_dim) + matmul_scratch_bytes(block_positions, padded_dim(head_dim), max_query_rows);
  const Index weaker = neon::attend_scratch_bytes(head_dim);
  return own > weaker ? own : weaker;
}

/// sums [4] += values [4][2] * the pair of positions `Pair` of a group's probabilities.
template <int Pair>
[[nodiscard]] inline float32x4_t add_pair(float32x4_t sums, uint16x8_t values, uint16x8_t group) {
  asm("bfdot %0.4s, %1.8h, %2.2h[%c3]" : "+w"(sums) : "w"(values), "w"(group), "i"(Pair));
  return sums;
}

/// Probabilities [rows][64] of neighbouring query rows, the values of a block and the rows' outputs.
struct Weighing {
  const std::byte* p = nullptr;
  const std::byte* v = nullptr;  ///< [pairs][v_dims][2]
  Index v_dims = 0;
  float* out = nullptr;  ///< [rows][head_dim]
  Index head_dim = 0;
};

/// Extends the sums of R rows and D vectors of dimensions by one pair of positions. v points at the first
/// dimension (with D = 1 only n are read).
template <int Pair, int R, int D>
[[gnu::always_inline]] inline void weigh_pair(const std::byte* v, Index n, const uint16x8_t* p,
                                              float32x4_t (*sums)[static_cast<std::size_t>(D)]) {
#pragma GCC unroll 8
  for (int d = 0; d < D; ++d) {
    const uint16x8_t values = load_raw(v + d * 16, 2 * n);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sums[r][d] = add_pair<Pair>(sums[r][d], values, p[r]);
  }
}

/// out[r][d] += sum over groups [first, last) of p[r][j] v[j][d], for R rows and D vectors of dimensions from
/// d0 on (with D = 1 of only n dimensions).
template <int R, int D>
inline void weigh_values(const Weighing& w, Index first, Index last, Index d0, Index n) {
  float32x4_t sums[static_cast<std::size_t>(R)][static_cast<std::size_t>(D)];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int d = 0; d < D; ++d) sums[r][d] = neon::load(w.out + r * w.head_dim + d0 + d * 4, n);
  }
  const Index pair = w.v_dims * 4;
  for (Index group = first; group < last; ++group) {
    uint16x8_t p[static_cast<std::size_t>(R)];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) p[r] = load_raw(w.p + r * block_positions * 2 + group * 16, 8);
    const std::byte* v = w.v + group * 4 * pair + d0 * 4;
    weigh_pair<0, R, D>(v, n, p, sums);
    weigh_pair<1, R, D>(v + pair, n, p, sums);
    weigh_pair<2, R, D>(v + 2 * pair, n, p, sums);
    weigh_pair<3, R, D>(v + 3 * pair, n, p, sums);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int d = 0; d < D; ++d) neon::store(w.out + r * w.head_dim + d0 + d * 4, n, sums[r][d]);
  }
}

/// All dimensions of R rows.
template <int R>
inline void weigh_groups(const Weighing& w, Index first, Index last) {
  if (first >= last) return;
  constexpr int vectors = R == 1 ? 8 : 4;  // eight or sixteen chains
  Index d = 0;
  for (; d + vectors * 4 <= w.head_dim; d += vectors * 4) weigh_values<R, vectors>(w, first, last, d, 4);
  for (; d < w.head_dim; d += 4) weigh_values<R, 1>(w, first, last, d, smaller(4, w.head_dim - d));
}

/// Adds the values of one block to the outputs of all rows: four rows together as far as all of them see,
/// then each alone.
inline void weigh_block(const SpanArgs& a, const neon::BlockPlane& v, const Index* visible,
                        const SpanScratch& s) {
  for (Index r0 = 0; r0 < a.rows; r0 += 4) {
    const Index rows = smaller(4, a.rows - r0);
    Weighing w{s.probabilities + r0 * block_positions * 2, v.data, v.dims, a.out + r0 * a.head_dim,
               a.head_dim};
    Index common = 0;
    if (rows == 4) {
      const Index* seen = visible + r0;
      common = ceil_div(smaller(smaller(seen[0], seen[1]), smaller(seen[2], seen[3])), group_positions);
      weigh_groups<4>(w, 0, common);
    }
    for (Index r = r0; r < r0 + rows; ++r) {
      weigh_groups<1>(w, common, ceil_div(visible[r], group_positions));
      w.p += block_positions * 2;
      w.out += a.head_dim;
    }
  }
}

/// One row: probabilities from its scores, with zeros up to the end of the last group; what was accumulated
/// before is scaled to the new maximum.
inline void take_probabilities(const SpanArgs& a, Index r, Index visible, const SpanScratch& s) {
  float* const scores = s.scores + r * block_positions;
  const float shrink = neon::block_softmax(scores, visible, a.scale, a.max[r], a.sum[r]);
  for (Index j = round_up(visible, 4); j < round_up(visible, group_positions); ++j) scores[j] = 0;
  float* const out = a.out + r * a.head_dim;
  neon::for_lanes(a.head_dim, [&](Index d, Index n) {
    neon::store(out + d, n, vmulq_n_f32(neon::load(out + d, n), shrink));
  });
}

inline void round_probabilities(Index r, Index visible, const SpanScratch& s) {
  const float* const scores = s.scores + r * block_positions;
  std::byte* const rounded = s.probabilities + r * block_positions * 2;
  for (Index j = 0; j < visible; j += group_positions) {
    const uint16x8_t group = to_bf16(vld1q_f32(scores + j), vld1q_f32(scores + j + 4));
    std::memcpy(rounded + j * 2, &group, sizeof group);
  }
}

inline void attend_block(const SpanArgs& a, const KvBlock& block, const SpanScratch& s) {
  Index visible[max_query_rows];
  const Index keys = neon::visible_keys(a, block, visible);
  if (keys == 0) return;
  const neon::BlockPlane k = neon::keys_of(block, a.head_dim, keys, s.plane);
  matmul({.weights = k.data,
          .format = Format::bf16,
          .row_bytes = k.dims * 2,
          .rows = keys,
          .in = k.dims,
          .packed = s.q,
          .layout = PackLayout::pairs_bf16,
          .columns = a.rows,
          .out = s.scores,
          .out_stride = block_positions,
          .scratch = s.panel});
  neon::scale_positions(a, block, block.k, s.scores);
  for (Index r = 0; r < a.rows; ++r) {
    if (visible[r] > 0) take_probabilities(a, r, visible[r], s);
  }
  neon::scale_positions(a, block, block.v, s.scores);
  for (Index r = 0; r < a.rows; ++r) round_probabilities(r, visible[r], s);
  // Whole groups, as the products read them: what the scratch held before may be no number at all.
  const Index weighed = round_up(keys, group_positions);
  weigh_block(a, neon::values_of(block, a.head_dim, weighed, s.plane), visible, s);
}

inline void attend_span(const SpanArgs& a) {
  const KvFormat format = a.blocks[0].format;
  if (a.precision != Precision::bf16 || format == KvFormat::f32) return neon::attend_span(a);
  const SpanScratch s(a.scratch, a.head_dim);
  std::memset(a.out, 0, static_cast<std::size_t>(a.rows * a.head_dim) * sizeof(float));
  for (Index r = 0; r < round_up(a.rows, 2); ++r) {  // an odd row's partner is itself
    const float* q = a.q + a.q_offset[smaller(r, a.rows - 1)];
    if (format == KvFormat::int4) {
      std::memcpy(s.scores, q, static_cast<std::size_t>(a.head_dim) * sizeof(float));
      rotate(s.scores, a.head_dim);
      q = s.scores;
    }
    pack_plain(q, a.head_dim, s.q + r / 2 * pair_bytes(a.head_dim), r % 2);
  }
  for (Index r = 0; r < a.rows; ++r) {
    a.max[r] = -__builtin_inff();
    a.sum[r] = 0;
  }
  for (Index b = 0; b < a.block_count; ++b) attend_block(a, a.blocks[b], s);
  if (format != KvFormat::int4) return;
  for (Index r = 0; r < a.rows; ++r) rotate(a.out + r * a.head_dim, a.head_dim);
}

}  // namespace kernels::neon_bf16
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
