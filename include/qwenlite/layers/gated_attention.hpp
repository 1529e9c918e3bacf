// SPDX-License-Identifier: Apache-2.0
//
// GatedAttention, as Qwen3_5Attention: grouped-query attention whose result is gated, head by head, by the
// sigmoid of a second projection of the input. q_proj holds both: the rows of each head's query, then those
// of its gate. Only the first dimensions of a head turn (partial rotary embedding): as many as the pass has
// angles for.
#pragma once

#include <array>

#include <qwenlite/layers/attention.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Shape gives hidden_size, num_attention_heads, num_key_value_heads and head_dim.
template <class Shape>
class GatedAttention : public AttentionWeights<OnePlusRmsNorm> {
 public:
  /// `layer` counts attention layers. Throws as Weights::matrix() and vector() do.
  GatedAttention(const Weights& scope, const Shape& shape, Index layer, float epsilon)
      : AttentionWeights(scope, shape, 2 * shape.num_attention_heads * shape.head_dim, epsilon),
        shape_(shape),
        layer_(layer) {}

  /// out [tokens, hidden_size] = (or +=) attention(x). Appends to the cache of every sequence.
  template <class Pass>
  void forward(const Pass& pass, const Packed& x, const Matrix<float>& out, bool accumulate) const {
    const Index tokens = x.columns;
    const Matrix<float> query_and_gate =
        pass.activations.query_and_gate(tokens);         // [tokens, heads * 2 * head_dim]
    const Matrix<float> k = pass.activations.k(tokens);  // [tokens, num_key_value_heads * head_dim]
    const Matrix<float> v = pass.activations.v(tokens);  // as k
    const std::array<Product, 3> qkv{q_proj_.into(query_and_gate), k_proj_.into(k), v_proj_.into(v)};
    pass.ops.matmul(x, qkv, pass.scratch);

    const Matrix<float> q = pass.activations.q(tokens);  // [tokens, num_attention_heads * head_dim]
    pass.ops.take_queries(read_only(query_and_gate), shape_.head_dim, q);
    pass.ops.norm_and_rotate(q, shape_.head_dim, q_norm_.spec(), pass.angles);
    pass.ops.norm_and_rotate(k, shape_.head_dim, k_norm_.spec(), pass.angles);

    const Matrix<float> mixed = pass.activations.attention_out(tokens);  // as q
    attend_cached(pass, attention_shape(shape_, layer_), {q, k, v, mixed});
    pass.ops.apply_gates(read_only(query_and_gate), shape_.head_dim, mixed);

    const Packed mixed_in = pass.pack(mixed, {o_proj_.format()});
    const std::array<Product, 1> o{o_proj_.into(out, accumulate)};
    pass.ops.matmul(mixed_in, o, pass.scratch);
  }

 private:
  Shape shape_;
  Index layer_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
