// SPDX-License-Identifier: Apache-2.0
//
// Implementation of quantised_store.hpp.
#pragma once

#include <algorithm>
#include <utility>

#include <qwenlite/models/quantised_store.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

QWENLITE_INLINE QuantisedStore::QuantisedStore(const Choices& choices, Progress progress, Index all)
    : table_(choices.kernels),
      executor_(choices.executor),
      layers_(choices.weights),
      embedding_(choices.embedding_weights),
      progress_(std::move(progress)),
      all_(all) {}

QWENLITE_INLINE WeightView QuantisedStore::prepared(std::string_view name, const WeightView& stored,
                                                    MatrixUse use) {
  const std::optional<WeightFormat>& wanted = use == MatrixUse::layer ? layers_ : embedding_;
  if (!wanted || wanted->format == stored.format) return stored;
  if (!is_quantised(wanted->format)) {
    throw Error(ErrorCode::unsupported, {"tensor ", in_quotes(name)}, name_of(stored.format),
                {name_of(wanted->format), " as asked for, or a quantised format to convert it to"});
  }
  try {
    matrices_.push_back(round_to_nearest(stored, *wanted, *table_, *executor_));
  } catch (const Error& e) {
    throw Error(e.code(), {"tensor ", in_quotes(name), ": ", e.what()});
  }
  bytes_ += matrices_.back().bytes();
  source_bytes_ += stored.rows * stored.row_bytes();
  if (progress_) progress_(std::min(source_bytes_, all_), all_);
  return matrices_.back().view();
}

QWENLITE_INLINE void QuantisedStore::finish() {
  if (progress_ && source_bytes_ > 0 && source_bytes_ != all_) progress_(all_, all_);
  progress_ = {};
  executor_.reset();
}

QWENLITE_INLINE std::string QuantisedStore::description() const {
  if (matrices_.empty()) return {};
  const std::string layers = layers_ ? to_string(*layers_) : "layers as stored";
  const std::string embedding = embedding_ ? to_string(*embedding_) : "as stored";
  return layers == embedding ? layers : joined({layers, ", embedding ", embedding});
}

/// Bytes of the matrices that a network takes: not those of its prediction head, nor of pictures.
[[nodiscard]] inline Index matrix_bytes(const Checkpoint& files) {
  Index sum = 0;
  for (const TensorFiles::Entry& entry : files.tensors().entries()) {
    const std::string_view name = entry.name;
    const bool copy = files.config().tie_word_embeddings && name == "lm_head.weight";
    const bool other = name.starts_with("mtp.") || name.starts_with("model.visual.");
    const bool small = name.ends_with("in_proj_a.weight") || name.ends_with("in_proj_b.weight");
    if (entry.view.shape.rank() != 2 || copy || other || small) continue;
    Index elements = 0;
    (void)entry.view.shape.elements(elements);
    sum += elements * size_of(entry.view.dtype);
  }
  return sum;
}

QWENLITE_INLINE PreparedWeights prepared_weights(const Checkpoint& files, const Choices& choices,
                                                 const Progress& progress) {
  PreparedWeights prepared{files.weights(), nullptr};
  if (!choices.weights && !choices.embedding_weights) return prepared;
  prepared.store = std::make_shared<QuantisedStore>(choices, progress, matrix_bytes(files));
  prepared.all = prepared.all.with(prepared.store);
  return prepared;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
