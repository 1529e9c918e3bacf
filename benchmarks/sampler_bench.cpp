// SPDX-License-Identifier: Apache-2.0
//
// Time of one draw, one thread, over the vocabularies of Qwen3 and Qwen3.5. "peaked" logits are as a model
// is mostly: noise, and twenty candidates well above it; "flat" ones make top_p keep most of the vocabulary;
// "equal" ones are all the same. The last group shows what bias, penalties (after a reply of 2,000 tokens)
// and a mask add.
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
const ql::SamplingOptions top_p_999{.temperature = 1.0, .top_p = 0.999};
const ql::SamplingOptions min_p{.temperature = 1.0, .min_p = 0.05};

/// The same with 2,000 generated tokens behind it and a mask that bans every `step`-th token; 0: no mask.
void draw_edited(benchmark::State& state, ql::SamplingOptions options, int step) {
  const Index count = state.range(0);
  const std::vector<float> logits = logits_of(Kind::peaked, count);
  options.seed = 1;
  ql::Sampler sampler(options, count);
  for (int i = 0; i < 2000; ++i) sampler.generated(i * 67 % 100000);
  ql::TokenMask mask(count);
  Index position = 0;
  for (auto _ : state) {
    mask.clear();
    for (int id = 0; step > 0 && id < count; id += step) mask.ban(id);
    benchmark::DoNotOptimize(sampler.sample(logits, position++, mask));
  }
}

const ql::SamplingOptions penalised{.temperature = 0.6, .top_k = 20, .top_p = 0.95, .presence_penalty = 1.5};

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
QWENLITE_BENCH(top_p_999, flat);
QWENLITE_BENCH(min_p, peaked);
QWENLITE_BENCH(plain, flat);
QWENLITE_BENCH(top_k_5000, flat);

#define QWENLITE_BENCH_EDITED(name, options, step) \
  BENCHMARK_CAPTURE(draw_edited, name, options, step)->Arg(151936)->Arg(248320)->Unit(benchmark::kMicrosecond)

QWENLITE_BENCH_EDITED(no_penalty, top_k_20, 0);
QWENLITE_BENCH_EDITED(presence, penalised, 0);
QWENLITE_BENCH_EDITED(mask_few, top_k_20, 1000);
QWENLITE_BENCH_EDITED(mask_half, top_k_20, 2);

BENCHMARK_MAIN();
