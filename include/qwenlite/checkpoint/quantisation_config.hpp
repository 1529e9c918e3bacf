// SPDX-License-Identifier: Apache-2.0
//
// What `quantization_config` says: how the matrices of a checkpoint are packed, and which of them are.
//
// What a matrix is gets decided by the tensors in the files; this is what they are checked against, and what
// the tensors do not tell (the meaning of zero points, the size of blocks). A value here that would change
// results in a way this library does not compute is refused when config.json is read.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Who packed the matrices. `compressed` is the form of compressed-tensors, `own` that of this library.
enum class QuantMethod : std::uint8_t { none, own, gptq, awq, fp8, compressed };

[[nodiscard]] constexpr std::string_view name_of(QuantMethod method) noexcept {
  switch (method) {
    case QuantMethod::none: return "none";
    case QuantMethod::own: return "qwenlite";
    case QuantMethod::gptq: return "GPTQ";
    case QuantMethod::awq: return "AWQ";
    case QuantMethod::fp8: return "FP8";
    case QuantMethod::compressed: return "compressed-tensors";
  }
  return "?";
}

/// How modules are packed that a pattern names.
struct ModuleRule {
  enum class Form : std::uint8_t {
    words,  ///< a module's name, or some of its parts in order: "lm_head", "layers.0.mlp"
    regex,  ///< a regular expression that must match from the beginning of the name
    all,    ///< every module
  };
  std::string pattern;
  Form form = Form::words;
  bool skips = false;               ///< these modules are stored plainly
  Index bits = 0;                   ///< 0: as in QuantisationConfig
  Index group_size = 0;             ///< likewise; -1: a row is a group
  std::optional<bool> symmetric{};  ///< empty: likewise
};

/// How a module is expected to be stored.
struct ExpectedForm {
  enum class Kind : std::uint8_t { packed, plain, unknown };
  Kind kind = Kind::unknown;
  Index bits = 0;        ///< 0: not known
  Index group_size = 0;  ///< 0: not known; -1: a row is a group
  std::optional<bool> symmetric;
};

struct QuantisationConfig {
  QuantMethod method = QuantMethod::none;
  std::string place;  ///< "FILE: field 'quantization_config'", for messages
  Index bits = 0;     ///< 0: several, or not stated
  Index group_size = 0;
  std::optional<bool> symmetric;
  bool act_order = false;          ///< GPTQ: columns may belong to any group
  bool zeros_less_one = false;     ///< GPTQ: zero points are stored less one (v1)
  Index block_rows = 0;            ///< FP8
  Index block_cols = 0;            ///< FP8
  std::vector<ModuleRule> rules;   ///< the first that matches a module counts
  std::vector<std::string> only;   ///< not empty: nothing else is packed; as ModuleRule::Form::words
  std::string weights, embedding;  ///< own form: formats as its writer named them

  /// What `module` ("model.layers.0.mlp.up_proj") should be by the rules. With `lenient`, a rule that names
  /// it under another prefix matches as well: names of modules have changed over time, those of tensors have
  /// not.
  [[nodiscard]] ExpectedForm expected(std::string_view module, bool lenient = false) const;
};

/// "GPTQ, 4 bits in groups of 128, symmetric, zero points less one"; "none".
[[nodiscard]] std::string to_string(const QuantisationConfig& config);

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/checkpoint/quantisation_config-inl.hpp>
#endif
