// SPDX-License-Identifier: Apache-2.0
//
// Matrix products with packing, as layers call them. Each call takes the next matrix of a gigabyte of them,
// so weights come from memory, with their scales if they are quantised.

#include <qwenlite/kernels/weight_words.hpp>

#include "../matmul_shapes.hpp"
#include "bench.hpp"

namespace kernel_bench {

namespace {

using bench::MatmulShape;
using qwenlite::WeightFormat;

/// What is multiplied.
struct Case {
  WeightFormat weights;
  const MatmulShape& shape;
  Index tokens;
};

/// The matrix at `data`, its scales behind its values.
[[nodiscard]] qwenlite::WeightView matrix_at(const std::byte* data, const Case& c) {
  const auto format = c.weights.format;
  qwenlite::WeightView w{data, c.shape.rows, c.shape.in, format};
  if (is_quantised(format)) {
    w.planes = {data + c.shape.rows * w.row_bytes(), nullptr, c.weights.group_of(c.shape.in)};
  }
  return w;
}

void matmul(benchmark::State& state, const KernelTable& table, const Case& c) {
  Setting& setting = Setting::get();
  const auto& [weights, shape, tokens] = c;
  const Format format = weights.format;
  const qwenlite::Ops ops = setting.ops(table);
  qwenlite::OpsScratch scratch(ops, {.tokens = tokens, .width = shape.in, .formats = {format}});
  AlignedBuffer x = random_floats(tokens * shape.in);
  AlignedBuffer y(tokens * shape.rows * 4);
  const qwenlite::ConstMatrix<float> in(x.floats(), tokens, shape.in, Eigen::OuterStride<>(shape.in));
  const qwenlite::Matrix<float> out(y.floats(), tokens, shape.rows, Eigen::OuterStride<>(shape.rows));
  const Index bytes = weights.bytes(shape.rows, shape.in);
  const Index copies = (Setting::weight_bytes - 64) / bytes;
  const std::byte* const first = setting.weights(format) + shape.past_line;
  Index next = 0;
  const double seconds = time_each(state, [&] {
    const qwenlite::Product product{matrix_at(first + next * bytes, c), out, false};
    next = (next + 1) % copies;
    ops.matmul(ops.pack(in, nullptr, {format}, scratch), std::span(&product, 1), scratch);
  });
  const bench::Roofline& roof = setting.roofline(table);
  report(state, table,
         {.seconds = seconds,
          .bytes = static_cast<double>(bytes),
          .flop = 2.0 * static_cast<double>(shape.rows * shape.in * tokens),
          .roof_gflop_s = format == Format::bf16 ? roof.product_gflop_s() : roof.fma_gflop_s.value_or(0)});
}

void add(const MatmulShape& shape, std::initializer_list<Index> tokens) {
  for (const Format format :
       {Format::bf16, Format::f16, Format::f32, Format::int8, Format::int4, Format::fp8}) {
    for (const KernelTable* table : tables()) {
      for (const Index t : tokens) {
        const std::string name = "matmul/" + std::string(shape.name) + "/" + word_of(format) + "/" +
                                 table->name + "/T:" + std::to_string(t);
        benchmark::RegisterBenchmark(name.c_str(), [=, &shape](benchmark::State& state) {
          matmul(state, *table, {format, shape, t});
        })->UseRealTime();
      }
    }
  }
}

}  // namespace

void add_matmul() {
  for (const MatmulShape& shape : bench::matmul_shapes) add(shape, {1, 16, 64, 512});
  for (const MatmulShape& shape : bench::head_shapes) add(shape, {1, 16});
}

}  // namespace kernel_bench
