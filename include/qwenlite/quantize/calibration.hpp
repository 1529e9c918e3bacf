// SPDX-License-Identifier: Apache-2.0
//
// Calibration: running a network over texts, layer by layer, and seeing the input of every product.
//
// Layers are templates over the pass and know nothing of it: the pass they get here has operations that tell
// an observer what a product is given, and are otherwise the network's. All texts go through a layer before
// any goes through the next, so that a layer can be quantised in between and those after it see the inputs
// that it then makes; memory is the residual stream of the texts and the keys and values of one layer.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include <qwenlite/models/decoder.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Told what products are given: their input [tokens, width], and the weights it meets, as the layer has
/// them.
using ProductObserver =
    std::function<void(const ConstMatrix<float>& input, std::span<const WeightView> weights)>;

/// Operations that tell an observer the inputs of products.
class ObservedOps : public Ops {
 public:
  ObservedOps(const Ops& ops, const ProductObserver& observer) : Ops(ops), observer_(observer) {}

  [[nodiscard]] Packed pack(const ConstMatrix<float>& x, const NormSpec* norm, FormatSet formats,
                            OpsScratch& scratch) const {
    input_ = {x.data(), x.rows(), x.cols(), x.outerStride()};
    if (norm != nullptr) {
      if (normed_.bytes() < x.size() * 4) normed_ = AlignedBuffer(x.size() * 4);
      Ops::rms_norm(x, *norm, {normed_.floats(), x.rows(), x.cols(), Eigen::OuterStride<>(x.cols())});
      input_ = {normed_.floats(), x.rows(), x.cols(), x.cols()};
    }
    return Ops::pack(x, norm, formats, scratch);
  }
  void matmul(const Packed& x, std::span<const Product> products, OpsScratch& scratch) const {
    weights_.clear();
    for (const Product& product : products) weights_.push_back(product.weight);
    tell();
    Ops::matmul(x, products, scratch);
  }
  void gated_matmul(const Packed& x, const WeightView& gate, const WeightView& up, const Matrix<float>& out,
                    OpsScratch& scratch) const {
    weights_ = {gate, up};
    tell();
    Ops::gated_matmul(x, gate, up, out, scratch);
  }

 private:
  /// What was packed last; it stays until its products are taken.
  struct Input {
    const float* data = nullptr;
    Index rows = 0;
    Index cols = 0;
    Index stride = 0;
  };

  void tell() const {
    if (!observer_) return;
    observer_({input_.data, input_.rows, input_.cols, Eigen::OuterStride<>(input_.stride)}, weights_);
  }

  const ProductObserver& observer_;
  mutable Input input_;
  mutable AlignedBuffer normed_;
  mutable std::vector<WeightView> weights_;
};

/// A Pass whose operations are observed.
template <class Kv, class State>
struct ObservedPass : Pass<Kv, State> {
  const ObservedOps& ops;  // in place of the plain ones

  [[nodiscard]] Packed pack_normed(const Matrix<float>& x, const NormSpec& norm, FormatSet formats) const {
    return ops.pack(read_only(x), &norm, formats, this->scratch);
  }
  [[nodiscard]] Packed pack(const Matrix<float>& x, FormatSet formats) const {
    return ops.pack(read_only(x), nullptr, formats, this->scratch);
  }
};

/// Texts on their way through a network. Computes in float32 throughout, whatever the network's precision.
template <ModelShape Shape>
class CalibrationRun {
 public:
  using Layer = typename Shape::template Layer<Shape>;

  /// Starts with the embeddings of `texts`, each read from an empty context. The network must live as long.
  /// Throws `bad_argument` for a text that is empty or too long for the network, and for ids that it has not.
  CalibrationRun(const Decoder<Shape>& network, std::span<const std::vector<int>> texts);

  [[nodiscard]] Index tokens() const noexcept { return tokens_; }
  /// With which to compute on what is observed.
  [[nodiscard]] const Ops& ops() const noexcept { return ops_; }

  /// Shows the inputs of the products of a layer, some texts at a time. The texts stay where they are.
  void observe(const Layer& layer, const ProductObserver& observer) { run(layer, observer, false); }
  /// Takes the texts through a layer.
  void advance(const Layer& layer) { run(layer, {}, true); }

 private:
  using State = typename Shape::template StateFor<NoCache>;

  /// Texts that pass through a layer together.
  struct Group {
    std::size_t first = 0;
    std::size_t count = 0;
    Index first_row = 0;
    Index rows = 0;
  };

  void check(const std::vector<int>& text) const;
  void form_groups();
  void make_room();
  void embed();
  void run(const Layer& layer, const ProductObserver& observer, bool keep);
  void run_group(const Group& group, const Layer& layer, const ObservedOps& ops, const Matrix<float>& h);
  [[nodiscard]] Matrix<float> rows(Index first, Index count) const noexcept {
    const Index width = network_.sizes.widths.hidden;
    return matrix_at(stream_.floats() + first * width, count, width);
  }
  [[nodiscard]] static State new_state(const DeltaLayout& layout) {
    if constexpr (std::is_constructible_v<State, const DeltaLayout&>)
      return State(layout);
    else
      return State();
  }
  [[nodiscard]] static NetworkSizes sizes_of(const Decoder<Shape>& network) {
    NetworkSizes sizes = network.sizes;
    sizes.formats = either(sizes.formats, {Format::bf16, Format::f16, Format::f32});
    return sizes;
  }

  const Decoder<Shape>& network_;
  std::span<const std::vector<int>> texts_;
  Ops ops_;
  Workspace workspace_;
  Index tokens_ = 0;
  Index longest_ = 0;
  std::vector<Group> groups_;
  AlignedBuffer stream_;  // [tokens, hidden_size]
  AlignedBuffer cos_;     // [longest, rotary_half], as sin_
  AlignedBuffer sin_;
  std::vector<NoCache> kv_;  // of the texts of a group
  std::vector<State> states_;
};

template <ModelShape Shape>
CalibrationRun<Shape>::CalibrationRun(const Decoder<Shape>& network, std::span<const std::vector<int>> texts)
    : network_(network),
      texts_(texts),
      ops_(network.ops.with(Precision::exact)),
      workspace_(ops_, sizes_of(network)) {
  for (const std::vector<int>& text : texts) check(text);
  form_groups();
  make_room();
  embed();
}

template <ModelShape Shape>
void CalibrationRun<Shape>::check(const std::vector<int>& text) const {
  const Index limit = network_.files.config().context_limit();
  if (text.empty() || std::ssize(text) > limit) {
    throw Error(ErrorCode::bad_argument, "calibration text", {text.size(), " tokens"}, {"1 to ", limit});
  }
  for (const int id : text) {
    if (id >= 0 && id < network_.shape.vocab_size) continue;
    throw Error(ErrorCode::bad_argument, "calibration text: token id", id,
                {"0 to ", network_.shape.vocab_size - 1});
  }
}

template <ModelShape Shape>
void CalibrationRun<Shape>::form_groups() {
  constexpr Index together = 512;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const Index count = std::ssize(texts_[i]);
    if (groups_.empty() || groups_.back().rows + count > together) groups_.push_back({i, 0, tokens_, 0});
    ++groups_.back().count;
    groups_.back().rows += count;
    tokens_ += count;
    longest_ = std::max(longest_, count);
  }
}

template <ModelShape Shape>
void CalibrationRun<Shape>::make_room() {
  WorkspaceLimits limits{.max_tokens = longest_};
  for (const Group& group : groups_) {
    limits.rows = std::max(limits.rows, group.rows);
    limits.sequences = std::max(limits.sequences, static_cast<Index>(group.count));
  }
  if (groups_.empty()) return;
  limits.stream_rows = limits.rows;
  workspace_.grow(limits);
  const NetworkSizes& sizes = network_.sizes;
  const KvLayout layout{
      .layers = 1, .kv_heads = sizes.num_key_value_heads, .head_dim = sizes.head_dim, .max_tokens = longest_};
  for (Index i = 0; i < limits.sequences; ++i) {
    kv_.emplace_back(layout, KvFormat::f32);
    states_.push_back(new_state(sizes.delta));
  }
  cos_ = AlignedBuffer(longest_ * sizes.rotary_half * 4);
  sin_ = AlignedBuffer(longest_ * sizes.rotary_half * 4);
  network_.rotary.fill(0, longest_, cos_.floats(), sin_.floats());
}

template <ModelShape Shape>
void CalibrationRun<Shape>::embed() {
  stream_ = AlignedBuffer(tokens_ * network_.sizes.widths.hidden * 4);
  Index row = 0;
  for (const std::vector<int>& text : texts_) {
    network_.embed_tokens.lookup(ops_, text, rows(row, std::ssize(text)));
    row += std::ssize(text);
  }
}

template <ModelShape Shape>
void CalibrationRun<Shape>::run(const Layer& layer, const ProductObserver& observer, bool keep) {
  const ObservedOps ops(ops_, observer);
  for (const Group& group : groups_) {
    const Matrix<float> from = rows(group.first_row, group.rows);
    if (keep) {
      run_group(group, layer, ops, from);
      continue;
    }
    const Matrix<float> copy = workspace_.stream(0, group.rows);
    std::copy_n(from.data(), from.size(), const_cast<float*>(copy.data()));
    run_group(group, layer, ops, copy);
  }
}

template <ModelShape Shape>
void CalibrationRun<Shape>::run_group(const Group& group, const Layer& layer, const ObservedOps& ops,
                                      const Matrix<float>& h) {
  const Index half = network_.sizes.rotary_half;
  std::vector<Piece<NoCache>> pieces;
  std::vector<Memory<NoCache, State>> memories;
  Index row = 0;
  for (std::size_t i = 0; i < group.count; ++i) {
    const Index count = std::ssize(texts_[group.first + i]);
    pieces.push_back({.cache = &kv_[i], .row = row, .count = count, .position = 0});
    memories.push_back({&kv_[i], &states_[i]});
    std::copy_n(cos_.floats(), count * half, workspace_.cos(row));
    std::copy_n(sin_.floats(), count * half, workspace_.sin(row));
    row += count;
  }
  const ObservedPass<NoCache, State> pass{{.ops = ops_,
                                           .scratch = workspace_.scratch(),
                                           .activations = workspace_.activations(),
                                           .angles = {workspace_.cos(0), workspace_.sin(0), half},
                                           .pieces = pieces,
                                           .memories = memories,
                                           .delta = workspace_.delta_scratch()},
                                          ops};
  layer.forward(pass, h);
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
