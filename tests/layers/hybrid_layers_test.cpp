// SPDX-License-Identifier: Apache-2.0
//
// The mixers of Qwen3.5 against plain loops in double, on odd sizes, in pieces: GatedAttention with partial
// rotation, GatedDeltaNet with more value heads than key heads against the recurrence token by token.
#include <qwenlite/cache/delta_state.hpp>
#include <qwenlite/cache/kv_cache.hpp>
#include <qwenlite/layers/gated_attention.hpp>
#include <qwenlite/layers/gated_delta_net.hpp>

#include "catch_any.hpp"
#include "kernels/delta_layer.hpp"
#include "layers/random_weights.hpp"

namespace ql = qwenlite;
using namespace layers_test;

namespace {

struct TestShape {
  ql::Runtime hidden_size{21};
  ql::Fixed<6> num_attention_heads;
  ql::Runtime num_key_value_heads{2};
  ql::Runtime head_dim{10};
  ql::Runtime linear_num_key_heads{2};
  ql::Fixed<6> linear_num_value_heads;
  ql::Runtime linear_key_head_dim{5};
  ql::Runtime linear_value_head_dim{7};
  ql::Runtime linear_conv_kernel_dim{3};
};
constexpr Index hidden = 21;
constexpr Index tokens = 70;
constexpr double epsilon = 1e-5;

using Kv = ql::KvCache<float>;
using Memory = ql::Memory<Kv, ql::DeltaState<>>;
using Piece = ql::Piece<Kv>;

/// 1 + a weight that is stored around 0.
Table one_plus(Table w) {
  for (double& value : w.values) value += 1;
  return w;
}

/// The first 2 * half dimensions of a head of ten turn by position * 100^(-i/half).
double angle(Index position, Index i) {
  return static_cast<double>(position) * std::pow(100.0, -static_cast<double>(i) / 2);
}
constexpr Index half = 2;

void rotate(Table& x) {
  for (Index t = 0; t < x.rows; ++t) {
    for (Index head = 0; head < x.cols; head += 10) {
      for (Index i = 0; i < half; ++i) {
        const double a = x(t, head + i);
        const double b = x(t, head + i + half);
        x(t, head + i) = a * std::cos(angle(t, i)) - b * std::sin(angle(t, i));
        x(t, head + i + half) = b * std::cos(angle(t, i)) + a * std::sin(angle(t, i));
      }
    }
  }
}

Table gated_attention(const RandomWeights& w, const Table& x) {
  const Table joined = times(x, w["q_proj.weight"]);
  Table q(x.rows, 60);
  for (Index t = 0; t < x.rows; ++t) {
    for (Index c = 0; c < 60; ++c) q(t, c) = joined(t, c / 10 * 20 + c % 10);
  }
  q = normed(q, one_plus(w["q_norm.weight"]), epsilon);
  Table k = normed(times(x, w["k_proj.weight"]), one_plus(w["k_norm.weight"]), epsilon);
  const Table v = times(x, w["v_proj.weight"]);
  rotate(q);
  rotate(k);
  Table mixed(x.rows, 60);
  for (Index t = 0; t < x.rows; ++t) {
    for (Index head = 0; head < 6; ++head) {
      const Index from = head / 3 * 10;
      double sum = 0;
      for (Index j = 0; j <= t; ++j) {
        double score = 0;
        for (Index d = 0; d < 10; ++d) score += q(t, head * 10 + d) * k(j, from + d);
        const double p = std::exp(score / std::sqrt(10.0));
        sum += p;
        for (Index d = 0; d < 10; ++d) mixed(t, head * 10 + d) += p * v(j, from + d);
      }
      for (Index d = 0; d < 10; ++d) {
        mixed(t, head * 10 + d) *= delta_tests::sigmoid(joined(t, head * 20 + 10 + d)) / sum;
      }
    }
  }
  return times(mixed, w["o_proj.weight"]);
}

/// q, k and v of a token: convolved over three tokens, with SiLU.
double convolved(const Table& qkv, const Table& taps, Index t, Index c) {
  double sum = 0;
  for (Index j = 0; j < 3; ++j) {
    if (t + j >= 2) sum += taps(c, j) * qkv(t + j - 2, c);
  }
  return delta_tests::silu(sum);
}

Table delta_net(const RandomWeights& w, const Table& taps, const Table& x) {
  const Table qkv = times(x, w["in_proj_qkv.weight"]);
  const Table z = times(x, w["in_proj_z.weight"]);
  const Table b = times(x, w["in_proj_b.weight"]);
  const Table a = times(x, w["in_proj_a.weight"]);
  Table mixed(x.rows, 42);
  for (Index head = 0; head < 6; ++head) {
    delta_tests::Recurrence rule(5, 7);
    for (Index t = 0; t < x.rows; ++t) {
      std::vector<float> q, k;
      std::vector<double> v;
      for (Index d = 0; d < 5; ++d) {
        q.push_back(static_cast<float>(convolved(qkv, taps, t, head / 3 * 5 + d)));
        k.push_back(static_cast<float>(convolved(qkv, taps, t, 10 + head / 3 * 5 + d)));
      }
      for (Index d = 0; d < 7; ++d) v.push_back(convolved(qkv, taps, t, 20 + head * 7 + d));
      const double step = std::log1p(std::exp(a(t, head) + w["dt_bias"](0, head)));
      const auto o =
          rule.step(delta_tests::unit(q.data(), 5, 1 / std::sqrt(5.0)), delta_tests::unit(k.data(), 5, 1), v,
                    -std::exp(w["A_log"](0, head)) * step, delta_tests::sigmoid(b(t, head)));
      Table row(1, 7);
      row.values = o;
      row = normed(row, w["norm.weight"], epsilon);
      for (Index d = 0; d < 7; ++d) {
        mixed(t, head * 7 + d) = row(0, d) * delta_tests::silu(z(t, head * 7 + d));
      }
    }
  }
  return times(mixed, w["out_proj.weight"]);
}

/// Runs a mixer over all tokens in pieces of `step` on every instruction set, and compares.
template <class Mixer>
void check(const Mixer& mixer, const RandomRows& x, const Table& expected) {
  const ql::DeltaSizes sizes = ql::delta_sizes(TestShape{});
  std::vector<float> cos;
  std::vector<float> sin;
  for (Index i = 0; i < tokens * half; ++i) {
    cos.push_back(static_cast<float>(std::cos(angle(i / half, i % half))));
    sin.push_back(static_cast<float>(std::sin(angle(i / half, i % half))));
  }
  for_each_table([&](const ql::kernels::KernelTable& table, ql::Precision precision) {
    for (const Index step : {1, 2, 35, 70}) {
      INFO(table.name << ", pieces of " << step);
      TestOps run(table, precision);
      const ql::Activations activations(
          70,
          {.hidden = hidden, .attention = 60, .kv = 20, .gated = 1, .query_and_gate = 120, .delta = sizes});
      ql::DeltaScratch scratch(run.ops, sizes, 1);
      Kv kv({1, 2, 10, tokens}, ql::KvFormat::f32);
      ql::DeltaState<> state({1, sizes});
      RandomRows out(tokens, hidden, 1);
      ql::Matrix<float> rows = x.matrix();
      ql::Matrix<float> to = out.matrix();
      for (Index at = 0; at < tokens; at += step) {
        const std::array<Piece, 1> pieces{Piece{&kv, 0, step, at}};
        const std::array<Memory, 1> memories{Memory{&kv, &state}};
        const ql::Pass<Kv, ql::DeltaState<>> pass{
            .ops = run.ops,
            .scratch = run.scratch,
            .activations = activations,
            .angles = {cos.data() + at * half, sin.data() + at * half, half},
            .pieces = pieces,
            .memories = memories,
            .delta = &scratch};
        const ql::Packed packed = pass.pack(ql::rows_of(rows, at, step), mixer.input_formats());
        mixer.forward(pass, packed, ql::rows_of(to, at, step), false);
        kv.advance(step);
        state.advance(step);
      }
      CHECK(relative_error(out.matrix(), expected) < 5e-6);
    }
  });
}

}  // namespace

TEST_CASE("GatedAttention: queries and gates by head, part of each head turns") {
  RandomWeights weights(51);
  weights.add("q_proj.weight", 120, hidden, ql::DType::bf16, 0.3);
  weights.add("k_proj.weight", 20, hidden, ql::DType::f32, 0.3);
  weights.add("v_proj.weight", 20, hidden, ql::DType::f16, 0.3);
  weights.add("o_proj.weight", hidden, 60, ql::DType::bf16, 0.2);
  weights.add("q_norm.weight", 1, 10, ql::DType::bf16, 0.4);
  weights.add("k_norm.weight", 1, 10, ql::DType::f32, 0.4);
  const ql::GatedAttention<TestShape> mixer(weights.open(), TestShape{}, 0, static_cast<float>(epsilon));
  const RandomRows x(tokens, hidden, 52);
  check(mixer, x, gated_attention(weights, x.exact));
}

TEST_CASE("GatedDeltaNet: three value heads on each key head") {
  RandomWeights weights(61);
  weights.add("in_proj_qkv.weight", 62, hidden, ql::DType::bf16, 0.3);
  weights.add("in_proj_z.weight", 42, hidden, ql::DType::f32, 0.3);
  weights.add("in_proj_b.weight", 6, hidden, ql::DType::bf16, 0.3);
  weights.add("in_proj_a.weight", 6, hidden, ql::DType::f16, 0.3);
  weights.add("out_proj.weight", hidden, 42, ql::DType::bf16, 0.2);
  weights.add("A_log", 1, 6, ql::DType::f32, 0.5, 0.5);
  weights.add("dt_bias", 1, 6, ql::DType::bf16, 0.5, -2);
  weights.add("norm.weight", 1, 7, ql::DType::f32, 0.2, 1);
  const Table taps = weights.add_depthwise("conv1d.weight", 62, 3, ql::DType::bf16, 0.6);
  const ql::GatedDeltaNet<TestShape> mixer(weights.open(), TestShape{}, 0, static_cast<float>(epsilon));
  const RandomRows x(tokens, hidden, 62);
  check(mixer, x, delta_net(weights, taps, x.exact));
}
