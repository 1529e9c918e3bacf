// SPDX-License-Identifier: Apache-2.0
//
// The mixer of Qwen3.5's Gated DeltaNet layers: the whole operation, and its convolution alone.

#include <qwenlite/cache/delta_state.hpp>

#include "bench.hpp"

namespace kernel_bench {

namespace {

constexpr qwenlite::DeltaSizes sizes{16, 16, 128, 128, 4};  // of the 0.8B
constexpr Index layers = 18;

[[nodiscard]] qwenlite::Matrix<float> matrix(const AlignedBuffer& buffer, Index rows, Index width) {
  return {buffer.floats(), rows, width, Eigen::OuterStride<>(width)};
}
[[nodiscard]] qwenlite::ConstMatrix<float> input(const AlignedBuffer& buffer, Index rows, Index width) {
  return {buffer.floats(), rows, width, Eigen::OuterStride<>(width)};
}

/// Rows [position, position + tokens) of all layers in turn.
void delta_rule(benchmark::State& state, const KernelTable& table, Index tokens) {
  const qwenlite::Ops ops = Setting::get().ops(table);
  qwenlite::DeltaState<> memory({layers, sizes});
  qwenlite::DeltaScratch scratch(ops, sizes, 1);
  const AlignedBuffer projected = random_floats(tokens * sizes.channels());
  const AlignedBuffer qkv(projected.bytes());
  const AlignedBuffer z = random_floats(tokens * sizes.value_width());
  const AlignedBuffer gates = random_floats(tokens * sizes.num_value_heads);
  const AlignedBuffer out(tokens * sizes.value_width() * 4);
  const AlignedBuffer taps = random_floats(sizes.conv_kernel_dim * sizes.channels());
  const AlignedBuffer small = random_floats(256);
  const qwenlite::VectorView heads{small.data(), sizes.num_value_heads, Format::f32};
  const qwenlite::DeltaWeights weights{.taps = taps.floats(),
                                       .A_log = heads,
                                       .dt_bias = heads,
                                       .norm = {{small.data(), sizes.value_head_dim, Format::f32}}};
  const qwenlite::DeltaActivations activations{.qkv = matrix(qkv, tokens, sizes.channels()),
                                               .z = input(z, tokens, sizes.value_width()),
                                               .b = input(gates, tokens, sizes.num_value_heads),
                                               .a = input(gates, tokens, sizes.num_value_heads),
                                               .out = matrix(out, tokens, sizes.value_width())};
  Index layer = 0;
  const double seconds = time_restored(state, projected, qkv, [&] {
    const Index position = memory.length();
    scratch.pieces().assign(
        1, {.memory = memory.open(layer, position, tokens), .count = tokens, .position = position});
    delta_net(ops, weights, activations, scratch);
    layer = (layer + 1) % layers;
    if (layer == 0) memory.advance(tokens);
  });
  const double rule = 6.0 * static_cast<double>(sizes.state_floats());
  const double convolution = 2.0 * static_cast<double>(sizes.conv_kernel_dim * sizes.channels());
  report(state, table,
         {.seconds = seconds,
          .bytes = 4.0 * static_cast<double>(sizes.state_floats()),
          .flop = (rule + convolution) * static_cast<double>(tokens),
          .roof_gflop_s = Setting::get().roofline(table).fma_gflop_s.value_or(0)});
}

void convolution(benchmark::State& state, const KernelTable& table, Index tokens) {
  const AlignedBuffer original = random_floats(tokens * sizes.channels());
  const AlignedBuffer x(original.bytes());
  const AlignedBuffer history = random_floats((sizes.conv_kernel_dim - 1) * sizes.channels());
  const AlignedBuffer taps = random_floats(sizes.conv_kernel_dim * sizes.channels());
  const double seconds = time_restored(state, original, x, [&] {
    table.conv1d({.x = x.floats(),
                  .stride = sizes.channels(),
                  .rows = tokens,
                  .channels = sizes.channels(),
                  .history = history.floats(),
                  .taps = taps.floats(),
                  .taps_stride = sizes.channels(),
                  .kernel = sizes.conv_kernel_dim});
  });
  const auto floats = static_cast<double>(tokens * sizes.channels());
  report(state, table,
         {.seconds = seconds,
          .bytes = 8.0 * floats,
          .flop = 2.0 * floats * static_cast<double>(sizes.conv_kernel_dim)});
}

}  // namespace

void add_delta() {
  for (const KernelTable* table : tables()) {
    for (const Index tokens : {1, 16, 64, 512}) {
      const std::string tail = std::string("/0.8b/f32/") + table->name + "/T:" + std::to_string(tokens);
      benchmark::RegisterBenchmark(("delta_rule" + tail).c_str(), [=](benchmark::State& state) {
        delta_rule(state, *table, tokens);
      })->UseManualTime();
      benchmark::RegisterBenchmark(("conv1d" + tail).c_str(), [=](benchmark::State& state) {
        convolution(state, *table, tokens);
      })->UseManualTime();
    }
  }
}

}  // namespace kernel_bench
