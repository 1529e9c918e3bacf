// SPDX-License-Identifier: Apache-2.0
//
// GatedDeltaNet, as Qwen3_5GatedDeltaNet: a recurrence over a matrix per head instead of keys and values of
// all positions (arXiv:2412.06464); and StatePolicy, what networks ask of the memory of such layers.
//
// The projections are here; convolution, delta rule and gated norm between them are one operation, see
// kernels/ops_delta.hpp. The decay's parameters and the gated norm's weight are used as stored, in float32.
#pragma once

#include <array>
#include <concepts>

#include <qwenlite/layers/activations.hpp>
#include <qwenlite/layers/linear.hpp>
#include <qwenlite/layers/norm.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Recurrent state of one sequence; Stateless for networks that have attention only.
///
///   retains          whether the state stays for the next forward, as for KvPolicy
///   advance(n)       all layers have received n more positions
///   can_truncate(n)  whether truncate(n) can do it; at least for 0. A session recomputes where it cannot.
///   truncate(n)      forgets positions from n on
///   bytes            all memory
///
/// A Model creates one as State(DeltaLayout), or without arguments.
template <class State>
concept StatePolicy = requires(State state, const State view, Index n) {
  { State::retains } -> std::convertible_to<bool>;
  state.advance(n);
  { view.can_truncate(n) } -> std::convertible_to<bool>;
  state.truncate(n);
  { view.bytes() } -> std::convertible_to<Index>;
};

/// A StatePolicy for networks with Gated DeltaNet layers.
///
///   open(layer, first, count)  the memory of a layer that is going to receive positions
///                              [first, first + count). Layers are counted over Gated DeltaNet layers alone.
template <class State>
concept DeltaPolicy = StatePolicy<State> && requires(State state, Index i) {
  { state.open(i, i, i) } -> std::same_as<DeltaMemory>;
};

/// The sizes of the layers of a shape.
template <class Shape>
[[nodiscard]] DeltaSizes delta_sizes(const Shape& shape) noexcept {
  return {.num_key_heads = shape.linear_num_key_heads,
          .num_value_heads = shape.linear_num_value_heads,
          .key_head_dim = shape.linear_key_head_dim,
          .value_head_dim = shape.linear_value_head_dim,
          .conv_kernel_dim = shape.linear_conv_kernel_dim};
}

/// Shape gives hidden_size, linear_num_key_heads, linear_num_value_heads, linear_key_head_dim,
/// linear_value_head_dim and linear_conv_kernel_dim.
template <class Shape>
class GatedDeltaNet {
 public:
  static constexpr std::string_view scope_name = "linear_attn.";

  /// `layer` counts Gated DeltaNet layers. Throws as Weights::matrix() and vector() do.
  GatedDeltaNet(const Weights& scope, const Shape& shape, Index layer, float epsilon)
      : GatedDeltaNet(scope, delta_sizes(shape), shape.hidden_size, layer, epsilon) {}

  [[nodiscard]] FormatSet input_formats() const {
    return {in_proj_qkv_.format(), in_proj_z_.format(), in_proj_b_.format(), in_proj_a_.format()};
  }

  /// Of all weights that take part in products.
  [[nodiscard]] FormatSet formats() const { return either(input_formats(), {out_proj_.format()}); }

  /// out [tokens, hidden_size] = (or +=) delta_net(x). Extends the state of every sequence.
  template <class Pass>
  void forward(const Pass& pass, const Packed& x, const Matrix<float>& out, bool accumulate) const {
    const Index tokens = x.columns;
    const Matrix<float> qkv = pass.activations.delta_qkv(tokens);  // [tokens, channels]
    const Matrix<float> z = pass.activations.delta_z(tokens);      // [tokens, value_width]
    const Matrix<float> b = pass.activations.delta_b(tokens);      // [tokens, num_value_heads]
    const Matrix<float> a = pass.activations.delta_a(tokens);      // as b
    const std::array<Product, 4> in{in_proj_qkv_.into(qkv), in_proj_z_.into(z), in_proj_b_.into(b),
                                    in_proj_a_.into(a)};
    pass.ops.matmul(x, in, pass.scratch);

    std::vector<DeltaPiece>& pieces = pass.delta->pieces();
    pieces.clear();
    for (std::size_t i = 0; i < pass.pieces.size(); ++i) {
      const auto& piece = pass.pieces[i];
      pieces.push_back({.memory = pass.memories[i].state->open(layer_, piece.position, piece.count),
                        .row = piece.row,
                        .count = piece.count,
                        .position = piece.position});
    }
    const Matrix<float> mixed = pass.activations.delta_out(tokens);  // as z
    delta_net(pass.ops, {.taps = taps_.floats(), .A_log = A_log_, .dt_bias = dt_bias_, .norm = norm_.spec()},
              {.qkv = qkv, .z = read_only(z), .b = read_only(b), .a = read_only(a), .out = mixed},
              *pass.delta);

    const Packed mixed_in = pass.pack(mixed, {out_proj_.format()});
    const std::array<Product, 1> o{out_proj_.into(out, accumulate)};
    pass.ops.matmul(mixed_in, o, pass.scratch);
  }

 private:
  GatedDeltaNet(const Weights& scope, const DeltaSizes& sizes, Index hidden_size, Index layer, float epsilon)
      : layer_(layer),
        in_proj_qkv_(scope, "in_proj_qkv", sizes.channels(), hidden_size),
        in_proj_z_(scope, "in_proj_z", sizes.value_width(), hidden_size),
        in_proj_b_(scope.matrix("in_proj_b.weight", sizes.num_value_heads, hidden_size)),
        in_proj_a_(scope.matrix("in_proj_a.weight", sizes.num_value_heads, hidden_size)),
        out_proj_(scope, "out_proj", hidden_size, sizes.value_width()),
        taps_(conv_taps(scope.depthwise("conv1d.weight", sizes.channels(), sizes.conv_kernel_dim))),
        A_log_(scope.vector("A_log", sizes.num_value_heads)),
        dt_bias_(scope.vector("dt_bias", sizes.num_value_heads)),
        norm_(scope, "norm", sizes.value_head_dim, epsilon) {}

  Index layer_;
  Linear in_proj_qkv_;  // [channels, hidden_size]
  Linear in_proj_z_;    // [value_width, hidden_size]
  Linear in_proj_b_;    // [num_value_heads, hidden_size], in the stored format, as in_proj_a: they are small,
                        // and errors of the decay stay in the state
  Linear in_proj_a_;    // as in_proj_b
  Linear out_proj_;     // [hidden_size, value_width]
  AlignedBuffer taps_;  // conv1d, [conv_kernel_dim, channels]: the one weight that is copied
  VectorView A_log_;    // [num_value_heads]
  VectorView dt_bias_;  // as A_log
  RmsNorm norm_;        // [value_head_dim]
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
