// SPDX-License-Identifier: Apache-2.0
//
// Quantised matrices of random numbers, and the parts of a product that tests compute.
#pragma once

#include <qwenlite/kernels/quantised.hpp>

#include "kernels/kernel_tables.hpp"

namespace kernel_tests {

/// What the padding of rows holds: the zero point, as quantisers leave it, or random bits too.
enum class Padding { zero_point, random };

/// A matrix whose stored numbers are random bits, in guarded memory.
struct Matrix {
  GuardedMemory values;
  GuardedMemory scales;
  GuardedMemory zeros;
  qwenlite::WeightView view;

  Matrix(const qwenlite::WeightFormat& f, Index rows, Index cols, Padding padding = Padding::zero_point)
      : values(rows * qwenlite::row_bytes(f.format, cols), (rows + cols) % 2),
        scales(f.scale_bytes(rows, cols), (rows + cols) % 2),
        zeros(rows * qwenlite::ceil_div(cols, f.group_of(cols)), 0),
        view{values.data(),
             rows,
             cols,
             f.format,
             {scales.data(), f.symmetric ? nullptr : zeros.data(), f.group_of(cols)}} {
    std::mt19937 bits(static_cast<unsigned>(rows * 31 + cols));
    std::uniform_real_distribution<float> scale(0.001F, 0.1F);
    for (Index i = 0; i < rows * view.row_bytes(); ++i) values.data()[i] = static_cast<std::byte>(bits());
    const Index groups = qwenlite::ceil_div(cols, view.planes.group);
    const auto largest_zero = static_cast<unsigned>(qwenlite::largest_value(f.format));
    for (Index i = 0; i < rows * groups; ++i) {
      zeros.data()[i] = static_cast<std::byte>(bits() % (largest_zero + 1));
    }
    for (Index i = 0; f.format != Format::fp8 && i < rows * groups; ++i) {
      set_scale(i, i % 3 == 0 ? -scale(bits) : scale(bits));
    }
    for (Index i = 0; f.format == Format::fp8 && i < qwenlite::ceil_div(rows, 128) * groups; ++i) {
      const float stored = scale(bits);  // any float32
      std::memcpy(scales.data() + 4 * i, &stored, 4);
    }
    for (Index i = 0; f.format == Format::fp8 && i < rows * view.row_bytes(); ++i) {  // no NaN
      if ((values.data()[i] & std::byte{0x7F}) == std::byte{0x7F}) values.data()[i] ^= std::byte{0x40};
    }
    for (Index r = 0; padding == Padding::zero_point && r < rows; ++r) pad(r);
  }

  /// Of int8 and int4.
  void set_scale(Index i, float scale) {
    const F16 stored(scale);
    std::memcpy(scales.data() + 2 * i, &stored, 2);
  }
  /// Every stored number is `number`, every zero point `zero`.
  void fill(int number, int zero) {
    const int pair = view.format == Format::int4 ? number * 17 : number;
    std::fill_n(values.data(), view.rows * view.row_bytes(), static_cast<std::byte>(pair));
    std::fill_n(zeros.data(), view.rows * qwenlite::ceil_div(view.cols, view.planes.group),
                static_cast<std::byte>(zero));
  }

 private:
  void pad(Index r) {
    std::byte* const row = values.data() + r * view.row_bytes();
    for (Index i = view.cols; i < qwenlite::round_up(view.cols, qwenlite::quantised_block); ++i) {
      qwenlite::store_value(view.format, row, i, qwenlite::middle_value(view.format));
    }
  }
};

/// Rows and columns of a product.
struct Part {
  Index first_row = 0;
  Index rows = 0;
  Index first_column = 0;
  Index columns = 0;
};

}  // namespace kernel_tests
