// SPDX-License-Identifier: Apache-2.0
//
// Definitions of tool_calls.hpp.
//
// Where a call ends is decided by its content, since arguments may hold the closing tag: it does not count
// inside a JSON string, nor inside a <parameter=...> unless </function> comes before it.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <qwenlite/json_text.hpp>
#include <qwenlite/text/partial_match.hpp>
#include <qwenlite/text/python_json.hpp>
#include <qwenlite/text/tool_calls.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace tool_calls {

using json_text::Json;

inline constexpr std::string_view open_tag = "<tool_call>", close_tag = "</tool_call>";
inline constexpr std::string_view function_open = "<function=", function_close = "</function>";
inline constexpr std::string_view parameter_open = "<parameter=", parameter_close = "</parameter>";
inline constexpr std::string_view blanks = " \t\r\n";

[[nodiscard]] inline std::string_view skip_blanks(std::string_view text) noexcept {
  return text.substr(std::min(text.find_first_not_of(blanks), text.size()));
}
[[nodiscard]] inline std::string_view trim(std::string_view text) noexcept {
  return skip_blanks(text.substr(0, text.find_last_not_of(blanks) + 1));
}

// ------------------------------------------------------------------------------------ the JSON form

[[nodiscard]] inline std::optional<Json> parsed(std::string_view text) {
  json_text::Parsed result = json_text::parse(text, python_json::limits_of(text));
  if (result.problem) return std::nullopt;
  return std::move(result.value);
}

/// A member of what may be an object; null when it is none, or has no such member.
[[nodiscard]] inline const Json* member(const Json* object, std::string_view name) {
  return object != nullptr && object->is_object() ? json_text::member(*object, name) : nullptr;
}

[[nodiscard]] inline std::optional<ToolCall> parse_json(std::string_view text) {
  std::optional<Json> value = parsed(text);
  if (!value || !value->is_object()) return std::nullopt;
  const Json* name = member(&*value, "name");
  if (name == nullptr || !name->is_string()) return std::nullopt;
  ToolCall call;
  call.name = name->get_ref<const std::string&>();
  if (call.name.empty()) return std::nullopt;
  const Json* found = member(&*value, "arguments");
  if (found == nullptr || found->is_null()) return call;
  Json arguments = *found;
  if (arguments.is_string()) {  // the object, written as a text
    std::optional<Json> inner = parsed(arguments.get_ref<const std::string&>());
    if (!inner) return std::nullopt;
    arguments = *std::move(inner);
  }
  if (!arguments.is_object()) return std::nullopt;
  call.arguments = python_json::text_of(arguments);
  return call;
}

// --------------------------------------------------------------------------- the <function=...> form

/// Takes "<tag=NAME>" off the front of `text`; an empty name when it is not there.
[[nodiscard]] inline std::string_view take_name(std::string_view& text, std::string_view tag) noexcept {
  if (!text.starts_with(tag)) return {};
  const std::size_t end = text.find_first_of("<>\n", tag.size());
  if (end == std::string_view::npos || text[end] != '>') return {};
  const std::string_view name = text.substr(tag.size(), end - tag.size());
  text.remove_prefix(end + 1);
  return name;
}

/// Takes "VALUE</parameter>" off the front of `text`. One line break at each end of the value belongs to
/// the form; a value that has the first may hold the closing tag anywhere but at the start of a line.
[[nodiscard]] inline std::optional<std::string_view> take_value(std::string_view& text) noexcept {
  const bool on_lines = text.starts_with("\n");
  const std::size_t end = on_lines ? text.find("\n</parameter>") : text.find(parameter_close);
  if (end == std::string_view::npos) return std::nullopt;
  const std::size_t from = on_lines ? 1 : 0;
  const std::string_view value = end > from ? text.substr(from, end - from) : std::string_view();
  text.remove_prefix(end + from + parameter_close.size());
  return value;
}

/// The parameters that the definition of a tool names; null when there is none of that name.
[[nodiscard]] inline Json properties_of(std::span<const std::string> tools, std::string_view function) {
  for (const std::string& text : tools) {
    const std::optional<Json> tool = parsed(text);
    if (!tool) continue;
    const Json* wrapped = member(&*tool, "function");
    const Json* definition = wrapped != nullptr ? wrapped : &*tool;
    const Json* name = member(definition, "name");
    if (name == nullptr || !json_text::is_text(*name, function)) continue;
    const Json* properties = member(member(definition, "parameters"), "properties");
    return properties == nullptr ? Json() : *properties;
  }
  return nullptr;
}

/// The type that a definition gives a parameter; empty when it says nothing, or allows text.
[[nodiscard]] inline std::string type_of(const Json& properties, std::string_view parameter) {
  const Json* type = member(member(&properties, parameter), "type");
  if (type == nullptr || !type->is_string()) return {};
  const auto& name = type->get_ref<const std::string&>();
  return name == "string" ? std::string() : name;
}

[[nodiscard]] inline bool has_type(const Json& value, std::string_view type) noexcept {
  if (value.is_null()) return true;
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "array") return value.is_array();
  return type == "object" && value.is_object();
}

/// A parameter's text as the type it should have, or as the text it is. True, False and None are how the
/// template writes these.
[[nodiscard]] inline Json typed(std::string_view text, std::string_view type) {
  if (type.empty()) return std::string(text);
  const std::string_view bare = trim(text);
  const std::string_view json = bare == "True"    ? "true"
                                : bare == "False" ? "false"
                                : bare == "None"  ? "null"
                                                  : bare;
  std::optional<Json> value = parsed(json);
  if (value && has_type(*value, type)) return *std::move(value);
  return std::string(text);
}

[[nodiscard]] inline std::optional<ToolCall> parse_function(std::string_view text,
                                                            std::span<const std::string> tools) {
  const std::string_view name = take_name(text, function_open);
  if (name.empty() || !text.ends_with(function_close)) return std::nullopt;
  text.remove_suffix(function_close.size());
  ToolCall call;
  call.name = name;
  const Json properties = properties_of(tools, name);
  Json arguments = Json::object();
  while (!(text = skip_blanks(text)).empty()) {
    const std::string key(take_name(text, parameter_open));
    if (key.empty()) return std::nullopt;
    const std::optional<std::string_view> value = take_value(text);
    if (!value) return std::nullopt;
    arguments[key] = typed(*value, type_of(properties, key));
  }
  call.arguments = python_json::text_of(arguments);
  return call;
}

}  // namespace tool_calls

QWENLITE_INLINE std::optional<ToolCall> parse_tool_call(std::string_view text,
                                                        std::span<const std::string> tools) {
  text = tool_calls::trim(text);
  if (text.starts_with('{')) return tool_calls::parse_json(text);
  return tool_calls::parse_function(text, tools);
}

// ------------------------------------------------------------------------------------- the stream

QWENLITE_INLINE void ToolCallParser::push(std::string_view text, bool last) {
  text_.clear();
  calls_.clear();
  held_.append(text);
  while (step()) {
  }
  if (!last) return;
  while (inside_) {  // it never ended: plain text, in which whole calls may follow
    give_up();
    while (step()) {
    }
  }
  emit(held_.size());
  if (!after_call_) text_.append(breaks_);
  breaks_.clear();
}

/// Handles what held_ allows; true when the rest must be looked at again.
QWENLITE_INLINE bool ToolCallParser::step() {
  return inside_ ? step_inside() : step_outside();
}

QWENLITE_INLINE bool ToolCallParser::step_outside() {
  const std::size_t found = held_.find(tool_calls::open_tag);
  const bool opens = found != std::string::npos;
  const std::size_t end = opens ? found : held_.size() - tail_that_begins(tool_calls::open_tag, held_);
  std::size_t text_end = end;
  while (text_end > 0 && held_[text_end - 1] == '\n') --text_end;
  emit(text_end);
  breaks_.append(end - text_end, '\n');
  held_.erase(0, end - text_end);
  inside_ = opens;
  reading_ = {};
  scanned_ = tool_calls::open_tag.size();
  return opens;
}

/// Reads on to the end of `inner`, the text from the opening tag to a closing one: each is longer than the
/// one before, and no byte is read twice. A bare line break ends a JSON string: it has no place there.
QWENLITE_INLINE void ToolCallParser::Reading::go_on(std::string_view inner) noexcept {
  for (; read < inner.size(); ++read) {
    const char c = inner[read];
    if (c == '<') {
      const std::string_view rest = inner.substr(read);
      if (rest.starts_with(tool_calls::parameter_open)) in_parameter = true;
      if (rest.starts_with(tool_calls::parameter_close)) in_parameter = false;
    }
    if (escaped) {
      escaped = false;
    } else if (in_string && c == '\\') {
      escaped = true;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (c == '\n') {
      in_string = false;
    }
  }
}

/// Whether a closing tag after `inner` is the end of the call and not part of an argument.
QWENLITE_INLINE bool ToolCallParser::Reading::may_close(std::string_view inner) noexcept {
  go_on(inner);
  const std::string_view text = tool_calls::trim(inner);
  if (text.starts_with('{')) return !in_string;
  if (!text.starts_with(tool_calls::function_open)) return true;
  return text.ends_with(tool_calls::function_close) || !in_parameter;
}

QWENLITE_INLINE bool ToolCallParser::step_inside() {
  using tool_calls::close_tag;
  const std::size_t from = tool_calls::open_tag.size();
  const std::size_t found = held_.find(close_tag, scanned_);
  if (found == std::string::npos) {
    scanned_ = std::max(scanned_, held_.size() - std::min(held_.size(), close_tag.size() - 1));
    return false;
  }
  const std::string_view inner = std::string_view(held_).substr(from, found - from);
  scanned_ = found + close_tag.size();
  if (!reading_.may_close(inner)) return true;
  std::optional<ToolCall> call = parse_tool_call(inner, tools_);
  if (!call) {
    give_up();
    return true;
  }
  calls_.push_back(*std::move(call));
  held_.erase(0, scanned_);
  breaks_.clear();
  inside_ = false;
  after_call_ = true;
  return true;
}

/// Moves the first `count` bytes held to the text, after the line breaks that come before them.
QWENLITE_INLINE void ToolCallParser::emit(std::size_t count) {
  if (count == 0) return;
  text_.append(breaks_).append(held_, 0, count);
  held_.erase(0, count);
  breaks_.clear();
  after_call_ = false;
}

/// What looked like a call is none: its opening tag is text, and what follows is looked at afresh.
QWENLITE_INLINE void ToolCallParser::give_up() {
  emit(tool_calls::open_tag.size());
  inside_ = false;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
