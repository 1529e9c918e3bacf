// SPDX-License-Identifier: Apache-2.0
//
// Reading `quantization_config`. Each reader takes the fields of one way to pack matrices; whatever would
// change results and is not computed here is refused by name.
#pragma once

#include <algorithm>
#include <array>

#include <qwenlite/checkpoint/json_fields-inl.hpp>
#include <qwenlite/checkpoint/quantisation_config.hpp>
#include <qwenlite/checkpoint/size_limits.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace quantisation_fields {

using json_text::Fields;
using json_text::Json;

inline constexpr Index max_group = size_limits::intermediate_size;
inline constexpr std::size_t max_rules = 20000;
inline constexpr std::size_t max_expressions = 500;

[[noreturn]] inline void refuse(const Fields& fields, const char* name, const MessageText& expected) {
  const Json* value = fields.find(name);
  fields.reject(name, value == nullptr ? std::string("nothing") : json_text::describe(*value), expected,
                ErrorCode::unsupported);
}

/// Of two spellings of a field, the one that is there.
[[nodiscard]] inline const char* spelling(const Fields& fields, const char* usual, const char* other) {
  return fields.find(usual) == nullptr && fields.find(other) != nullptr ? other : usual;
}

[[nodiscard]] inline Index read_bits(const Fields& fields, const char* name) {
  const Index bits = fields.required_integer(name, {1, 64});
  if (bits != 4 && bits != 8) refuse(fields, name, "4 or 8");
  return bits;
}

/// Positive, or -1: a row is a group. 0 when absent.
[[nodiscard]] inline Index read_group_size(const Fields& fields, const char* name) {
  const auto size = fields.integer(name, {-1, max_group});
  if (size == Index{0}) fields.reject(name, "0", "-1 or a positive number of elements");
  return size.value_or(0);
}

/// The strings of a list, and of lists inside it. Absent: none.
[[nodiscard]] inline std::vector<std::string> names_in(const Fields& fields, const char* name) {
  std::vector<std::string> names;
  const Json* value = fields.find(name);
  if (value == nullptr) return names;
  const auto one = [&](const Json& item) {
    if (!item.is_string()) fields.reject(name, json_text::describe(item), "names of modules");
    names.push_back(item.get_ref<const std::string&>());
  };
  if (!value->is_array()) fields.reject(name, json_text::describe(*value), "a list of names of modules");
  for (const Json& item : *value) {
    if (!item.is_array()) one(item);
    if (!item.is_array()) continue;
    for (const Json& inner : item) one(inner);
  }
  return names;
}

/// Names, or expressions that follow "re:".
[[nodiscard]] inline ModuleRule rule_for(const std::string& name) {
  ModuleRule rule;
  const bool regex = name.starts_with("re:");
  rule.form = regex ? ModuleRule::Form::regex : ModuleRule::Form::words;
  rule.pattern = regex ? name.substr(3) : name;
  return rule;
}

inline void read_skipped(const Fields& fields, const char* name, QuantisationConfig& config) {
  for (const std::string& module : names_in(fields, name)) {
    config.rules.push_back(rule_for(module));
    config.rules.back().skips = true;
  }
}

// ---------------------------------------------------------------------------------------------- GPTQ

/// "-:EXPRESSION": stored plainly; "+:EXPRESSION" or EXPRESSION: with other values.
inline void read_dynamic(const Fields& fields, QuantisationConfig& config) {
  const auto dynamic = fields.object("dynamic");
  if (!dynamic) return;
  for (const auto& [key, value] : dynamic->json().get_ref<const Json::object_t&>()) {
    ModuleRule rule;
    const bool signed_key = key.starts_with("-:") || key.starts_with("+:");
    rule.pattern = signed_key ? key.substr(2) : key;
    rule.form = ModuleRule::Form::regex;
    rule.skips = key.starts_with("-:");
    if (value.is_object() && !rule.skips) {
      const Fields changes(value, fields.file());
      if (changes.find("bits") != nullptr) rule.bits = read_bits(changes, "bits");
      rule.group_size = read_group_size(changes, "group_size");
      rule.symmetric = changes.boolean("sym");
    } else if (!rule.skips && !value.is_null() && !value.is_boolean()) {
      dynamic->reject(key, json_text::describe(value), "an object");
    }
    config.rules.push_back(std::move(rule));
  }
}

/// Whether zero points are stored less one.
[[nodiscard]] inline bool read_zero_form(const Fields& fields) {
  std::optional<std::string> found;
  for (const char* name : {"checkpoint_format", "format"}) {
    const auto format = fields.string(name);
    if (!format) continue;
    if (*format != "gptq" && *format != "gptq_v2") refuse(fields, name, "'gptq' or 'gptq_v2'");
    if (found && *found != *format) fields.reject(name, in_quotes(*format), in_quotes(*found));
    found = format;
  }
  return found != "gptq_v2";
}

inline void read_gptq(const Fields& fields, QuantisationConfig& config) {
  config.bits = read_bits(fields, "bits");
  config.group_size = read_group_size(fields, "group_size");
  if (config.group_size == 0) fields.reject("group_size", "nothing", "-1 or a positive number of elements");
  config.symmetric = fields.boolean("sym");
  config.act_order = fields.boolean("desc_act").value_or(false);
  config.zeros_less_one = read_zero_form(fields);
  const auto words = fields.string("pack_dtype");
  if (words && *words != "int32" && *words != "torch.int32") refuse(fields, "pack_dtype", "'int32'");
  if (fields.boolean("is_marlin_format").value_or(false)) refuse(fields, "is_marlin_format", "false");
  if (const Json* adapter = fields.find("adapter"); adapter != nullptr && !adapter->empty()) {
    refuse(fields, "adapter", "none");
  }
  read_dynamic(fields, config);
  read_skipped(fields, "modules_to_not_convert", config);
  config.only = names_in(fields, "modules_in_block_to_quantize");
}

// ------------------------------------------------------------------------------------------ AWQ, FP8

inline void read_awq(const Fields& fields, QuantisationConfig& config) {
  const char* const bits = spelling(fields, "bits", "w_bit");
  config.bits = read_bits(fields, bits);
  if (config.bits != 4) refuse(fields, bits, "4");
  const char* const group = spelling(fields, "group_size", "q_group_size");
  config.group_size = read_group_size(fields, group);
  if (config.group_size == 0) fields.reject(group, "nothing", "-1 or a positive number of elements");
  const auto version = fields.string("version");
  if (version && *version != "gemm" && *version != "GEMM") refuse(fields, "version", "'gemm'");
  if (!fields.boolean("zero_point").value_or(true)) refuse(fields, "zero_point", "true");
  config.symmetric = false;
  read_skipped(fields, "modules_to_not_convert", config);
}

inline void read_fp8(const Fields& fields, QuantisationConfig& config, std::vector<std::string>& warnings) {
  const auto format = fields.string("fmt");
  if (format && *format != "e4m3") refuse(fields, "fmt", "'e4m3'");
  const auto scheme = fields.string("activation_scheme");
  if (scheme && *scheme != "dynamic") refuse(fields, "activation_scheme", "'dynamic'");
  const bool ours = fields.string("quantized_by") == "qwenlite";  // whose scheme is for other engines alone
  if (scheme && !ours) {
    warnings.push_back(joined({fields.where("activation_scheme"),
                               ": activations are not quantised here, which can only be more exact"}));
  }
  const char* const name = "weight_block_size";
  const Json* block = fields.find(name);
  if (block == nullptr || !block->is_array() || block->size() != 2) refuse(fields, name, "[128, 128]");
  config.block_rows = fields.to_integer((*block)[0], name, {1, max_group});
  config.block_cols = fields.to_integer((*block)[1], name, {1, max_group});
  read_skipped(fields, "modules_to_not_convert", config);
  read_skipped(fields, "ignored_layers", config);
}

// -------------------------------------------------------------------------------- compressed-tensors

inline void check_packing(const Fields& fields) {
  const auto format = fields.string("format");
  if (!format || *format == "pack-quantized" || *format == "int-quantized" || *format == "naive-quantized") {
    return;
  }
  refuse(fields, "format", "'pack-quantized' or 'int-quantized'");
}

/// Not an object with something in it, or of value `neutral` in field `name`.
inline void check_absent(const Fields& fields, const char* name) {
  const Json* value = fields.find(name);
  if (value == nullptr || (value->is_object() && value->empty())) return;
  const Json* format = value->is_object() ? json_text::member(*value, "format") : nullptr;
  if (format != nullptr && json_text::is_text(*format, "dense")) return;
  refuse(fields, name, "nothing");
}

/// The rule of one group of the configuration, without a pattern.
[[nodiscard]] inline ModuleRule read_scheme(const Fields& group) {
  check_packing(group);
  check_absent(group, "input_activations");
  check_absent(group, "output_activations");
  const auto weights = group.object("weights");
  if (!weights) group.reject("weights", "nothing", "an object");
  ModuleRule rule;
  rule.bits = read_bits(*weights, "num_bits");
  if (weights->string("type").value_or("int") != "int") refuse(*weights, "type", "'int'");
  if (weights->boolean("dynamic").value_or(false)) refuse(*weights, "dynamic", "false");
  const std::string strategy = weights->string("strategy").value_or("group");
  if (strategy == "group") {
    rule.group_size = read_group_size(*weights, "group_size");
    if (rule.group_size == 0) weights->reject("group_size", "nothing", "a positive number of elements");
  } else if (strategy == "channel" || strategy == "tensor") {
    rule.group_size = -1;
  } else {
    refuse(*weights, "strategy", "'group', 'channel' or 'tensor'");
  }
  rule.symmetric = weights->boolean("symmetric").value_or(true);
  return rule;
}

inline void read_compressed(const Fields& fields, QuantisationConfig& config) {
  if (fields.string("format") != "mixed-precision") check_packing(fields);
  for (const char* name : {"kv_cache_scheme", "sparsity_config", "transform_config"}) {
    check_absent(fields, name);
  }
  read_skipped(fields, "ignore", config);
  const auto groups = fields.object("config_groups");
  if (!groups) fields.reject("config_groups", "nothing", "an object");
  std::vector<ModuleRule> general;  // they come after those that name modules
  for (const auto& [key, value] : groups->json().get_ref<const Json::object_t&>()) {
    const auto group = groups->object(key.c_str());
    if (!group) groups->reject(key, json_text::describe(value), "an object");
    const ModuleRule scheme = read_scheme(*group);
    for (const std::string& target : names_in(*group, "targets")) {
      ModuleRule rule = rule_for(target);
      rule.bits = scheme.bits;
      rule.group_size = scheme.group_size;
      rule.symmetric = scheme.symmetric;
      if (target == "Linear") rule.form = ModuleRule::Form::all;
      (target == "Linear" ? general : config.rules).push_back(std::move(rule));
    }
    const bool first = config.bits == 0;
    config.bits = first ? scheme.bits : config.bits == scheme.bits ? config.bits : -1;
    config.group_size = first ? scheme.group_size : config.group_size;
    config.symmetric = first ? scheme.symmetric : config.symmetric;
  }
  if (config.bits < 0) config.bits = 0;
  for (ModuleRule& rule : general) config.rules.push_back(std::move(rule));
}

// ----------------------------------------------------------------------------------------------- own

inline void read_own(const Fields& fields, QuantisationConfig& config) {
  if (fields.required_integer("version", {1, max_group}) != 1) refuse(fields, "version", "1");
  const auto word = [&](const char* name) {
    const std::optional<std::string> found = fields.string(name);
    if (!found || found->empty()) {
      fields.reject(name, found ? "''" : "nothing", "a format of weights such as 'int8:128' or 'int4:64'");
    }
    return *found;
  };
  config.weights = word("weights");
  config.embedding = word("embedding");
  constexpr std::array known{"quant_method", "version", "method", "weights", "embedding"};
  for (const auto& [key, value] : fields.json().get_ref<const Json::object_t&>()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    fields.reject(key, json_text::describe(value), "no such field in version 1", ErrorCode::unsupported);
  }
}

inline void check_rules(const Fields& fields, const QuantisationConfig& config) {
  std::size_t expressions = 0;
  for (const ModuleRule& rule : config.rules) {
    const bool regex = rule.form == ModuleRule::Form::regex;
    if (regex && (++expressions > max_expressions || rule.pattern.size() > 1000)) {
      fields.reject("quant_method", "too many or too long expressions", "fewer");
    }
  }
  if (config.rules.size() > max_rules) fields.reject("quant_method", "too many rules for modules", "fewer");
}

/// The configuration in `outer`, if it has one.
[[nodiscard]] inline QuantisationConfig read(const Fields& outer, std::vector<std::string>& warnings) {
  QuantisationConfig config;
  const auto fields = outer.object("quantization_config");
  if (!fields) return config;
  config.place = outer.where("quantization_config");
  const std::string method = fields->string("quant_method").value_or("");
  if (method == "qwenlite") {
    config.method = QuantMethod::own;
    read_own(*fields, config);
  } else if (method == "gptq") {
    config.method = QuantMethod::gptq;
    read_gptq(*fields, config);
  } else if (method == "awq") {
    config.method = QuantMethod::awq;
    read_awq(*fields, config);
  } else if (method == "fp8") {
    config.method = QuantMethod::fp8;
    read_fp8(*fields, config, warnings);
  } else if (method == "compressed-tensors") {
    config.method = QuantMethod::compressed;
    read_compressed(*fields, config);
  } else {
    refuse(*fields, "quant_method", "'gptq', 'awq', 'fp8', 'compressed-tensors' or 'qwenlite'");
  }
  check_rules(*fields, config);
  return config;
}

}  // namespace quantisation_fields
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
