// SPDX-License-Identifier: Apache-2.0
//
// What is particular to AVX512_BF16: packed rows of bf16, products beyond the sizes that every table is
// tested with, and what becomes of numbers that are not ordinary.

#include <cmath>
#include <limits>

#include "kernel_tables.hpp"

#if defined(__x86_64__)

using namespace kernel_tests;
using qwenlite::round_up;
using qwenlite::VectorView;
using qwenlite::kernels::MatmulArgs;
using qwenlite::kernels::packed_bytes;
using qwenlite::kernels::PackLayout;
namespace scalar = qwenlite::kernels::scalar;

namespace {

constexpr PackLayout layout = PackLayout::rows_bf16;

const KernelTable& avx512_bf16() {
  return compiled_table("avx512_bf16");
}

/// False, with a loud line, where the instructions are missing.
bool runs() {
  const bool found = qwenlite::kernels::probe_cpu().avx512_bf16;
  if (!found) WARN("SKIPPED: AVX512_BF16 kernels");
  return found;
}

/// The product of all rows and some columns; weights [rows][in] end one byte before an inaccessible page.
struct Problem {
  Index rows;
  Index in;
  Index columns;
  std::vector<float> x;  // [columns][in], numbers of bf16
  GuardedMemory weights;
  GuardedMemory packed;
  GuardedMemory scratch;

  Problem(Index r, Index i, Index c)
      : rows(r),
        in(i),
        columns(c),
        x(random_floats(c * i, static_cast<unsigned>(c * 31 + i))),
        weights(r * i * 2, 1),
        packed(packed_bytes(layout, c, i)),
        scratch(round_up(avx512_bf16().matmul_scratch_bytes(r, i, c), 64)) {
    for (float& value : x) value = round_to_bf16(value);
    const std::vector<float> values = random_floats(r * i, static_cast<unsigned>(r * 7 + i));
    for (Index k = 0; k < r * i; ++k)
      encode(Format::bf16, values[static_cast<std::size_t>(k)], weights.data(), k);
    pack_columns(avx512_bf16(), x, i, {}, layout, packed.data());
  }

  /// out [count][rows] (+)= columns [first, first + count) of the product.
  void multiply(Index first, Index count, float* out, bool accumulate = false) const {
    avx512_bf16().matmul({.weights = weights.data(),
                          .format = Format::bf16,
                          .row_bytes = in * 2,
                          .rows = rows,
                          .in = in,
                          .packed = packed.data() + first * packed_bytes(layout, 1, in),
                          .layout = layout,
                          .columns = count,
                          .out = out,
                          .out_stride = rows,
                          .accumulate = accumulate,
                          .scratch = scratch.data()});
  }

  /// The scalar kernel's result, and the same of absolute values.
  void expect(std::vector<float>& sums, std::vector<float>& sizes) const {
    const Index stride = round_up(in, 32);
    std::vector<float> padded(static_cast<std::size_t>(columns * stride), 0.0F);
    std::vector<std::byte> positive(weights.data(), weights.data() + rows * in * 2);
    for (Index c = 0; c < columns; ++c) std::copy_n(x.data() + c * in, in, padded.data() + c * stride);
    MatmulArgs args{.weights = weights.data(),
                    .format = Format::bf16,
                    .row_bytes = in * 2,
                    .rows = rows,
                    .in = in,
                    .packed = reinterpret_cast<const std::byte*>(padded.data()),
                    .columns = columns,
                    .out = sums.data(),
                    .out_stride = rows};
    scalar::matmul(args);
    for (float& value : padded) value = std::abs(value);
    for (Index k = 0; k < rows * in; ++k) positive[static_cast<std::size_t>(2 * k + 1)] &= std::byte{0x7F};
    args.weights = positive.data();
    args.out = sizes.data();
    scalar::matmul(args);
  }
};

void check(const Problem& p) {
  const auto size = static_cast<std::size_t>(p.rows * p.columns);
  std::vector<float> found(size);
  std::vector<float> expected(size);
  std::vector<float> sizes(size);
  p.multiply(0, p.columns, found.data());
  p.expect(expected, sizes);
  // A lane's chain of in / 16 additions and four more, each rounded once.
  const double bound = (static_cast<double>(p.in) / 16 + 6) * 0x1p-24;
  double worst = 0;
  for (std::size_t k = 0; k < size; ++k) {
    const double off = std::abs(static_cast<double>(found[k]) - static_cast<double>(expected[k]));
    worst = std::max(worst, off / (static_cast<double>(sizes[k]) + 1e-30));
  }
  CHECK(worst <= bound);

  std::vector<float> pieces(size);
  for (const Index step : {Index{1}, Index{5}, Index{67}}) {
    for (Index c = 0; c < p.columns; c += step) {
      p.multiply(c, std::min(step, p.columns - c), pieces.data() + c * p.rows);
    }
    CHECK(same_bits(pieces.data(), found.data(), p.rows * p.columns));
  }
  std::vector<float> added(size, 0.75F);
  p.multiply(0, p.columns, added.data(), true);
  for (std::size_t k = 0; k < size; ++k) found[k] += 0.75F;
  CHECK(added == found);
}

}  // namespace

TEST_CASE("avx512_bf16: products agree with the scalar kernel, in parts of columns bit for bit") {
  if (!runs()) return;
  for (const Index in : {1, 31, 32, 33, 1000, 1025, 1056, 2049, 3072}) {
    for (Index columns = 1; columns <= 20; ++columns) {
      for (const Index rows : {1, 17, 35}) {
        if (in > 1000 && rows * columns > 150) continue;  // the scalar kernel is slow
        INFO("rows " << rows << " in " << in << " columns " << columns);
        check(Problem(rows, in, columns));
      }
    }
    INFO("in " << in << ", 512 columns");
    check(Problem(in > 100 ? 7 : 33, in, 512));
  }
}

TEST_CASE("avx512_bf16: packed rows are rounded to nearest and even, normalised, padded with zeros") {
  if (!runs()) return;
  for (const Index in : {1, 15, 16, 31, 32, 33, 100, 1000}) {
    const Index columns = 21;
    const Index stride = round_up(in, 32);
    const std::vector<float> x = random_floats(columns * in, 3);
    const std::vector<float> weight = random_floats(in, 4);
    const GuardedMemory packed(packed_bytes(layout, columns, in));
    for (const Format format : {Format::bf16, Format::f16, Format::f32}) {
      const GuardedMemory stored(in * qwenlite::element_bytes(format), 1);
      for (Index i = 0; i < in; ++i) encode(format, weight[static_cast<std::size_t>(i)], stored.data(), i);
      for (const bool normed : {false, true}) {
        const VectorView norm{normed ? stored.data() : nullptr, in, format, 1.0F};
        std::memset(packed.data(), 0x5A, static_cast<std::size_t>(packed_bytes(layout, columns, in)));
        pack_columns(avx512_bf16(), x, in, norm, layout, packed.data());
        std::vector<float> row(static_cast<std::size_t>(stride), 0.0F);
        bool same = true;
        for (Index c = 0; c < columns; ++c) {
          std::copy_n(x.data() + c * in, in, row.data());
          if (normed) avx512_bf16().rms_norm(x.data() + c * in, norm, 1e-6F, row.data());
          for (Index i = 0; i < stride; ++i) {
            same &= qwenlite::decode(Format::bf16, packed.data(), c * stride + i) ==
                    round_to_bf16(row[static_cast<std::size_t>(i)]);
          }
        }
        CHECK(same);
      }
    }
  }
}

TEST_CASE("avx512_bf16: infinities, NaN and numbers half way stay what they are, denormals become zero") {
  if (!runs()) return;
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x{infinity, -infinity, std::nanf(""), 1.00390625F, 1.01171875F,
                             -1.0F,    3.4e38F,   1e-39F,        -0.0F,       1.00390637F};
  const GuardedMemory packed(packed_bytes(layout, 1, 10));
  pack_columns(avx512_bf16(), x, 10, {}, layout, packed.data());
  const auto at = [&](Index i) { return qwenlite::decode(Format::bf16, packed.data(), i); };
  CHECK(at(0) == infinity);
  CHECK(at(1) == -infinity);
  CHECK(std::isnan(at(2)));
  CHECK(at(3) == 1.0F);       // 1 + 2^-8 lies between 1 and 1 + 2^-7
  CHECK(at(4) == 1.015625F);  // 1 + 3 * 2^-8 between 1 + 2^-7 and 1 + 2^-6
  CHECK(at(5) == -1.0F);
  CHECK(at(6) == infinity);  // beyond the largest bf16
  CHECK(at(7) == 0.0F);
  CHECK(at(8) == 0.0F);
  CHECK(std::signbit(at(8)));
  CHECK(at(9) == 1.0078125F);  // just above half way
}

TEST_CASE("avx512_bf16: denormal weights count as zero") {
  if (!runs()) return;
  Problem p(1, 32, 1);
  std::memset(p.weights.data(), 0, 64);
  for (Index i = 0; i < 32; ++i) p.weights.data()[2 * i] = std::byte{0x40};  // 2^-127
  std::fill(p.x.begin(), p.x.end(), std::ldexp(1.0F, 100));
  pack_columns(avx512_bf16(), p.x, 32, {}, layout, p.packed.data());
  float out = 1;
  p.multiply(0, 1, &out);
  CHECK(out == 0.0F);
}

TEST_CASE("avx512_bf16: a vanished output of attention is the same zero beside rows that see more") {
  if (!runs()) return;
  const Index head_dim = 16;
  const GuardedMemory keys(qwenlite::kv_plane_bytes(qwenlite::KvFormat::bf16, head_dim));
  const GuardedMemory values(qwenlite::kv_plane_bytes(qwenlite::KvFormat::bf16, head_dim));
  const std::vector<float> ones(static_cast<std::size_t>(head_dim), 1.0F);
  const std::vector<float> weak(static_cast<std::size_t>(head_dim), 0.5F);
  for (Index j = 0; j < qwenlite::block_positions; ++j) {
    // Weighed by 1 and by less: minus zero, and a number too small to stay one.
    const std::vector<float> value(static_cast<std::size_t>(head_dim), j == 0   ? -0.0F
                                                                       : j == 1 ? -1.2e-38F
                                                                                : 1.0F);
    store_kv(qwenlite::KvFormat::bf16, head_dim, j, (j == 0 ? ones : weak).data(), value.data(), keys.data(),
             values.data());
  }
  const qwenlite::KvBlock block{
      .k = keys.data(), .v = values.data(), .first = 0, .count = qwenlite::block_positions};
  const std::vector<float> q(static_cast<std::size_t>(2 * head_dim), 1.0F);
  const Index q_offset[] = {0, head_dim};
  const Index last[] = {1, qwenlite::block_positions - 1};
  const GuardedMemory scratch(round_up(avx512_bf16().attend_scratch_bytes(head_dim), 64));
  std::vector<float> out[2];
  for (const Index rows : {1, 2}) {
    std::vector<float>& found = out[rows - 1];
    found.resize(static_cast<std::size_t>(rows * head_dim));
    float max[2];
    float sum[2];
    avx512_bf16().attend_span({.q = q.data(),
                               .q_offset = q_offset,
                               .last = last,
                               .rows = rows,
                               .head_dim = head_dim,
                               .scale = 0.1F,
                               .precision = Precision::bf16,
                               .blocks = &block,
                               .block_count = 1,
                               .max = max,
                               .sum = sum,
                               .out = found.data(),
                               .scratch = scratch.data()});
  }
  CHECK(same_bits(out[0].data(), out[1].data(), head_dim));
  CHECK(out[0][0] == 0.0F);
  CHECK(out[1][static_cast<std::size_t>(head_dim)] > 0.0F);
}

TEST_CASE("avx512_bf16: the table rounds inputs of bf16 and quantised weights at bf16 precision alone") {
  const KernelTable& t = avx512_bf16();
  const KernelTable& weaker = compiled_table("avx512_vnni");
  CHECK(t.default_precision == Precision::bf16);
  for (const Format format : {Format::bf16, Format::int8, Format::fp8}) {
    CHECK(t.layout(format, Precision::bf16) == layout);
  }
  CHECK(t.layout(Format::int4, Precision::bf16) == PackLayout::blocks_bf16);
  for (Index f = 0; f < qwenlite::format_count; ++f) {
    const auto format = static_cast<Format>(f);
    CHECK(t.layout(format, Precision::exact) == weaker.layout(format, Precision::exact));
    CHECK(t.layout(format, Precision::int8) == weaker.layout(format, Precision::int8));
  }
  for (const Format format : {Format::f16, Format::f32}) {
    CHECK(t.layout(format, Precision::bf16) == weaker.layout(format, Precision::bf16));
  }
}

#endif
