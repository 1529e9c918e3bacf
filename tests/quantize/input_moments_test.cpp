// SPDX-License-Identifier: Apache-2.0
//
// Sums over the inputs of products, on every instruction set, against sums in double.
#include <qwenlite/quantize/input_moments.hpp>
#include <qwenlite/quantize/output_error.hpp>

#include "kernels/kernel_tables.hpp"

namespace ql = qwenlite;
using namespace kernel_tests;

namespace {

ql::ConstMatrix<float> matrix(const std::vector<float>& x, Index width, Index stride) {
  return {x.data(), std::ssize(x) / stride, width, Eigen::OuterStride<>(stride)};
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double v : values) most = std::max(most, std::abs(v));
  return most;
}

}  // namespace

TEST_CASE("moments are the sums over all inputs, whatever the pieces", "[threads]") {
  const Index width = 150;
  const Index stride = 160;
  const Index tokens = 1100;  // of more than two pieces
  const std::vector<float> x = random_floats(tokens * stride, 3);
  std::vector<double> sums(static_cast<std::size_t>(width * width));
  std::vector<double> magnitudes(static_cast<std::size_t>(width));
  for (Index t = 0; t < tokens; ++t) {
    const float* row = x.data() + t * stride;
    for (Index i = 0; i < width; ++i) {
      magnitudes[static_cast<std::size_t>(i)] += std::abs(static_cast<double>(row[i]));
      for (Index j = 0; j < width; ++j) {
        sums[static_cast<std::size_t>(i * width + j)] +=
            static_cast<double>(row[i]) * static_cast<double>(row[j]);
      }
    }
  }
  for (const KernelTable* table : runnable_tables()) {
    INFO(table->name);
    ql::ThreadPool pool(3);
    const ql::Ops ops(*table, pool, Precision::exact);
    ql::InputMoments whole(width);
    whole.add(matrix(x, width, stride), ops);
    ql::InputMoments pieces(width);
    const ql::ConstMatrix<float> all = matrix(x, width, stride);
    for (Index t = 0; t < tokens; t += 300) {
      pieces.add(
          {all.data() + t * stride, std::min<Index>(300, tokens - t), width, Eigen::OuterStride<>(stride)},
          ops);
    }
    for (const ql::InputMoments* m : {&whole, &pieces}) {
      CHECK(m->tokens() == tokens);
      double off = 0;
      for (std::size_t i = 0; i < sums.size(); ++i) off = std::max(off, std::abs(m->sums()[i] - sums[i]));
      CHECK(off < 1e-6 * largest(sums));
      for (std::size_t i = 0; i < magnitudes.size(); ++i) {
        CHECK(m->magnitudes()[i] == Approx(magnitudes[i]).epsilon(1e-9));
      }
    }
    CHECK_THROWS_AS(whole.add(matrix(x, width + 1, stride), ops), ql::Error);
  }
}

TEST_CASE("the error of outputs follows from the moments") {
  const Index width = 96;
  const std::vector<float> x = random_floats(200 * width, 4);
  const std::vector<float> off = random_floats(30 * width, 5, 0.01F);
  double expected = 0;
  for (Index r = 0; r < 30; ++r) {
    for (Index t = 0; t < 200; ++t) {
      double sum = 0;
      for (Index i = 0; i < width; ++i) {
        sum += static_cast<double>(off[static_cast<std::size_t>(r * width + i)]) *
               static_cast<double>(x[static_cast<std::size_t>(t * width + i)]);
      }
      expected += sum * sum;
    }
  }
  ql::ThreadPool pool(1);
  const ql::Ops ops(*ql::kernels::supported().back(), pool, Precision::exact);
  ql::InputMoments moments(width);
  moments.add(matrix(x, width, width), ops);
  CHECK(ql::OutputError(moments, ops).of(matrix(off, width, width)) == Approx(expected).epsilon(1e-4));
}
