// SPDX-License-Identifier: Apache-2.0
//
// What one token costs: the bytes that must be read and the operations that must be done, from config.json
// alone. The least that any implementation of the same arithmetic needs, so that a ratio to the machine's
// limits cannot be made better by counting more. A multiply-add counts as two operations.
#pragma once

#include <vector>

#include <qwenlite/checkpoint/model_config.hpp>
#include <qwenlite/kernels/quantised.hpp>

namespace bench {

/// How the matrices of a network are stored when it computes with them.
struct WeightFormats {
  qwenlite::WeightFormat layers;
  qwenlite::WeightFormat head;                          ///< output matrix, and the embedding tied to it
  qwenlite::WeightFormat kept{qwenlite::Format::bf16};  ///< small matrices that are never quantised
};

/// The sizes that costs follow from.
class Work {
 public:
  Work(const qwenlite::ModelConfig& config, const WeightFormats& weights, qwenlite::KvFormat kv)
      : config_(config), weights_(weights), kv_(kv) {}

  /// Elements of the matrices that every token is multiplied with in the layers.
  [[nodiscard]] double layer_elements() const {
    qwenlite::Index sum = 0;
    for (const LayerMatrix& m : layer_matrices()) sum += m.count * m.rows * m.cols;
    return static_cast<double>(sum);
  }
  /// Elements of the output matrix, which only tokens that get logits are multiplied with.
  [[nodiscard]] double head_elements() const {
    return static_cast<double>(config_.vocab_size * config_.hidden_size);
  }

  /// Bytes of weights read by one step that gives logits, whatever the number of sequences in it: of
  /// quantised ones all planes. Norms, convolutions and embedding rows (below 0.1 %) are left out.
  [[nodiscard]] double weight_bytes() const {
    qwenlite::Index sum = weights_.head.bytes(config_.vocab_size, config_.hidden_size);
    for (const LayerMatrix& m : layer_matrices()) {
      sum += m.count * (m.is_small ? weights_.kept : weights_.layers).bytes(m.rows, m.cols);
    }
    return static_cast<double>(sum);
  }
  /// Bytes of keys and values of one position in all layers, with their scales.
  [[nodiscard]] double kv_bytes() const {
    const auto planes = 2 * attention_layers() * config_.num_key_value_heads;
    return static_cast<double>(planes * kv_plane_bytes(kv_, config_.head_dim)) /
           static_cast<double>(qwenlite::block_positions);
  }
  /// Bytes of recurrent state read by one token of one sequence: each state once, in float32.
  [[nodiscard]] double state_bytes() const {
    return 4.0 * static_cast<double>(delta_layers() * config_.linear_num_value_heads *
                                     config_.linear_key_head_dim * config_.linear_value_head_dim);
  }

  /// Bytes read by one decode step that are not weights: `sequences` sequences with `positions` positions in
  /// all.
  [[nodiscard]] double mixing_bytes(qwenlite::Index sequences, double positions) const {
    return kv_bytes() * positions + state_bytes() * static_cast<double>(sequences);
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
  /// Matrices of one kind, in all layers together.
  struct LayerMatrix {
    qwenlite::Index count;
    qwenlite::Index rows;
    qwenlite::Index cols;
    bool is_small = false;
  };
  [[nodiscard]] std::vector<LayerMatrix> layer_matrices() const {
    const auto& c = config_;
    const bool gated = c.model_type == "qwen3_5";  // q_proj gives an output gate of the same width
    const auto query = c.num_attention_heads * c.head_dim;
    const auto kv = c.num_key_value_heads * c.head_dim;
    return {{attention_layers(), (gated ? 2 : 1) * query, c.hidden_size},
            {attention_layers() * 2, kv, c.hidden_size},
            {attention_layers(), c.hidden_size, query},
            {delta_layers(), channels() + value_width(), c.hidden_size},
            {delta_layers(), c.hidden_size, value_width()},
            {delta_layers() * 2, c.linear_num_value_heads, c.hidden_size, true},
            {c.num_hidden_layers * 2, c.intermediate_size, c.hidden_size},
            {c.num_hidden_layers, c.hidden_size, c.intermediate_size}};
  }

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
  WeightFormats weights_;
  qwenlite::KvFormat kv_;
};

}  // namespace bench
