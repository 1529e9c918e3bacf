// SPDX-License-Identifier: Apache-2.0
//
// Definitions of python_json.hpp: a depth check ahead of the parser, and the printer with its own stack.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/text/python_json.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace python_json {

QWENLITE_INLINE nlohmann::ordered_json parse(std::string_view text, std::string_view what, ErrorCode code) {
  json_text::Parsed parsed = json_text::parse(text, limits_of(text));
  if (parsed.problem) throw Error(code, what, *parsed.problem, "one JSON value");
  return std::move(parsed.value);
}

inline void append_quoted(std::string& out, std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  out.push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"': out.append("\\\""); break;
      case '\\': out.append("\\\\"); break;
      case '\n': out.append("\\n"); break;
      case '\r': out.append("\\r"); break;
      case '\t': out.append("\\t"); break;
      case '\b': out.append("\\b"); break;
      case '\f': out.append("\\f"); break;
      default:
        if (byte >= 0x20) {
          out.push_back(c);
        } else {
          out.append("\\u00").push_back(hex[byte >> 4U]);
          out.push_back(hex[byte & 15U]);
        }
    }
  }
  out.push_back('"');
}

/// Python's repr of a float: the shortest digits that read back, an exponent below 1e-4 and from 1e16.
inline void append_number(std::string& out, double value) {
  std::array<char, 32> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  std::string_view text(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  const std::size_t mark = text.find('e');
  if (mark == std::string_view::npos) {  // inf or nan, which JSON cannot hold
    out.append(text);
    return;
  }
  const int exponent = std::atoi(buffer.data() + mark + 1);
  if (text[0] == '-') out.push_back('-');
  std::string digits;
  for (const char c : text.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  if (exponent < -4 || exponent >= 16) {
    out.push_back(digits[0]);
    if (digits.size() > 1) out.append(".").append(digits, 1);
    out.append(text.substr(mark));
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
  } else {
    const auto whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() < whole + 1) digits.append(whole + 1 - digits.size(), '0');
    out.append(digits, 0, whole).append(".").append(digits, whole);
  }
}

inline void append_scalar(std::string& out, const nlohmann::ordered_json& value) {
  if (value.is_string()) {
    append_quoted(out, value.get_ref<const std::string&>());
  } else if (value.is_boolean()) {
    out.append(value.get<bool>() ? "true" : "false");
  } else if (value.is_number_unsigned()) {
    MessagePart(value.get<std::uint64_t>()).append_to(out);
  } else if (value.is_number_integer()) {
    MessagePart(value.get<std::int64_t>()).append_to(out);
  } else if (value.is_number_float()) {
    append_number(out, value.get<double>());
  } else {
    out.append("null");
  }
}

QWENLITE_INLINE void append(std::string& out, const nlohmann::ordered_json& value) {
  struct Level {
    nlohmann::ordered_json::const_iterator next, end;
    bool is_object;
    bool first = true;
  };
  std::vector<Level> levels;
  const auto open = [&](const nlohmann::ordered_json& item) {
    if (!item.is_structured()) return append_scalar(out, item);
    out.push_back(item.is_object() ? '{' : '[');
    levels.push_back({item.begin(), item.end(), item.is_object()});
  };
  open(value);
  while (!levels.empty()) {
    Level& level = levels.back();
    if (level.next == level.end) {
      out.push_back(level.is_object ? '}' : ']');
      levels.pop_back();
      continue;
    }
    if (!level.first) out.append(", ");
    level.first = false;
    if (level.is_object) {
      append_quoted(out, level.next.key());
      out.append(": ");
    }
    const nlohmann::ordered_json& item = *level.next;
    ++level.next;
    open(item);  // may move `levels`
  }
}

QWENLITE_INLINE std::string text_of(const nlohmann::ordered_json& value) {
  std::string out;
  append(out, value);
  return out;
}

QWENLITE_INLINE std::string python_string(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_null()) return "None";
  return text_of(value);
}

QWENLITE_INLINE std::string_view kind_of(const nlohmann::ordered_json& value) noexcept {
  if (value.is_string()) return "a string";
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (value.is_boolean()) return "true or false";
  if (value.is_number()) return "a number";
  return "null";
}

}  // namespace python_json
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
