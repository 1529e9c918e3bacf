// SPDX-License-Identifier: Apache-2.0
//
// Implementation of quantisation_config.hpp: rules for modules, and `quantization_config` in words.
#pragma once

#include <array>

#include <qwenlite/checkpoint/module_pattern-inl.hpp>
#include <qwenlite/checkpoint/quantisation_config.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace module_pattern {

/// The name without what stands before its layer, by which names of modules differ.
[[nodiscard]] inline std::string_view from_layers(std::string_view name) {
  const std::size_t at = name.find("layers.");
  return at == std::string_view::npos ? name : name.substr(at);
}

[[nodiscard]] inline Match match(const ModuleRule& rule, std::string_view module, bool lenient) {
  if (rule.form == ModuleRule::Form::all) return Match::yes;
  if (rule.form == ModuleRule::Form::words) {
    if (has_words(module, rule.pattern)) return Match::yes;
    const bool other = lenient && has_words(from_layers(module), from_layers(rule.pattern));
    return other ? Match::yes : Match::no;
  }
  const Match exact = Expression(rule.pattern, module).match();
  if (exact != Match::no || !lenient) return exact;
  constexpr std::array prefixes{"", "model.", "model.language_model.", "language_model.model."};
  for (const char* prefix : prefixes) {
    const std::string name = std::string(prefix).append(from_layers(module));
    if (Expression(rule.pattern, name).match() == Match::yes) return Match::yes;
  }
  return Match::no;
}

}  // namespace module_pattern

QWENLITE_INLINE ExpectedForm QuantisationConfig::expected(std::string_view module, bool lenient) const {
  using Kind = ExpectedForm::Kind;
  using module_pattern::Match;
  ExpectedForm form{Kind::packed, bits, group_size, symmetric};
  if (method == QuantMethod::own || method == QuantMethod::none) return {};
  if (!only.empty()) {
    bool listed = false;
    for (const std::string& name : only) listed = listed || module_pattern::has_words(module, name);
    if (!listed) form.kind = Kind::plain;
  }
  for (const ModuleRule& rule : rules) {
    const Match match = module_pattern::match(rule, module, lenient);
    if (match == Match::unknown) return {};
    if (match == Match::no) continue;
    if (rule.skips) form.kind = Kind::plain;
    if (rule.bits != 0) form.bits = rule.bits;
    if (rule.group_size != 0) form.group_size = rule.group_size;
    if (rule.symmetric) form.symmetric = rule.symmetric;
    return form;
  }
  if (method == QuantMethod::compressed) form.kind = Kind::plain;  // no group of its configuration has it
  return form;
}

QWENLITE_INLINE std::string to_string(const QuantisationConfig& config) {
  std::string text(name_of(config.method));
  if (config.method == QuantMethod::own) {
    return joined({text, ", weights ", config.weights, ", embedding ", config.embedding});
  }
  if (config.method == QuantMethod::fp8) {
    return joined({text, ", blocks of ", config.block_rows, " x ", config.block_cols});
  }
  if (config.bits != 0) {
    text += joined({", ", config.bits, " bits"});
    text += config.group_size < 0 ? std::string(" by rows") : joined({" in groups of ", config.group_size});
  }
  if (config.symmetric) text += *config.symmetric ? ", symmetric" : ", with zero points";
  if (config.zeros_less_one) text += ", zero points stored less one";
  if (config.act_order) text += ", groups in order of activation";
  return text;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
