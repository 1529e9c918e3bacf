// SPDX-License-Identifier: Apache-2.0
//
// Quantised weights: the codec against its description, and every instruction set's products and decoding
// against it, for all groups, awkward sizes and planes right before an inaccessible page. An output has the
// same bits alone, beside other columns and in another strip of rows.
#include <cmath>

#include <qwenlite/kernels/weight_words.hpp>

#include "quantised_matrix.hpp"

using namespace kernel_tests;
using qwenlite::ceil_div;
using qwenlite::round_up;
using qwenlite::WeightFormat;
using qwenlite::WeightView;
using qwenlite::kernels::packed_bytes;
using qwenlite::kernels::PackLayout;

namespace {

/// A part of the product of w and the columns of x.
std::vector<float> product(const KernelTable& t, Precision precision, const WeightView& w,
                           const std::vector<float>& x, const Part& part, float before = 0) {
  static const GuardedMemory packed_space(Index{4} << 20);
  static const GuardedMemory scratch_space(Index{4} << 20);
  const PackLayout layout = t.layout(w.format, precision);
  std::byte* packed = packed_space.last(round_up(packed_bytes(layout, part.columns, w.cols), 64));
  for (Index first = 0; first < part.columns; first += 16) {
    t.pack({.x = x.data() + part.first_column * w.cols,
            .x_stride = w.cols,
            .in = w.cols,
            .first = first,
            .last = std::min(part.columns, first + 16),
            .layout = layout,
            .out = packed});
  }
  std::vector<float> out(static_cast<std::size_t>(part.rows * part.columns), before);
  t.matmul_quantised({.weights = w.row(part.first_row),
                      .format = w.format,
                      .row_bytes = w.row_bytes(),
                      .planes = w.planes_from(part.first_row),
                      .rows = part.rows,
                      .in = w.cols,
                      .packed = packed,
                      .layout = layout,
                      .columns = part.columns,
                      .out = out.data(),
                      .out_stride = part.rows,
                      .accumulate = before != 0,
                      .scratch = scratch_space.last(
                          round_up(t.quantised_scratch_bytes(part.rows, w.cols, part.columns), 64))});
  return out;
}

/// The two precisions, or one where they are the same.
std::vector<Precision> precisions(const KernelTable& t) {
  if (rounds_to_bf16(t.layout(Format::int8, Precision::bf16))) return {Precision::exact, Precision::bf16};
  return {Precision::exact};
}

/// Largest |output - sum in double| over sum |w| |x|, of numbers as they are or rounded to bf16.
double worst_error(const WeightView& w, const std::vector<float>& x, bool rounded,
                   const std::vector<float>& out) {
  const auto input = [](float value, bool rounds) {
    return static_cast<double>(rounds ? round_to_bf16(value) : value);
  };
  const bool rounded_weights = rounded && !has_row_scales(w);
  double worst = 0;
  const Index columns = std::ssize(out) / w.rows;
  for (Index r = 0; r < w.rows; ++r) {
    std::vector<double> row;
    for (Index i = 0; i < w.cols; ++i) row.push_back(input(decode(w, r, i), rounded_weights));
    for (Index c = 0; c < columns; ++c) {
      double sum = 0;
      double size = 1e-30;
      for (Index i = 0; i < w.cols; ++i) {
        const double term =
            row[static_cast<std::size_t>(i)] * input(x[static_cast<std::size_t>(c * w.cols + i)], rounded);
        sum += term;
        size += std::abs(term);
      }
      worst = std::max(
          worst, std::abs(static_cast<double>(out[static_cast<std::size_t>(c * w.rows + r)]) - sum) / size);
    }
  }
  return worst;
}

void check_product(const KernelTable& t, Precision precision, const WeightFormat& f, Index rows, Index in,
                   Index columns) {
  INFO("rows " << rows << " in " << in << " columns " << columns);
  const Matrix matrix(f, rows, in);
  const WeightView& w = matrix.view;
  const std::vector<float> x = random_floats(columns * in, static_cast<unsigned>(columns * 131 + in));
  const std::vector<float> out = product(t, precision, w, x, {0, rows, 0, columns});
  CHECK(worst_error(w, x, precision == Precision::bf16, out) < 1e-6);

  const std::vector<float> added = product(t, precision, w, x, {0, rows, 0, columns}, 0.75F);
  bool exact = true;
  for (std::size_t k = 0; k < out.size(); ++k) exact &= added[k] == 0.75F + out[k];
  CHECK(exact);

  bool same = true;
  for (const Index c : {Index{0}, columns / 2, columns - 1}) {
    const std::vector<float> alone = product(t, precision, w, x, {0, rows, c, 1});
    same &= same_bits(alone.data(), out.data() + c * rows, rows);
    const std::vector<float> one = product(t, precision, w, x, {rows / 2, 1, c, 1});
    same &= same_bits(one.data(), out.data() + c * rows + rows / 2, 1);
  }
  CHECK(same);
}

const std::vector<WeightFormat>& formats() {
  static const std::vector<WeightFormat> list{{Format::int8},
                                              {Format::int8, 0},
                                              {Format::int8, 32},
                                              {Format::int8, 128, false},
                                              {Format::int8, 32, false},
                                              {Format::int8, 0, false},
                                              {Format::fp8},
                                              {Format::int4},
                                              {Format::int4, 32},
                                              {Format::int4, 128},
                                              {Format::int4, 64, false},
                                              {Format::int4, 32, false},
                                              {Format::int4, 128, false}};
  return list;
}

}  // namespace

TEST_CASE("quantised: what lies where") {
  std::vector<std::byte> row(128);
  for (Index i = 0; i < 256; ++i)
    qwenlite::store_value(Format::int4, row.data(), i, static_cast<int>(i * 7 % 16));
  for (const Index i : {0, 1, 15, 16, 100, 127, 128, 200, 255}) {
    INFO(i);
    std::uint32_t word;  // of the block, at the element's lane
    std::memcpy(&word, row.data() + i / 128 * 64 + i % 16 * 4, 4);
    CHECK((word >> (i % 128 / 16 * 4) & 15U) == static_cast<unsigned>(i * 7 % 16));
    CHECK(qwenlite::stored_value(Format::int4, row.data(), i) == i * 7 % 16);
  }
  const WeightFormat asymmetric{Format::int4, 64, false};
  CHECK(asymmetric.bytes(3, 200) == 3 * (128 + 4 * 3));
  CHECK(WeightFormat(Format::int8, 128).bytes(3, 200) == 3 * (256 + 2 * 2));
  CHECK(WeightFormat(Format::int8, 0).bytes(3, 200) == 3 * (256 + 2));
  CHECK(WeightFormat(Format::int8, 0).bytes(0, 0) == 0);
  CHECK(WeightFormat(Format::int8, 32, false).bytes(3, 200) == 3 * (256 + 3 * 7));
  CHECK(WeightFormat(Format::fp8).bytes(3, 200) == 3 * 256 + 4 * 2);
  CHECK(WeightFormat(Format::fp8).bytes(129, 128) == 129 * 128 + 4 * 2);
  CHECK(WeightFormat(Format::bf16).bytes(3, 200) == 1200);
}

TEST_CASE("quantised: which formats there are") {
  for (const WeightFormat& f : formats()) CHECK(f.is_valid());
  CHECK(WeightFormat(Format::bf16).is_valid());
  CHECK_FALSE(WeightFormat(Format::bf16, 128).is_valid());
  CHECK_FALSE(WeightFormat(Format::int4, 0).is_valid());
  CHECK_FALSE(WeightFormat(Format::int8, 48).is_valid());
  CHECK_FALSE(WeightFormat(Format::fp8, 0).is_valid());
  CHECK_FALSE(WeightFormat(Format::fp8, 64).is_valid());
  CHECK_FALSE(WeightFormat(Format::fp8, 128, false).is_valid());
  CHECK(to_string(WeightFormat(Format::fp8)) == "fp8 in blocks of 128");
  for (const WeightFormat& f : formats()) CHECK(qwenlite::weight_format_of(word_of(f)) == f);
  CHECK(word_of(WeightFormat(Format::int4)) == "int4:64");
  CHECK(word_of(WeightFormat(Format::int8, 0)) == "int8:row");
  CHECK(word_of(WeightFormat(Format::int4, 32, false)) == "int4:32:zeros");
  CHECK(word_of(WeightFormat(Format::fp8)) == "fp8");
  CHECK(qwenlite::weight_format_of("int8") == WeightFormat(Format::int8));
  CHECK(qwenlite::weight_format_of("f16") == WeightFormat(Format::f16));
  for (const char* none : {"", "int3", "int4:", "int4:row", "int4:16", "int8:128:", "int4:64:zero", "fp8:64",
                           "int4:64:zeros:", "bf16:32", "int4:064"}) {
    INFO(none);
    CHECK_FALSE(qwenlite::weight_format_of(none).has_value());
  }
  CHECK(to_string(WeightFormat(Format::int8, 32, false)) == "int8 in groups of 32 with zero points");
}

TEST_CASE("quantised: an element is its number less the zero point, times the scale") {
  std::vector<std::byte> values(2 * 128);
  std::vector<std::byte> scales(2 * 2 * 4);
  std::vector<std::byte> zeros(2 * 4);
  for (Index g = 0; g < 8; ++g) {
    const F16 scale(std::ldexp(1.0F, static_cast<int>(g) - 4));
    std::memcpy(scales.data() + 2 * g, &scale, 2);
    zeros[static_cast<std::size_t>(g)] = static_cast<std::byte>(g);
  }
  for (Index i = 0; i < 128; ++i) {
    qwenlite::store_value(Format::int8, values.data() + 128, i, static_cast<int>(i + 100));
  }
  const WeightView eight{values.data(), 2, 128, Format::int8, {scales.data(), nullptr, 32}};
  CHECK(decode(eight, 1, 0) == -28.0F);                // group 4: scale 1
  CHECK(decode(eight, 1, 127) == (227 - 128) * 8.0F);  // group 7
  for (Index i = 0; i < 128; ++i)
    qwenlite::store_value(Format::int4, values.data(), i, static_cast<int>(i % 16));
  const WeightView four{values.data(), 1, 128, Format::int4, {scales.data(), nullptr, 32}};
  CHECK(decode(four, 0, 33) == (1 - 8) * 0.125F);
  const WeightView with_zeros{values.data(), 1, 128, Format::int4, {scales.data(), zeros.data(), 32}};
  CHECK(decode(with_zeros, 0, 127) == (15 - 3) * 0.5F);
}

TEST_CASE("quantised: every table decodes rows exactly") {
  for (const KernelTable* t : runnable_tables()) {
    for (const WeightFormat& f : formats()) {
      INFO(t->name << " " << to_string(f));
      for (const Index cols : {1, 7, 8, 15, 16, 17, 31, 33, 64, 96, 127, 128, 129, 160, 257, 600, 2304}) {
        const Matrix matrix(f, 3, cols);
        const GuardedMemory out(cols * 4);
        bool exact = true;
        for (Index r = 0; r < 3; ++r) {
          t->decode_quantised(matrix.view, r, out.floats());
          for (Index i = 0; i < cols; ++i) exact &= out.floats()[i] == decode(matrix.view, r, i);
        }
        INFO("cols " << cols);
        CHECK(exact);
      }
    }
  }
}

TEST_CASE("quantised: every table agrees with sums in double, whatever shares the call") {
  for (const KernelTable* t : runnable_tables()) {
    for (const Precision p : precisions(*t)) {
      for (const WeightFormat& f : formats()) {
        INFO(t->name << " " << name_of(p) << " " << to_string(f));
        for (const Index rows : {1, 3, 8, 13, 16, 33}) {
          for (const Index in : {1, 16, 33, 64, 130, 257}) {
            for (const Index columns : {1, 2, 5, 7, 33}) check_product(*t, p, f, rows, in, columns);
          }
        }
        for (Index columns = 1; columns <= 70; columns += 3) check_product(*t, p, f, 9, 200, columns);
        check_product(*t, p, f, 64, 4224, 2);  // more than sixteen groups
        check_product(*t, p, f, 6, 9000, 8);
        check_product(*t, p, f, 7, 1201, 20);  // parts of `in`, of one group too
        for (const Index columns : {1, 20}) check_product(*t, p, f, 130, 129, columns);
      }
    }
  }
}

TEST_CASE("quantised: an output does not depend on the strip it is computed in") {
  const auto check_strips = [](const KernelTable& t, Precision precision, const WeightFormat& f) {
    INFO(t.name << " " << name_of(precision) << " " << to_string(f));
    const Index all = f.format == Format::fp8 ? 200 : 64;  // more rows than share a scale
    const Matrix matrix(f, all, 300);
    const std::vector<float> x = random_floats(20 * 300, 9);
    const std::vector<float> out = product(t, precision, matrix.view, x, {0, all, 0, 20});
    bool same = true;
    for (const Index strip : {1, 5, 8, 24, 33}) {
      for (Index r = 0; r < all; r += strip) {
        const Index rows = std::min(strip, all - r);
        for (const Index columns : {1, 4, 20}) {
          const std::vector<float> piece = product(t, precision, matrix.view, x, {r, rows, 0, columns});
          for (Index c = 0; c < columns; ++c) {
            same &= same_bits(piece.data() + c * rows, out.data() + c * all + r, rows);
          }
        }
      }
    }
    CHECK(same);
  };
  for (const KernelTable* t : runnable_tables()) {
    for (const Precision precision : precisions(*t)) {
      for (const WeightFormat& f : formats()) check_strips(*t, precision, f);
    }
  }
}

TEST_CASE("quantised: scratch for a larger product is enough for a smaller one") {
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    for (const Index in : {64, 1000, 3072, 30000}) {
      const Index bytes = t->quantised_scratch_bytes(64, in, 512);
      for (const Index less : {1, 60, 900, 1023, 2900}) {
        if (less <= in) CHECK(t->quantised_scratch_bytes(64, less, 512) <= bytes);
      }
      CHECK(t->quantised_scratch_bytes(32, in, 512) <= bytes);
      CHECK(t->quantised_scratch_bytes(64, in, 1) <= bytes);
    }
  }
}
