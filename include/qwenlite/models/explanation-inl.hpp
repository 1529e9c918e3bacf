// SPDX-License-Identifier: Apache-2.0
//
// Implementation of explanation.hpp.
#pragma once

#include <array>
#include <utility>

#include <qwenlite/models/explanation.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace explaining {

/// "448.0 MiB".
[[nodiscard]] inline std::string size_text(Index bytes) {
  constexpr std::array<const char*, 4> units{" KiB", " MiB", " GiB", " TiB"};
  Index unit = 1024;
  std::size_t i = 0;
  while (i + 1 < units.size() && bytes / unit >= 1024) {
    unit *= 1024;
    ++i;
  }
  return joined({bytes / unit, ".", bytes % unit * 10 / unit, units[i]});
}

[[nodiscard]] inline std::string counted(Index count, const char* what) {
  return joined({count, " ", what, count == 1 ? "" : "s"});
}

inline void add_line(std::string& text, std::string_view name, std::string_view what,
                     std::string_view reason) {
  text.append(name).append(name.size() < 12 ? 12 - name.size() : 1, ' ').append(what);
  if (!reason.empty()) text.append(" (").append(reason).append(")");
  text.append("\n");
}

[[nodiscard]] inline std::string network_text(const ModelConfig& config) {
  const Index linear = config.layers_of(LayerType::linear_attention);
  const std::string kinds =
      linear == 0
          ? std::string()
          : joined({" (", linear, " Gated DeltaNet, ", config.num_hidden_layers - linear, " attention)"});
  return joined(
      {config.model_type, ", ", config.num_hidden_layers, " layers", kinds, ", hidden_size ",
       config.hidden_size, ", ", config.num_attention_heads, " heads on ", config.num_key_value_heads, " of ",
       config.head_dim, ", intermediate_size ", config.intermediate_size, ", vocab_size ", config.vocab_size,
       config.tie_word_embeddings ? ", output matrix tied to the embedding" : ", own output matrix"});
}

[[nodiscard]] inline std::string weights_text(const WeightFacts& w) {
  const std::string copied = w.copied == 0 ? "none" : counted(w.copied, "convolution");
  return joined({size_text(w.bytes), " ", w.place, ", ", counted(w.tensors, "tensor"), " (", w.dtypes,
                 ") in ", counted(w.files, "file"), ", ", copied, " copied; ", w.off_line,
                 " begin off a 64-byte line, which every kernel can read; ", counted(w.ignored, "tensor"),
                 " ignored"});
}

/// In the files, while opening, or both.
[[nodiscard]] inline std::string quantised_text(const WeightFacts& w) {
  const bool packed = w.packed.matrices > 0;
  const std::string before = packed ? joined({"in the files: ", w.packed.forms, "; while opening: "}) : "";
  if (w.quantised == 0) {
    return before + (packed ? "nothing more" : "none, weights are computed on as stored");
  }
  return joined({before, counted(w.quantised, "tensor"), ", ", size_text(w.quantised_bytes),
                 " in memory: ", w.quantised_to});
}

[[nodiscard]] inline std::string packed_text(const PackedFacts& packed) {
  const std::string text =
      joined({packed.matrices, packed.matrices == 1 ? " matrix" : " matrices", ", ", packed.forms});
  const Index others = packed.matrices - packed.mapped;
  if (others == 0) return text + ", computed on as mapped";
  return joined({text, ", ", packed.mapped > 0 ? joined({others, " of them "}) : std::string(), "unpacked, ",
                 size_text(packed.bytes), " in memory"});
}

/// Elements of each dtype: "BF16 310, F32 17".
class DTypeCounts {
 public:
  void add(DType dtype) { ++counts_[static_cast<std::size_t>(dtype)]; }
  [[nodiscard]] std::string text() const {
    std::string text;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] == 0) continue;
      text += joined({text.empty() ? "" : ", ", name_of(static_cast<DType>(i)), " ", counts_[i]});
    }
    return text;
  }

 private:
  std::array<Index, static_cast<std::size_t>(DType::boolean) + 1> counts_{};
};

}  // namespace explaining

QWENLITE_INLINE std::string Explanation::to_string() const {
  std::string text;
  explaining::add_line(text, "network", network, "");
  explaining::add_line(text, "kernels", kernels, kernels_reason);
  explaining::add_line(text, "threads", std::to_string(threads), threads_reason);
  explaining::add_line(text, "precision", precision, precision_reason);
  explaining::add_line(text, "weights", explaining::weights_text(weights), "");
  if (weights.packed.matrices > 0) {
    explaining::add_line(text, "packed", explaining::packed_text(weights.packed), "");
  }
  explaining::add_line(text, "quantised", explaining::quantised_text(weights), "");
  explaining::add_line(text, "kv", kv, kv_reason);
  explaining::add_line(text, "chunk", explaining::counted(chunk, "token"), "most that pass through together");
  explaining::add_line(text, "check", check ? "on, and very slow" : "off", check_reason);
  if (session_tokens > 0) {
    explaining::add_line(
        text, "session", joined({explaining::size_text(session_bytes), " for ", session_tokens, " tokens"}),
        joined({explaining::size_text(session_kv_bytes), " of it keys and values, committed as they fill"}));
  }
  return text;
}

QWENLITE_INLINE WeightFacts weight_facts(const Checkpoint& files, const PreparedWeights& prepared) {
  WeightFacts facts;
  const Weights& all = prepared.all;
  explaining::DTypeCounts dtypes;
  const std::span<const TensorFiles::Entry> entries = files.tensors().entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!all.was_taken(static_cast<Index>(i))) {
      ++facts.ignored;
      continue;
    }
    const TensorView& view = entries[i].view;
    Index elements = 0;
    (void)view.shape.elements(elements);
    ++facts.tensors;
    if (entries[i].name.ends_with(".conv1d.weight")) ++facts.copied;
    facts.bytes += elements * size_of(view.dtype);
    if (reinterpret_cast<std::uintptr_t>(view.data) % 64 != 0) ++facts.off_line;
    dtypes.add(view.dtype);
  }
  facts.dtypes = dtypes.text();
  facts.bytes_in_use = facts.bytes;
  if (prepared.store != nullptr) {
    const QuantisedStore& store = *prepared.store;
    facts.quantised = store.tensors();
    facts.quantised_bytes = store.bytes();
    facts.quantised_to = store.description();
    facts.packed = store.packed();
    facts.bytes_in_use += store.bytes() - store.source_bytes();
    facts.bytes_in_use += facts.packed.bytes - facts.packed.source_bytes;
  }
  facts.files = files.tensors().file_count();
  const bool own = !files.directory().empty();
  facts.place = files.bytes_mapped() > 0 ? "mapped" : own ? "read into memory" : "in memory of the caller";
  return facts;
}

QWENLITE_INLINE Explanation explanation_of(const Checkpoint& files, const Choices& choices,
                                           const WeightFacts& weights, KvFormat kv) {
  Explanation e;
  e.network = explaining::network_text(files.config());
  e.kernels = choices.kernels->name;
  e.kernels_reason = choices.kernels_reason;
  e.threads = choices.executor->concurrency();
  e.threads_reason = choices.threads_reason;
  e.precision = name_of(choices.precision);
  e.precision_reason = choices.precision_reason;
  e.precision_used = choices.precision_used;
  e.kv = name_of(kv);
  e.kv_reason = choices.kv ? "asked for" : "the default of the cache";
  e.weights = weights;
  e.chunk = choices.chunk;
  e.check = choices.check;
  e.check_reason = choices.check_reason;
  return e;
}

QWENLITE_INLINE void write_log(const std::function<void(std::string_view)>& log, const Checkpoint& files,
                               const Explanation& explanation) {
  for (const std::string& warning : files.warnings()) log("warning: " + warning);
  for (const std::string& warning : explanation.weights.packed.warnings) log("warning: " + warning);
  const std::string text = explanation.to_string();
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    log(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
