// SPDX-License-Identifier: Apache-2.0
//
// Compressed keys and values: what a plane looks like byte by byte, how far a stored number may be from the
// one given, rows that are hard (zeros, outliers, tiny, not finite), cutting back, memory.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <qwenlite/cache/kv_cache.hpp>
#include <qwenlite/layers/attention.hpp>

#include "../../examples/block_cache.hpp"
#include "catch_any.hpp"

namespace ql = qwenlite;
using ql::Index;
using ql::KvFormat;

static_assert(ql::KvPolicy<ql::KvCache<ql::Int8>> && ql::HeadwiseKv<ql::KvCache<ql::Int4>>);
static_assert(ql::KvCache<ql::Fp8>::default_format == KvFormat::fp8);
static_assert(ql::kv_plane_bytes(KvFormat::int8, 128) == 64 * (128 + 4));
static_assert(ql::kv_plane_bytes(KvFormat::fp8, 33) == 64 * (64 + 4));
static_assert(ql::kv_plane_bytes(KvFormat::int4, 128) == 64 * (64 + 4));
static_assert(ql::kv_plane_bytes(KvFormat::int4, 2) == 64 * (16 + 4));

namespace {

constexpr KvFormat compressed[] = {KvFormat::int8, KvFormat::fp8, KvFormat::int4};

std::vector<float> random_row(Index n, unsigned seed, float spread = 1) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> row(static_cast<std::size_t>(n));
  for (float& x : row) x = normal(bits);
  return row;
}

/// One block on its own.
struct Planes {
  KvFormat format;
  Index head_dim;
  ql::AlignedBuffer memory{2 * ql::kv_plane_bytes(format, head_dim)};

  [[nodiscard]] std::byte* k() const { return memory.data(); }
  [[nodiscard]] std::byte* v() const { return memory.data() + ql::kv_plane_bytes(format, head_dim); }
  [[nodiscard]] ql::KvBlock block() const { return {k(), v(), 0, 64, format}; }
  void store(Index row, const std::vector<float>& key, const std::vector<float>& value) const {
    ql::store_kv(format, head_dim, row, key.data(), value.data(), k(), v());
  }
  /// The key at `row` as it was before any rotation.
  [[nodiscard]] std::vector<float> key(Index row) const { return restored(ql::key_in, row); }
  [[nodiscard]] std::vector<float> value(Index row) const { return restored(ql::value_in, row); }
  [[nodiscard]] std::vector<std::uint8_t> codes_of_key(Index row) const {
    const Index bytes = ql::kv_row_bytes(format, head_dim);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(bytes));
    std::memcpy(codes.data(), k() + row * bytes, codes.size());
    return codes;
  }

 private:
  template <class Element>
  [[nodiscard]] std::vector<float> restored(const Element& element, Index row) const {
    std::vector<float> out;
    for (Index d = 0; d < head_dim; ++d) out.push_back(element(block(), head_dim, row, d));
    if (format == KvFormat::int4) ql::rotate(out.data(), head_dim);
    return out;
  }
};

double relative_error(const std::vector<float>& found, const std::vector<float>& expected) {
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = static_cast<double>(found[i]) - static_cast<double>(expected[i]);
    error += difference * difference;
    size += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return std::sqrt(error / size);
}

/// Of a row of normally distributed numbers.
double expected_error(KvFormat format) {
  return format == KvFormat::int8 ? 0.009 : format == KvFormat::fp8 ? 0.036 : 0.13;
}

constexpr ql::KvLayout layout{.layers = 3, .kv_heads = 2, .head_dim = 16, .max_tokens = 200};

std::vector<float> rows_of(Index first, Index count, float factor = 1) {
  std::vector<float> rows;
  for (Index t = first; t < first + count; ++t) {
    for (const float x : random_row(layout.kv_heads * layout.head_dim, static_cast<unsigned>(t))) {
      rows.push_back(factor * x);
    }
  }
  return rows;
}

template <class Kv>
void append(Kv& cache, Index first, Index count, float factor = 1) {
  const Index width = layout.kv_heads * layout.head_dim;
  const std::vector<float> rows = rows_of(first, count, factor);
  const ql::ConstMatrix<float> kv(rows.data(), count, width, Eigen::OuterStride<>(width));
  for (Index layer = 0; layer < layout.layers; ++layer) cache.append(layer, first, kv, kv);
  cache.advance(count);
}

/// All bytes of the positions [0, length), or, whole, of their blocks.
template <class Kv>
std::vector<std::byte> bytes_of(const Kv& cache, Index length, bool whole) {
  std::vector<std::byte> bytes;
  const auto add = [&](const std::byte* from, Index count) { bytes.insert(bytes.end(), from, from + count); };
  for (Index layer = 0; layer < layout.layers; ++layer) {
    for (Index head = 0; head < layout.kv_heads; ++head) {
      for (Index position = 0; position < length; position += 64) {
        const ql::KvBlock block = cache.block(layer, head, position / 64);
        const Index rows = whole ? 64 : std::min<Index>(64, length - position);
        for (const std::byte* plane : {block.k, block.v}) {
          add(plane, rows * ql::kv_row_bytes(block.format, layout.head_dim));
          const auto* scales = ql::kv_scales(block.format, layout.head_dim, plane);
          add(reinterpret_cast<const std::byte*>(scales), rows * 4);
        }
      }
    }
  }
  return bytes;
}

template <class Kv>
bool all_finite(const Kv& cache, Index blocks) {
  bool finite = true;
  for (Index layer = 0; layer < layout.layers; ++layer) {
    for (Index index = 0; index < blocks; ++index) {
      const ql::KvBlock block = cache.block(layer, 1, index);
      for (Index row = 0; row < 64; ++row) {
        for (Index d = 0; d < layout.head_dim; ++d) {
          finite = finite && std::isfinite(ql::key_in(block, layout.head_dim, row, d)) &&
                   std::isfinite(ql::value_in(block, layout.head_dim, row, d));
        }
      }
    }
  }
  return finite;
}

}  // namespace

TEST_CASE("int8: codes are the numbers over the largest, in order, and the scale follows the plane") {
  const Planes planes{KvFormat::int8, 5};
  planes.store(3, {127, -127, 1, -2.4F, 0}, {0.5F, 0, 0, 0, -0.25F});
  const std::vector<std::uint8_t> codes = planes.codes_of_key(3);
  REQUIRE(codes.size() == 32);
  CHECK(std::vector<std::uint8_t>(codes.begin(), codes.begin() + 5) ==
        std::vector<std::uint8_t>{127, 0x81, 1, 0xFE, 0});
  for (std::size_t i = 5; i < 32; ++i) CHECK(codes[i] == 0);
  float scales[64];
  std::memcpy(scales, planes.k() + 64 * 32, sizeof scales);
  CHECK(scales[3] == 1.0F);
  CHECK(scales[2] == 0.0F);
  std::memcpy(scales, planes.v() + 64 * 32, sizeof scales);
  CHECK(scales[3] == 0.5F / 127);
  CHECK(planes.value(3)[4] == -64 * (0.5F / 127));  // -63.5 is halfway; the even one
}

TEST_CASE("fp8: every number of e4m3 is kept, those between go to the nearest, the even one of two") {
  std::vector<float> numbers;
  for (int code = 0; code < 127; ++code) {
    numbers.push_back(static_cast<float>(ql::F8E4M3::from_bits(static_cast<std::uint8_t>(code))));
  }
  bool exact = true;
  bool halves = true;
  bool between = true;
  for (unsigned code = 0; code < 127; ++code) {
    exact =
        exact && ql::F8E4M3(numbers[code]).bits == code && ql::F8E4M3(-numbers[code]).bits == (code | 0x80U);
    if (code == 126) break;
    const float middle = (numbers[code] + numbers[code + 1]) / 2;
    halves = halves && ql::F8E4M3(middle).bits == code + code % 2;
    between = between && ql::F8E4M3(std::nextafter(middle, 0.0F)).bits == code &&
              ql::F8E4M3(std::nextafter(middle, 500.0F)).bits == code + 1;
  }
  CHECK(exact);
  CHECK(halves);
  CHECK(between);
  const Planes planes{KvFormat::fp8, 3};
  planes.store(0, {-448, 26, 0.0F}, {7, -3.5F, 0});
  CHECK(planes.key(0) == std::vector<float>{-448, 26, 0});
  CHECK(planes.value(0) == std::vector<float>{7, -3.5F, 0});  // 1/64 of 448
}

TEST_CASE("int4: nibbles of groups of 32, odd numbers around zero") {
  const Planes planes{KvFormat::int4, 64};
  std::vector<float> turned(64);  // what is to be stored
  for (int i = 0; i < 64; ++i) turned[static_cast<std::size_t>(i)] = static_cast<float>(2 * (i % 16) - 15);
  std::vector<float> key = turned;
  ql::rotate(key.data(), 64);
  planes.store(9, key, key);
  const std::vector<std::uint8_t> codes = planes.codes_of_key(9);
  REQUIRE(codes.size() == 32);
  for (unsigned i = 0; i < 32; ++i) CHECK(codes[i] == i % 16 * 0x11);
  for (Index d = 0; d < 64; ++d) {
    CHECK(ql::value_in(planes.block(), 64, 9, d) == Approx(turned[static_cast<std::size_t>(d)]));
  }
}

TEST_CASE("a rotation keeps products, is its own inverse, and spreads one element over all") {
  for (const Index n : {2, 4, 8, 32, 128, 256, 1024}) {
    INFO(n);
    const std::vector<float> a = random_row(n, 1);
    const std::vector<float> b = random_row(n, 2);
    std::vector<float> x = a;
    std::vector<float> y = b;
    ql::rotate(x.data(), n);
    ql::rotate(y.data(), n);
    double before = 0;
    double after = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      before += static_cast<double>(a[i]) * static_cast<double>(b[i]);
      after += static_cast<double>(x[i]) * static_cast<double>(y[i]);
    }
    CHECK(std::abs(after - before) < 1e-5 * static_cast<double>(n));
    CHECK(relative_error(x, a) > 0.1);
    ql::rotate(x.data(), n);
    CHECK(relative_error(x, a) < 1e-6);
    std::vector<float> one(static_cast<std::size_t>(n));
    one[1] = 1;
    ql::rotate(one.data(), n);
    for (const float e : one) CHECK(std::abs(e) == Approx(1 / std::sqrt(static_cast<double>(n))));
  }
  for (const Index n : {-1, 0, 1, 3, 80, 96, 2048}) CHECK_FALSE(ql::can_rotate(n));
}

TEST_CASE("compressed rows are near what was given, whatever their size and neighbours") {
  for (const KvFormat format : compressed) {
    for (const Index head_dim : {2, 16, 32, 64, 128, 256, 10, 80}) {
      if (format == KvFormat::int4 && !ql::can_rotate(head_dim)) continue;
      INFO(name_of(format) << " " << head_dim);
      const Planes planes{format, head_dim};
      for (const float spread : {1e-20F, 1e-3F, 1.0F, 300.0F, 1e30F}) {
        const std::vector<float> key = random_row(head_dim, 1, spread);
        const std::vector<float> value = random_row(head_dim, 2, spread);
        for (const Index row : {0, 1, 62, 63}) planes.store(row, key, value);
        for (const Index row : {0, 1, 62, 63}) {
          CHECK(relative_error(planes.key(row), key) < expected_error(format));
          CHECK(planes.key(row) == planes.key(0));
          CHECK(relative_error(planes.value(row), value) < expected_error(format));
        }
      }
    }
  }
}

TEST_CASE("compressed rows: one channel a hundred times larger costs the others what the format says") {
  const Index head_dim = 128;
  std::vector<float> row = random_row(head_dim, 5);
  row[17] = 100;
  std::vector<float> rest = row;
  rest[17] = 0;
  for (const KvFormat format : compressed) {
    INFO(name_of(format));
    const Planes planes{format, head_dim};
    planes.store(0, row, row);
    CHECK(relative_error(planes.key(0), row) < (format == KvFormat::int4 ? 0.1 : 0.03));
    std::vector<float> found = planes.value(0);
    found[17] = 0;
    // int8 has steps of 100/127 then; the relative precision of fp8 does not care.
    CHECK(relative_error(found, rest) < (format == KvFormat::fp8    ? 0.03
                                         : format == KvFormat::int8 ? 0.25
                                                                    : 1));
  }
}

TEST_CASE("compressed rows of zeros, of almost zeros, and of what is not a number") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const KvFormat format : compressed) {
    INFO(name_of(format));
    const Planes planes{format, 32};
    const std::vector<float> zeros(32);
    planes.store(0, random_row(32, 1), random_row(32, 2));
    planes.store(0, zeros, zeros);
    CHECK(planes.key(0) == zeros);
    CHECK(planes.value(0) == zeros);
    for (const float tiny : {1e-45F, 1e-38F, -1e-36F}) {
      planes.store(1, std::vector<float>(32, tiny), zeros);
      for (const float x : planes.key(1)) CHECK(std::abs(x) <= 2 * std::abs(tiny) * std::sqrt(32.0F));
    }
    for (const float wrong : {infinity, -infinity, std::nanf("")}) {
      std::vector<float> row = random_row(32, 3);
      row[31] = wrong;
      planes.store(2, row, row);
      CHECK(std::isnan(planes.key(2)[0]));  // seen, not hidden
      CHECK(std::isnan(planes.value(2)[0]));
    }
    planes.store(2, zeros, zeros);
    CHECK(planes.key(2) == zeros);
  }
}

TEST_CASE("compressed bytes depend on a position's own key and value alone") {
  for (const KvFormat format : compressed) {
    INFO(name_of(format));
    ql::KvCache<> whole(layout, format);
    append(whole, 0, 180);
    const std::vector<std::byte> expected = bytes_of(whole, 180, false);
    ql::KvCache<> pieces(layout, format);
    for (const Index count : {1, 62, 2, 64, 51}) append(pieces, pieces.length(), count);
    CHECK(bytes_of(pieces, 180, false) == expected);
    BlockCache blocks(layout, format);
    append(blocks, 0, 180);
    CHECK(bytes_of(blocks, 180, false) == expected);

    for (const Index cut : {0, 1, 63, 64, 65, 127, 150}) {
      pieces.truncate(cut);
      append(pieces, cut, 30, 3.0F);
      pieces.truncate(cut);
      append(pieces, cut, 180 - cut);
      CHECK(bytes_of(pieces, 180, false) == expected);
    }
  }
}

TEST_CASE("compressed caches leave nothing infinite behind rows that were cut off, scales included") {
  for (const KvFormat format : compressed) {
    INFO(name_of(format));
    for (const Index cut : {0, 1, 40, 63, 64, 65}) {
      ql::KvCache<> cache(layout, format);
      append(cache, 0, cut);
      append(cache, cut, 150 - cut, std::numeric_limits<float>::infinity());
      REQUIRE_FALSE(all_finite(cache, 3));
      cache.truncate(cut);
      append(cache, cut, 130 - cut);
      CHECK(all_finite(cache, 3));
      ql::KvCache<> fresh(layout, format);
      append(fresh, 0, 130);
      CHECK(bytes_of(cache, 130, false) == bytes_of(fresh, 130, false));
    }
  }
}

TEST_CASE("compressed caches tell their memory: int8 takes half a bf16 cache and 4 bytes a head") {
  static constexpr ql::KvLayout large{.layers = 28, .kv_heads = 8, .head_dim = 128, .max_tokens = 640};
  const auto per_token = [](KvFormat format) {
    ql::KvCache<> cache(large, format);
    cache.advance(640);
    CHECK(cache.used_bytes() == cache.bytes());
    return static_cast<double>(cache.used_bytes()) / 640;
  };
  const double bf16 = per_token(KvFormat::bf16);
  CHECK(per_token(KvFormat::int8) / bf16 == Approx(132.0 / 256));
  CHECK(per_token(KvFormat::fp8) / bf16 == Approx(132.0 / 256));
  CHECK(per_token(KvFormat::int4) / bf16 == Approx(68.0 / 256));
  CHECK(per_token(KvFormat::int8) < 60000);
}

TEST_CASE("caches of fixed compressed formats, and heads that cannot be rotated") {
  CHECK(ql::KvCache<ql::Int8>(layout).format() == KvFormat::int8);
  CHECK(ql::KvCache<ql::Fp8>(layout).format() == KvFormat::fp8);
  CHECK(ql::KvCache<ql::Int4>(layout).format() == KvFormat::int4);
  CHECK_THROWS_WITH((ql::KvCache<ql::Int8>(layout, KvFormat::bf16)), has_text("bf16") && has_text("int8"));
  ql::KvLayout odd = layout;
  odd.head_dim = 80;
  CHECK_NOTHROW(ql::KvCache<>(odd, KvFormat::int8));
  for (const Index head_dim : {1, 80, 96, 2048}) {
    odd.head_dim = head_dim;
    CHECK_THROWS_WITH(ql::KvCache<ql::Int4>(odd),
                      has_text("head_dim of " + std::to_string(head_dim)) && has_text("power of two"));
    CHECK_THROWS_AS(ql::NoCache(odd, KvFormat::int4), ql::Error);
  }
  const Index huge = std::numeric_limits<Index>::max() / 2;
  for (const ql::KvLayout wrong :
       {ql::KvLayout{1, 1, huge, 1}, ql::KvLayout{1, 1, 2 * huge + 1, 1}, ql::KvLayout{huge, 8, 128, 64},
        ql::KvLayout{64, 8, 128, huge}, ql::KvLayout{1 << 20, 1 << 11, 1024, 1 << 27}}) {
    for (const KvFormat format : {KvFormat::int8, KvFormat::fp8}) {
      CHECK_THROWS_AS(ql::KvCache<>(wrong, format), ql::Error);
    }
  }
}
