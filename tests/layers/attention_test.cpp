// SPDX-License-Identifier: Apache-2.0
//
// Attention and Block against plain loops in double, on odd sizes, for several sequences at once.
#include <qwenlite/layers/attention.hpp>
#include <qwenlite/layers/block.hpp>
#include <qwenlite/layers/mlp.hpp>

#include "catch_any.hpp"
#include "layers/random_weights.hpp"

namespace ql = qwenlite;
using namespace layers_test;

namespace {

struct TestShape {
  ql::Runtime hidden_size{21};
  ql::Runtime num_attention_heads{6};
  ql::Fixed<2> num_key_value_heads;  // fixed and run-time sizes mix
  ql::Runtime head_dim{10};
  ql::Runtime intermediate_size{35};
};
constexpr Index heads = 6;
constexpr Index kv_heads = 2;
constexpr Index head_dim = 10;
constexpr double epsilon = 1e-5;

/// The plainest cache: one block per head, enough for 64 positions.
class OneBlock {
 public:
  static constexpr bool retains = true;

  OneBlock() : planes_(2 * kv_heads * plane) {}
  void append(Index /*layer*/, Index first, const ql::ConstMatrix<float>& k,
              const ql::ConstMatrix<float>& v) {
    for (Index t = 0; t < k.rows(); ++t) {
      for (Index head = 0; head < kv_heads; ++head) {
        const Index column = head * head_dim;
        ql::store_kv(ql::KvFormat::f32, head_dim, first + t, k.row(t).data() + column,
                     v.row(t).data() + column, planes_.data() + 2 * head * plane,
                     planes_.data() + (2 * head + 1) * plane);
      }
    }
    written_ = first + k.rows();
  }
  [[nodiscard]] ql::KvBlock block(Index /*layer*/, Index head, Index /*index*/) const {
    return {planes_.data() + 2 * head * plane, planes_.data() + (2 * head + 1) * plane, 0, written_,
            ql::KvFormat::f32};
  }
  void advance(Index n) { length_ += n; }
  void truncate(Index n) { length_ = n; }
  [[nodiscard]] Index length() const { return length_; }
  [[nodiscard]] Index bytes() const { return planes_.bytes(); }
  [[nodiscard]] Index used_bytes() const { return planes_.bytes(); }

 private:
  static constexpr Index plane = 64 * head_dim * 4;
  ql::AlignedBuffer planes_;
  Index length_ = 0;
  Index written_ = 0;
};
static_assert(ql::KvPolicy<OneBlock>);

void add_attention(RandomWeights& weights, const std::string& scope) {
  weights.add(scope + "q_proj.weight", heads * head_dim, 21, ql::DType::bf16, 0.3);
  weights.add(scope + "k_proj.weight", kv_heads * head_dim, 21, ql::DType::f32, 0.3);
  weights.add(scope + "v_proj.weight", kv_heads * head_dim, 21, ql::DType::f16, 0.3);
  weights.add(scope + "o_proj.weight", 21, heads * head_dim, ql::DType::bf16, 0.2);
  weights.add(scope + "q_norm.weight", 1, head_dim, ql::DType::bf16, 0.4, 1.5);
  weights.add(scope + "k_norm.weight", 1, head_dim, ql::DType::f32, 0.4, 1.5);
}

/// Angles of `rows` tokens at positions first, ...; only the first 2 * half dimensions of a head turn.
struct TestAngles {
  explicit TestAngles(Index half_dims) : half(half_dims) {}
  void add(Index first, Index count) {
    for (Index p = first; p < first + count; ++p) {
      for (Index i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) * std::pow(100.0, -static_cast<double>(i) / 3);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }
  [[nodiscard]] ql::Angles view() const { return {cos.data(), sin.data(), half}; }

  Index half;
  std::vector<float> cos;
  std::vector<float> sin;
};

void rotate(Table& x, const TestAngles& angles, Index first_angle) {
  for (Index t = 0; t < x.rows; ++t) {
    for (Index head = 0; head < x.cols; head += head_dim) {
      for (Index i = 0; i < angles.half; ++i) {
        const auto at = static_cast<std::size_t>((first_angle + t) * angles.half + i);
        const auto c = static_cast<double>(angles.cos[at]);
        const auto s = static_cast<double>(angles.sin[at]);
        const double a = x(t, head + i);
        const double b = x(t, head + i + angles.half);
        x(t, head + i) = a * c - b * s;
        x(t, head + i + angles.half) = b * c + a * s;
      }
    }
  }
}

/// Causal attention of one whole sequence; query head h reads key/value head h / (heads / kv_heads).
Table reference(const RandomWeights& w, const std::string& scope, const Table& x, const TestAngles& angles,
                Index first_angle) {
  Table q = normed(times(x, w[scope + "q_proj.weight"]), w[scope + "q_norm.weight"], epsilon);
  Table k = normed(times(x, w[scope + "k_proj.weight"]), w[scope + "k_norm.weight"], epsilon);
  const Table v = times(x, w[scope + "v_proj.weight"]);
  rotate(q, angles, first_angle);
  rotate(k, angles, first_angle);
  Table mixed(x.rows, heads * head_dim);
  for (Index head = 0; head < heads; ++head) {
    const Index from = head / (heads / kv_heads) * head_dim;
    for (Index t = 0; t < x.rows; ++t) {
      double sum = 0;
      for (Index j = 0; j <= t; ++j) {
        double score = 0;
        for (Index d = 0; d < head_dim; ++d) score += q(t, head * head_dim + d) * k(j, from + d);
        const double p = std::exp(score / std::sqrt(static_cast<double>(head_dim)));
        sum += p;
        for (Index d = 0; d < head_dim; ++d) mixed(t, head * head_dim + d) += p * v(j, from + d);
      }
      for (Index d = 0; d < head_dim; ++d) mixed(t, head * head_dim + d) /= sum;
    }
  }
  return times(mixed, w[scope + "o_proj.weight"]);
}

Table rows_between(const Table& x, Index first, Index count) {
  Table part(count, x.cols);
  for (Index t = 0; t < count; ++t) {
    for (Index i = 0; i < x.cols; ++i) part(t, i) = x(first + t, i);
  }
  return part;
}

void put(Table& all, const Table& part, Index first) {
  for (Index t = 0; t < part.rows; ++t) {
    for (Index i = 0; i < part.cols; ++i) all(first + t, i) = part(t, i);
  }
}

using Memory = ql::Memory<OneBlock, int>;
using Piece = ql::Piece<OneBlock>;

}  // namespace

TEST_CASE("Attention of two sequences of different lengths in one pass") {
  const Index half = GENERATE(5, 3);  // full and partial rotation
  const TestShape shape;
  RandomWeights weights(21);
  add_attention(weights, "self_attn.");
  const ql::Attention<TestShape> attention(weights.open().scope("self_attn."), shape, 0,
                                           static_cast<float>(epsilon));
  const RandomRows x(29, 21, 22);
  TestAngles angles(half);
  angles.add(0, 18);
  angles.add(0, 11);
  Table expected(29, 21);
  put(expected, reference(weights, "self_attn.", rows_between(x.exact, 0, 18), angles, 0), 0);
  put(expected, reference(weights, "self_attn.", rows_between(x.exact, 18, 11), angles, 18), 18);

  for_each_table([&](const ql::kernels::KernelTable& table, ql::Precision precision) {
    INFO(table.name);
    TestOps run(table, precision);
    const ql::Activations activations(29, {.hidden = 21, .attention = 60, .kv = 20, .gated = 1});
    OneBlock first;
    OneBlock second;
    const std::array<Piece, 2> pieces{Piece{&first, 0, 18, 0}, Piece{&second, 18, 11, 0}};
    const std::array<Memory, 2> memories{Memory{&first}, Memory{&second}};
    const ql::Pass<OneBlock, int> pass{.ops = run.ops,
                                       .scratch = run.scratch,
                                       .activations = activations,
                                       .angles = angles.view(),
                                       .pieces = pieces,
                                       .memories = memories};
    RandomRows out(29, 21, 23);
    attention.forward(pass, pass.pack(x.matrix(), attention.input_formats()), out.matrix(), false);
    CHECK(relative_error(out.matrix(), expected) < 5e-6);
  });
}

TEST_CASE("Attention continues where a cache ends") {
  const TestShape shape;
  RandomWeights weights(31);
  add_attention(weights, "self_attn.");
  const ql::Attention<TestShape> attention(weights.open().scope("self_attn."), shape, 0,
                                           static_cast<float>(epsilon));
  const RandomRows x(20, 21, 32);
  TestAngles angles(5);
  angles.add(0, 20);
  const Table expected = reference(weights, "self_attn.", x.exact, angles, 0);

  for_each_table([&](const ql::kernels::KernelTable& table, ql::Precision precision) {
    INFO(table.name);
    TestOps run(table, precision);
    const ql::Activations activations(20, {.hidden = 21, .attention = 60, .kv = 20, .gated = 1});
    OneBlock cache;
    RandomRows out(20, 21, 33);
    for (Index at = 0; at < 20; at += 4) {
      const std::array<Piece, 1> pieces{Piece{&cache, 0, 4, at}};
      const std::array<Memory, 1> memories{Memory{&cache}};
      const ql::Angles from{angles.cos.data() + at * 5, angles.sin.data() + at * 5, 5};
      const ql::Pass<OneBlock, int> pass{.ops = run.ops,
                                         .scratch = run.scratch,
                                         .activations = activations,
                                         .angles = from,
                                         .pieces = pieces,
                                         .memories = memories};
      ql::Matrix<float> rows = x.matrix();
      ql::Matrix<float> to = out.matrix();
      const ql::Packed packed = pass.pack(ql::rows_of(rows, at, 4), attention.input_formats());
      attention.forward(pass, packed, ql::rows_of(to, at, 4), false);
      cache.advance(4);
    }
    CHECK(relative_error(out.matrix(), expected) < 5e-6);
  });
}

TEST_CASE("Block adds mixer and mlp to the residual, with the same bits when observed") {
  const TestShape shape;
  RandomWeights weights(41);
  const std::string scope = "layers.3.";
  add_attention(weights, scope + "self_attn.");
  weights.add(scope + "input_layernorm.weight", 1, 21, ql::DType::bf16, 0.2, 1);
  weights.add(scope + "post_attention_layernorm.weight", 1, 21, ql::DType::bf16, 0.2, 1);
  weights.add(scope + "mlp.gate_proj.weight", 35, 21, ql::DType::bf16, 0.3);
  weights.add(scope + "mlp.up_proj.weight", 35, 21, ql::DType::bf16, 0.3);
  weights.add(scope + "mlp.down_proj.weight", 21, 35, ql::DType::bf16, 0.3);
  const ql::Block<ql::RmsNorm, ql::Attention<TestShape>, ql::Mlp> block(weights.open().scope(scope), shape, 0,
                                                                        static_cast<float>(epsilon));
  const RandomRows start(9, 21, 42);
  TestAngles angles(5);
  angles.add(0, 9);

  const Table x = normed(start.exact, weights[scope + "input_layernorm.weight"], epsilon);
  const Table mixer = reference(weights, scope + "self_attn.", x, angles, 0);
  Table h = start.exact;
  for (std::size_t i = 0; i < h.values.size(); ++i) h.values[i] += mixer.values[i];
  const Table y = normed(h, weights[scope + "post_attention_layernorm.weight"], epsilon);
  Table gated = times(y, weights[scope + "mlp.gate_proj.weight"]);
  const Table up = times(y, weights[scope + "mlp.up_proj.weight"]);
  for (std::size_t i = 0; i < gated.values.size(); ++i) {
    gated.values[i] = gated.values[i] / (1 + std::exp(-gated.values[i])) * up.values[i];
  }
  const Table mlp = times(gated, weights[scope + "mlp.down_proj.weight"]);
  for (std::size_t i = 0; i < h.values.size(); ++i) h.values[i] += mlp.values[i];

  for_each_table([&](const ql::kernels::KernelTable& table, ql::Precision precision) {
    INFO(table.name);
    TestOps run(table, precision);
    const ql::Activations activations(9, {.hidden = 21, .attention = 60, .kv = 20, .gated = 35});
    std::vector<std::string> names;
    const ql::TraceSink sink = [&](std::string_view name, const ql::ConstMatrix<float>& rows) {
      names.emplace_back(name);
      const ql::Matrix<float> shown(const_cast<float*>(rows.data()), rows.rows(), rows.cols(),
                                    Eigen::OuterStride<>(rows.outerStride()));
      CHECK(relative_error(shown, names.size() == 1 ? mixer : names.size() == 2 ? mlp : h) < 1e-5);
    };
    std::array<std::vector<float>, 2> results;
    for (int observed = 0; observed < 2; ++observed) {
      RandomRows residual(9, 21, 42);
      OneBlock cache;
      const std::array<Piece, 1> pieces{Piece{&cache, 0, 9, 0}};
      const std::array<Memory, 1> memories{Memory{&cache}};
      const ql::Pass<OneBlock, int> pass{.ops = run.ops,
                                         .scratch = run.scratch,
                                         .activations = activations,
                                         .angles = angles.view(),
                                         .pieces = pieces,
                                         .memories = memories,
                                         .trace = observed != 0 ? &sink : nullptr};
      block.forward(pass, residual.matrix());
      CHECK(relative_error(residual.matrix(), h) < 1e-5);
      const float* data = ql::read_only(residual.matrix()).data();
      results[static_cast<std::size_t>(observed)].assign(data, data + 9 * 21);
    }
    REQUIRE(results[0] == results[1]);
    REQUIRE(names == std::vector<std::string>{"layers.3.mixer", "layers.3.mlp", "layers.3.output"});
  });
}
