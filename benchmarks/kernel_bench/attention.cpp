// SPDX-License-Identifier: Apache-2.0
//
// Attention over a cache: one token after a long context, and a chunk of a prompt at its beginning and far
// into it. Calls go through the model's layers in turn, so keys and values come from memory as they do in
// use.

#include <qwenlite/cache/kv_cache.hpp>

#include "bench.hpp"

namespace kernel_bench {

namespace {

struct Heads {
  const char* name;
  Index layers;
  Index num_heads;
  Index num_kv_heads;
  Index head_dim;
};
constexpr Heads shapes[] = {{"0.6b", 28, 16, 8, 128}, {"0.8b", 6, 8, 2, 256}};

struct Case {
  Index tokens;
  Index context;  ///< before them
};

using Cache = qwenlite::KvCache<>;

/// A cache of random keys and values, `length` positions in every layer.
[[nodiscard]] Cache filled_cache(const Heads& heads, Index length, qwenlite::KvFormat format) {
  const qwenlite::KvLayout layout{heads.layers, heads.num_kv_heads, heads.head_dim, length};
  Cache cache(layout, format);
  const Index width = heads.num_kv_heads * heads.head_dim;
  const AlignedBuffer rows = random_floats(length * width);
  const qwenlite::ConstMatrix<float> kv(rows.floats(), length, width, Eigen::OuterStride<>(width));
  for (Index layer = 0; layer < heads.layers; ++layer) cache.append(layer, 0, kv, kv);
  cache.advance(length);
  return cache;
}

[[nodiscard]] double bytes_per_position(const Heads& heads, qwenlite::KvFormat format) {
  return 2 * static_cast<double>(heads.num_kv_heads * kv_plane_bytes(format, heads.head_dim)) /
         static_cast<double>(qwenlite::block_positions);
}

void attention(benchmark::State& state, const KernelTable& table, const Heads& heads,
               qwenlite::KvFormat format, const Case& at) {
  const Index length = at.context + at.tokens;
  const Cache cache = filled_cache(heads, length, format);
  const qwenlite::Ops ops = Setting::get().ops(table);
  qwenlite::OpsScratch scratch(ops, {.tokens = at.tokens,
                                     .head_dim = heads.head_dim,
                                     .num_heads = heads.num_heads,
                                     .num_kv_heads = heads.num_kv_heads,
                                     .max_tokens = length});
  const Index width = heads.num_heads * heads.head_dim;
  AlignedBuffer q = random_floats(at.tokens * width);
  AlignedBuffer y(at.tokens * width * 4);
  const qwenlite::ConstMatrix<float> in(q.floats(), at.tokens, width, Eigen::OuterStride<>(width));
  const qwenlite::Matrix<float> out(y.floats(), at.tokens, width, Eigen::OuterStride<>(width));
  const qwenlite::Piece<Cache> piece{.cache = &cache, .count = at.tokens, .position = at.context};
  qwenlite::AttentionShape shape{.num_heads = heads.num_heads,
                                 .num_kv_heads = heads.num_kv_heads,
                                 .head_dim = heads.head_dim,
                                 .scale = 1 / std::sqrt(static_cast<float>(heads.head_dim))};
  const double seconds = time_each(state, [&] {
    ops.attend(std::span(&piece, 1), shape, in, out, scratch);
    shape.layer = (shape.layer + 1) % heads.layers;
  });
  const double positions = static_cast<double>(at.context) + static_cast<double>(at.tokens + 1) / 2;
  const bench::Roofline& roof = Setting::get().roofline(table);
  const bool tiles = format != qwenlite::KvFormat::f32;
  report(state, table,
         {.seconds = seconds,
          .bytes = static_cast<double>(length) * bytes_per_position(heads, format),
          .flop = 4.0 * static_cast<double>(at.tokens * width) * positions,
          .roof_gflop_s = tiles ? roof.product_gflop_s() : roof.fma_gflop_s.value_or(0)});
}

}  // namespace

void add_attention() {
  constexpr Case cases[] = {{1, 127}, {1, 8191}, {512, 0}, {512, 7680}};
  for (const Heads& heads : shapes) {
    for (const qwenlite::KvFormat format : qwenlite::kv_formats) {
      for (const KernelTable* table : tables()) {
        for (const Case& at : cases) {
          const std::string name =
              "attention/" + std::string(heads.name) + "/" + std::string(name_of(format)) + "/" +
              table->name + "/T:" + std::to_string(at.tokens) + "/context:" + std::to_string(at.context);
          benchmark::RegisterBenchmark(name.c_str(), [=, &heads](benchmark::State& state) {
            attention(state, *table, heads, format, at);
          })->UseRealTime();
        }
      }
    }
  }
}

}  // namespace kernel_bench
