// SPDX-License-Identifier: Apache-2.0
//
// Attention, as Qwen3Attention: grouped-query attention with an RMS norm over each head of q and k before
// the rotary embedding; and KvPolicy, what it asks of a cache.
//
// Keys are stored normed and rotated. Where they lie is the policy's affair: attention appends the rows
// of every sequence and reads blocks of 64 positions back.
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <type_traits>

#include <qwenlite/layers/activations.hpp>
#include <qwenlite/layers/linear.hpp>
#include <qwenlite/layers/norm.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Keys and values of one sequence.
///
///   retains            whether positions stay for the next forward. If not, the sequence is recomputed
///                      every time and each layer sees all its positions before the next layer starts.
///   append             stores rows [n, kv_heads * head_dim] of a layer at positions first, first + 1, ...
///   block              positions [64 * index, 64 * index + 64) of one head, those just appended included
///   advance(n)         all layers have received n more positions
///   truncate(n)        forgets positions from n on
///   length             positions that all layers have
///   bytes, used_bytes  capacity and the part of it in use
///
/// Layers are counted over attention layers alone. A Model creates one as Kv(KvLayout, KvFormat).
template <class Kv>
concept KvPolicy = requires(Kv kv, const Kv view, Index i, const ConstMatrix<float>& rows) {
  { Kv::retains } -> std::convertible_to<bool>;
  kv.append(i, i, rows, rows);
  { view.block(i, i, i) } -> std::same_as<KvBlock>;
  kv.advance(i);
  kv.truncate(i);
  { view.length() } -> std::convertible_to<Index>;
  { view.bytes() } -> std::convertible_to<Index>;
  { view.used_bytes() } -> std::convertible_to<Index>;
};

/// A KvPolicy that can store the heads of a layer's rows at the same time; see KvCache.
template <class Kv>
concept HeadwiseKv = KvPolicy<Kv> && requires(Kv kv, Index i, const ConstMatrix<float>& rows) {
  kv.begin_append(i, i, i);
  kv.append_head(i, i, i, rows, rows);
};

/// The sizes of attention in layer `layer` of a network.
template <class Shape>
[[nodiscard]] AttentionShape attention_shape(const Shape& shape, Index layer) noexcept {
  return {.layer = layer,
          .num_heads = shape.num_attention_heads,
          .num_kv_heads = shape.num_key_value_heads,
          .head_dim = shape.head_dim,
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(Index{shape.head_dim})))};
}

/// Normed and rotated queries and keys, values, and where the mixed values go.
struct AttentionRows {
  Matrix<float> q;    ///< [tokens, num_attention_heads * head_dim]
  Matrix<float> k;    ///< [tokens, num_key_value_heads * head_dim]
  Matrix<float> v;    ///< as k
  Matrix<float> out;  ///< as q
};

/// Appends keys and values to the cache of every sequence: several heads at a time if it is worth the trouble
/// and the cache can.
template <class Pass>
void append_to_caches(const Pass& pass, const AttentionShape& shape, const AttentionRows& rows) {
  using Kv = std::remove_reference_t<decltype(*pass.memories[0].kv)>;
  const ConstMatrix<float> k = read_only(rows.k);
  const ConstMatrix<float> v = read_only(rows.v);
  if constexpr (HeadwiseKv<Kv>) {
    if (k.rows() > 1) {
      for (std::size_t i = 0; i < pass.pieces.size(); ++i) {
        pass.memories[i].kv->begin_append(shape.layer, pass.pieces[i].position, pass.pieces[i].count);
      }
      auto task = [&](Index index, int /*worker*/) {
        const auto i = static_cast<std::size_t>(index / shape.num_kv_heads);
        const auto& piece = pass.pieces[i];
        pass.memories[i].kv->append_head(shape.layer, index % shape.num_kv_heads, piece.position,
                                         rows_of(k, piece.row, piece.count),
                                         rows_of(v, piece.row, piece.count));
      };
      pass.ops.executor().run(static_cast<Index>(pass.pieces.size()) * shape.num_kv_heads, TaskRef(task));
      return;
    }
  }
  for (std::size_t i = 0; i < pass.pieces.size(); ++i) {
    const auto& piece = pass.pieces[i];
    pass.memories[i].kv->append(shape.layer, piece.position, rows_of(k, piece.row, piece.count),
                                rows_of(v, piece.row, piece.count));
  }
}

/// Appends, then attends to all that is there.
template <class Pass>
void attend_cached(const Pass& pass, const AttentionShape& shape, const AttentionRows& rows) {
  append_to_caches(pass, shape, rows);
  pass.ops.attend(pass.pieces, shape, read_only(rows.q), rows.out, pass.scratch);
}

/// The weights of an attention layer of any family; q_rows is the height of q_proj, and Norm what q and k
/// get.
template <class Norm>
class AttentionWeights {
 public:
  static constexpr std::string_view scope_name = "self_attn.";

  /// Throws as Weights::matrix() and vector() do.
  template <class Shape>
  AttentionWeights(const Weights& scope, const Shape& shape, Index q_rows, float epsilon)
      : q_proj_(scope, "q_proj", q_rows, shape.hidden_size),
        k_proj_(scope, "k_proj", shape.num_key_value_heads * shape.head_dim, shape.hidden_size),
        v_proj_(scope, "v_proj", shape.num_key_value_heads * shape.head_dim, shape.hidden_size),
        o_proj_(scope, "o_proj", shape.hidden_size, shape.num_attention_heads * shape.head_dim),
        q_norm_(scope, "q_norm", shape.head_dim, epsilon),
        k_norm_(scope, "k_norm", shape.head_dim, epsilon) {}

  [[nodiscard]] FormatSet input_formats() const {
    return {q_proj_.format(), k_proj_.format(), v_proj_.format()};
  }

  /// Of all weights.
  [[nodiscard]] FormatSet formats() const { return either(input_formats(), {o_proj_.format()}); }

 protected:
  Linear q_proj_;  // [q_rows, hidden_size]
  Linear k_proj_;  // [num_key_value_heads * head_dim, hidden_size]
  Linear v_proj_;  // as k_proj
  Linear o_proj_;  // [hidden_size, num_attention_heads * head_dim]
  Norm q_norm_;    // [head_dim]
  Norm k_norm_;    // [head_dim]
};

/// Shape gives hidden_size, num_attention_heads, num_key_value_heads and head_dim.
template <class Shape>
class Attention : public AttentionWeights<RmsNorm> {
 public:
  /// `layer` counts attention layers. Throws as Weights::matrix() and vector() do.
  Attention(const Weights& scope, const Shape& shape, Index layer, float epsilon)
      : AttentionWeights(scope, shape, shape.num_attention_heads * shape.head_dim, epsilon),
        shape_(shape),
        layer_(layer) {}

  /// out [tokens, hidden_size] = (or +=) attention(x). Appends to the cache of every sequence.
  template <class Pass>
  void forward(const Pass& pass, const Packed& x, const Matrix<float>& out, bool accumulate) const {
    const Index tokens = x.columns;
    const Matrix<float> q = pass.activations.q(tokens);  // [tokens, num_attention_heads * head_dim]
    const Matrix<float> k = pass.activations.k(tokens);  // [tokens, num_key_value_heads * head_dim]
    const Matrix<float> v = pass.activations.v(tokens);  // as k
    const std::array<Product, 3> qkv{q_proj_.into(q), k_proj_.into(k), v_proj_.into(v)};
    pass.ops.matmul(x, qkv, pass.scratch);

    pass.ops.norm_and_rotate(q, shape_.head_dim, q_norm_.spec(), pass.angles);
    pass.ops.norm_and_rotate(k, shape_.head_dim, k_norm_.spec(), pass.angles);

    const Matrix<float> mixed = pass.activations.attention_out(tokens);  // as q
    attend_cached(pass, attention_shape(shape_, layer_), {q, k, v, mixed});

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
