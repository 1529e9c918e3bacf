// SPDX-License-Identifier: Apache-2.0
//
// JSON as the chat templates need it: reading with a bound on depth, and printing exactly as Python's
// json.dumps(ensure_ascii=False) does, which is what the templates' `tojson` filter calls.
//
// Printing keeps keys in their given order, separates with ", " and ": ", keeps non-ASCII text, and
// writes numbers as Python's repr. It uses an explicit stack: depth costs heap, never call stack.
#pragma once

#include <string>
#include <string_view>

#include <qwenlite/error.hpp>
#include <qwenlite/json_text.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace python_json {

/// Nesting beyond this is refused: copying a JSON value recurses once per level.
inline constexpr std::size_t max_nesting = 64;

/// What parse() allows a text: the bound on nesting, and any number of values.
[[nodiscard]] inline json_text::Limits limits_of(std::string_view text) noexcept {
  return {.max_depth = max_nesting, .max_commas = text.size()};
}

/// Parses `text`. Throws `code` with a line naming `what` and the byte when it is not JSON.
[[nodiscard]] nlohmann::ordered_json parse(std::string_view text, std::string_view what, ErrorCode code);

/// `value` as json.dumps(value, ensure_ascii=False) prints it.
[[nodiscard]] std::string text_of(const nlohmann::ordered_json& value);

/// Appends `value` as json.dumps(value, ensure_ascii=False) prints it.
void append(std::string& out, const nlohmann::ordered_json& value);

/// The text Python's str() gives: strings bare, True, False, None; objects and arrays as JSON.
[[nodiscard]] std::string python_string(const nlohmann::ordered_json& value);

/// "a string", "an object" and so on, for error messages.
[[nodiscard]] std::string_view kind_of(const nlohmann::ordered_json& value) noexcept;

}  // namespace python_json
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/text/python_json-inl.hpp>
#endif
