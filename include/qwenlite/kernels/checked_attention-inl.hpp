// SPDX-License-Identifier: Apache-2.0
//
// Implementation of checked.hpp: attention. Each query row is computed again by the scalar kernels, span
// after span; how far the other kernel may be follows from the sizes of its scores and values.
#pragma once

#include <algorithm>
#include <cmath>

#include <qwenlite/kernels/checked-inl.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::checked {

/// One query row over its keys, as the scalar kernels compute it.
struct QueryRow {
  const SequencePiece& piece;
  const AttentionShape& shape;
  Index kv_head;
  Index last;  ///< position, the last visible one
  const float* q;
  float max = 0;
  float sum = 0;

  /// Block `index` of the keys and values.
  [[nodiscard]] KvBlock block(Index index) const {
    return piece.block(piece.cache, shape.layer, kv_head, index);
  }
  void attend_span(Index span, float* span_max, float* span_sum, float* out, std::byte* scratch) const;
  void attend(float* out, float* later, std::byte* scratch);
  [[nodiscard]] double measure(double score_bound, float* sizes) const;
};

inline void QueryRow::attend_span(Index span, float* span_max, float* span_sum, float* out,
                                  std::byte* scratch) const {
  const Index q_offset = 0;
  const Index first = span * span_positions / block_positions;
  const Index end = std::min(first + span_positions / block_positions, last / block_positions + 1);
  KvBlock blocks[span_positions / block_positions];
  for (Index b = first; b < end; ++b) blocks[b - first] = block(b);
  scalar::attend_span({.q = q,
                       .q_offset = &q_offset,
                       .last = &last,
                       .rows = 1,
                       .head_dim = shape.head_dim,
                       .scale = shape.scale,
                       .blocks = blocks,
                       .block_count = end - first,
                       .max = span_max,
                       .sum = span_sum,
                       .out = out,
                       .scratch = scratch});
}

/// out, later: [head_dim].
inline void QueryRow::attend(float* out, float* later, std::byte* scratch) {
  attend_span(0, &max, &sum, out, scratch);
  for (Index span = 1; span <= last / span_positions; ++span) {
    float span_max = 0;
    float span_sum = 0;
    attend_span(span, &span_max, &span_sum, later, scratch);
    scalar::merge_span({.max = &max,
                        .sum = &sum,
                        .out = out,
                        .span_max = &span_max,
                        .span_sum = &span_sum,
                        .span_out = later,
                        .rows = 1,
                        .head_dim = shape.head_dim});
  }
  for (Index d = 0; d < shape.head_dim; ++d) out[d] /= sum;
}

/// sizes[d] = sum of p |v_d|, of keys and values as stored (then q must be rotated if they are); returns what
/// a probability may be off by, relative to itself, when scores are off by `score_bound` of their terms:
/// twice the largest such error, in score and in normalisation.
inline double QueryRow::measure(double score_bound, float* sizes) const {
  std::fill_n(sizes, shape.head_dim, 0.0F);
  double largest = 0;
  for (Index j = 0; j <= last; ++j) {
    const KvBlock at = block(j / block_positions);
    const Index row = j % block_positions;
    double score = 0;
    double terms = 0;
    for (Index d = 0; d < shape.head_dim; ++d) {
      const double term = static_cast<double>(q[d]) * static_cast<double>(key_in(at, shape.head_dim, row, d));
      score += term;
      terms += std::abs(term);
    }
    const auto scale = static_cast<double>(shape.scale);
    largest = std::max(largest, terms * std::abs(scale));
    const double p = std::exp(score * scale - static_cast<double>(max)) / static_cast<double>(sum);
    for (Index d = 0; d < shape.head_dim; ++d) {
      sizes[d] += static_cast<float>(p * std::abs(static_cast<double>(value_in(at, shape.head_dim, row, d))));
    }
  }
  return std::expm1(2 * score_bound * largest);
}

/// What each output may be off by when the rotated ones are off by `sizes`: elements of the rotation are
/// 1 / sqrt(width) in size.
inline void spread(float* sizes, Index width) {
  double sum = 0;
  for (Index d = 0; d < width; ++d) sum += static_cast<double>(sizes[d]);
  std::fill_n(sizes, width, static_cast<float>(sum / std::sqrt(static_cast<double>(width))));
}

/// An output is a mean of values: it is off by what the probabilities are off by, by the rounding of a chain
/// over the keys of a span and of the merges, and at bf16 precision by that of probabilities to bf16.
QWENLITE_INLINE void attend(const Ops& ops, const SequencePiece& piece, const AttentionShape& shape,
                            const ConstMatrix<float>& q, const Matrix<float>& out) {
  const Index width = shape.head_dim;
  const KvFormat format = piece.block(piece.cache, shape.layer, 0, 0).format;
  const PackLayout layout = ops.layout(Format::bf16);
  const bool rounds = format != KvFormat::f32 && rounds_to_bf16(layout);
  const bool rotated = format == KvFormat::int4;
  const Index scratch = scalar::attend_scratch_bytes(width) / Index{sizeof(float)};
  const double score_bound =
      sum_bound(width, rounds ? layout : PackLayout::rows_f32) + (rotated ? 80 : 16) * u;
  Comparison comparison(ops, 3 * width + scratch);
  auto task = [&](Index unit, int worker) {
    const Index t = piece.row + unit / shape.num_heads;
    const Index head = unit % shape.num_heads;
    float* const memory = comparison.memory(worker);  // the scalar kernel's scratch comes first
    float* const query = memory + scratch;
    float* const expected = query + width;
    float* const sizes = expected + width;
    std::copy_n(q.data() + t * q.outerStride() + head * width, width, query);
    if (rotated) rotate(query, width);
    for (Index d = 0; d < width && rounds; ++d) query[d] = static_cast<float>(Bf16(query[d]));
    if (rotated) rotate(query, width);  // back: the scalar kernel turns it again
    QueryRow row{piece, shape, head / (shape.num_heads / shape.num_kv_heads), piece.position + t - piece.row,
                 query};
    row.attend(expected, sizes, reinterpret_cast<std::byte*>(memory));
    if (rotated) rotate(query, width);  // as the keys are
    const double keys =
        static_cast<double>(std::min(row.last + 1, span_positions) + row.last / span_positions);
    const double bound = row.measure(score_bound, sizes) + (2 * keys + 64) * u + (rounds ? 0x1p-8 : 0);
    if (rotated) spread(sizes, width);
    for (Index d = 0; d < width; ++d) sizes[d] = relative(bound, sizes[d]);
    comparison.judge(t, head * width, out.data() + t * out.outerStride() + head * width, expected, width);
  };
  comparison.run(piece.count * shape.num_heads, TaskRef(task));
  comparison.report({"attention of ", shape.num_heads, " heads on ", shape.num_kv_heads, " of ", width, ", ",
                     name_of(format), " cache, layer ", shape.layer, ", ", piece.count,
                     " tokens from position ", piece.position},
                    "", "float32 scores, softmax and sums, relative to the mean of |v|", width);
}

/// A gate is one exponential, one addition and one division.
QWENLITE_INLINE void apply_gates(const Ops& plain, const ConstMatrix<float>& x, Index head_dim,
                                 Matrix<float> out) {
  const AlignedBuffer before = copied(unwritable(out));
  plain.apply_gates(x, head_dim, out);
  const Index width = out.cols();
  Comparison comparison(plain, 2 * width);
  auto expected = [&](Index t, int worker) {
    float* const row = comparison.memory(worker);
    const float* gates = x.data() + t * x.outerStride() + head_dim;
    for (Index d = 0; d < width; d += head_dim) {
      scalar::sigmoid_mul(gates + 2 * d, before.floats() + t * width + d, row + d, head_dim);
    }
    for (Index d = 0; d < width; ++d) row[width + d] = relative(16 * u, row[d]);
  };
  compare_rows(comparison, out, TaskRef(expected));
  comparison.report({"output gates of ", width / head_dim, " heads"}, "", "float32 sigmoid", head_dim);
}

}  // namespace kernels::checked
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
