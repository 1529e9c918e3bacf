// SPDX-License-Identifier: Apache-2.0
//
// JSON written as it is computed: outputs may be far larger than memory should hold. Numbers have as many
// digits as it takes to read the same value back; what JSON has no number for becomes null.
#pragma once

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace inspect {

/// A number or a string as JSON text.
template <class T>
[[nodiscard]] std::string json_value(const T& value) {
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) return "null";
    }
    char digits[64];
    const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
    return {std::begin(digits), end};
  } else {
    using Json = nlohmann::ordered_json;
    return Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

/// Writes an array; `write` is called for each element.
template <class Range, class Write>
void write_array(std::ostream& out, const Range& range, const Write& write) {
  out << '[';
  const char* separator = "";
  for (const auto& element : range) {
    out << separator;
    write(element);
    separator = ",";
  }
  out << ']';
}

/// Writes an array of numbers or strings.
template <class Range>
void write_values(std::ostream& out, const Range& range) {
  write_array(out, range, [&](const auto& value) { out << json_value(value); });
}

}  // namespace inspect
