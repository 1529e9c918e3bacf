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

/// A partial attention result of up to sixteen rows: [16] maximum, [16] sum, [16][head_dim] output.
struct PartialResult {
  float* max;
  float* sum;
  float* out;

  explicit PartialResult(float* memory)
      : max(memory), sum(memory + max_query_rows), out(memory + 2 * max_query_rows) {}
  static constexpr Index floats(Index head_dim) { return max_query_rows * (head_dim + 2); }
};

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
  ops.table().attend_span({.q = q,
                           .q_offset = rows.q_offset,
                           .last = rows.last,
                           .rows = rows.rows,
                           .head_dim = shape.head_dim,
                           .scale = shape.scale,
                           .precision = ops.precision(),
                           .blocks = blocks,
                           .block_count = end - first,
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

}  // namespace kernels

template <class Kv>
void Ops::attend(std::span<const Piece<Kv>> pieces, const AttentionShape& shape, ConstMatrix<float> q,
                 Matrix<float> out, OpsScratch& scratch) const {
  using namespace kernels;
  require(q.cols() == shape.num_heads * shape.head_dim && out.cols() == q.cols() && out.rows() == q.rows(),
          "attend: shapes of queries and output do not fit together");
  const OpsLimits& limits = scratch.limits_;
  require(shape.head_dim <= limits.head_dim && shape.num_heads <= limits.num_heads &&
              shape.num_kv_heads <= limits.num_kv_heads && static_cast<Index>(pieces.size()) <= limits.pieces,
          "attend: more heads or sequences than the scratch memory was created for");
  const Index group = shape.num_heads / shape.num_kv_heads;
  const Index floats = PartialResult::floats(shape.head_dim);
  const auto tiling = [&](const Piece<Kv>& p) { return Tiling(group, p.count, p.position + p.count - 1); };

  Index tasks = 0;
  for (const Piece<Kv>& p : pieces) {
    require(p.position + p.count <= limits.max_tokens,
            "attend: a sequence longer than the scratch memory was created for");
    tasks += tiling(p).tasks_per_head() * shape.num_kv_heads;
  }
  auto task = [&](Index i, int worker) {
    const Piece<Kv>* piece = pieces.data();
    Index partial = 0;  // span results stored by the pieces before
    for (;; ++piece) {
      const Tiling t = tiling(*piece);
      const Index own = t.tasks_per_head() * shape.num_kv_heads;
      if (i < own) break;
      i -= own;
      if (t.spans > 1) partial += own;
    }
    const Tiling t = tiling(*piece);
    const Index kv_head = i / t.tasks_per_head();
    const Index in_head = i % t.tasks_per_head();
    const TileRows rows(*piece, t.tile(in_head / t.spans, group, piece->count), shape, kv_head,
                        q.outerStride());
    auto* memory = reinterpret_cast<float*>(scratch.worker(worker));
    const PartialResult total(memory);
    const PartialResult next(memory + floats);
    std::byte* rest = scratch.worker(worker) + round_up(2 * floats * 4, 64);
    if (t.spans > 1) {
      const PartialResult own(scratch.partials_.floats() + (partial + i) * floats);
      return attend_one_span(*this, *piece->cache, shape, kv_head, in_head % t.spans, rows, q.data(), own,
                             rest);
    }
    for (Index span = 0; span <= rows.last[rows.rows - 1] / span_positions; ++span) {
      attend_one_span(*this, *piece->cache, shape, kv_head, span, rows, q.data(), span == 0 ? total : next,
                      rest);
      if (span > 0) merge(*table_, total, next, rows.rows, shape.head_dim);
    }
    finish(total, rows, shape.head_dim, out.data(), q.outerStride(), out.outerStride());
  };
  executor_->run(tasks, TaskRef(task));

  float* partial = scratch.partials_.floats();
  for (const Piece<Kv>& p : pieces) {
    const Tiling t = tiling(p);
    if (t.spans == 1) continue;
    for (Index tile = 0; tile < t.head_tiles * shape.num_kv_heads; ++tile) {
      const TileRows rows(p, t.tile(tile % t.head_tiles, group, p.count), shape, tile / t.head_tiles,
                          q.outerStride());
      const PartialResult total(partial);
      for (Index span = 1; span < t.spans; ++span) {
        merge(*table_, total, PartialResult(partial + span * floats), rows.rows, shape.head_dim);
      }
      finish(total, rows, shape.head_dim, out.data(), q.outerStride(), out.outerStride());
      partial += t.spans * floats;
    }
  }
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
