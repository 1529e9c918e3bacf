// SPDX-License-Identifier: Apache-2.0
//
// What one token costs: the bytes that must be read and the operations that must be done, from config.json
// alone. The least that any implementation of the same arithmetic needs, so that a ratio to the machine's
// limits cannot be made better by counting more. A multiply-add counts as two operations.
#pragma once

#include <qwenlite/checkpoint/model_config.hpp>
#include <qwenlite/kernels/formats.hpp>

namespace bench {

/// The sizes that costs follow from.
class Work {
 public:
  Work(const qwenlite::ModelConfig& config, qwenlite::Format weights, qwenlite::KvFormat kv)
      : config_(config), weights_(weights), kv_(kv) {}

  /// Elements of the matrices that every token is multiplied with in the layers.
  [[nodiscard]] double layer_elements() const {
    const auto& c = config_;
    const bool gated = c.model_type == "qwen3_5";  // q_proj gives an output gate of the same width
    const auto query = c.num_attention_heads * c.head_dim;
    const auto kv = c.num_key_value_heads * c.head_dim;
    const auto attention = c.hidden_size * ((gated ? 3 : 2) * query + 2 * kv);
    const auto delta = c.hidden_size * (channels() + 2 * value_width() + 2 * c.linear_num_value_heads);
    const auto mlp = 3 * c.hidden_size * c.intermediate_size;
    return static_cast<double>(attention_layers() * attention + delta_layers() * delta +
                               c.num_hidden_layers * mlp);
  }
  /// Elements of the output matrix, which only tokens that get logits are multiplied with.
  [[nodiscard]] double head_elements() const {
    return static_cast<double>(config_.vocab_size * config_.hidden_size);
  }

  /// Bytes of weights read by one step that gives logits, whatever the number of sequences in it. Norms,
  /// convolutions and embedding rows (below 0.1 %) are left out.
  [[nodiscard]] double weight_bytes() const {
    return (layer_elements() + head_elements()) * static_cast<double>(element_bytes(weights_));
  }
  /// Bytes of keys and values of one position in all layers.
  [[nodiscard]] double kv_bytes() const {
    return static_cast<double>(attention_layers() * config_.num_key_value_heads * config_.head_dim * 2 *
                               element_bytes(kv_));
  }
  /// Bytes of recurrent state read by one token of one sequence: each state once, in float32.
  [[nodiscard]] double state_bytes() const {
    return 4.0 * static_cast<double>(delta_layers() * config_.linear_num_value_heads *
                                     config_.linear_key_head_dim * config_.linear_value_head_dim);
  }

  /// Bytes read by one decode step: `sequences` sequences with `positions` positions in all.
  [[nodiscard]] double step_bytes(qwenlite::Index sequences, double positions) const {
    return weight_bytes() + kv_bytes() * positions + state_bytes() * static_cast<double>(sequences);
  }

  /// Operations of one token in the layers' matrices, and in the output matrix.
  [[nodiscard]] double layer_flop() const { return 2 * layer_elements(); }
  [[nodiscard]] double head_flop() const { return 2 * head_elements(); }
  /// Operations of one token that mixes with `positions` positions: scores and weighted values of attention,
  /// which grow with them, and the three products of the delta rule and its convolution, which do not.
  [[nodiscard]] double mixing_flop(double positions) const {
    const auto& c = config_;
    const double attention =
        4.0 * static_cast<double>(attention_layers() * c.num_attention_heads * c.head_dim) * positions;
    const auto rule = 6 * c.linear_num_value_heads * c.linear_key_head_dim * c.linear_value_head_dim;
    const auto convolution = 2 * c.linear_conv_kernel_dim * channels();
    return attention + static_cast<double>(delta_layers() * (rule + convolution));
  }

 private:
  [[nodiscard]] qwenlite::Index attention_layers() const {
    return config_.layers_of(qwenlite::LayerType::full_attention);
  }
  [[nodiscard]] qwenlite::Index delta_layers() const {
    return config_.layers_of(qwenlite::LayerType::linear_attention);
  }
  [[nodiscard]] qwenlite::Index value_width() const {
    return config_.linear_num_value_heads * config_.linear_value_head_dim;
  }
  [[nodiscard]] qwenlite::Index channels() const {
    return 2 * config_.linear_num_key_heads * config_.linear_key_head_dim + value_width();
  }

  qwenlite::ModelConfig config_;
  qwenlite::Format weights_;
  qwenlite::KvFormat kv_;
};

}  // namespace bench
