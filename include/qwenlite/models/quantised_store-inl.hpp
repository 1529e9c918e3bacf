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
  advance(stored.rows * stored.row_bytes());
  return matrices_.back().view();
}

QWENLITE_INLINE void QuantisedStore::advance(Index bytes) {
  done_ += bytes;
  if (progress_) progress_(std::min(done_, all_), all_);
}

/// The format that a packed matrix is stored in, whatever becomes of it.
[[nodiscard]] inline Format format_of(const PackedMatrix& packed) noexcept {
  if (packed.layout == PackedLayout::e4m3) return Format::fp8;
  return packed.bits == 4 ? Format::int4 : Format::int8;
}

/// Bytes of the tensors of a packed matrix that are read to unpack it.
[[nodiscard]] inline Index bytes_of(const PackedMatrix& packed) {
  Index sum = 0;
  for (const TensorView* view : {&packed.values, &packed.scales, &packed.zeros, &packed.group_of}) {
    Index elements = 0;
    if (view->data != nullptr && view->shape.elements(elements)) sum += elements * size_of(view->dtype);
  }
  return sum;
}

/// The same with its groups and zero points, as far as a WeightFormat can tell them.
[[nodiscard]] inline WeightFormat form_of(const PackedMatrix& packed) noexcept {
  const Format format = format_of(packed);
  return {format, packed.by_rows ? 0 : packed.group_size,
          packed.symmetric.value_or(packed.zeros.data == nullptr)};
}

/// Whether a packed matrix is what `wanted` asks for. The usual groups of a format stand for any, since a
/// Format alone asks for them. Rows may have as many groups by one size as by another.
[[nodiscard]] inline bool is_as_wanted(const PackedMatrix& packed, const WeightFormat& wanted) noexcept {
  const WeightFormat form = form_of(packed);
  if (wanted.format != form.format) return false;
  if (wanted == WeightFormat(wanted.format)) return true;
  return wanted.symmetric == form.symmetric &&
         ceil_div(packed.cols, wanted.group_of(packed.cols)) == packed.groups;
}

/// Asking for the form that a matrix has changes nothing; the embedding may be as the layers are.
QWENLITE_INLINE void QuantisedStore::check_wanted(const PackedMatrix& packed, MatrixUse use) const {
  if (use == MatrixUse::plain) return;
  const bool layer = use == MatrixUse::layer;
  const std::optional<WeightFormat>& wanted = layer ? layers_ : embedding_;
  const bool as_layers = !layer && layers_ && is_as_wanted(packed, *layers_);
  if (!wanted || is_as_wanted(packed, *wanted) || as_layers) return;
  const bool same_format = wanted->format == format_of(packed);
  const std::string stored =
      same_format ? qwenlite::to_string(form_of(packed)) : std::string(name_of(format_of(packed)));
  throw Error(ErrorCode::unsupported, packed.name, {stored, " (", name_of(packed.method), ")"},
              {same_format ? qwenlite::to_string(*wanted) : std::string(name_of(wanted->format)),
               " as asked for by '", layer ? "weights" : "embedding_weights",
               "': packed matrices stay what they are"});
}

QWENLITE_INLINE WeightView QuantisedStore::unpacked(const PackedMatrix& packed, MatrixUse use) {
  check_wanted(packed, use);
  Unpacking unpacking(packed, use == MatrixUse::plain);
  if (unpacking.tasks() > 0) {
    const AlignedBuffer scratch(unpacking.scratch_bytes() * executor_->concurrency());
    auto task = [&](Index i, int worker) {
      unpacking.run(i, scratch.data() + worker * unpacking.scratch_bytes());
    };
    executor_->run(unpacking.tasks(), TaskRef(task));
  }
  unpacked_.push_back(unpacking.take());
  note(packed, unpacked_.back());
  if (!unpacked_.back().mapped) advance(bytes_of(packed));
  return unpacked_.back().view;
}

QWENLITE_INLINE void QuantisedStore::note(const PackedMatrix& packed, const UnpackedMatrix& made) {
  ++packed_.matrices;
  packed_.mapped += made.mapped ? 1 : 0;
  packed_.bytes += made.bytes();
  packed_.source_bytes += made.mapped ? 0 : bytes_of(packed);
  for (std::size_t i = 0; i < oddities_.size(); ++i) {
    if (made.odd[i] && oddities_[i].count++ == 0) oddities_[i].first = packed.name;
  }
  const WeightView& view = made.view;
  const bool whole = view.format == Format::int8 && view.cols <= view.planes.group;
  const bool row = whole && (packed.by_rows || view.planes.group > quantised_block);
  const WeightFormat form(view.format, row ? 0 : view.planes.group, view.planes.zeros == nullptr);
  const std::string text = joined({is_quantised(view.format) ? to_string(form) : std::string("float32"), " (",
                                   name_of(packed.method), ")"});
  for (auto& [known, count] : forms_) {
    if (known != text) continue;
    ++count;
    return;
  }
  forms_.emplace_back(text, 1);
}

QWENLITE_INLINE PackedFacts QuantisedStore::packed() const {
  PackedFacts facts = packed_;
  for (const auto& [form, count] : forms_) {
    if (!facts.forms.empty()) facts.forms += ", ";
    if (forms_.size() > 1) facts.forms += joined({count, " "});
    facts.forms += form;
  }
  for (std::size_t i = 0; i < oddities_.size(); ++i) {
    const Oddity& each = oddities_[i];
    if (each.count == 0) continue;
    const std::string more = each.count > 1 ? joined({" and ", each.count - 1, " more"}) : std::string();
    facts.warnings.push_back(joined({each.first, more, ": ", to_string(static_cast<PackedOddity>(i))}));
  }
  return facts;
}

QWENLITE_INLINE void QuantisedStore::finish() {
  if (progress_ && done_ > 0 && done_ != all_) progress_(all_, all_);
  progress_ = {};
  executor_.reset();
}

QWENLITE_INLINE std::string QuantisedStore::description() const {
  if (matrices_.empty()) return {};
  const std::string embedding = embedding_ ? to_string(*embedding_) : "as stored";
  if (!layers_) return joined({"embedding ", embedding, ", layers as stored"});
  const std::string layers = to_string(*layers_);
  return layers == embedding ? layers : joined({layers, ", embedding ", embedding});
}

/// Bytes of the matrices that a network takes: not those of its prediction head, nor of pictures.
[[nodiscard]] inline Index matrix_bytes(const Checkpoint& files) {
  Index sum = 0;
  for (const TensorFiles::Entry& entry : files.tensors().entries()) {
    const std::string_view name = entry.name;
    const bool copy = files.config().tie_word_embeddings && name.starts_with("lm_head.");
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
  const bool packed = files.config().quantisation.method != QuantMethod::none;
  if (!choices.weights && !choices.embedding_weights && !packed) return prepared;
  prepared.store = std::make_shared<QuantisedStore>(choices, progress, matrix_bytes(files));
  prepared.all = prepared.all.with(prepared.store);
  return prepared;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
