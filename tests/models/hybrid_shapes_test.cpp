// SPDX-License-Identifier: Apache-2.0
//
// The sizes of the released Qwen3.5 models as types: each gives the number of parameters that the published
// weights have, and refuses the config.json of another.
#include <qwenlite/models/qwen3_5.hpp>

#include "catch_any.hpp"

namespace ql = qwenlite;
using ql::Index;

namespace {

/// Weights of a layer of gated attention and its MLP.
template <class Shape>
Index attention_layer(const Shape& s) {
  const Index heads = s.num_attention_heads * s.head_dim;
  const Index kv = s.num_key_value_heads * s.head_dim;
  return s.hidden_size * (2 * heads + 2 * kv + heads) + 2 * s.head_dim +
         3 * s.hidden_size * s.intermediate_size + 2 * s.hidden_size;
}

template <class Shape>
Index delta_layer(const Shape& s) {
  const ql::DeltaSizes d = ql::delta_sizes(s);
  return s.hidden_size * (d.channels() + 2 * d.value_width() + 2 * d.num_value_heads) +
         d.channels() * d.conv_kernel_dim + 2 * d.num_value_heads + d.value_head_dim +
         3 * s.hidden_size * s.intermediate_size + 2 * s.hidden_size;
}

/// Text network and head for multi-token prediction.
template <class Shape>
Index parameters(bool tied) {
  const Shape s;
  const Index attention = s.num_hidden_layers / 4;
  const Index head = attention_layer(s) + 2 * s.hidden_size * s.hidden_size + 3 * s.hidden_size;
  return s.vocab_size * s.hidden_size * (tied ? 1 : 2) + s.hidden_size + attention * attention_layer(s) +
         (s.num_hidden_layers - attention) * delta_layer(s) + head;
}

/// The vision part beside them, which the library does not use.
Index vision(Index depth, Index hidden, Index intermediate, Index out) {
  const Index block =
      4 * hidden * hidden + 4 * hidden + 2 * hidden * intermediate + intermediate + hidden + 4 * hidden;
  const Index merged = 4 * hidden;
  return depth * block + hidden * (3 * 2 * 16 * 16 + 1) + 2304 * hidden + 2 * hidden + merged * merged +
         merged + merged * out + out;
}

}  // namespace

TEST_CASE("Qwen3.5: the sizes as types have as many parameters as the published weights") {
  CHECK(parameters<ql::Qwen3_5_0_8B>(true) + vision(12, 768, 3072, 1024) == 873438784);
  CHECK(parameters<ql::Qwen3_5_2B>(true) + vision(24, 1024, 4096, 2048) == 2274069824);
  CHECK(parameters<ql::Qwen3_5_4B>(true) + vision(24, 1024, 4096, 2560) == 4659865088);
  CHECK(parameters<ql::Qwen3_5_9B>(false) + vision(27, 1152, 4304, 4096) == 9653104368);
  CHECK(parameters<ql::Qwen3_5_27B>(false) + vision(27, 1152, 4304, 5120) == 27781427952);
}

TEST_CASE("Qwen3.5: every size is a shape and takes its own config alone") {
  static_assert(ql::ModelShape<ql::Qwen3_5_2B> && ql::ModelShape<ql::Qwen3_5_4B> &&
                ql::ModelShape<ql::Qwen3_5_9B> && ql::ModelShape<ql::Qwen3_5_27B>);
  ql::ModelConfig config;
  config.model_type = "qwen3_5";
  config.hidden_size = 4096;
  config.num_hidden_layers = 32;
  config.num_attention_heads = 16;
  config.num_key_value_heads = 4;
  config.head_dim = 256;
  config.intermediate_size = 12288;
  config.vocab_size = 248320;
  config.linear_num_key_heads = 16;
  config.linear_num_value_heads = 32;
  config.linear_key_head_dim = 128;
  config.linear_value_head_dim = 128;
  config.linear_conv_kernel_dim = 4;
  CHECK_NOTHROW(ql::shape_of<ql::Qwen3_5_9B>(config));
  CHECK_THROWS_WITH(ql::shape_of<ql::Qwen3_5_4B>(config), has_text("Qwen3_5_4B"));
  config.linear_num_value_heads = 16;
  CHECK_THROWS_WITH(ql::shape_of<ql::Qwen3_5_9B>(config),
                    has_text("linear_num_value_heads") && has_text("found 16"));
}

TEST_CASE("sampling values of the model cards, with thinking and without") {
  const auto plain = ql::Qwen3_5::card_defaults(false);
  CHECK(plain.temperature == 1.0F);
  CHECK(plain.top_p == 1.0F);
  CHECK(plain.top_k == 20);
  CHECK(plain.presence_penalty == 2.0F);
  const auto thinking = ql::Qwen3_5::card_defaults(true);
  CHECK(thinking.temperature == 1.0F);
  CHECK(thinking.top_p == 0.95F);
  CHECK(thinking.presence_penalty == 1.5F);
  CHECK(ql::Qwen3_5::card_defaults().top_p == plain.top_p);  // the small ones do not think by themselves
}
