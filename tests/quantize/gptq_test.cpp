// SPDX-License-Identifier: Apache-2.0
//
// GPTQ: on inputs whose elements go together, as activations' do, outputs are nearer to the right ones than
// with rounding to nearest, at the same bits; on inputs that do not, it is rounding to nearest.
#include <cmath>

#include <qwenlite/quantize/gptq.hpp>

#include "kernels/kernel_tables.hpp"

namespace ql = qwenlite;
using namespace kernel_tests;
using ql::WeightFormat;
using ql::WeightView;

namespace {

const std::vector<WeightFormat>& formats() {
  static const std::vector<WeightFormat> list{
      {Format::int4}, {Format::int4, 32}, {Format::int4, 128}, {Format::int4, 64, false}, {Format::int8, 0}};
  return list;
}

/// Inputs [tokens, width] that are mixtures of a few directions, of different strength, with some noise.
std::vector<float> correlated(Index tokens, Index width, unsigned seed) {
  const Index directions = width / 8;
  const std::vector<float> basis = random_floats(directions * width, 77);
  const std::vector<float> parts = random_floats(tokens * directions, seed);
  std::vector<float> x = random_floats(tokens * width, seed + 1, 0.1F);
  for (Index t = 0; t < tokens; ++t) {
    for (Index d = 0; d < directions; ++d) {
      const float part = parts[static_cast<std::size_t>(t * directions + d)] / static_cast<float>(1 + d);
      for (Index i = 0; i < width; ++i) {
        x[static_cast<std::size_t>(t * width + i)] += part * basis[static_cast<std::size_t>(d * width + i)];
      }
    }
  }
  return x;
}

ql::ConstMatrix<float> matrix(const std::vector<float>& x, Index width) {
  return {x.data(), std::ssize(x) / width, width, Eigen::OuterStride<>(width)};
}

/// sum over tokens and rows of (output - right output)^2.
double output_error(const std::vector<float>& weights, const WeightView& q, const std::vector<float>& x) {
  double sum = 0;
  for (Index r = 0; r < q.rows; ++r) {
    std::vector<double> off;
    for (Index i = 0; i < q.cols; ++i) {
      off.push_back(static_cast<double>(decode(q, r, i)) -
                    static_cast<double>(weights[static_cast<std::size_t>(r * q.cols + i)]));
    }
    for (Index t = 0; t < std::ssize(x) / q.cols; ++t) {
      double error = 0;
      for (Index i = 0; i < q.cols; ++i) {
        error += off[static_cast<std::size_t>(i)] *
                 static_cast<double>(x[static_cast<std::size_t>(t * q.cols + i)]);
      }
      sum += error * error;
    }
  }
  return sum;
}

bool same_elements(const WeightView& a, const WeightView& b) {
  for (Index r = 0; r < a.rows; ++r) {
    for (Index i = 0; i < a.cols; ++i) {
      if (decode(a, r, i) != decode(b, r, i)) return false;
    }
  }
  return true;
}

ql::QuantisedMatrix plainly(const std::vector<float>& weights, Index rows, const WeightFormat& format) {
  ql::ThreadPool pool(1);
  const WeightView view{reinterpret_cast<const std::byte*>(weights.data()), rows, std::ssize(weights) / rows,
                        Format::f32};
  return ql::round_to_nearest(view, format, *ql::kernels::supported().front(), pool);
}

/// The moments of some inputs [tokens, width].
ql::InputMoments moments_of(const std::vector<float>& x, Index width) {
  ql::ThreadPool pool(1);
  ql::InputMoments moments(width);
  moments.add(matrix(x, width), ql::Ops(*ql::kernels::supported().back(), pool, Precision::exact));
  return moments;
}

ql::QuantisedMatrix gptq(const std::vector<float>& weights, Index rows, const ql::InputMoments& moments,
                         const WeightFormat& format, ql::Executor& pool,
                         const ql::GptqOptions& options = {}) {
  return ql::gptq(weights, rows, ql::GptqInputs(moments, pool, options), format, pool);
}

}  // namespace

TEST_CASE("gptq: outputs are nearer than with rounding to nearest, also on inputs it has not seen") {
  const Index width = 200;
  const Index rows = 20;
  const std::vector<float> weights = random_floats(rows * width, 5, 0.02F);
  const std::vector<float> seen = correlated(512, width, 10);
  const std::vector<float> unseen = correlated(256, width, 20);
  const ql::InputMoments moments = moments_of(seen, width);
  ql::ThreadPool pool(1);
  for (const WeightFormat& format : formats()) {
    for (const bool act_order : {false, true}) {
      INFO(to_string(format) << (act_order ? ", act order" : ""));
      const ql::QuantisedMatrix plain = plainly(weights, rows, format);
      const ql::QuantisedMatrix m = gptq(weights, rows, moments, format, pool, {.act_order = act_order});
      CHECK(output_error(weights, m.view(), seen) < 0.5 * output_error(weights, plain.view(), seen));
      CHECK(output_error(weights, m.view(), unseen) < 0.6 * output_error(weights, plain.view(), unseen));
    }
  }
}

TEST_CASE("gptq: without correlation it is rounding to nearest") {
  const Index width = 96;
  const std::vector<float> weights = random_floats(3 * width, 6, 0.02F);
  std::vector<float> x(static_cast<std::size_t>(width * width), 0.0F);  // each element alone, once
  for (Index i = 0; i < width; ++i)
    x[static_cast<std::size_t>(i * width + i)] = 1.0F + static_cast<float>(i % 7);
  const ql::InputMoments moments = moments_of(x, width);
  ql::ThreadPool pool(1);
  for (const WeightFormat& format : formats()) {
    for (const bool act_order : {false, true}) {
      INFO(to_string(format));
      const ql::QuantisedMatrix m = gptq(weights, 3, moments, format, pool, {.act_order = act_order});
      CHECK(same_elements(m.view(), plainly(weights, 3, format).view()));
    }
  }
}

TEST_CASE("gptq: two columns that go together, by hand") {
  // H of the first two is [[1, 1], [1, 2]], so H^-1 = [[2, -1], [-1, 1]]: an error e of the first asks for
  // e / 2 more of the second. The third stands alone and sets the scale: -0.8 is eight steps of 0.1.
  const std::vector<float> x{1.0F, 1.0F, 0.0F, 0.0F, 1.0F, 0.0F, 0.0F, 0.0F, 1.0F};
  const ql::InputMoments moments = moments_of(x, 3);
  CHECK(moments.tokens() == 3);
  CHECK(std::vector<double>(moments.sums().begin(), moments.sums().end()) ==
        std::vector<double>{1, 1, 0, 1, 2, 0, 0, 0, 1});
  const std::vector<float> weights{0.34F, 0.34F, -0.8F};
  ql::ThreadPool pool(1);
  const ql::QuantisedMatrix m = gptq(weights, 1, moments, {Format::int4, 32}, pool, {.damping = 0});
  CHECK(decode(m.view(), 0, 0) == Approx(0.3).epsilon(1e-3));
  CHECK(decode(m.view(), 0, 1) == Approx(0.4).epsilon(1e-3));  // 0.34 + 0.04 / 2
  CHECK(decode(m.view(), 0, 2) == Approx(-0.8).epsilon(1e-3));
}

TEST_CASE("gptq: the same for any threads", "[threads]") {
  const Index width = 128;
  const Index rows = 30;
  const std::vector<float> weights = random_floats(rows * width, 7, 0.02F);
  const ql::InputMoments moments = moments_of(correlated(200, width, 30), width);
  ql::ThreadPool one(1);
  ql::ThreadPool three(3);
  const WeightFormat format(Format::int4, 32);
  const ql::QuantisedMatrix expected = gptq(weights, rows, moments, format, one);
  CHECK(same_elements(gptq(weights, rows, moments, format, three).view(), expected.view()));
}

TEST_CASE("gptq: wrong arguments are refused") {
  ql::ThreadPool pool(1);
  const std::vector<float> weights(64, 0.5F);
  CHECK_THROWS_AS(gptq(weights, 2, ql::InputMoments(32), Format::int4, pool), ql::Error);  // no inputs
  const ql::InputMoments moments = moments_of(random_floats(32 * 40, 1), 32);
  CHECK_THROWS_AS(gptq(weights, 3, moments, Format::int4, pool), ql::Error);
  std::vector<float> bad = weights;
  bad[40] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(gptq(bad, 2, moments, Format::int4, pool), ql::Error);
  CHECK_NOTHROW(gptq(weights, 2, moments, Format::int4, pool));
}
