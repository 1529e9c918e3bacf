// SPDX-License-Identifier: Apache-2.0
//
// Formats of weights as words on the command line: int8, int4, fp8, and with how many elements share a scale,
// as in int8:128, int4:32 or int4:64:zeros; and bf16, f16 and f32, which ask that weights are stored so.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include <qwenlite/checkpoint/checkpoint.hpp>
#include <qwenlite/in_quotes.hpp>
#include <qwenlite/kernels/weight_words.hpp>

namespace programs {

/// Empty when there is no such format.
inline std::optional<qwenlite::WeightFormat> weight_format(std::string_view text) {
  return qwenlite::weight_format_of(text);
}

inline CLI::Validator a_weight_format() {
  const auto check = [](const std::string& text) -> std::string {
    if (weight_format(text)) return {};
    return "found " + qwenlite::in_quotes(text) +
           ", expected int8, int4 or fp8, or with a group of 32, 64 or 128 as in int8:128 or int4:64:zeros; "
           "or bf16, f16 or f32 where weights are stored so";
  };
  return CLI::Validator(check, "");
}

/// The matrices that an option is about.
enum class Matrices { layers, embedding };

/// Whether a tensor of this name is one of them.
inline bool is_one_of(Matrices which, std::string_view name) {
  if (name.starts_with("mtp.")) return false;
  if (which == Matrices::layers) {
    return name.find("layers.") != std::string_view::npos && name.ends_with("_proj.weight");
  }
  return name.ends_with("embed_tokens.weight") || name.ends_with("lm_head.weight");
}

/// A format that is not quantised says how matrices are stored, and nothing is converted to it: of a
/// checkpoint that stores them otherwise it is wrong usage. An empty word asks for nothing. For those
/// that are packed there is check_packed; embeddings seldom are where layers are.
inline void check_stored(const qwenlite::Checkpoint& files, Matrices which, const std::string& option,
                         const std::string& word) {
  const std::optional<qwenlite::WeightFormat> wanted = weight_format(word);
  if (!wanted || is_quantised(wanted->format)) return;
  const bool packed = files.config().quantisation.method != qwenlite::QuantMethod::none;
  if (packed && which == Matrices::layers) return;
  for (const qwenlite::TensorFiles::Entry& entry : files.tensors().entries()) {
    const auto stored = qwenlite::stored_format(entry.view.dtype);
    if (!is_one_of(which, entry.name) || !stored || *stored == wanted->format) continue;
    throw CLI::ValidationError(option, "found " + word + ", expected " + std::string(name_of(*stored)) +
                                           ", as these weights are stored, or a quantised format: int8, "
                                           "int4 or fp8");
  }
}

/// What a checkpoint says that its packed matrices are; empty where it says nothing, or several things.
inline std::optional<qwenlite::WeightFormat> packed_form(const qwenlite::QuantisationConfig& config,
                                                         Matrices which) {
  using qwenlite::Format;
  const bool layers = which == Matrices::layers;
  if (config.method == qwenlite::QuantMethod::own) {
    return qwenlite::weight_format_of(layers ? config.weights : config.embedding);
  }
  if (!layers || config.method == qwenlite::QuantMethod::none) return {};
  if (config.method == qwenlite::QuantMethod::fp8) return Format::fp8;
  for (const qwenlite::ModuleRule& rule : config.rules) {
    const bool other_groups = rule.group_size != 0 && rule.group_size != config.group_size;
    if (!rule.skips && ((rule.bits != 0 && rule.bits != config.bits) || other_groups)) return {};
  }
  if (config.bits == 0 || config.group_size == 0 || !config.symmetric) return {};
  const Format format = config.bits == 4 ? Format::int4 : Format::int8;
  return qwenlite::WeightFormat(format, std::max<qwenlite::Index>(config.group_size, 0), *config.symmetric);
}

/// Packed matrices stay what they are: another format, other groups or zero points are wrong usage. The name
/// of a format alone asks for any groups.
inline void check_packed(const qwenlite::Checkpoint& files, Matrices which, const std::string& option,
                         const std::string& word) {
  const std::optional<qwenlite::WeightFormat> wanted = weight_format(word);
  const auto packed = packed_form(files.config().quantisation, which);
  if (!wanted || !packed || !is_quantised(packed->format) || *wanted == *packed) return;
  if (word == name_of(packed->format)) return;
  throw CLI::ValidationError(option, "found " + word + ", expected " + word_of(*packed) +
                                         ", as these weights are packed in " + files.directory().string() +
                                         ": packed matrices stay what they are");
}

}  // namespace programs
