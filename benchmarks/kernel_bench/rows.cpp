// SPDX-License-Identifier: Apache-2.0
//
// What is done to each row of activations: norms, rotary embedding, SwiGLU. One thread; mostly from a cache,
// so `of_roof` is relative to a memory that they do not wait for.

#include "bench.hpp"

namespace kernel_bench {

namespace {

constexpr Index hidden = 1024;
constexpr Index intermediate = 3072;
constexpr Index heads = 16;
constexpr Index head_dim = 128;

void rms_norm(benchmark::State& state, const KernelTable& table, Index tokens) {
  const AlignedBuffer x = random_floats(tokens * hidden);
  const AlignedBuffer y(tokens * hidden * 4);
  const qwenlite::VectorView weight{Setting::get().weights(Format::bf16) + 40, hidden, Format::bf16};
  const double seconds = time_each(state, [&] {
    for (Index t = 0; t < tokens; ++t) {
      table.rms_norm(x.floats() + t * hidden, weight, 1e-6F, y.floats() + t * hidden);
    }
  });
  report(state, table, {.seconds = seconds, .bytes = 8.0 * static_cast<double>(tokens * hidden)});
}

void rope(benchmark::State& state, const KernelTable& table, Index tokens) {
  const AlignedBuffer x = random_floats(tokens * heads * head_dim);
  AlignedBuffer angles(head_dim * 4);
  for (Index i = 0; i < head_dim / 2; ++i) {
    angles.floats()[i] = std::cos(static_cast<float>(i));
    angles.floats()[head_dim / 2 + i] = std::sin(static_cast<float>(i));
  }
  const double seconds = time_each(state, [&] {
    for (Index head = 0; head < tokens * heads; ++head) {
      table.rope(x.floats() + head * head_dim, head_dim, angles.floats(), angles.floats() + head_dim / 2);
    }
  });
  report(state, table, {.seconds = seconds, .bytes = 8.0 * static_cast<double>(tokens * heads * head_dim)});
}

void swiglu(benchmark::State& state, const KernelTable& table, Index tokens) {
  const Index count = tokens * intermediate;
  const AlignedBuffer gate = random_floats(count);
  const AlignedBuffer up = random_floats(count);
  const AlignedBuffer out(count * 4);
  const double seconds =
      time_each(state, [&] { table.silu_mul(gate.floats(), up.floats(), out.floats(), count); });
  report(state, table, {.seconds = seconds, .bytes = 12.0 * static_cast<double>(count)});
}

using RowBenchmark = void (*)(benchmark::State&, const KernelTable&, Index);

void add(const char* operation, RowBenchmark run) {
  for (const KernelTable* table : tables()) {
    for (const Index tokens : {1, 512}) {
      const std::string name =
          std::string(operation) + "/0.6b/f32/" + table->name + "/T:" + std::to_string(tokens);
      benchmark::RegisterBenchmark(name.c_str(),
                                   [=](benchmark::State& state) { run(state, *table, tokens); });
    }
  }
}

}  // namespace

void add_rows() {
  add("rms_norm", rms_norm);
  add("rope", rope);
  add("swiglu", swiglu);
}

}  // namespace kernel_bench
