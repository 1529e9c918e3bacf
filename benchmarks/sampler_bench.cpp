// SPDX-License-Identifier: Apache-2.0
//
// Time of one draw, one thread, over the vocabularies of Qwen3 and Qwen3.5. "peaked" logits are as a model
// is mostly: noise, and twenty candidates well above it; "flat" ones make top_p keep most of the vocabulary.
#include <benchmark/benchmark.h>
#include <random>
#include <vector>

#include <qwenlite/generate/sampler.hpp>

namespace {

namespace ql = qwenlite;
using ql::Index;

enum class Kind { peaked, flat, equal };

std::vector<float> logits_of(Kind kind, Index count) {
  std::mt19937 engine(1);
  std::normal_distribution<float> noise(0.0F, kind == Kind::peaked ? 2.5F : 1.0F);
  std::vector<float> logits(static_cast<std::size_t>(count), 1.0F);
  if (kind == Kind::equal) return logits;
  for (float& x : logits) x = noise(engine);
  if (kind == Kind::flat) return logits;
  for (std::size_t i = 0; i < 20; ++i) logits[i * 7001] = 22.0F - 0.4F * static_cast<float>(i);
  return logits;
}

void draw(benchmark::State& state, ql::SamplingOptions options, Kind kind) {
  const Index count = state.range(0);
  const std::vector<float> logits = logits_of(kind, count);
  options.seed = 1;
  ql::Sampler sampler(options, count);
  Index position = 0;
  for (auto _ : state) benchmark::DoNotOptimize(sampler.sample(logits, position++));
}

const ql::SamplingOptions greedy{.temperature = 0.0};
const ql::SamplingOptions plain{.temperature = 1.0};
const ql::SamplingOptions top_k_20{.temperature = 0.6, .top_k = 20, .top_p = 0.95};
const ql::SamplingOptions top_k_5000{.temperature = 1.0, .top_k = 5000};
const ql::SamplingOptions top_p{.temperature = 1.0, .top_p = 0.9};
const ql::SamplingOptions min_p{.temperature = 1.0, .min_p = 0.05};

}  // namespace

#define QWENLITE_BENCH(name, kind)                         \
  BENCHMARK_CAPTURE(draw, name##_##kind, name, Kind::kind) \
      ->Arg(151936)                                        \
      ->Arg(248320)                                        \
      ->Unit(benchmark::kMicrosecond)

QWENLITE_BENCH(greedy, peaked);
QWENLITE_BENCH(top_k_20, peaked);
QWENLITE_BENCH(top_k_20, flat);
QWENLITE_BENCH(top_p, peaked);
QWENLITE_BENCH(top_p, flat);
QWENLITE_BENCH(top_p, equal);
QWENLITE_BENCH(min_p, peaked);
QWENLITE_BENCH(plain, flat);
QWENLITE_BENCH(top_k_5000, flat);

BENCHMARK_MAIN();
