// SPDX-License-Identifier: Apache-2.0
//
// What the tests of Gated DeltaNet layers share: a layer of random weights with the inputs of one sequence,
// the operation on any pieces of it, and the model's own recurrence, token by token, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <qwenlite/kernels/ops_delta.hpp>

namespace delta_tests {

using qwenlite::ConstMatrix;
using qwenlite::DeltaSizes;
using qwenlite::Format;
using qwenlite::Index;
using qwenlite::Matrix;

inline double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
inline double silu(double x) {
  return x * sigmoid(x);
}

/// S <- e^g S; S <- S + k (x) beta (v - k S); o = q S: the definition of the gated delta rule.
class Recurrence {
 public:
  Recurrence(Index key_dim, Index value_dim)
      : state(static_cast<std::size_t>(key_dim * value_dim)), value_dim_(value_dim) {}

  /// One token; q and k as they enter the rule. Returns o.
  std::vector<double> step(const std::vector<double>& q, const std::vector<double>& k,
                           const std::vector<double>& v, double g, double beta) {
    std::vector<double> out(static_cast<std::size_t>(value_dim_));
    for (double& s : state) s *= std::exp(g);
    for (std::size_t e = 0; e < out.size(); ++e) {
      double read = 0;
      for (std::size_t d = 0; d < k.size(); ++d) read += k[d] * state[d * out.size() + e];
      const double correction = beta * (v[e] - read);
      for (std::size_t d = 0; d < k.size(); ++d) {
        state[d * out.size() + e] += k[d] * correction;
        out[e] += q[d] * state[d * out.size() + e];
      }
    }
    return out;
  }

  std::vector<double> state;  // [key_dim][value_dim]

 private:
  Index value_dim_;
};

/// x / sqrt(sum x^2 + 1e-6) * scale.
inline std::vector<double> unit(const float* x, Index size, double scale) {
  double squares = 0;
  for (Index d = 0; d < size; ++d) squares += static_cast<double>(x[d]) * static_cast<double>(x[d]);
  std::vector<double> out;
  for (Index d = 0; d < size; ++d)
    out.push_back(static_cast<double>(x[d]) * scale / std::sqrt(squares + 1e-6));
  return out;
}

inline std::vector<float> random_values(Index count, unsigned seed, float spread = 1, float mean = 0) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal(mean, spread);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = normal(bits);
  return values;
}

template <class Vector>
[[nodiscard]] inline qwenlite::VectorView view(const Vector& v) {
  return {reinterpret_cast<const std::byte*>(v.data()), static_cast<Index>(v.size()), Format::f32};
}

[[nodiscard]] inline ConstMatrix<float> rows_at(const std::vector<float>& v, Index first, Index count,
                                                Index width) {
  return ConstMatrix<float>(v.data() + first * width, count, width, Eigen::OuterStride<>(width));
}

/// Weights of a layer and the outputs of its projections for `tokens` tokens.
struct Layer {
  DeltaSizes sizes;
  Index tokens;
  std::vector<float> taps;     // [kernel][channels]
  std::vector<float> A_log;    // [value heads]
  std::vector<float> dt_bias;  // [value heads]
  std::vector<float> norm;     // [value_dim]
  std::vector<float> qkv;      // [tokens][channels]
  std::vector<float> z;        // [tokens][value_width]
  std::vector<float> b;        // [tokens][value heads]
  std::vector<float> a;        // [tokens][value heads]

  Layer(const DeltaSizes& s, Index count, unsigned seed)
      : sizes(s),
        tokens(count),
        taps(random_values(s.conv_kernel_dim * s.channels(), seed, 0.5F)),
        A_log(random_values(s.num_value_heads, seed + 1, 1.0F)),
        dt_bias(random_values(s.num_value_heads, seed + 2, 1.0F, -3.0F)),
        norm(random_values(s.value_head_dim, seed + 3, 0.2F, 1.0F)),
        qkv(random_values(count * s.channels(), seed + 4)),
        z(random_values(count * s.value_width(), seed + 5)),
        b(random_values(count * s.num_value_heads, seed + 6)),
        a(random_values(count * s.num_value_heads, seed + 7)) {}

  [[nodiscard]] qwenlite::DeltaWeights weights() const {
    return {.taps = taps.data(), .A_log = view(A_log), .dt_bias = view(dt_bias), .norm = {view(norm), 1e-6F}};
  }

  /// Channel c of token t after convolution and SiLU.
  [[nodiscard]] double convolved(Index t, Index c) const {
    double sum = 0;
    for (Index j = 0; j < sizes.conv_kernel_dim; ++j) {
      const Index from = t - sizes.conv_kernel_dim + 1 + j;
      if (from < 0) continue;
      sum += static_cast<double>(taps[static_cast<std::size_t>(j * sizes.channels() + c)]) *
             static_cast<double>(qkv[static_cast<std::size_t>(from * sizes.channels() + c)]);
    }
    return silu(sum);
  }

  /// The operation's result for all tokens [tokens][value_width], from the definitions, in double.
  [[nodiscard]] std::vector<double> expected() const;
};

inline std::vector<double> Layer::expected() const {
  const Index heads = sizes.num_value_heads;
  const Index dv = sizes.value_head_dim;
  std::vector<double> result(static_cast<std::size_t>(tokens * sizes.value_width()));
  for (Index h = 0; h < heads; ++h) {
    const Index key_head = h / (heads / sizes.num_key_heads);
    const auto head = static_cast<std::size_t>(h);
    Recurrence rule(sizes.key_head_dim, dv);
    for (Index t = 0; t < tokens; ++t) {
      std::vector<float> raw;
      for (Index part = 0; part < 2; ++part) {
        for (Index d = 0; d < sizes.key_head_dim; ++d) {
          raw.push_back(
              static_cast<float>(convolved(t, part * sizes.key_width() + key_head * sizes.key_head_dim + d)));
        }
      }
      std::vector<double> v;
      for (Index e = 0; e < dv; ++e) v.push_back(convolved(t, 2 * sizes.key_width() + h * dv + e));
      const auto at = static_cast<std::size_t>(t * heads + h);
      const double x = static_cast<double>(a[at]) + static_cast<double>(dt_bias[head]);
      const double g = -std::exp(static_cast<double>(A_log[head])) * (x > 30 ? x : std::log1p(std::exp(x)));
      const double dk = static_cast<double>(sizes.key_head_dim);
      const std::vector<double> o = rule.step(unit(raw.data(), sizes.key_head_dim, 1 / std::sqrt(dk)),
                                              unit(raw.data() + sizes.key_head_dim, sizes.key_head_dim, 1), v,
                                              g, sigmoid(static_cast<double>(b[at])));
      double squares = 0;
      for (const double y : o) squares += y * y;
      const double scale = 1 / std::sqrt(squares / static_cast<double>(dv) + 1e-6);
      for (Index e = 0; e < dv; ++e) {
        const auto to = static_cast<std::size_t>(t * sizes.value_width() + h * dv + e);
        result[to] = o[static_cast<std::size_t>(e)] * scale *
                     static_cast<double>(norm[static_cast<std::size_t>(e)]) *
                     silu(static_cast<double>(z[to]));
      }
    }
  }
  return result;
}

/// A part of a sequence in a call.
struct Part {
  const Layer* layer;
  qwenlite::DeltaMemory memory;
  Index position;
  Index count;
};

/// Runs the operation on parts of sequences (of layers with the same weights) in one call; returns out, rows
/// one after the other.
inline std::vector<float> run(const qwenlite::Ops& ops, const std::vector<Part>& parts) {
  const Layer& first = *parts.front().layer;
  const DeltaSizes& s = first.sizes;
  std::vector<float> qkv;
  std::vector<float> z;
  std::vector<float> b;
  std::vector<float> a;
  qwenlite::DeltaScratch scratch(ops, s, static_cast<Index>(parts.size()));
  Index rows = 0;
  for (const Part& p : parts) {
    const auto append = [&p](std::vector<float>& to, const std::vector<float>& from, Index width) {
      to.insert(to.end(), from.begin() + p.position * width, from.begin() + (p.position + p.count) * width);
    };
    append(qkv, p.layer->qkv, s.channels());
    append(z, p.layer->z, s.value_width());
    append(b, p.layer->b, s.num_value_heads);
    append(a, p.layer->a, s.num_value_heads);
    scratch.pieces().push_back({p.memory, rows, p.count, p.position});
    rows += p.count;
  }
  std::vector<float> out(static_cast<std::size_t>(rows * s.value_width()), -7.0F);
  const auto matrix = [rows](std::vector<float>& v, Index width) {
    return Matrix<float>(v.data(), rows, width, Eigen::OuterStride<>(width));
  };
  qwenlite::delta_net(ops, first.weights(),
                      {.qkv = matrix(qkv, s.channels()),
                       .z = rows_at(z, 0, rows, s.value_width()),
                       .b = rows_at(b, 0, rows, s.num_value_heads),
                       .a = rows_at(a, 0, rows, s.num_value_heads),
                       .out = matrix(out, s.value_width())},
                      scratch);
  return out;
}

/// How a sequence is cut into calls: random lengths of `most` at most.
inline std::vector<Index> random_cuts(Index tokens, Index most, unsigned seed) {
  std::mt19937 bits(seed);
  std::vector<Index> cuts;
  while (tokens > 0) {
    const Index n = std::min<Index>(tokens, 1 + static_cast<Index>(bits() % static_cast<unsigned>(most)));
    cuts.push_back(n);
    tokens -= n;
  }
  return cuts;
}

}  // namespace delta_tests
