// SPDX-License-Identifier: Apache-2.0
//
// The matrices that a network takes products of, by their names in the checkpoint: which there are
// (product_matrices), and those of one layer while it is quantised (LayerStore, LayerMatrix).
//
// Which tensors are such matrices, and what each is for, is not written down here: a network is put together
// and says what it takes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/models/mtp.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// A matrix where it lies in the source.
struct SourceMatrix {
  std::string name;
  WeightView view;
  MatrixUse use = MatrixUse::layer;
};

/// Notes the matrices that are taken, and hands out others in place of some.
class LayerStore final : public MatrixStore {
 public:
  /// Notes matrices whose names begin with `prefix`.
  explicit LayerStore(std::string prefix = {}) : prefix_(std::move(prefix)) {}

  [[nodiscard]] WeightView prepared(std::string_view name, const WeightView& stored, MatrixUse use) override {
    if (!name.starts_with(prefix_)) return stored;
    const auto other = others_.find(name);
    if (other != others_.end()) {
      return {reinterpret_cast<const std::byte*>(other->second.data()), stored.rows, stored.cols,
              Format::f32};
    }
    noted_.push_back({std::string(name), stored, use});
    return stored;
  }

  /// Float32 elements to be taken instead, [rows, cols].
  void replace(std::string name, std::vector<float> elements) {
    others_.insert_or_assign(std::move(name), std::move(elements));
  }
  [[nodiscard]] std::vector<SourceMatrix>& noted() noexcept { return noted_; }

 private:
  std::string prefix_;
  std::vector<SourceMatrix> noted_;
  std::map<std::string, std::vector<float>, std::less<>> others_;
};

/// "model.layers.7." of the checkpoint.
[[nodiscard]] inline std::string layer_prefix(const Weights& text, Index layer) {
  return text.scope(joined({"layers.", layer, "."})).prefix();
}

/// All matrices of a network in the order in which they are used: embedding, layers, output matrix if it is
/// not the embedding's, and those of a head for multi-token prediction.
template <ModelShape Shape>
[[nodiscard]] std::vector<SourceMatrix> product_matrices(const Decoder<Shape>& network) {
  const auto store = std::make_shared<LayerStore>();
  const Weights all = network.files.weights().with(store);
  const Weights text = text_scope(all);
  const ModelConfig& config = network.files.config();
  const Index width = network.shape.hidden_size;
  (void)Embedding(text, "embed_tokens", network.shape.vocab_size, width);
  (void)Shape::make_layers(text, network.shape, config);
  if (!config.tie_word_embeddings) {
    (void)Linear(all, "lm_head", network.shape.vocab_size, width, MatrixUse::output);
  }
  const Weights head = all.scope("mtp.");
  if constexpr (requires { network.shape.linear_num_key_heads; }) {
    if (config.mtp_num_hidden_layers == 1 && head.contains("fc.weight")) {
      (void)Linear(head, "fc", width, 2 * width);
      (void)Qwen3_5AttentionBlock<Shape>(head.scope("layers.0."), network.shape, 0, config.rms_norm_eps);
    }
  }
  for (const SourceMatrix& matrix : store->noted()) {
    if (!is_quantised(matrix.view.format)) continue;
    throw Error(ErrorCode::unsupported, {"tensor ", in_quotes(matrix.name)}, name_of(matrix.view.format),
                "a checkpoint that is not quantised yet");
  }
  return std::move(store->noted());
}

/// A matrix of a layer in float32, and what its rows and columns were multiplied with: element r, c is that
/// of the checkpoint times row_scale[r] * column_scale[c].
struct LayerMatrix {
  std::string name;
  Index rows = 0;
  Index cols = 0;
  std::vector<float> elements;
  std::vector<float> row_scale;
  std::vector<float> column_scale;

  LayerMatrix(const SourceMatrix& source, const Ops& ops)
      : name(source.name),
        rows(source.view.rows),
        cols(source.view.cols),
        elements(static_cast<std::size_t>(rows * cols)),
        row_scale(static_cast<std::size_t>(rows), 1.0F),
        column_scale(static_cast<std::size_t>(cols), 1.0F) {
    auto task = [&](Index r, int /*worker*/) {
      ops.table().decode_row(source.view.format, source.view.row(r), cols, row(r));
    };
    ops.executor().run(rows, TaskRef(task));
  }

  [[nodiscard]] float* row(Index r) noexcept { return elements.data() + r * cols; }
  [[nodiscard]] const float* row(Index r) const noexcept { return elements.data() + r * cols; }
  [[nodiscard]] WeightView view() const noexcept {
    return {reinterpret_cast<const std::byte*>(elements.data()), rows, cols, Format::f32};
  }

  void scale_row(Index r, float factor) {
    row_scale[static_cast<std::size_t>(r)] *= factor;
    for (Index c = 0; c < cols; ++c) row(r)[c] *= factor;
  }
  void scale_columns(std::span<const float> factors) {
    for (std::size_t c = 0; c < factors.size(); ++c) column_scale[c] *= factors[c];
    for (Index r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < factors.size(); ++c) row(r)[c] *= factors[c];
    }
  }
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
