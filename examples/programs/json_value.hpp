// SPDX-License-Identifier: Apache-2.0
//
// Single values as JSON text. Numbers have as many digits as it takes to read the same value back; what JSON
// has no number for becomes null, and bytes that are no UTF-8 become U+FFFD.
#pragma once

#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

namespace programs {

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

}  // namespace programs
