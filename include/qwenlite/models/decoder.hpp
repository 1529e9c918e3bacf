// SPDX-License-Identifier: Apache-2.0
//
// Model: a decoder-only network (embedding, layers, final norm, output matrix) as opened from a
// checkpoint, and the forward pass. As Qwen3ForCausalLM.
//
// A Model is a handle of something immutable: copies are cheap, share the weights and may be used from
// several threads. All that changes lives in a Session. Results of a sequence have the same bits alone or
// in a batch, for any chunk, any number of threads, and whatever cache holds its keys and values.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <qwenlite/cache/kv_cache.hpp>
#include <qwenlite/layers/attention.hpp>
#include <qwenlite/layers/gated_delta_net.hpp>
#include <qwenlite/models/explanation.hpp>
#include <qwenlite/models/open_options.hpp>
#include <qwenlite/models/quantised_store.hpp>
#include <qwenlite/models/session.hpp>
#include <qwenlite/models/shape.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// The weights of a network and what it computes with. Immutable once made.
template <ModelShape Shape>
struct Decoder {
  /// Throws as Model's constructor does.
  Decoder(const Checkpoint& checkpoint, const OpenOptions& options)
      : Decoder(checkpoint, choices_of(options), options.progress) {}

  Checkpoint files;                                 // keeps the weights mapped
  std::shared_ptr<const QuantisedStore> quantised;  // keeps those that were quantised; may be null
  Shape shape;
  Choices choices;
  Ops ops;
  Rotary rotary;

  Embedding embed_tokens;  // [vocab_size, hidden_size]
  std::vector<typename Shape::template Layer<Shape>> layers;
  typename Shape::Norm norm;  // [hidden_size]
  Linear lm_head;             // [vocab_size, hidden_size]

  NetworkSizes sizes;
  WeightFacts weights;

 private:
  Decoder(const Checkpoint& checkpoint, const Choices& chosen, const Progress& progress)
      : Decoder(checkpoint, chosen, prepared_weights(checkpoint, chosen, progress)) {}
  Decoder(const Checkpoint& checkpoint, const Choices& chosen, const PreparedWeights& prepared)
      : Decoder(checkpoint, chosen, prepared, text_scope(prepared.all)) {}
  Decoder(const Checkpoint& checkpoint, const Choices& chosen, const PreparedWeights& prepared,
          const Weights& text);
  [[nodiscard]] NetworkSizes measured() const;
};

/// A network with a policy for keys and values (any class meeting KvPolicy) and one for recurrent state.
template <ModelShape ShapeType, KvPolicy KvType = KvCache<>,
          StatePolicy StateType = typename ShapeType::template StateFor<KvType>>
class Model {
  static_assert(KvType::retains == StateType::retains || std::is_empty_v<StateType>,
                "keys and values stay between forwards exactly if recurrent state does");

 public:
  using Shape = ShapeType;
  using Kv = KvType;
  using State = StateType;
  using Session = qwenlite::Session<Model>;
  using Batch = qwenlite::Batch<Model>;

  /// Takes all weights from the checkpoint, without reading those that are not quantised. Throws `bad_config`
  /// when config.json has another family or other sizes than Shape, `bad_tensor` for a missing, unknown or
  /// wrong tensor, `bad_argument` for a format of keys and values that does not suit the heads.
  explicit Model(const Checkpoint& checkpoint, const OpenOptions& options = {})
      : decoder_(std::make_shared<const Decoder<Shape>>(checkpoint, options)),
        kv_format_(options.kv.value_or(default_kv_format())) {
    check_kv_format(kv_format_, decoder_->shape.head_dim);
    if (options.log) write_log(options.log, decoder_->files, choices());
  }
  // Moving copies the handle, so that a model that was moved from is still one.
  Model(const Model&) noexcept = default;
  Model& operator=(const Model&) noexcept = default;
  ~Model() = default;

  /// An empty session of this network. Throws as Session's constructor does.
  [[nodiscard]] Session new_session(const SessionOptions& options = {}) const {
    return Session(*this, options);
  }

  /// Processes the tokens of a batch; its results are then to be had from it.
  void forward(Batch& batch) const;

  /// Processes `tokens` after those of the session, without results.
  void prefill(Session& session, std::span<const int> tokens) const {
    run(session, tokens, Logits::none, nullptr);
  }

  /// Processes `tokens` and returns the logits after the last one, [vocab_size]. Valid until the next call
  /// with the same session.
  std::span<const float> logits(Session& session, std::span<const int> tokens) const {
    const ConstMatrix<float> rows = run(session, tokens, Logits::last, nullptr).logits(0);
    return {rows.data(), static_cast<std::size_t>(rows.cols())};
  }

  /// Logits [tokens asked for, vocab_size]: of all tokens, or of chosen ones (ascending indices).
  ConstMatrix<float> logits(Session& session, std::span<const int> tokens, Logits which) const {
    return run(session, tokens, which, nullptr).logits(0);
  }
  ConstMatrix<float> logits(Session& session, std::span<const int> tokens,
                            std::span<const Index> which) const {
    Batch& batch = emptied(session);
    batch.add(session, tokens, which);
    forward(batch);
    return batch.logits(0);
  }

  /// Hidden states after the final norm, [tokens asked for, hidden_size]; the output matrix is not used.
  ConstMatrix<float> hidden(Session& session, std::span<const int> tokens,
                            Logits which = Logits::last) const {
    Batch& batch = emptied(session);
    batch.keep(false, true);
    batch.add(session, tokens, which);
    forward(batch);
    return batch.hidden(0);
  }

  /// Processes `tokens` and shows all intermediate results: "embedding", "model.layers.N.mixer", ".mlp",
  /// ".output", "final_norm" and "logits", the last two of all tokens.
  void trace(Session& session, std::span<const int> tokens, const TraceSink& sink) const {
    run(session, tokens, Logits::all, &sink);
  }

  /// config.json.
  [[nodiscard]] const ModelConfig& config() const noexcept { return decoder_->files.config(); }
  /// Number of logits, and one more than the largest id that may be processed.
  [[nodiscard]] Index vocab_size() const noexcept { return decoder_->shape.vocab_size; }
  /// Ids below this one stand for a token; the rest of the vocabulary is padding, not to be sampled.
  [[nodiscard]] Index token_count() const noexcept {
    return std::min(vocab_size(), decoder_->files.token_count().value_or(vocab_size()));
  }
  /// Ids that end a reply.
  [[nodiscard]] std::span<const int> stop_ids() const noexcept { return decoder_->files.stop_ids(); }
  /// Sampling values: generation_config.json, and the model card for what it leaves open, for replies with
  /// thinking or without; unset: as the family does by itself.
  [[nodiscard]] GenerationDefaults defaults(std::optional<bool> thinking = {}) const {
    return with_card_values(decoder_->files.generation_defaults(), Shape::card_defaults(thinking));
  }

  /// What was chosen when the model was opened, and why; and the memory of a session of these options, which
  /// is created and dropped to know it. Throws as new_session() does.
  [[nodiscard]] Explanation explain(const SessionOptions& options = {}) const {
    Explanation e = choices();
    const Session session = new_session(options);
    e.session_tokens = session.max_tokens();
    e.session_bytes = session.bytes();
    e.session_kv_bytes = session.kv_capacity_bytes();
    return e;
  }

  /// The weights, and what is computed with them.
  [[nodiscard]] const Decoder<Shape>& decoder() const noexcept { return *decoder_; }
  [[nodiscard]] const Ops& ops() const noexcept { return decoder_->ops; }
  [[nodiscard]] const NetworkSizes& sizes() const noexcept { return decoder_->sizes; }
  /// OpenOptions::chunk.
  [[nodiscard]] Index chunk() const noexcept { return decoder_->choices.chunk; }
  /// Storage of keys and values in the sessions of this handle.
  [[nodiscard]] KvFormat kv_format() const noexcept { return kv_format_; }
  /// Sizes of the keys and values of a session of so many tokens.
  [[nodiscard]] KvLayout kv_layout(Index max_tokens) const noexcept {
    return {.layers = Shape::attention_layers(config()),
            .kv_heads = decoder_->shape.num_key_value_heads,
            .head_dim = decoder_->shape.head_dim,
            .max_tokens = max_tokens};
  }
  /// Whether both are handles of the same weights.
  [[nodiscard]] bool same_as(const Model& other) const noexcept { return decoder_ == other.decoder_; }

 private:
  using Layer = typename Shape::template Layer<Shape>;

  [[nodiscard]] static constexpr KvFormat default_kv_format() noexcept {
    if constexpr (requires { Kv::default_format; }) return Kv::default_format;
    return KvFormat::bf16;
  }

  [[nodiscard]] Explanation choices() const {
    return explanation_of(decoder_->files, decoder_->choices, decoder_->weights, kv_format_);
  }

  void embed(Batch& batch, const BatchPart& part) const;
  void read_out(Batch& batch, const BatchPart& part) const;

  [[nodiscard]] Batch& emptied(Session& session) const {
    Batch& batch = session.own_batch();
    batch.clear();
    batch.keep(true, false);
    batch.observe(nullptr);
    return batch;
  }
  Batch& run(Session& session, std::span<const int> tokens, Logits which, const TraceSink* sink) const {
    Batch& batch = emptied(session);
    batch.observe(sink);
    batch.add(session, tokens, which);
    forward(batch);
    return batch;
  }

  std::shared_ptr<const Decoder<Shape>> decoder_;
  KvFormat kv_format_;
};

// ------------------------------------------------------------------------------------ the forward pass

template <ModelShape Shape, KvPolicy Kv, StatePolicy State>
void Model<Shape, Kv, State>::forward(Batch& batch) const {
  require(batch.network_.same_as(*this), "the batch belongs to another model");
  batch.begin();
  if constexpr (Kv::retains) {
    for (Index i = 0; i < batch.parts(); ++i) {
      const BatchPart part = batch.part(i);
      embed(batch, part);
      for (const Layer& layer : decoder_->layers) layer.forward(batch.pass(part), batch.stream(part));
      read_out(batch, part);
      batch.commit(part);
    }
  } else if (!batch.wants_results()) {  // nothing would be left of the work
    for (Index i = 0; i < batch.parts(); ++i) batch.commit(batch.part(i));
  } else {  // keys and values of one layer at a time: all parts go through a layer before the next
    for (Index i = 0; i < batch.parts(); ++i) embed(batch, batch.part(i));
    for (const Layer& layer : decoder_->layers) {
      for (Index i = 0; i < batch.parts(); ++i) {
        layer.forward(batch.pass(batch.part(i)), batch.stream(batch.part(i)));
      }
    }
    for (Index i = 0; i < batch.parts(); ++i) read_out(batch, batch.part(i));
    for (Index i = 0; i < batch.parts(); ++i) batch.commit(batch.part(i));
  }
}

/// Starts the residual stream of a part, and its rotary angles.
template <ModelShape Shape, KvPolicy Kv, StatePolicy State>
void Model<Shape, Kv, State>::embed(Batch& batch, const BatchPart& part) const {
  const Matrix<float> h = batch.stream(part);  // [rows, hidden_size]
  decoder_->embed_tokens.lookup(ops(), batch.tokens(part), h);
  batch.turn(part, decoder_->rotary);
  batch.pass(part).record("", "embedding", h);
}

/// Final norm and output matrix for the tokens that get results, and no others. The output matrix takes its
/// input in full in every precision, unless it is quantised itself (head_precision()).
template <ModelShape Shape, KvPolicy Kv, StatePolicy State>
void Model<Shape, Kv, State>::read_out(Batch& batch, const BatchPart& part) const {
  if (part.results == 0) return;
  Workspace& space = batch.workspace_;
  Matrix<float> h = batch.gather(part);  // [results, hidden_size]
  const auto& norm = decoder_->norm;
  const auto pass = batch.pass(part);
  if (batch.keep_logits_) {
    const Linear& head = decoder_->lm_head;
    const Matrix<float> out = space.logits(part.first_result, part.results);
    const std::array<Product, 1> product{head.into(out)};
    const Packed x = space.head_ops().pack(read_only(h), &norm.spec(), {head.format()}, space.head_scratch());
    space.head_ops().matmul(x, product, space.head_scratch());
    pass.record("", "logits", out);
  }
  if (batch.keep_hidden_) {
    norm.forward(ops(), read_only(h), space.hidden(part.first_result, part.results));
  }
  if (pass.trace != nullptr) {
    norm.forward(ops(), read_only(h), h);
    pass.record("", "final_norm", h);
  }
}

// --------------------------------------------------------------------------------------------- opening

template <ModelShape Shape>
Decoder<Shape>::Decoder(const Checkpoint& checkpoint, const Choices& chosen, const PreparedWeights& prepared,
                        const Weights& text)
    : files(checkpoint),
      quantised(prepared.store),
      shape(shape_of<Shape>(files.config())),
      choices(chosen),
      ops(*choices.kernels, *choices.executor, choices.precision, choices.check),
      rotary(files.config().rope, rotary_dim(files.config())),
      embed_tokens(text, "embed_tokens", shape.vocab_size, shape.hidden_size),
      layers(Shape::make_layers(text, shape, files.config())),
      norm(text, "norm", shape.hidden_size, files.config().rms_norm_eps),
      lm_head(files.config().tie_word_embeddings
                  ? embed_tokens.tied_head()
                  : Linear(prepared.all, "lm_head", shape.vocab_size, shape.hidden_size, MatrixUse::output)),
      sizes(measured()) {
  // A tied checkpoint may hold a copy of the output matrix; pictures and drafts are other networks.
  const std::string_view head = files.config().tie_word_embeddings ? "lm_head." : "model.visual.";
  prepared.all.expect_all_used({head, "model.visual.", "mtp."});
  prepared.finish();
  weights = weight_facts(files, prepared);
  explain_precision(choices, sizes.formats);
}

template <ModelShape Shape>
NetworkSizes Decoder<Shape>::measured() const {
  FormatSet formats;
  for (const auto& layer : layers) formats = either(formats, layer.formats());
  const DeltaLayout delta = Shape::delta_layout(shape, files.config());
  return {.widths = {.hidden = shape.hidden_size,
                     .attention = shape.num_attention_heads * shape.head_dim,
                     .kv = shape.num_key_value_heads * shape.head_dim,
                     .gated = shape.intermediate_size,
                     .query_and_gate = Shape::query_and_gate_width(shape),
                     .delta = delta.sizes},
          .num_attention_heads = shape.num_attention_heads,
          .num_key_value_heads = shape.num_key_value_heads,
          .head_dim = shape.head_dim,
          .rotary_half = rotary.half(),
          .vocab_size = shape.vocab_size,
          .formats = formats,
          .head_format = lm_head.format(),
          .delta = delta};
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
