// SPDX-License-Identifier: Apache-2.0
//
// What packed matrices are called: the names of their tensors, and what our own configuration says of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <qwenlite/checkpoint/quantisation_config.hpp>
#include <qwenlite/in_quotes.hpp>
#include <qwenlite/kernels/weight_words.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace packed_names {

/// The module of a matrix: its name without ".weight". Empty for other names.
[[nodiscard]] inline std::string_view module_of(std::string_view name) {
  constexpr std::string_view suffix = ".weight";
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : std::string_view();
}

[[nodiscard]] constexpr const char* values_suffix(QuantMethod method) noexcept {
  switch (method) {
    case QuantMethod::own: return ".weight.values";
    case QuantMethod::gptq:
    case QuantMethod::awq: return ".qweight";
    case QuantMethod::compressed: return ".weight_packed";
    case QuantMethod::fp8:
    case QuantMethod::none: break;
  }
  return ".weight";
}

/// What our own configuration says that a matrix was quantised to.
struct Label {
  const char* field;
  const std::string& word;

  Label(const QuantisationConfig& config, std::string_view module)
      : Label(config, module.ends_with("embed_tokens") || module.ends_with("lm_head")) {}

  /// Empty where nothing is said. Throws `bad_config` for a word that is no format.
  [[nodiscard]] std::optional<WeightFormat> format(const QuantisationConfig& config) const {
    if (word.empty()) return {};
    if (const auto found = weight_format_of(word)) return found;
    throw Error(ErrorCode::bad_config, {config.place, ": ", field}, in_quotes(word),
                "a format of weights such as 'int8:128' or 'int4:64'");
  }

 private:
  Label(const QuantisationConfig& config, bool embedding)
      : field(embedding ? "embedding" : "weights"), word(embedding ? config.embedding : config.weights) {}
};

}  // namespace packed_names

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
