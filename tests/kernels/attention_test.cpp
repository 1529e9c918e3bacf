// SPDX-License-Identifier: Apache-2.0
//
// Attention over blocks of every format and instruction set against a softmax in double over what the blocks
// hold. Memory beyond the valid positions holds large finite numbers; rows see different numbers of keys, or
// none. And the rule: a row has the same bits alone, beside fifteen others, and whatever lies beyond its last
// key.

#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include "kernel_tables.hpp"

using namespace kernel_tests;
using qwenlite::block_positions;
using qwenlite::KvBlock;
using qwenlite::KvFormat;
using qwenlite::round_up;
using qwenlite::kernels::max_query_rows;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Keys and values of consecutive positions in blocks, as a cache would hold them.
class Blocks {
 public:
  Blocks(KvFormat format, Index head_dim, Index positions, Index first_position, unsigned seed)
      : format_(format), head_dim_(head_dim) {
    const Index count = qwenlite::ceil_div(positions, block_positions);
    const Index plane = qwenlite::kv_plane_bytes(format, head_dim);
    const std::vector<float> values = random_floats(positions * head_dim * 2, seed);
    for (Index b = 0; b < count; ++b) {
      // 64-byte aligned, and nothing readable after it.
      planes_.push_back(std::make_unique<GuardedMemory>(plane));
      planes_.push_back(std::make_unique<GuardedMemory>(plane));
      blocks_.push_back({.k = planes_[planes_.size() - 2]->data(),
                         .v = planes_.back()->data(),
                         .first = first_position + b * block_positions,
                         .count = std::min(block_positions, positions - b * block_positions),
                         .format = format});
    }
    fill_with_garbage(0, 1e30F);
    for (Index j = 0; j < positions; ++j) {
      const float* key = values.data() + j * head_dim * 2;
      store(j, key, key + head_dim);
    }
  }

  /// Overwrites all positions from `from` on, relative to the first block.
  void fill_with_garbage(Index from, float size) {
    std::vector<float> garbage(static_cast<std::size_t>(head_dim_));
    for (Index j = from; j < static_cast<Index>(blocks_.size()) * block_positions; ++j) {
      for (Index d = 0; d < head_dim_; ++d) {
        garbage[static_cast<std::size_t>(d)] = (j * 31 + d * 7) % 3 == 0 ? -size : size;
      }
      store(j, garbage.data(), garbage.data());
    }
  }

  void store(Index j, const float* key, const float* value) {
    const auto b = static_cast<std::size_t>(j / block_positions);
    restored_.clear();
    qwenlite::store_kv(format_, head_dim_, j % block_positions, key, value, planes_[b * 2]->data(),
                       planes_[b * 2 + 1]->data());
  }

  [[nodiscard]] double key(Index j, Index d) const { return restored().at(at(j, d)).key; }
  [[nodiscard]] double value(Index j, Index d) const { return restored().at(at(j, d)).value; }
  /// What an output may be off by, relative to rounding, for its probability: kernels that sum rotated values
  /// round them all alike.
  [[nodiscard]] double size(Index j, Index d) const { return restored().at(at(j, d)).size; }
  /// As the block has it: rotated, if it is int4.
  [[nodiscard]] double stored_key(Index j, Index d) const { return stored(qwenlite::key_in, j, d); }
  [[nodiscard]] bool rotated() const { return format_ == KvFormat::int4; }

  std::vector<KvBlock> blocks_;

 private:
  using Element = float (*)(const KvBlock& block, Index head_dim, Index row, Index d) noexcept;
  struct Numbers {
    double key;
    double value;
    double size;
  };

  [[nodiscard]] std::size_t at(Index j, Index d) const { return static_cast<std::size_t>(j * head_dim_ + d); }
  [[nodiscard]] double stored(Element of, Index j, Index d) const {
    const KvBlock& block = blocks_[static_cast<std::size_t>(j / block_positions)];
    return static_cast<double>(of(block, head_dim_, j % block_positions, d));
  }

  /// All positions as they were before their rotation, which is undone here by the matrix itself.
  [[nodiscard]] const std::vector<Numbers>& restored() const {
    if (!restored_.empty()) return restored_;
    const double factor = 1 / std::sqrt(static_cast<double>(head_dim_));
    for (Index j = 0; j < static_cast<Index>(blocks_.size()) * block_positions; ++j) {
      for (Index d = 0; d < head_dim_; ++d) {
        Numbers n{stored(qwenlite::key_in, j, d), stored(qwenlite::value_in, j, d), 0};
        n.size = std::abs(n.value);
        if (rotated()) n = {0, 0, 0};
        for (Index i = 0; i < head_dim_ && rotated(); ++i) {
          const double sign = std::popcount(static_cast<std::size_t>(i & d)) % 2 != 0 ? -factor : factor;
          n.key += sign * stored(qwenlite::key_in, j, i);
          n.value += sign * stored(qwenlite::value_in, j, i);
          n.size += factor * std::abs(stored(qwenlite::value_in, j, i));
        }
        restored_.push_back(n);
      }
    }
    return restored_;
  }

  KvFormat format_;
  Index head_dim_;
  std::vector<std::unique_ptr<GuardedMemory>> planes_;
  mutable std::vector<Numbers> restored_;  // [positions][head_dim], or empty
};

/// Query rows and what each may see.
struct Queries {
  Index head_dim;
  float scale;
  std::vector<float> q;
  std::vector<Index> offset;
  std::vector<Index> last;

  Queries(Index rows, Index dim, unsigned seed)
      : head_dim(dim),
        scale(1.0F / std::sqrt(static_cast<float>(dim))),
        q(random_floats(rows * (dim + 3), seed, 1.5F)),
        last(static_cast<std::size_t>(rows), Index{1} << 40) {
    for (Index r = 0; r < rows; ++r) offset.push_back((rows - 1 - r) * (dim + 3));  // any order
  }
  [[nodiscard]] Index rows() const { return static_cast<Index>(offset.size()); }
};

struct Partial {
  std::vector<float> max;
  std::vector<float> sum;
  std::vector<float> out;
};

Partial attend(const KernelTable& t, const Queries& q, const std::vector<KvBlock>& blocks,
               Precision precision, Index first_row, Index rows) {
  static const GuardedMemory scratch_space(Index{1} << 20);
  const auto count = static_cast<std::size_t>(rows);
  const float stale = 777.0F;  // what earlier calls left behind
  Partial result{std::vector<float>(count, stale), std::vector<float>(count, stale),
                 std::vector<float>(count * static_cast<std::size_t>(q.head_dim), stale)};
  std::byte* scratch = scratch_space.last(round_up(t.attend_scratch_bytes(q.head_dim), 64));
  t.attend_span({.q = q.q.data(),
                 .q_offset = q.offset.data() + first_row,
                 .last = q.last.data() + first_row,
                 .rows = rows,
                 .head_dim = q.head_dim,
                 .scale = q.scale,
                 .precision = precision,
                 .blocks = blocks.data(),
                 .block_count = static_cast<Index>(blocks.size()),
                 .max = result.max.data(),
                 .sum = result.sum.data(),
                 .out = result.out.data(),
                 .scratch = scratch});
  return result;
}

Partial attend(const KernelTable& t, const Queries& q, const std::vector<KvBlock>& blocks,
               Precision precision) {
  return attend(t, q, blocks, precision, 0, q.rows());
}

bool same_row(const Partial& a, Index ra, const Partial& b, Index rb, Index head_dim) {
  return same_bits(&a.max[static_cast<std::size_t>(ra)], &b.max[static_cast<std::size_t>(rb)], 1) &&
         same_bits(&a.sum[static_cast<std::size_t>(ra)], &b.sum[static_cast<std::size_t>(rb)], 1) &&
         same_bits(a.out.data() + ra * head_dim, b.out.data() + rb * head_dim, head_dim);
}

/// The softmax of one row in double over its first `visible` positions; true when `got` is close enough.
bool close_to_reference(const Queries& q, Index r, const Blocks& kv, Index visible, bool rounded,
                        const Partial& got) {
  const auto at = static_cast<std::size_t>(r);
  if (visible <= 0) {
    bool empty = got.max[at] == -infinity && got.sum[at] == 0;
    for (Index d = 0; d < q.head_dim; ++d)
      empty &= got.out[static_cast<std::size_t>(r * q.head_dim + d)] == 0;
    return empty;
  }
  const bool turned = rounded && kv.rotated();  // rounded after its rotation
  std::vector<float> row(q.q.data() + q.offset[at], q.q.data() + q.offset[at] + q.head_dim);
  if (turned) qwenlite::rotate(row.data(), q.head_dim);
  for (float& x : row) x = rounded ? round_to_bf16(x) : x;
  std::vector<double> p(static_cast<std::size_t>(visible));
  double top = -1e300;
  for (Index j = 0; j < visible; ++j) {
    double dot = 0;
    for (Index d = 0; d < q.head_dim; ++d) {
      dot += static_cast<double>(row[static_cast<std::size_t>(d)]) *
             (turned ? kv.stored_key(j, d) : kv.key(j, d));
    }
    p[static_cast<std::size_t>(j)] = dot * static_cast<double>(q.scale);
    top = std::max(top, p[static_cast<std::size_t>(j)]);
  }
  double sum = 0;
  for (double& e : p) sum += e = std::exp(e - top);
  const double limit = rounded ? 4e-3 : 3e-6;  // probabilities rounded to 8 bits, or all in float32
  // The maximum is the kernel's own: compare sums relative to it.
  const double shift = std::exp(static_cast<double>(got.max[at]) - top);
  bool close = std::abs(static_cast<double>(got.max[at]) - top) < 1e-5 &&
               std::abs(static_cast<double>(got.sum[at]) * shift / sum - 1) < 3e-6;
  for (Index d = 0; d < q.head_dim; ++d) {
    double value = 0;
    double size = 0;
    for (Index j = 0; j < visible; ++j) {
      value += p[static_cast<std::size_t>(j)] * kv.value(j, d);
      size += p[static_cast<std::size_t>(j)] * kv.size(j, d);
    }
    const double out = static_cast<double>(got.out[static_cast<std::size_t>(r * q.head_dim + d)]);
    close &= std::abs(out * shift - value) <= limit * size;
  }
  return close;
}

/// True when this table rounds queries and probabilities to bf16.
bool rounds(const KernelTable& t, KvFormat kv, Precision precision) {
  return kv != KvFormat::f32 && rounds_to_bf16(t.layout(Format::bf16, precision));
}

bool fits(KvFormat kv, Index head_dim) {
  return kv != KvFormat::int4 || qwenlite::can_rotate(head_dim);
}

/// Calls f(table, kv format, precision) for everything that can run here.
template <class Function>
void for_each_kind(const Function& f) {
  for (const KernelTable* t : runnable_tables()) {
    for (const KvFormat kv : qwenlite::kv_formats) {
      for (const Precision precision : {Precision::exact, Precision::bf16}) {
        INFO(t->name << " kv " << name_of(kv) << " " << name_of(precision));
        f(*t, kv, precision);
      }
    }
  }
}

constexpr Index first_position = 1024;

}  // namespace

TEST_CASE("attend_span: agrees with a softmax in double for every mask and size") {
  for_each_kind([](const KernelTable& t, KvFormat kv, Precision precision) {
    for (const Index head_dim : {2, 8, 10, 32, 48, 64, 96, 128, 256}) {
      if (!fits(kv, head_dim)) continue;
      for (const Index positions : {1, 2, 31, 32, 33, 63, 64, 65, 130, 200}) {
        const Blocks blocks(kv, head_dim, positions, first_position, static_cast<unsigned>(positions));
        for (const Index rows : {1, 2, 3, 4, 7, 16}) {
          INFO("head_dim " << head_dim << " positions " << positions << " rows " << rows);
          Queries q(rows, head_dim, static_cast<unsigned>(rows + head_dim));
          bool close = true;
          // Row r sees a different part: some nothing, some all, some more than there is.
          for (Index r = 0; r < rows; ++r) {
            q.last[static_cast<std::size_t>(r)] = first_position - 2 + (r * 53 + positions) % (positions + 5);
          }
          const Partial got = attend(t, q, blocks.blocks_, precision);
          for (Index r = 0; r < rows; ++r) {
            const Index visible =
                std::min(positions, q.last[static_cast<std::size_t>(r)] - first_position + 1);
            close &= close_to_reference(q, r, blocks, visible, rounds(t, kv, precision), got);
          }
          CHECK(close);
        }
      }
    }
  });
}

TEST_CASE("attend_span: a row has the same bits alone, in any group and beside any rows") {
  for_each_kind([](const KernelTable& t, KvFormat kv, Precision precision) {
    for (const Index head_dim : {10, 64, 128}) {
      if (!fits(kv, head_dim)) continue;
      const Blocks blocks(kv, head_dim, 200, first_position, 7);
      Queries q(max_query_rows, head_dim, 8);
      for (Index r = 0; r < q.rows(); ++r) q.last[static_cast<std::size_t>(r)] = first_position - 1 + r * 13;
      const Partial all = attend(t, q, blocks.blocks_, precision);
      bool same = true;
      for (const Index group : {1, 2, 3, 5, 8}) {
        for (Index r = 0; r < q.rows(); r += group) {
          const Index rows = std::min(group, q.rows() - r);
          const Partial part = attend(t, q, blocks.blocks_, precision, r, rows);
          for (Index i = 0; i < rows; ++i) same &= same_row(part, i, all, r + i, head_dim);
        }
      }
      CHECK(same);
    }
  });
}

TEST_CASE("attend_span: what lies beyond a row's last key changes nothing") {
  for_each_kind([](const KernelTable& t, KvFormat kv, Precision precision) {
    const Index head_dim = 64;
    for (const Index visible : {1, 2, 31, 32, 33, 63, 64, 65, 100, 128}) {
      INFO("visible " << visible);
      Blocks blocks(kv, head_dim, 192, first_position, 21);
      Queries q(3, head_dim, 22);
      q.last.assign(3, first_position + visible - 1);
      const Partial before = attend(t, q, blocks.blocks_, precision);
      blocks.fill_with_garbage(visible, kv == KvFormat::int4 ? 1e36F : 3e38F);  // rotated, it is larger
      CHECK(attend(t, q, blocks.blocks_, precision).out == before.out);
      // The same keys in a cache that ends right there, and with blocks nobody sees removed.
      auto ended = blocks.blocks_;
      ended.resize(static_cast<std::size_t>(qwenlite::ceil_div(visible, block_positions)));
      ended.back().count = visible - (static_cast<Index>(ended.size()) - 1) * block_positions;
      const Partial after = attend(t, q, ended, precision);
      for (Index r = 0; r < 3; ++r) CHECK(same_row(before, r, after, r, head_dim));
    }
  });
}

TEST_CASE("attend_span: large scores stay finite and pick their key") {
  for_each_kind([](const KernelTable& t, KvFormat kv, Precision precision) {
    const Index head_dim = 32;
    Blocks blocks(kv, head_dim, 130, 0, 31);
    std::vector<float> strong(static_cast<std::size_t>(head_dim), 64.0F);
    std::vector<float> answer(static_cast<std::size_t>(head_dim), 0.5F);
    blocks.store(77, strong.data(), answer.data());
    Queries q(2, head_dim, 32);
    std::fill(q.q.begin(), q.q.end(), 64.0F);
    q.scale = 1.0F;  // the score of key 77 is 131,072
    const Partial got = attend(t, q, blocks.blocks_, precision);
    const float nearly = rounds(t, kv, precision) ? 4e-3F : 1e-6F;
    CHECK(std::abs(got.max[0] / 131072.0F - 1) <= (is_compressed(kv) ? nearly : 0.0F));
    // A score that is not whole may lie beside the float32 maximum.
    CHECK(std::abs(got.sum[0] - 1.0F) <= (is_compressed(kv) ? 0.008F : 0.0F));
    // The probability is 1, but times a scale it may be rounded.
    const double limit = !is_compressed(kv) ? 0 : rounds(t, kv, precision) ? 4e-3 : 1e-6;
    for (Index d = 0; d < head_dim; ++d) {
      const double out = static_cast<double>(got.out[static_cast<std::size_t>(d)] / got.sum[0]);
      CHECK(std::abs(out - blocks.value(77, d)) <= limit * blocks.size(77, d));
    }
  });
}

TEST_CASE("merge_span: spans merged in order equal one softmax over all") {
  for_each_kind([](const KernelTable& t, KvFormat kv, Precision precision) {
    for (const Index head_dim : {10, 64}) {
      if (!fits(kv, head_dim)) continue;
      const Index rows = 5;
      const Blocks blocks(kv, head_dim, 256, first_position, 41);
      Queries q(rows, head_dim, 42);
      for (Index r = 0; r < rows; ++r) q.last[static_cast<std::size_t>(r)] = first_position + 70 + r * 45;
      const std::vector<KvBlock> early(blocks.blocks_.begin(), blocks.blocks_.begin() + 2);
      const std::vector<KvBlock> late(blocks.blocks_.begin() + 2, blocks.blocks_.end());
      Partial merged = attend(t, q, early, precision);
      const Partial first = merged;
      const Partial second = attend(t, q, late, precision);
      t.merge_span({.max = merged.max.data(),
                    .sum = merged.sum.data(),
                    .out = merged.out.data(),
                    .span_max = second.max.data(),
                    .span_sum = second.sum.data(),
                    .span_out = second.out.data(),
                    .rows = rows,
                    .head_dim = head_dim});
      for (Index r = 0; r < rows; ++r) {
        const Index visible = q.last[static_cast<std::size_t>(r)] - first_position + 1;
        CHECK(close_to_reference(q, r, blocks, visible, rounds(t, kv, precision), merged));
        if (visible <= 128) CHECK(same_row(merged, r, first, r, head_dim));  // saw nothing of the later span
      }
    }
  });
}

TEST_CASE("merge_span: folding into an empty result gives the later span") {
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    const Index head_dim = 13;
    std::vector<float> max{-infinity};
    std::vector<float> sum{0.0F};
    std::vector<float> out(head_dim, 0.0F);
    const std::vector<float> later = random_floats(head_dim, 51);
    const float later_max = -3.25F;
    const float later_sum = 1.75F;
    t->merge_span({.max = max.data(),
                   .sum = sum.data(),
                   .out = out.data(),
                   .span_max = &later_max,
                   .span_sum = &later_sum,
                   .span_out = later.data(),
                   .rows = 1,
                   .head_dim = head_dim});
    CHECK(max[0] == later_max);
    CHECK(sum[0] == later_sum);
    CHECK(out == later);
  }
}
