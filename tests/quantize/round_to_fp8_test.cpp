// SPDX-License-Identifier: Apache-2.0
//
// Rounding to fp8: codes against the nearest of all, halves to even; scales that bfloat16 holds, one for each
// block of 128 by 128; the same planes on any threads and kernels; what is refused.
#include <algorithm>
#include <cmath>

#include <qwenlite/quantize/round_to_nearest.hpp>

#include "kernels/kernel_tables.hpp"

namespace ql = qwenlite;
using namespace kernel_tests;
using ql::WeightView;

namespace {

WeightView view_of(const std::vector<float>& values, Index rows) {
  return {reinterpret_cast<const std::byte*>(values.data()), rows, std::ssize(values) / rows, Format::f32};
}

ql::QuantisedMatrix quantised(const WeightView& w, int threads = 1,
                              const KernelTable& table = *ql::kernels::supported().front()) {
  ql::ThreadPool pool(threads);
  return ql::round_to_nearest(w, Format::fp8, table, pool);
}

/// The nearest e4m3 magnitude, found by trying all; of two the one with the even code.
int nearest_code(double magnitude) {
  int best = 0;
  for (int code = 1; code < 0x7F; ++code) {
    const auto distance = [&](int c) {
      return std::abs(
          static_cast<double>(static_cast<float>(ql::F8E4M3::from_bits(static_cast<std::uint8_t>(c)))) -
          magnitude);
    };
    const bool closer = distance(code) < distance(best);
    if (closer || (distance(code) == distance(best) && code % 2 == 0)) best = code;
  }
  return best;
}

}  // namespace

TEST_CASE("round to fp8: every number becomes the nearest code, halves the even one") {
  std::vector<float> values{0.0F, 1e-30F, 449.0F};  // the last one beyond what there is
  for (int code = 0; code < 0x7E; ++code) {         // every number, the middle to the next, and both sides
    const float low = static_cast<float>(ql::F8E4M3::from_bits(static_cast<std::uint8_t>(code)));
    const float high = static_cast<float>(ql::F8E4M3::from_bits(static_cast<std::uint8_t>(code + 1)));
    const float middle = (low + high) / 2;
    for (const float v : {low, middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 500.0F)}) {
      values.push_back(v);
    }
  }
  for (const float v : values) {
    INFO(v);
    const std::vector<float> row{448.0F, v, -v};  // with it the scale of the block is 1
    const ql::QuantisedMatrix m = quantised(view_of(row, 1));
    const int code = v > 448 ? 0x7E : nearest_code(static_cast<double>(v));
    CHECK(std::to_integer<int>(m.view().row(0)[1]) == code);
    CHECK(std::to_integer<int>(m.view().row(0)[2]) == code + 128);
  }
}

TEST_CASE("round to fp8: the largest of each block of 128 by 128 becomes 448") {
  for (const Index rows : {1, 127, 128, 129, 260}) {
    for (const Index cols : {1, 127, 128, 129, 300}) {
      INFO(rows << " x " << cols);
      std::vector<float> values = random_floats(rows * cols, static_cast<unsigned>(rows + cols), 0.02F);
      for (Index r = 0; r < rows; ++r) {  // blocks of different sizes
        for (Index i = 0; i < cols; ++i) {
          values[static_cast<std::size_t>(r * cols + i)] *=
              static_cast<float>(1 + r / 128 * 5 + i / 128 * 50);
        }
      }
      const WeightView w = view_of(values, rows);
      const ql::QuantisedMatrix m = quantised(w);
      CHECK(m.bytes() == ql::WeightFormat(Format::fp8).bytes(rows, cols));
      bool nearest = true;
      bool right_scales = true;
      for (Index block = 0; block < ql::ceil_div(rows, 128); ++block) {
        for (Index g = 0; g < ql::ceil_div(cols, 128); ++g) {
          const float scale = block_scale(m.view(), block * 128, g);
          float largest = 0;
          for (Index r = block * 128; r < std::min(rows, block * 128 + 128); ++r) {
            for (Index i = g * 128; i < std::min(cols, g * 128 + 128); ++i) {
              const float v = decode(w, r, i);
              largest = std::max(largest, std::abs(v));
              const auto steps = static_cast<double>(v) / static_cast<double>(scale);
              const auto found = static_cast<double>(decode(m.view(), r, i)) / static_cast<double>(scale);
              const auto best = static_cast<double>(static_cast<float>(
                  ql::F8E4M3::from_bits(static_cast<std::uint8_t>(nearest_code(std::abs(steps))))));
              nearest &= std::abs(found - steps) <= std::abs(best - std::abs(steps)) + 1e-4;
            }
          }
          right_scales &= scale == static_cast<float>(Bf16(largest / 448.0F));
        }
      }
      CHECK(nearest);
      CHECK(right_scales);
      for (Index i = cols; i < m.view().row_bytes(); ++i) {
        CHECK(m.view().row(rows - 1)[i] == std::byte{0});
      }
    }
  }
}

TEST_CASE("round to fp8: zeros have a scale, and numbers of any size are rounded") {
  std::vector<float> values(300, 0.0F);
  CHECK(block_scale(quantised(view_of(values, 1)).view(), 0, 1) == 1.0F);
  for (const float size : {1e-30F, 1e-10F, 1e10F, 1e30F, 2e38F}) {
    INFO(size);
    values[170] = -size;
    const ql::QuantisedMatrix m = quantised(view_of(values, 1));
    CHECK(decode(m.view(), 0, 170) == Approx(-size).epsilon(0.003));
    CHECK(decode(m.view(), 0, 171) == 0.0F);
  }
}

TEST_CASE("round to fp8: the same planes on any threads and kernels", "[threads]") {
  const std::vector<float> values = random_floats(300 * 200, 8, 0.05F);
  const ql::QuantisedMatrix expected = quantised(view_of(values, 300));
  for (const KernelTable* t : runnable_tables()) {
    for (const int threads : {1, 3}) {
      const ql::QuantisedMatrix m = quantised(view_of(values, 300), threads, *t);
      CHECK(std::memcmp(m.view().data, expected.view().data, 300 * 256) == 0);
      CHECK(std::memcmp(m.view().planes.scales, expected.view().planes.scales, 3 * 2 * 4) == 0);
    }
  }
}

TEST_CASE("round to fp8: what is not finite is refused") {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(), 3.2e38F}) {
    std::vector<float> values(300, 0.5F);
    values[170] = bad;
    CHECK_THROWS_AS(quantised(view_of(values, 1)), ql::Error);
  }
  CHECK_THROWS_AS(ql::choose_rounding(std::vector<float>(128, 1.0F), Format::fp8), ql::Error);
}
