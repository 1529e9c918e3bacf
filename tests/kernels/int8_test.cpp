// SPDX-License-Identifier: Apache-2.0
//
// int8 activations: what they are rounded to, and products with them, which have the same bits on every
// instruction set, for all groups, awkward sizes, extreme values and planes right before an inaccessible
// page, alone, beside other columns and in another strip of rows.
#include <cmath>
#include <limits>

#include <qwenlite/kernels/aligned_buffer.hpp>

#include "quantised_matrix.hpp"

using namespace kernel_tests;
using qwenlite::ceil_div;
using qwenlite::round_up;
using qwenlite::WeightFormat;
using qwenlite::WeightView;
using qwenlite::kernels::Int8Column;
using qwenlite::kernels::PackLayout;

namespace {

const KernelTable& scalar() {
  return *qwenlite::kernels::supported().front();
}

const std::vector<WeightFormat>& formats() {
  static const std::vector<WeightFormat> list{{Format::int8},
                                              {Format::int8, 0},
                                              {Format::int8, 32, false},
                                              {Format::int8, 64},
                                              {Format::int8, 0, false},
                                              {Format::int4},
                                              {Format::int4, 32},
                                              {Format::int4, 128},
                                              {Format::int4, 64, false},
                                              {Format::int4, 32, false},
                                              {Format::int4, 128, false}};
  return list;
}

std::vector<std::byte> pack(const KernelTable& t, const std::vector<float>& x, Index in,
                            qwenlite::VectorView norm = {}) {
  const Index columns = std::ssize(x) / in;
  const qwenlite::AlignedBuffer packed(packed_bytes(PackLayout::rows_int8, columns, in));
  std::memset(packed.data(), 0, static_cast<std::size_t>(packed.bytes()));
  pack_columns(t, x, in, norm, PackLayout::rows_int8, packed.data());
  return {packed.data(), packed.data() + packed.bytes()};
}

float scale_of(const std::vector<std::byte>& packed, Index in, Index column, Index block) {
  const Int8Column parts(in);
  float scale = 0;
  std::memcpy(&scale, packed.data() + column * parts.bytes() + parts.scales() + 4 * block, 4);
  return scale;
}
int code_of(const std::vector<std::byte>& packed, Index in, Index column, Index i) {
  const std::byte code = packed[static_cast<std::size_t>(column * Int8Column(in).bytes() + i)];
  return static_cast<std::int8_t>(std::to_integer<std::uint8_t>(code));
}

std::vector<float> product(const KernelTable& t, const WeightView& w, const std::vector<std::byte>& packed,
                           const Part& part, float before = 0) {
  static const GuardedMemory packed_space(Index{4} << 20);
  static const GuardedMemory scratch_space(Index{4} << 20);
  const Index column = qwenlite::kernels::int8_column_bytes(w.cols);
  std::byte* const x = packed_space.last(part.columns * column);
  std::copy_n(packed.data() + part.first_column * column, part.columns * column, x);
  std::vector<float> out(static_cast<std::size_t>(part.rows * part.columns), before);
  const Index scratch = round_up(t.int8_scratch_bytes(part.rows, w.cols, part.columns), 64);
  t.matmul_int8({.weights = w.row(part.first_row),
                 .format = w.format,
                 .row_bytes = w.row_bytes(),
                 .planes = w.planes_from(part.first_row),
                 .rows = part.rows,
                 .in = w.cols,
                 .packed = x,
                 .layout = PackLayout::rows_int8,
                 .columns = part.columns,
                 .out = out.data(),
                 .out_stride = part.rows,
                 .accumulate = before != 0,
                 .scratch = scratch_space.last(scratch)});
  return out;
}

/// An output as its definition has it: the groups in order, each an exact sum.
float expected_output(const WeightView& w, Index r, const std::vector<std::byte>& packed, Index column) {
  float total = 0;
  const Index group = std::min(w.planes.group, qwenlite::quantised_block);
  for (Index i = 0; i < w.cols; i += group) {
    const Index at = r * ceil_div(w.cols, w.planes.group) + i / w.planes.group;
    const int zero =
        w.planes.zeros != nullptr ? std::to_integer<int>(w.planes.zeros[at]) : middle_value(w.format);
    std::int64_t sum = 0;
    for (Index j = i; j < std::min(i + group, w.cols); ++j) {
      sum += (stored_value(w.format, w.row(r), j) - zero) * code_of(packed, w.cols, column, j);
    }
    F16 scale;
    std::memcpy(&scale, w.planes.scales + 2 * at, 2);
    const float scaled = static_cast<float>(sum) * static_cast<float>(scale);
    total = std::fma(scaled, scale_of(packed, w.cols, column, i / qwenlite::quantised_block), total);
  }
  return total;
}

void check_product(const KernelTable& t, const WeightFormat& f, Index rows, Index in, Index columns) {
  INFO("rows " << rows << " in " << in << " columns " << columns);
  const Matrix matrix(f, rows, in, Padding::random);
  const WeightView& w = matrix.view;
  const auto packed = pack(t, random_floats(columns * in, static_cast<unsigned>(columns * 131 + in)), in);
  const std::vector<float> out = product(t, w, packed, {0, rows, 0, columns});
  bool exact = true;
  for (Index c = 0; c < columns; ++c) {
    for (Index r = 0; r < rows; ++r) {
      exact &= out[static_cast<std::size_t>(c * rows + r)] == expected_output(w, r, packed, c);
    }
  }
  CHECK(exact);

  const std::vector<float> added = product(t, w, packed, {0, rows, 0, columns}, 0.75F);
  bool sums = true;
  for (std::size_t k = 0; k < out.size(); ++k) sums &= added[k] == 0.75F + out[k];
  CHECK(sums);

  bool same = true;
  for (const Index c : {Index{0}, columns / 2, columns - 1}) {
    const std::vector<float> alone = product(t, w, packed, {0, rows, c, 1});
    same &= same_bits(alone.data(), out.data() + c * rows, rows);
    const std::vector<float> one = product(t, w, packed, {rows / 2, 1, c, 1});
    same &= same_bits(one.data(), out.data() + c * rows + rows / 2, 1);
  }
  CHECK(same);
}

}  // namespace

TEST_CASE("int8: activations are rounded to the nearest of 255 steps of their block") {
  for (const KernelTable* t : all_tables()) {
    for (const Index in : {1, 15, 16, 33, 127, 128, 129, 300}) {
      INFO(t->name << " in " << in);
      const std::vector<float> x = random_floats(19 * in, 2, 3.0F);
      const auto packed = pack(*t, x, in);
      CHECK(packed == pack(scalar(), x, in));
      for (Index c = 0; c < 19; ++c) {
        for (Index i = 0; i < in; ++i) {
          float largest = 0;
          for (Index j = i / 128 * 128; j < std::min(in, i / 128 * 128 + 128); ++j) {
            largest = std::max(largest, std::abs(x[static_cast<std::size_t>(c * in + j)]));
          }
          const float value = x[static_cast<std::size_t>(c * in + i)];
          CHECK(scale_of(packed, in, c, i / 128) == largest / 127);
          CHECK(code_of(packed, in, c, i) == std::lrint(value * (127 / largest)));
        }
        for (Index i = in; i < round_up(in, 128); ++i) CHECK(code_of(packed, in, c, i) == 0);
      }
    }
  }
}

TEST_CASE("int8: sums of codes stand beside them") {
  for (const KernelTable* t : all_tables()) {
    INFO(t->name);
    const Index in = 300;
    const auto packed = pack(*t, random_floats(3 * in, 4), in);
    const Int8Column parts(in);
    for (Index c = 0; c < 3; ++c) {
      for (Index b = 0; b < parts.blocks; ++b) {
        std::int16_t found[8];
        std::memcpy(found, packed.data() + c * parts.bytes() + parts.sums() + 16 * b, 16);
        int sums[7] = {};
        for (Index i = 0; i < 128; ++i) {
          const int code = code_of(packed, in, c, 128 * b + i);
          for (const Index at : {i / 32, 4 + i / 64, Index{6}}) sums[at] += code;
        }
        for (int i = 0; i < 7; ++i) CHECK(found[i] == sums[i]);
      }
    }
  }
}

TEST_CASE("int8: packing normalises as the norm does") {
  const Index in = 300;
  std::vector<float> weights = random_floats(in, 6);
  const qwenlite::VectorView norm{reinterpret_cast<const std::byte*>(weights.data()), in, Format::f32, 1};
  const std::vector<float> x = random_floats(4 * in, 7);
  for (const KernelTable* t : all_tables()) {
    INFO(t->name);
    std::vector<float> normed(x.size());
    for (Index c = 0; c < 4; ++c) t->rms_norm(x.data() + c * in, norm, 1e-6F, normed.data() + c * in);
    CHECK(pack(*t, x, in, norm) == pack(*t, normed, in));
  }
}

TEST_CASE("int8: blocks without a finite or normal largest number") {
  const Index in = 260;
  std::vector<float> x(static_cast<std::size_t>(5 * in), 0.5F);
  x[3] = std::numeric_limits<float>::infinity();
  x[in + 127] = std::nanf("");
  x[2 * in + 128] = -std::numeric_limits<float>::infinity();
  for (Index i = 0; i < 128; ++i) x[static_cast<std::size_t>(3 * in + i)] = 1e-39F;
  for (Index i = 0; i < 128; ++i) x[static_cast<std::size_t>(4 * in + i)] = 0;
  x[4 * in + 129] = 3.4e38F;
  for (const KernelTable* t : all_tables()) {
    INFO(t->name);
    const auto packed = pack(*t, x, in);
    CHECK(packed == pack(scalar(), x, in));
    CHECK(std::isnan(scale_of(packed, in, 0, 0)));
    CHECK(code_of(packed, in, 0, 3) == 0);
    CHECK(scale_of(packed, in, 0, 1) == 0.5F / 127);
    CHECK(scale_of(packed, in, 3, 0) == 0);
    CHECK(scale_of(packed, in, 4, 0) == 0);
    CHECK(code_of(packed, in, 4, 129) == 127);
    for (const WeightFormat& f : formats()) {
      const Matrix matrix(f, 18, in, Padding::random);
      const std::vector<float> out = product(*t, matrix.view, packed, {0, 18, 0, 5});
      for (Index c = 0; c < 5; ++c) {
        for (Index r = 0; r < 18; ++r) {
          CHECK(std::isnan(out[static_cast<std::size_t>(c * 18 + r)]) == (c < 3));
        }
      }
    }
  }
}

TEST_CASE("int8: the largest numbers there are do not saturate") {
  for (const KernelTable* t : all_tables()) {
    for (const WeightFormat& f : formats()) {
      for (const int zero : {0, qwenlite::largest_value(f.format)}) {
        for (const float sign : {1.0F, -1.0F}) {
          INFO(t->name << " " << to_string(f) << " zero " << zero << " sign " << sign);
          const Index in = 256;
          Matrix matrix(f, 33, in, Padding::random);
          matrix.fill(zero == 0 ? qwenlite::largest_value(f.format) : 0, zero);
          for (Index i = 0; i < 33 * ceil_div(in, matrix.view.planes.group); ++i) matrix.set_scale(i, 0.5F);
          const auto packed = pack(*t, std::vector<float>(static_cast<std::size_t>(9 * in), sign * 127), in);
          const int middle = f.symmetric ? middle_value(f.format) : zero;
          const int number = zero == 0 ? qwenlite::largest_value(f.format) : 0;
          const float expected = static_cast<float>((number - middle) * 127 * 256) * 0.5F * sign;
          for (const Index columns : {1, 9}) {
            const std::vector<float> out = product(*t, matrix.view, packed, {0, 33, 0, columns});
            for (const float value : out) CHECK(value == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("int8: every table computes what the definition says, whatever shares the call") {
  for (const KernelTable* t : all_tables()) {
    for (const WeightFormat& f : formats()) {
      INFO(t->name << " " << to_string(f));
      for (const Index rows : {1, 16, 33}) {
        for (const Index in : {1, 33, 64, 130, 257}) {
          for (const Index columns : {1, 2, 3, 7, 29}) check_product(*t, f, rows, in, columns);
        }
      }
      for (Index columns = 4; columns <= 40; columns += 4) check_product(*t, f, 9, 200, columns);
      check_product(*t, f, 64, 2200, 2);  // more than sixteen groups
      check_product(*t, f, 6, 4224, 14);
    }
  }
}

TEST_CASE("int8: an output does not depend on the strip it is computed in") {
  for (const KernelTable* t : all_tables()) {
    for (const WeightFormat& f : formats()) {
      INFO(t->name << " " << to_string(f));
      const Matrix matrix(f, 64, 300, Padding::random);
      const auto packed = pack(*t, random_floats(20 * 300, 9), 300);
      const std::vector<float> out = product(*t, matrix.view, packed, {0, 64, 0, 20});
      bool same = true;
      for (const Index strip : {1, 5, 24, 33}) {
        for (Index r = 0; r < 64; r += strip) {
          const Index rows = std::min(strip, 64 - r);
          for (const Index columns : {1, 4, 20}) {
            const std::vector<float> piece = product(*t, matrix.view, packed, {r, rows, 0, columns});
            for (Index c = 0; c < columns; ++c) {
              same &= same_bits(piece.data() + c * rows, out.data() + c * 64 + r, rows);
            }
          }
        }
      }
      CHECK(same);
    }
  }
}

TEST_CASE("int8: scratch for a larger product is enough for a smaller one") {
  for (const KernelTable* t : all_tables()) {
    INFO(t->name);
    for (const Index in : {64, 1000, 3072, 30000}) {
      const Index bytes = t->int8_scratch_bytes(64, in, 512);
      for (const Index less : {1, 60, 900, 1023, 2900}) {
        if (less <= in) CHECK(t->int8_scratch_bytes(64, less, 512) <= bytes);
      }
      CHECK(t->int8_scratch_bytes(32, in, 512) <= bytes);
      for (const Index columns : {1, 4, 12, 13}) CHECK(t->int8_scratch_bytes(64, in, columns) <= bytes);
    }
  }
}

TEST_CASE("int8: which products take int8 activations") {
  for (const KernelTable* t : all_tables()) {
    INFO(t->name);
    for (const Format format : {Format::int8, Format::int4}) {
      CHECK(t->layout(format, Precision::int8) == PackLayout::rows_int8);
      CHECK(t->layout(format, Precision::exact) == PackLayout::rows_f32);
    }
    for (const Format format : {Format::bf16, Format::f16, Format::f32, Format::fp8}) {
      CHECK(t->layout(format, Precision::int8) == t->layout(format, Precision::exact));
    }
  }
}
