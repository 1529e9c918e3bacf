// SPDX-License-Identifier: Apache-2.0
//
// Rounding to nearest: every element against the best there is, found by trying all; known groups by hand;
// the clipping search against a search of its own; and the same planes on any threads and kernels.
#include <algorithm>
#include <cmath>

#include <qwenlite/quantize/round_to_nearest.hpp>

#include "kernels/kernel_tables.hpp"

namespace ql = qwenlite;
using namespace kernel_tests;
using ql::WeightFormat;
using ql::WeightView;

namespace {

const std::vector<WeightFormat>& formats() {
  static const std::vector<WeightFormat> list{
      {Format::int8}, {Format::int8, 0},  {Format::int8, 32},  {Format::int8, 128, false},
      {Format::int4}, {Format::int4, 32}, {Format::int4, 128}, {Format::int4, 64, false}};
  return list;
}

WeightView view_of(const std::vector<float>& values, Index rows) {
  return {reinterpret_cast<const std::byte*>(values.data()), rows, std::ssize(values) / rows, Format::f32};
}

ql::QuantisedMatrix quantised(const WeightView& w, const WeightFormat& f, bool search = false,
                              int threads = 1) {
  ql::ThreadPool pool(threads);
  return ql::round_to_nearest(w, f, *ql::kernels::supported().front(), pool, search);
}

double square_error(const WeightView& a, const WeightView& b) {
  double sum = 0;
  for (Index r = 0; r < a.rows; ++r) {
    for (Index i = 0; i < a.cols; ++i) {
      sum += std::pow(static_cast<double>(decode(a, r, i)) - static_cast<double>(decode(b, r, i)), 2);
    }
  }
  return sum;
}

bool same_planes(const ql::QuantisedMatrix& a, const ql::QuantisedMatrix& b) {
  const WeightView& v = a.view();
  const WeightView& w = b.view();
  const auto groups = static_cast<std::size_t>(v.rows * ql::ceil_div(v.cols, v.planes.group));
  return std::memcmp(v.data, w.data, static_cast<std::size_t>(v.rows * v.row_bytes())) == 0 &&
         std::memcmp(v.planes.scales, w.planes.scales, groups * 2) == 0 &&
         (v.planes.zeros == nullptr || std::memcmp(v.planes.zeros, w.planes.zeros, groups) == 0);
}

}  // namespace

TEST_CASE("round to nearest: known groups") {
  // int8: 1.27 is 127 steps of 0.01, as near as float16 has it.
  std::vector<float> values(128, 0.0F);
  values[0] = 1.27F;
  values[1] = -0.5F;
  values[127] = 0.0149F;
  const ql::QuantisedMatrix eight = quantised(view_of(values, 1), Format::int8);
  const std::byte* row = eight.view().row(0);
  CHECK(ql::stored_value(Format::int8, row, 0) == 128 + 127);
  CHECK(ql::stored_value(Format::int8, row, 1) == 128 - 50);
  CHECK(ql::stored_value(Format::int8, row, 2) == 128);
  CHECK(ql::stored_value(Format::int8, row, 127) == 128 + 1);

  // Symmetric int4: the largest is -8 steps, so a positive one makes the scale negative.
  const std::vector<float> up{8.0F, -7.0F, 1.4F, 0.0F};
  const ql::QuantisedMatrix four = quantised(view_of(up, 1), {Format::int4, 32});
  const std::vector<int> numbers{0, 15, 7, 8};
  for (Index i = 0; i < 4; ++i) {
    CHECK(ql::stored_value(Format::int4, four.view().row(0), i) == numbers[static_cast<std::size_t>(i)]);
  }
  CHECK(decode(four.view(), 0, 0) == 8.0F);
  CHECK(decode(four.view(), 0, 1) == -7.0F);

  // Asymmetric: -3 to 12 are exactly the numbers 0 to 15.
  const std::vector<float> range{-3.0F, 12.0F, 0.0F, 5.0F};
  const ql::QuantisedMatrix shifted = quantised(view_of(range, 1), {Format::int4, 32, false});
  for (Index i = 0; i < 4; ++i) CHECK(decode(shifted.view(), 0, i) == range[static_cast<std::size_t>(i)]);
  CHECK(shifted.view().planes.zeros[0] == std::byte{3});
}

TEST_CASE("round to nearest: no element has a nearer number") {
  for (const WeightFormat& f : formats()) {
    INFO(to_string(f));
    for (const Index cols : {1, 31, 32, 100, 128, 300}) {
      const std::vector<float> values = random_floats(3 * cols, static_cast<unsigned>(cols), 0.02F);
      const WeightView w = view_of(values, 3);
      const ql::QuantisedMatrix m = quantised(w, f);
      const WeightView& q = m.view();
      bool nearest = true;
      for (Index r = 0; r < 3; ++r) {
        for (Index i = 0; i < cols; ++i) {
          const Index g = r * ql::ceil_div(cols, q.planes.group) + i / q.planes.group;
          F16 scale;
          std::memcpy(&scale, q.planes.scales + 2 * g, 2);
          const int zero = q.planes.zeros != nullptr ? std::to_integer<int>(q.planes.zeros[g])
                                                     : ql::middle_value(q.format);
          double best = 1e9;
          for (int u = 0; u <= ql::largest_value(q.format); ++u) {
            const double value = (u - zero) * static_cast<double>(static_cast<float>(scale));
            best = std::min(best, std::abs(value - static_cast<double>(decode(w, r, i))));
          }
          const double error =
              std::abs(static_cast<double>(decode(q, r, i)) - static_cast<double>(decode(w, r, i)));
          nearest &= error <= best + 1e-4 * std::abs(static_cast<double>(static_cast<float>(scale)));
        }
      }
      CHECK(nearest);
      CHECK(m.bytes() == f.bytes(3, cols));
    }
  }
}

TEST_CASE("round to nearest: zeros, tiny and one-sided groups stay what they are") {
  for (const WeightFormat& f : formats()) {
    INFO(to_string(f));
    const std::vector<float> zeros(200, 0.0F);
    const ql::QuantisedMatrix none = quantised(view_of(zeros, 1), f);
    std::vector<float> rows(400, -0.25F);  // the second is below what a float16 scale can say
    std::fill(rows.begin() + 200, rows.end(), 1e-12F);
    const ql::QuantisedMatrix both = quantised(view_of(rows, 2), f);
    for (Index i = 0; i < 200; ++i) {
      CHECK(decode(none.view(), 0, i) == 0.0F);
      CHECK(decode(both.view(), 0, i) == Approx(-0.25).epsilon(1e-3));
      CHECK(std::abs(decode(both.view(), 1, i)) <= 1e-12F);
    }
  }
}

TEST_CASE("round to nearest: the clipping search finds the least error of its ranges") {
  for (const WeightFormat& f : formats()) {
    INFO(to_string(f));
    std::vector<float> values = random_floats(4 * 256, 3, 0.02F);
    for (std::size_t i = 0; i < values.size(); i += 97) values[i] *= 5;  // outliers
    const WeightView w = view_of(values, 4);
    const ql::QuantisedMatrix plain = quantised(w, f);
    const ql::QuantisedMatrix searched = quantised(w, f, true);
    CHECK(square_error(w, searched.view()) <= square_error(w, plain.view()));
    if (f.format == Format::int4)
      CHECK(square_error(w, searched.view()) < 0.97 * square_error(w, plain.view()));

    // One group by hand: scales of 50 to 100 % of the plain one.
    if (f.format != Format::int4 || !f.symmetric) continue;
    const std::span<const float> group(values.data(), static_cast<std::size_t>(f.group));
    const ql::GroupRounding chosen = ql::choose_rounding(group, f, true);
    const auto error_of = [&](float scale) {
      double sum = 0;
      for (const float v : group) {
        const double u = std::clamp(std::nearbyint(static_cast<double>(v / scale)), -8.0, 7.0);
        sum += std::pow(u * static_cast<double>(scale) - static_cast<double>(v), 2);
      }
      return sum;
    };
    const auto whole = static_cast<float>(ql::choose_rounding(group, f).scale);
    double least = 1e9;
    for (int percent = 50; percent <= 100; ++percent) {
      const F16 scale(whole * static_cast<float>(percent) / 100.0F);
      least = std::min(least, error_of(static_cast<float>(scale)));
    }
    CHECK(error_of(static_cast<float>(chosen.scale)) <= least * 1.02);
  }
}

TEST_CASE("round to nearest: the same planes on any threads, kernels and stored format", "[threads]") {
  const Index rows = 67;
  const Index cols = 200;
  std::vector<float> values = random_floats(rows * cols, 8, 0.05F);
  for (float& v : values) v = round_to_bf16(v);
  std::vector<std::byte> stored(static_cast<std::size_t>(rows * cols * 2));
  for (Index i = 0; i < rows * cols; ++i)
    encode(Format::bf16, values[static_cast<std::size_t>(i)], stored.data(), i);
  for (const WeightFormat& f : formats()) {
    INFO(to_string(f));
    const ql::QuantisedMatrix expected = quantised(view_of(values, rows), f);
    for (const KernelTable* t : runnable_tables()) {
      for (const int threads : {1, 3}) {
        ql::ThreadPool pool(threads);
        CHECK(same_planes(ql::round_to_nearest({stored.data(), rows, cols, Format::bf16}, f, *t, pool),
                          expected));
      }
    }
  }
}

TEST_CASE("round to nearest: a matrix that would become nothing is refused, small parts are not") {
  for (const WeightFormat& f : formats()) {
    INFO(to_string(f));
    std::vector<float> values(600, 1e-10F);
    try {
      (void)quantised(view_of(values, 2), f);
      FAIL("no error");
    } catch (const ql::Error& e) {
      CHECK(e.code() == ql::ErrorCode::bad_tensor);
      CHECK_THAT(std::string(e.what()), has_text("all too small"));
    }
    CHECK_NOTHROW(quantised(view_of(std::vector<float>(600, 0.0F), 2), f));
    values[7] = 0.5F;
    CHECK_NOTHROW(quantised(view_of(values, 2), f));
  }
}

TEST_CASE("round to nearest: what cannot be rounded is refused") {
  for (const WeightFormat& f : formats()) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e9F}) {
      std::vector<float> values(300, 0.5F);
      values[170] = bad;
      try {
        (void)quantised(view_of(values, 1), f);
        FAIL("no error for " << to_string(f) << " and " << bad);
      } catch (const ql::Error& e) {
        CHECK(e.code() == ql::ErrorCode::bad_tensor);
        CHECK_THAT(std::string(e.what()), has_text("not finite"));
      }
    }
  }
}
