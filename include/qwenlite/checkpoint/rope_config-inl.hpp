// SPDX-License-Identifier: Apache-2.0
//
// Rotary parameters from config.json. Older files have `rope_theta` beside an optional `rope_scaling`,
// newer ones put all of it into `rope_parameters`. The base is never guessed: a wrong one looks right
// for a thousand tokens and then degrades.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <qwenlite/checkpoint/json_fields-inl.hpp>
#include <qwenlite/checkpoint/rope_parameters.hpp>
#include <qwenlite/checkpoint/size_limits.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace config_fields {

using json_text::Fields;
using json_text::number_text;

/// A number that may stand in the nested object, or at top level, or both: nested wins.
[[nodiscard]] inline std::optional<double> nested_or_flat(const Fields& text,
                                                          const std::optional<Fields>& nested,
                                                          const char* name, json_text::NumberRange range,
                                                          std::vector<std::string>& warnings) {
  const auto flat = text.number(name, range);
  const auto inner = nested ? nested->number(name, range) : std::nullopt;
  if (flat && inner && *flat != *inner) {
    warnings.push_back(joined({text.where(name), ": found ", number_text(*flat), " beside ",
                               number_text(*inner), " in ", nested->where(name), ", which counts"}));
  }
  return inner ? inner : flat;
}

/// The kind of rotary embedding, under either of its two field names.
[[nodiscard]] inline RopeType rope_type(const std::optional<Fields>& nested) {
  if (!nested) return RopeType::plain;
  const auto newer = nested->string("rope_type");
  const auto older = nested->string("type");
  if (newer && older && *newer != *older) {
    nested->reject("type", in_quotes(*older), {in_quotes(*newer), " as in 'rope_type'"});
  }
  const std::string type = newer ? *newer : older.value_or("default");
  if (type == "default") return RopeType::plain;
  if (type != "yarn") {
    nested->reject(newer ? "rope_type" : "type", in_quotes(type), "'default' or 'yarn'",
                   ErrorCode::unsupported);
  }
  return RopeType::yarn;
}

/// The fields of YaRN; `factor` counts as stated, whatever the ratio of the two lengths is.
inline void read_yarn(const Fields& nested, Index max_positions, RopeParameters& rope,
                      std::vector<std::string>& warnings) {
  constexpr json_text::NumberRange positive{.least = 0, .most = 1e9, .open_below = true};
  for (const char* name : {"mscale", "mscale_all_dim"}) {
    if (const json_text::Json* value = nested.find(name)) {
      nested.reject(name, json_text::describe(*value), "YaRN without it", ErrorCode::unsupported);
    }
  }
  rope.factor = nested.required_number("factor", positive);
  rope.original_max_position_embeddings =
      nested.integer("original_max_position_embeddings", {1, size_limits::max_position_embeddings})
          .value_or(max_positions);
  rope.beta_fast = nested.number("beta_fast", positive).value_or(rope.beta_fast);
  rope.beta_slow = nested.number("beta_slow", positive).value_or(rope.beta_slow);
  if (rope.beta_fast < rope.beta_slow) {
    nested.reject("beta_fast", number_text(rope.beta_fast),
                  {"at least beta_slow, ", number_text(rope.beta_slow)});
  }
  const double usual = rope.factor > 1 ? 0.1 * std::log(rope.factor) + 1 : 1;
  rope.attention_factor = nested.number("attention_factor", positive).value_or(usual);
  rope.truncate = nested.boolean("truncate").value_or(true);

  const double ratio =
      static_cast<double>(max_positions) / static_cast<double>(rope.original_max_position_embeddings);
  if (ratio != rope.factor) {
    warnings.push_back(
        joined({nested.where("factor"), ": found ", number_text(rope.factor),
                ", which counts, though max_position_embeddings / original_max_position_embeddings is ",
                number_text(ratio)}));
  }
}

/// How many of the `pairs` of dimensions turn by time, height and width of a picture. Of text all three are
/// the same position, so the shares have no effect here, but nonsense tells of a broken file.
inline void check_mrope_section(const Fields& text, Index pairs) {
  for (const char* place : {"rope_parameters", "rope_scaling"}) {
    const auto nested = text.object(place);
    const char* const name = "mrope_section";
    const json_text::Json* const shares = nested ? nested->find(name) : nullptr;
    if (shares == nullptr) continue;
    if (!shares->is_array() || shares->size() != 3) {
      nested->reject(name, json_text::describe(*shares), "a list of 3 numbers of dimensions");
    }
    Index sum = 0;
    for (const json_text::Json& share : *shares) sum += nested->to_integer(share, name, {0, pairs});
    if (sum == pairs) continue;
    nested->reject(name, {"shares that sum to ", sum}, {pairs, ", the pairs of dimensions that turn"});
  }
}

/// Rotary parameters of the text part.
[[nodiscard]] inline RopeParameters read_rope(const Fields& text, Index max_positions,
                                              std::vector<std::string>& warnings) {
  const auto newer = text.object("rope_parameters");
  const auto older = text.object("rope_scaling");
  if (newer && older && newer->json() != older->json()) {
    warnings.push_back(
        joined({older->file(), ": fields 'rope_parameters' and 'rope_scaling' differ; the first counts"}));
  }
  const std::optional<Fields>& nested = newer ? newer : older;

  RopeParameters rope;
  const auto theta =
      nested_or_flat(text, nested, "rope_theta", {.least = 1, .most = 1e15, .open_below = true}, warnings);
  if (!theta) text.reject("rope_theta", "nothing", "a value, here or in 'rope_parameters'");
  rope.rope_theta = *theta;
  rope.partial_rotary_factor = nested_or_flat(text, nested, "partial_rotary_factor",
                                              {.least = 0, .most = 1, .open_below = true}, warnings)
                                   .value_or(1);
  rope.rope_type = rope_type(nested);
  if (rope.rope_type == RopeType::yarn) read_yarn(*nested, max_positions, rope, warnings);
  // Stretched by 1 is not stretched; called plain, it also gives the bits of the plain form.
  if (rope.factor == 1 && rope.attention_factor == 1) rope.rope_type = RopeType::plain;
  return rope;
}

}  // namespace config_fields
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
