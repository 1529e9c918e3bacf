// SPDX-License-Identifier: Apache-2.0
//
// The contract of key/value policies: blocks, formats, lengths, cutting back, capacity.
#include <cmath>
#include <fstream>
#include <limits>
#include <vector>

#include <qwenlite/cache/kv_cache.hpp>
#include <qwenlite/cache/stateless.hpp>
#include <qwenlite/layers/attention.hpp>

#include "catch_any.hpp"

namespace ql = qwenlite;
using ql::Index;

static_assert(ql::KvPolicy<ql::KvCache<>>);
static_assert(ql::KvPolicy<ql::KvCache<ql::Bf16>>);
static_assert(ql::KvPolicy<ql::KvCache<float>>);
static_assert(ql::KvPolicy<ql::NoCache>);
static_assert(!ql::KvPolicy<ql::Stateless>);
static_assert(ql::KvCache<>::retains && !ql::NoCache::retains);
static_assert(!std::is_copy_constructible_v<ql::KvCache<>> && std::is_move_constructible_v<ql::KvCache<>>);

namespace {

constexpr ql::KvLayout layout{.layers = 3, .kv_heads = 2, .head_dim = 5, .max_tokens = 200};
constexpr Index width = layout.kv_heads * layout.head_dim;

/// A number that tells where it belongs, exact in bf16's 8 bits of fraction only now and then.
float key_at(Index layer, Index position, Index column) {
  return static_cast<float>(layer * 1000 + position) + static_cast<float>(column) / 16;
}
float value_at(Index layer, Index position, Index column) {
  return -key_at(layer, position, column) - 0.25F;
}

template <class Kv>
void append_layer(Kv& cache, Index layer, Index first, Index count, float factor = 1) {
  std::vector<float> k;
  std::vector<float> v;
  for (Index t = 0; t < count; ++t) {
    for (Index c = 0; c < width; ++c) k.push_back(factor * key_at(layer, first + t, c));
    for (Index c = 0; c < width; ++c) v.push_back(factor * value_at(layer, first + t, c));
  }
  const Eigen::OuterStride<> stride(width);
  cache.append(layer, first, ql::ConstMatrix<float>(k.data(), count, width, stride),
               ql::ConstMatrix<float>(v.data(), count, width, stride));
}

template <class Kv>
void append_all(Kv& cache, Index first, Index count) {
  for (Index layer = 0; layer < layout.layers; ++layer) append_layer(cache, layer, first, count);
  cache.advance(count);
}

/// Element of a plane as the kernels read it.
float key_in(const ql::KvBlock& block, Index row, Index d) {
  const Index i = row * layout.head_dim + d;
  return block.format == ql::KvFormat::f32 ? ql::decode(ql::Format::f32, block.k, i)
                                           : ql::decode(ql::Format::bf16, block.k, i);
}
float value_in(const ql::KvBlock& block, Index row, Index d) {
  const Index i = (row / 2 * layout.head_dim + d) * 2 + row % 2;
  return block.format == ql::KvFormat::f32 ? ql::decode(ql::Format::f32, block.v, i)
                                           : ql::decode(ql::Format::bf16, block.v, i);
}
float rounded(float value, ql::KvFormat format) {
  return format == ql::KvFormat::f32 ? value : static_cast<float>(ql::Bf16(value));
}

template <class Kv>
void check_layer(const Kv& cache, Index layer, Index written, ql::KvFormat format) {
  for (Index head = 0; head < layout.kv_heads; ++head) {
    for (Index first = 0; first < written; first += 64) {
      const ql::KvBlock block = cache.block(layer, head, first / 64);
      REQUIRE(block.first == first);
      REQUIRE(block.count == std::min<Index>(64, written - first));
      REQUIRE(block.format == format);
      REQUIRE(reinterpret_cast<std::uintptr_t>(block.k) % 64 == 0);
      REQUIRE(reinterpret_cast<std::uintptr_t>(block.v) % 64 == 0);
      bool same = true;
      for (Index row = 0; row < block.count; ++row) {
        for (Index d = 0; d < layout.head_dim; ++d) {
          const Index column = head * layout.head_dim + d;
          same = same && key_in(block, row, d) == rounded(key_at(layer, first + row, column), format) &&
                 value_in(block, row, d) == rounded(value_at(layer, first + row, column), format);
        }
      }
      REQUIRE(same);
    }
  }
}

template <class Kv>
bool all_finite(const Kv& cache, Index layer, Index blocks) {
  for (Index head = 0; head < layout.kv_heads; ++head) {
    for (Index index = 0; index < blocks; ++index) {
      const ql::KvBlock block = cache.block(layer, head, index);
      for (Index row = 0; row < 64; ++row) {
        for (Index d = 0; d < layout.head_dim; ++d) {
          if (!std::isfinite(key_in(block, row, d)) || !std::isfinite(value_in(block, row, d))) return false;
        }
      }
    }
  }
  return true;
}

}  // namespace

TEST_CASE("KvCache hands out what was appended, in both formats and any pieces") {
  const auto format = GENERATE(ql::KvFormat::f32, ql::KvFormat::bf16);
  ql::KvCache<> cache(layout, format);
  REQUIRE(cache.length() == 0);
  Index length = 0;
  for (const Index count : {1, 62, 2, 64, 71}) {
    append_all(cache, length, count);
    length += count;
    REQUIRE(cache.length() == length);
    for (Index layer = 0; layer < layout.layers; ++layer) check_layer(cache, layer, length, format);
  }
  REQUIRE(length == layout.max_tokens);
}

TEST_CASE("KvCache counts rows of a forward under way in blocks, not in the length") {
  ql::KvCache<> cache(layout, ql::KvFormat::f32);
  append_all(cache, 0, 10);
  append_layer(cache, 0, 10, 7);
  REQUIRE(cache.length() == 10);
  REQUIRE(cache.block(0, 0, 0).count == 17);
  check_layer(cache, 0, 17, ql::KvFormat::f32);

  // The forward failed; the next one starts from the length.
  append_all(cache, 10, 3);
  REQUIRE(cache.length() == 13);
  for (Index layer = 0; layer < layout.layers; ++layer) check_layer(cache, layer, 13, ql::KvFormat::f32);
}

TEST_CASE("KvCache cut back and filled again is as new") {
  const Index cut = GENERATE(0, 1, 63, 64, 65, 127, 128, 150);
  ql::KvCache<float> cache(layout);
  append_all(cache, 0, 150);
  cache.truncate(cut);
  REQUIRE(cache.length() == cut);
  for (Index layer = 0; layer < layout.layers; ++layer) check_layer(cache, layer, cut, ql::KvFormat::f32);
  append_all(cache, cut, 180 - cut);
  for (Index layer = 0; layer < layout.layers; ++layer) check_layer(cache, layer, 180, ql::KvFormat::f32);

  REQUIRE_THROWS_AS(cache.truncate(181), ql::Error);
  REQUIRE_THROWS_AS(cache.truncate(-1), ql::Error);
  REQUIRE(cache.length() == 180);
}

TEST_CASE("KvCache leaves nothing infinite behind rows that were cut off") {
  const Index cut = GENERATE(0, 1, 40, 63, 64, 65);
  const float poison =
      GENERATE(std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN());
  ql::KvCache<> cache(layout, ql::KvFormat::bf16);
  append_all(cache, 0, cut);
  for (Index layer = 0; layer < layout.layers; ++layer) append_layer(cache, layer, cut, 150 - cut, poison);
  cache.advance(150 - cut);
  REQUIRE_FALSE(all_finite(cache, 1, 3));
  cache.truncate(cut);
  append_all(cache, cut, 130 - cut);
  for (Index layer = 0; layer < layout.layers; ++layer) REQUIRE(all_finite(cache, layer, 3));
}

TEST_CASE("KvCache tells its memory") {
  ql::KvCache<> cache({.layers = 4, .kv_heads = 3, .head_dim = 32, .max_tokens = 130}, ql::KvFormat::bf16);
  const Index needed = Index{4} * 3 * 2 * 32 * 2 * 192;  // layers, heads, k and v, width, bytes, 3 blocks
  REQUIRE(cache.bytes() >= needed);
  REQUIRE(cache.bytes() <= needed * 13 / 12);
  REQUIRE(cache.used_bytes() == 0);
  cache.advance(65);
  REQUIRE(cache.used_bytes() == cache.bytes() / 3 * 2);
}

TEST_CASE("KvCache reserves without committing") {
  const auto resident_pages = [] {
    Index size = 0;
    Index resident = 0;
    std::ifstream("/proc/self/statm") >> size >> resident;
    return resident;
  };
  const Index before = resident_pages();
  const ql::KvLayout large{.layers = 32, .kv_heads = 8, .head_dim = 128, .max_tokens = 1 << 13};
  ql::KvCache<> cache(large, ql::KvFormat::bf16);
  REQUIRE(cache.bytes() >= Index{1} << 30);
  REQUIRE((resident_pages() - before) * 4096 < cache.bytes() / 4);
  ql::KvCache<> moved = std::move(cache);
  REQUIRE(moved.block(31, 7, 100).k != nullptr);
}

TEST_CASE("KvCache refuses what it cannot hold") {
  ql::KvCache<> cache(layout, ql::KvFormat::f32);
  append_all(cache, 0, 199);
  try {
    append_layer(cache, 0, 199, 2);
    FAIL("no error");
  } catch (const ql::Error& e) {
    REQUIRE(e.code() == ql::ErrorCode::context_full);
    REQUIRE_THAT(e.what(), has_text("201") && has_text("200"));
  }
  const Index huge = std::numeric_limits<Index>::max() / 2;
  for (const ql::KvLayout wrong :
       {ql::KvLayout{0, 1, 1, 1}, ql::KvLayout{1, -1, 1, 1}, ql::KvLayout{1, 1, 1, 0},
        ql::KvLayout{1, 1, huge, 1}, ql::KvLayout{huge, 8, 128, 64}, ql::KvLayout{64, 8, 128, huge},
        ql::KvLayout{1 << 20, 1 << 11, 1024, 1 << 27}}) {
    REQUIRE_THROWS_AS(ql::KvCache<>(wrong, ql::KvFormat::f32), ql::Error);
  }
}

TEST_CASE("NoCache refuses impossible sizes") {
  const Index huge = std::numeric_limits<Index>::max() / 2;
  for (const ql::KvLayout wrong : {ql::KvLayout{0, 1, 1, 1}, ql::KvLayout{1, 1, 1, -5},
                                   ql::KvLayout{1, 1, huge, 1}, ql::KvLayout{64, 8, 128, huge}}) {
    REQUIRE_THROWS_AS(ql::NoCache(wrong, ql::KvFormat::f32), ql::Error);
  }
}

TEST_CASE("a cache of fixed format refuses another one") {
  REQUIRE(ql::KvCache<ql::Bf16>(layout).format() == ql::KvFormat::bf16);
  REQUIRE(ql::KvCache<float>(layout).format() == ql::KvFormat::f32);
  REQUIRE(ql::KvCache<>(layout).format() == ql::KvFormat::bf16);
  REQUIRE_THROWS_WITH((ql::KvCache<ql::Bf16>(layout, ql::KvFormat::f32)),
                      has_text("f32") && has_text("bf16"));
  REQUIRE_THROWS_WITH((ql::KvCache<float>(layout, ql::KvFormat::bf16)), has_text("f32") && has_text("bf16"));
}

TEST_CASE("NoCache holds one layer at a time and remembers nothing") {
  ql::NoCache cache(layout, ql::KvFormat::f32);
  for (Index layer = 0; layer < layout.layers; ++layer) {
    append_layer(cache, layer, 0, 70);
    check_layer(cache, layer, 70, ql::KvFormat::f32);
    append_layer(cache, layer, 70, 30);
    check_layer(cache, layer, 100, ql::KvFormat::f32);
  }
  cache.advance(100);
  REQUIRE(cache.length() == 0);
  REQUIRE(cache.used_bytes() == 0);
  REQUIRE(cache.bytes() < ql::KvCache<>(layout, ql::KvFormat::f32).bytes());
}
