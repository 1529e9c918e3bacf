// SPDX-License-Identifier: Apache-2.0
//
// How attention is cut into tasks (contract in ops.hpp). Queries of one key/value head go in tiles of at most
// sixteen rows, keys in spans of 1,024. A tile's spans are computed alone and merged in ascending order: by
// the tile's own task when there are many tiles (prefill), by the caller afterwards when there is one tile
// and each span is a task (decode at long context). Both ways give the same bits.
#pragma once

#include <qwenlite/kernels/ops.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels {

/// The query rows of one task: `positions` tokens by `heads` query heads of one key/value head.
struct QueryTile {
  Index first_token = 0;  ///< within the piece
  Index tokens = 0;
  Index first_head = 0;
  Index heads = 0;
};

/// How the queries of a piece divide into tiles: each of at most 16 rows.
struct Tiling {
  Index heads = 0;        ///< query heads in a tile
  Index head_tiles = 0;   ///< tiles along a group of query heads
  Index tokens = 0;       ///< tokens in a tile
  Index token_tiles = 0;  ///< tiles along the piece
  Index spans = 0;        ///< spans that are tasks of their own; 1 when each task walks all spans

  Tiling(Index group, Index count, Index last_position) {
    heads = std::min(group, max_query_rows);
    head_tiles = ceil_div(group, heads);
    tokens = std::max<Index>(1, max_query_rows / heads);
    token_tiles = ceil_div(count, tokens);
    spans = token_tiles == 1 ? last_position / span_positions + 1 : 1;
  }
  [[nodiscard]] Index tasks_per_head() const { return head_tiles * token_tiles * spans; }
  [[nodiscard]] QueryTile tile(Index index, Index group, Index count) const {
    QueryTile t;
    t.first_token = index / head_tiles * tokens;
    t.tokens = std::min(tokens, count - t.first_token);
    t.first_head = index % head_tiles * heads;
    t.heads = std::min(heads, group - t.first_head);
    return t;
  }
};

/// The rows of a tile as the kernels take them.
struct TileRows {
  Index q_offset[max_query_rows];
  Index last[max_query_rows];
  Index rows = 0;

  template <class Kv>
  TileRows(const Piece<Kv>& piece, const QueryTile& tile, const AttentionShape& shape, Index kv_head,
           Index q_stride) {
    const Index group = shape.num_heads / shape.num_kv_heads;
    for (Index t = 0; t < tile.tokens; ++t) {
      for (Index h = 0; h < tile.heads; ++h) {
        q_offset[rows] = (piece.row + tile.first_token + t) * q_stride +
                         (kv_head * group + tile.first_head + h) * shape.head_dim;
        last[rows++] = piece.position + tile.first_token + t;
      }
    }
  }
};

/// What is attended to after the blocks of a span that ends before block `end`, as far as a task can tell:
/// the next span, or the next head's first.
template <class Kv>
[[nodiscard]] inline KvBlock block_after(const Kv& cache, const AttentionShape& shape, Index kv_head,
                                         Index end, Index last_position) {
  if (end * block_positions <= last_position) return cache.block(shape.layer, kv_head, end);
  return cache.block(shape.layer, (kv_head + 1) % shape.num_kv_heads, 0);
}

/// Attention of a tile over the blocks of one span.
template <class Kv>
inline void attend_one_span(const Ops& ops, const Kv& cache, const AttentionShape& shape, Index kv_head,
                            Index span, const TileRows& rows, const float* q, const PartialResult& result,
                            std::byte* scratch) {
  KvBlock blocks[span_positions / block_positions];
  const Index first = span * span_positions / block_positions;
  const Index end =
      std::min(first + span_positions / block_positions, rows.last[rows.rows - 1] / block_positions + 1);
  for (Index b = first; b < end; ++b) blocks[b - first] = cache.block(shape.layer, kv_head, b);
  const KvBlock after = block_after(cache, shape, kv_head, end, rows.last[rows.rows - 1]);
  ops.table().attend_span({.q = q,
                           .q_offset = rows.q_offset,
                           .last = rows.last,
                           .rows = rows.rows,
                           .head_dim = shape.head_dim,
                           .scale = shape.scale,
                           .precision = ops.precision(),
                           .blocks = blocks,
                           .block_count = end - first,
                           .after = &after,
                           .max = result.max,
                           .sum = result.sum,
                           .out = result.out,
                           .scratch = scratch});
}

inline void merge(const KernelTable& table, const PartialResult& into, const PartialResult& later, Index rows,
                  Index head_dim) {
  table.merge_span({.max = into.max,
                    .sum = into.sum,
                    .out = into.out,
                    .span_max = later.max,
                    .span_sum = later.sum,
                    .span_out = later.out,
                    .rows = rows,
                    .head_dim = head_dim});
}

/// out = result / sum, to where the rows' outputs lie (the same places as their queries).
inline void finish(const PartialResult& result, const TileRows& rows, Index head_dim, float* out,
                   Index q_stride, Index out_stride) {
  for (Index r = 0; r < rows.rows; ++r) {
    const float scale = 1.0F / result.sum[r];
    float* to = out + rows.q_offset[r] / q_stride * out_stride + rows.q_offset[r] % q_stride;
    for (Index d = 0; d < head_dim; ++d) to[d] = result.out[r * head_dim + d] * scale;
  }
}

/// One attention call over all pieces of a batch: which task does what, and the merging afterwards.
template <class Kv>
class AttendCall {
 public:
  AttendCall(const Ops& ops, std::span<const Piece<Kv>> pieces, const AttentionShape& shape,
             const ConstMatrix<float>& q, Matrix<float>& out)
      : ops_(ops),
        pieces_(pieces),
        shape_(shape),
        q_(q.data()),
        q_stride_(q.outerStride()),
        out_(out.data()),
        out_stride_(out.outerStride()) {}

  [[nodiscard]] Index tasks() const {
    Index count = 0;
    for (const Piece<Kv>& p : pieces_) count += tasks_of(p);
    return count;
  }

  /// `memory` is the worker's own; `partials` is shared, and each task that covers one span has its place.
  void run(Index task, std::byte* memory, float* partials) const {
    const Piece<Kv>* piece = pieces_.data();
    for (; task >= tasks_of(*piece); ++piece) {
      task -= tasks_of(*piece);
      if (tiling(*piece).spans > 1) partials += tasks_of(*piece) * floats();
    }
    const Tiling t = tiling(*piece);
    const Index kv_head = task / t.tasks_per_head();
    const Index in_head = task % t.tasks_per_head();
    const TileRows rows(*piece, t.tile(in_head / t.spans, group(), piece->count), shape_, kv_head, q_stride_);
    std::byte* const rest = memory + round_up(2 * floats() * 4, 64);
    const auto attend = [&](Index span, const PartialResult& result) {
      attend_one_span(ops_, *piece->cache, shape_, kv_head, span, rows, q_, result, rest);
    };
    if (t.spans > 1) {
      attend(in_head % t.spans, PartialResult(partials + task * floats()));
      return;
    }
    const PartialResult total(reinterpret_cast<float*>(memory));
    const PartialResult next(reinterpret_cast<float*>(memory) + floats());
    attend(0, total);
    for (Index span = 1; span <= rows.last[rows.rows - 1] / span_positions; ++span) {
      attend(span, next);
      merge(ops_.table(), total, next, rows.rows, shape_.head_dim);
    }
    finish(total, rows, shape_.head_dim, out_, q_stride_, out_stride_);
  }

  /// Merges the results of tasks that covered one span each.
  void merge_spans(float* partials) const {
    for (const Piece<Kv>& piece : pieces_) {
      const Tiling t = tiling(piece);
      if (t.spans == 1) continue;
      for (Index tile = 0; tile < t.head_tiles * shape_.num_kv_heads; ++tile) {
        const TileRows rows(piece, t.tile(tile % t.head_tiles, group(), piece.count), shape_,
                            tile / t.head_tiles, q_stride_);
        const PartialResult total(partials);
        for (Index span = 1; span < t.spans; ++span) {
          merge(ops_.table(), total, PartialResult(partials + span * floats()), rows.rows, shape_.head_dim);
        }
        finish(total, rows, shape_.head_dim, out_, q_stride_, out_stride_);
        partials += t.spans * floats();
      }
    }
  }

 private:
  [[nodiscard]] Index group() const { return shape_.num_heads / shape_.num_kv_heads; }
  [[nodiscard]] Index floats() const { return PartialResult::floats(shape_.head_dim); }
  [[nodiscard]] Tiling tiling(const Piece<Kv>& p) const {
    return Tiling(group(), p.count, p.position + p.count - 1);
  }
  [[nodiscard]] Index tasks_of(const Piece<Kv>& p) const {
    return tiling(p).tasks_per_head() * shape_.num_kv_heads;
  }

  const Ops& ops_;
  std::span<const Piece<Kv>> pieces_;
  AttentionShape shape_;
  const float* q_;
  Index q_stride_;
  float* out_;
  Index out_stride_;
};

}  // namespace kernels

template <class Kv>
void Ops::attend(std::span<const Piece<Kv>> pieces, const AttentionShape& shape, ConstMatrix<float> q,
                 Matrix<float> out, OpsScratch& scratch) const {
  require(q.cols() == shape.num_heads * shape.head_dim && out.cols() == q.cols() && out.rows() == q.rows(),
          "attend: shapes of queries and output do not fit together");
  const OpsLimits& limits = scratch.limits_;
  require(shape.head_dim <= limits.head_dim && shape.num_heads <= limits.num_heads &&
              shape.num_kv_heads <= limits.num_kv_heads && static_cast<Index>(pieces.size()) <= limits.pieces,
          "attend: more heads or sequences than the scratch memory was created for");
  for (const Piece<Kv>& p : pieces) {
    require(p.position + p.count <= limits.max_tokens,
            "attend: a sequence longer than the scratch memory was created for");
  }
  const kernels::AttendCall<Kv> call(*this, pieces, shape, q, out);
  auto task = [&](Index i, int worker) { call.run(i, scratch.worker(worker), scratch.partials_.floats()); };
  executor_->run(call.tasks(), TaskRef(task));
  call.merge_spans(scratch.partials_.floats());
  if (!checked_) return;
  for (const Piece<Kv>& p : pieces) {
    kernels::checked::attend(*this, kernels::checked::SequencePiece(p), shape, q, out);
  }
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
