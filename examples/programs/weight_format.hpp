// SPDX-License-Identifier: Apache-2.0
//
// Formats of weights as words on the command line: int8, int4, and with how many elements share a scale, as
// in int8:row, int4:32 or int4:64:zeros.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <qwenlite/kernels/quantised.hpp>

namespace programs {

/// Empty when there is no such format.
inline std::optional<qwenlite::WeightFormat> weight_format(std::string_view text) {
  using qwenlite::Format;
  const auto next_word = [&text] {
    const std::string_view word = text.substr(0, text.find(':'));
    text.remove_prefix(word.size() < text.size() ? word.size() + 1 : word.size());
    return word;
  };
  if (text.ends_with(':')) return {};
  qwenlite::WeightFormat format;
  const std::string_view name = next_word();
  for (const Format known : {Format::bf16, Format::f16, Format::f32, Format::int8, Format::int4}) {
    if (name == name_of(known)) format = known;
  }
  if (name != name_of(format.format)) return {};
  if (!text.empty()) {
    const std::string_view group = next_word();
    const char* const end = group.data() + group.size();
    if (group == "row") {
      format.group = 0;
    } else {
      const auto [stop, error] = std::from_chars(group.data(), end, format.group);
      if (error != std::errc() || stop != end || format.group == 0) return {};
    }
  }
  if (!text.empty()) {
    if (next_word() != "zeros" || !text.empty()) return {};
    format.symmetric = false;
  }
  if (!format.is_valid()) return {};
  return format;
}

inline CLI::Validator a_weight_format() {
  const auto check = [](const std::string& text) -> std::string {
    if (weight_format(text)) return {};
    return "found '" + text +
           "', expected bf16, int8 or int4, or with a group of 32, 64 or 128 as in int4:32 or int4:64:zeros, "
           "or "
           "int8:row";
  };
  return CLI::Validator(check, "");
}

}  // namespace programs
