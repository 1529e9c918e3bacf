// SPDX-License-Identifier: Apache-2.0
//
// Mtp: the multi-token-prediction head of Qwen3.5. From the network's hidden state at a position (after its
// final norm) and the token that follows, one layer of gated attention predicts the token after that one.
//
// Embedding and output matrix are the network's; keys and values are the head's own. Row p of the head turns
// by position p, that of the hidden state. An Mtp is immutable; what changes lives in its Session.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <qwenlite/cache/stateless.hpp>
#include <qwenlite/models/decoder.hpp>
#include <qwenlite/models/qwen3_5.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Throws `unsupported` unless config.json tells of a head as this file computes it.
inline void require_head(const ModelConfig& config) {
  const char* const file = "config.json";
  if (config.mtp_num_hidden_layers != 1) {
    throw Error(ErrorCode::unsupported, {file, ": mtp_num_hidden_layers"}, config.mtp_num_hidden_layers,
                "1, a head for multi-token prediction");
  }
  if (config.mtp_use_dedicated_embeddings) {
    throw Error(ErrorCode::unsupported, {file, ": mtp_use_dedicated_embeddings"}, "true", "false");
  }
}

/// The head of a Model of Qwen3.5. Its matrices are quantised as the model's layers are.
template <class Network>
class Mtp {
 public:
  using Shape = typename Network::Shape;
  class Session;

  /// What one forward gives for each row; valid until the next with the same session.
  struct Results {
    ConstMatrix<float> hidden;  ///< [rows, hidden_size], normed: takes the hidden state's place in a chain
    ConstMatrix<float> logits;  ///< [rows, vocab_size] of the token after the next
  };

  /// Takes the tensors "mtp.*" from the network's checkpoint. Throws `unsupported` when config.json says that
  /// there is no head, or one of another kind, and `bad_tensor` as Model's constructor does.
  Mtp(const Network& network, const Checkpoint& files)
      : Mtp(network, prepared_weights(files, network.decoder().choices)) {}

  /// Processes hidden states [rows, hidden_size] of consecutive positions, which follow those of the session,
  /// and for each the token after it. At most Network::chunk() rows at once. Throws `bad_argument` for
  /// other shapes, `context_full` when the session has no room.
  Results forward(Session& session, const ConstMatrix<float>& hidden, std::span<const int> next) const;

 private:
  Mtp(const Network& network, const PreparedWeights& prepared)
      : Mtp(network, prepared, prepared.all.scope("mtp.")) {}
  Mtp(const Network& network, const PreparedWeights& prepared, const Weights& scope);

  Network network_;
  std::shared_ptr<const QuantisedStore> quantised_;  // keeps weights that were quantised; may be null
  OnePlusRmsNorm pre_fc_norm_embedding_;             // [hidden_size]
  OnePlusRmsNorm pre_fc_norm_hidden_;                // [hidden_size]
  Linear fc_;                                        // [hidden_size, {embedding, hidden} * hidden_size]
  Qwen3_5AttentionBlock<Shape> layer_;
  OnePlusRmsNorm norm_;  // [hidden_size]
};

/// Keys and values of the head for one sequence, and scratch memory.
template <class Network>
class Mtp<Network>::Session {
 public:
  /// Room for `max_tokens` positions. Throws `bad_argument` when that does not fit in memory.
  Session(const Mtp& head, Index max_tokens)
      : network_(head.network_),
        max_tokens_(max_tokens),
        kv_(layout(head.network_, max_tokens), head.network_.kv_format()),
        workspace_(head.network_.ops(), sizes_of(head)),
        joined_(rows_of(head) * 2 * head.network_.sizes().widths.hidden * 4) {
    workspace_.grow(
        {.rows = rows_of(head), .stream_rows = rows_of(head), .sequences = 1, .max_tokens = max_tokens});
  }

  /// Positions processed so far.
  [[nodiscard]] Index length() const noexcept { return kv_.length(); }
  /// Forgets positions from n on. Throws `bad_argument` unless 0 <= n <= length().
  void truncate(Index n) { kv_.truncate(n); }
  [[nodiscard]] Index bytes() const noexcept { return kv_.bytes() + workspace_.bytes() + joined_.bytes(); }

 private:
  friend class Mtp;

  [[nodiscard]] Index rows_of(const Mtp& head) const { return std::min(head.network_.chunk(), max_tokens_); }
  [[nodiscard]] static KvLayout layout(const Network& network, Index max_tokens) {
    KvLayout one = network.kv_layout(max_tokens);
    one.layers = 1;
    return one;
  }
  [[nodiscard]] static NetworkSizes sizes_of(const Mtp& head) {
    NetworkSizes sizes = head.network_.sizes();
    sizes.delta = {};
    sizes.widths.delta = {};
    sizes.widths.other_input = 2 * sizes.widths.hidden;
    sizes.formats = either(head.layer_.formats(), {head.fc_.format()});
    return sizes;
  }

  Presence presence_;
  Network network_;
  Index max_tokens_;
  KvCache<> kv_;
  Stateless none_;
  Workspace workspace_;
  AlignedBuffer joined_;  // [rows, {embedding, hidden} * hidden_size]
};

/// The tensors below "mtp." that the head takes; what else there is would be another kind of head.
template <class Network>
Mtp<Network>::Mtp(const Network& network, const PreparedWeights& prepared, const Weights& scope)
    : network_((require_head(network.config()), network)),
      quantised_(prepared.store),
      pre_fc_norm_embedding_(scope, "pre_fc_norm_embedding", network.sizes().widths.hidden,
                             network.config().rms_norm_eps),
      pre_fc_norm_hidden_(scope, "pre_fc_norm_hidden", network.sizes().widths.hidden,
                          network.config().rms_norm_eps),
      fc_(scope, "fc", network.sizes().widths.hidden, 2 * network.sizes().widths.hidden),
      layer_(scope.scope("layers.0."), network.decoder().shape, 0, network.config().rms_norm_eps),
      norm_(scope, "norm", network.sizes().widths.hidden, network.config().rms_norm_eps) {
  scope.expect_all_used();
}

template <class Network>
auto Mtp<Network>::forward(Session& session, const ConstMatrix<float>& hidden,
                           std::span<const int> next) const -> Results {
  session.presence_.check("the head's session");
  require(session.network_.same_as(network_), "Mtp: the session belongs to the head of another model");
  const Index rows = hidden.rows();
  const Index width = network_.sizes().widths.hidden;
  require(rows > 0 && rows <= session.rows_of(*this) && std::ssize(next) == rows && hidden.cols() == width,
          "Mtp: found hidden states that do not fit the tokens, the network or its chunk");
  for (const int id : next)
    require(id >= 0 && id < network_.vocab_size(), "Mtp: found a token id out of range");
  const auto& network = network_.decoder();
  const Ops& ops = network_.ops();
  Workspace& space = session.workspace_;
  const Index first = session.length();

  // [norm(embedding), norm(hidden)], side by side
  float* const joined = session.joined_.floats();
  const Matrix<float> embedding(joined, rows, width, Eigen::OuterStride<>(2 * width));
  const Matrix<float> state(joined + width, rows, width, Eigen::OuterStride<>(2 * width));
  network.embed_tokens.lookup(ops, next, embedding);
  pre_fc_norm_embedding_.forward(ops, read_only(embedding), embedding);
  pre_fc_norm_hidden_.forward(ops, hidden, state);

  network.rotary.fill(first, rows, space.cos(0), space.sin(0));
  const std::array<Piece<KvCache<>>, 1> pieces{Piece<KvCache<>>{&session.kv_, 0, rows, first}};
  const std::array<Memory<KvCache<>, Stateless>, 1> memories{
      Memory<KvCache<>, Stateless>{&session.kv_, &session.none_}};
  const Pass<KvCache<>, Stateless> pass{.ops = ops,
                                        .scratch = space.scratch(),
                                        .activations = space.activations(),
                                        .angles = {space.cos(0), space.sin(0), network.rotary.half()},
                                        .pieces = pieces,
                                        .memories = memories};
  const Matrix<float> h = space.stream(0, rows);  // [rows, hidden_size]
  const std::array<Product, 1> fc{fc_.into(h)};
  ops.matmul(pass.pack(matrix_at(joined, rows, 2 * width), {fc_.format()}), fc, space.scratch());
  layer_.forward(pass, h);
  session.kv_.advance(rows);

  space.grow_results(rows, rows, rows);
  const Matrix<float> logits = space.logits(0, rows);
  const std::array<Product, 1> head{network.lm_head.into(logits)};
  const Packed x =
      space.head_ops().pack(read_only(h), &norm_.spec(), {network.lm_head.format()}, space.head_scratch());
  space.head_ops().matmul(x, head, space.head_scratch());
  norm_.forward(ops, read_only(h), space.hidden(0, rows));
  return {read_only(space.hidden(0, rows)), read_only(logits)};
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
