// SPDX-License-Identifier: Apache-2.0
//
// fp8 weights: every code against its definition, on every instruction set; the scale of each block of 128
// rows by 128 elements, at the edges of blocks and from any first row on; NaN stays NaN in products.
#include <cmath>
#include <limits>

#include <qwenlite/kernels/aligned_buffer.hpp>

#include "kernel_tables.hpp"

using namespace kernel_tests;
using qwenlite::ceil_div;
using qwenlite::WeightView;

namespace {

/// e4m3 by its definition.
double value_of(unsigned code) {
  const unsigned exponent = code >> 3U & 15U;
  const unsigned fraction = code & 7U;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, static_cast<int>(exponent) - 10);
  return code >= 128 ? -magnitude : magnitude;
}

/// A matrix whose codes count up and whose scales, any float32, are all different.
struct Fp8Matrix {
  std::vector<std::byte> codes;
  std::vector<float> scales;
  WeightView view;

  Fp8Matrix(Index rows, Index cols)
      : codes(static_cast<std::size_t>(rows * qwenlite::row_bytes(Format::fp8, cols))),
        scales(static_cast<std::size_t>(ceil_div(rows, 128) * ceil_div(cols, 128))),
        view{codes.data(),
             rows,
             cols,
             Format::fp8,
             {reinterpret_cast<const std::byte*>(scales.data()), nullptr, 128}} {
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i * 37 % 256);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.0123F * static_cast<float>(i + 1);
    for (Index r = 0; r < rows; ++r) {
      for (Index i = cols; i < view.row_bytes(); ++i)
        codes[static_cast<std::size_t>(r * view.row_bytes() + i)] = {};
    }
  }
  /// One rounding of the exact product.
  [[nodiscard]] float element(Index r, Index i) const {
    const auto code = std::to_integer<unsigned>(codes[static_cast<std::size_t>(r * view.row_bytes() + i)]);
    const auto scale = scales[static_cast<std::size_t>(r / 128 * ceil_div(view.cols, 128) + i / 128)];
    return static_cast<float>(value_of(code) * static_cast<double>(scale));
  }
};

bool same_number(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

}  // namespace

TEST_CASE("fp8: every code is what e4m3 defines") {
  for (unsigned code = 0; code < 256; ++code) {
    INFO(code);
    CHECK(same_number(static_cast<float>(qwenlite::F8E4M3::from_bits(static_cast<std::uint8_t>(code))),
                      static_cast<float>(value_of(code))));
  }
}

TEST_CASE("fp8: every table decodes every code, with the scale of its block and one rounding") {
  for (const KernelTable* t : runnable_tables()) {
    for (const Index cols : {1, 31, 127, 128, 129, 200, 256, 384, 4000}) {
      INFO(t->name << " cols " << cols);
      const Fp8Matrix m(130, cols);
      std::vector<float> out(static_cast<std::size_t>(cols));
      bool right = true;
      for (const Index r : {0, 1, 126, 127, 128, 129}) {
        t->decode_quantised(m.view, r, out.data());
        for (Index i = 0; i < cols; ++i) {
          right &= same_number(out[static_cast<std::size_t>(i)], m.element(r, i));
          right &= same_number(decode(m.view, r, i), m.element(r, i));
        }
      }
      CHECK(right);
    }
  }
}

TEST_CASE("fp8: a part of a matrix has the scales of its rows") {
  const Fp8Matrix m(300, 260);
  for (const Index first : {0, 1, 64, 127, 128, 130, 255, 256, 299}) {
    for (const Index second : {0, 1, 100}) {  // a part of a part
      INFO(first << " " << second);
      if (first + second >= 300) continue;
      const WeightView part{m.view.row(first), 300 - first, 260, Format::fp8, m.view.planes_from(first)};
      const WeightView rest{part.row(second), part.rows - second, 260, Format::fp8, part.planes_from(second)};
      bool right = true;
      for (Index r = 0; r < rest.rows; ++r) {
        for (const Index i : {0, 127, 128, 259})
          right &= same_number(decode(rest, r, i), m.element(first + second + r, i));
      }
      CHECK(right);
    }
  }
}

TEST_CASE("fp8: a weight that is NaN makes its outputs NaN, and no others") {
  constexpr Index cols = 200;
  constexpr Index rows = 19;
  for (const KernelTable* t : runnable_tables()) {
    for (const Index columns : {1, 2, 3, 6, 40}) {
      INFO(t->name << " columns " << columns);
      Fp8Matrix m(rows, cols);
      for (std::byte& code : m.codes) {
        if ((code & std::byte{0x7F}) == std::byte{0x7F}) code = std::byte{0x7E};
      }
      m.codes[static_cast<std::size_t>(9 * m.view.row_bytes() + 150)] = std::byte{0xFF};
      m.codes[static_cast<std::size_t>(18 * m.view.row_bytes())] = std::byte{0x7F};
      const qwenlite::AlignedBuffer packed(columns * 224 * 4);
      std::fill_n(packed.floats(), columns * 224, 0.0F);
      for (Index c = 0; c < columns; ++c) std::fill_n(packed.floats() + c * 224, cols, 0.5F);
      const qwenlite::AlignedBuffer scratch(t->quantised_scratch_bytes(rows, cols, columns));
      std::vector<float> out(static_cast<std::size_t>(rows * columns));
      t->matmul_quantised({.weights = m.view.data,
                           .format = Format::fp8,
                           .row_bytes = m.view.row_bytes(),
                           .planes = m.view.planes,
                           .rows = rows,
                           .in = cols,
                           .packed = packed.data(),
                           .columns = columns,
                           .out = out.data(),
                           .out_stride = rows,
                           .scratch = scratch.data()});
      bool right = true;
      for (Index i = 0; i < rows * columns; ++i) {
        const bool expected = i % rows == 9 || i % rows == 18;
        right &= std::isnan(out[static_cast<std::size_t>(i)]) == expected;
      }
      CHECK(right);
    }
  }
}
