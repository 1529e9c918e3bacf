// SPDX-License-Identifier: Apache-2.0
//
// Definition of parse_chat_request (chat_template.hpp): the JSON form of a conversation.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <qwenlite/json_text.hpp>
#include <qwenlite/text/chat_template.hpp>
#include <qwenlite/text/python_json.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace chat_request {

using json_text::Json;
using json_text::member;

[[noreturn]] inline void refuse(const MessageText& place, const Json& found, const char* expected) {
  throw Error(ErrorCode::bad_text, place, python_json::kind_of(found), expected);
}

/// The text parts of a list, joined.
[[nodiscard]] inline std::string joined_parts(const Json& parts, const std::string& place) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].is_object()) refuse({place, "[", i, "]"}, parts[i], "a part with text");
    const Json* part = member(parts[i], "text");
    if (part == nullptr || !part->is_string()) {
      throw Error(ErrorCode::unsupported, {place, "[", i, "]"}, "a part that is not text", "text");
    }
    text += part->get_ref<const std::string&>();
  }
  return text;
}

/// Notes a value that the template takes for nothing. Null is a way to say that there is none.
inline void pass_over(ChatRequest& request, const std::string& place, const Json& value) {
  if (value.is_null()) return;
  request.passed_over.push_back(
      joined({place, ": found ", python_json::kind_of(value), ", expected a string"}));
}

/// Reads messages of a family into a request.
struct MessageReader {
  ChatRequest& request;
  ChatFamily family;

  [[nodiscard]] std::string text_of(const Json& content, const std::string& place) const {
    if (content.is_string()) return content.get<std::string>();
    if (family == ChatFamily::qwen3 || content.is_null()) {
      pass_over(request, place, content);
      return {};
    }
    if (!content.is_array()) refuse(place, content, "a string, null or a list of parts");
    return joined_parts(content, place);
  }
  void read(const Json& value, const std::string& place) const;
};

[[nodiscard]] inline ToolCall parse_tool_call(const Json& value, const std::string& place) {
  if (!value.is_object()) refuse(place, value, "an object");
  const Json* wrapped = member(value, "function");
  const Json& function = wrapped != nullptr && wrapped->is_object() ? *wrapped : value;
  const Json* name = member(function, "name");
  if (name == nullptr) throw Error(ErrorCode::bad_text, {place, ".name"}, "nothing", "a string");
  if (!name->is_string()) refuse({place, ".name"}, *name, "a string");
  ToolCall call;
  call.name = name->get<std::string>();
  if (const Json* arguments = member(function, "arguments")) {
    if (!arguments->is_object() && !arguments->is_string() && !arguments->is_null()) {
      refuse({place, ".arguments"}, *arguments, "an object, or a string holding one");
    }
    call.arguments =
        arguments->is_string() ? arguments->get<std::string>() : python_json::text_of(*arguments);
  }
  return call;
}

inline void MessageReader::read(const Json& value, const std::string& place) const {
  if (!value.is_object()) refuse(place, value, "an object");
  const Json* role = member(value, "role");
  if (role == nullptr) throw Error(ErrorCode::bad_text, {place, ".role"}, "nothing", "a string");
  if (!role->is_string()) refuse({place, ".role"}, *role, "a string");
  Message& message = request.messages.emplace_back();
  message.role = role->get<std::string>();
  if (const Json* content = member(value, "content")) {
    message.content = text_of(*content, place + ".content");
  }
  if (const Json* reasoning = member(value, "reasoning_content")) {
    if (reasoning->is_string()) {
      message.reasoning_content = reasoning->get<std::string>();
    } else {
      pass_over(request, place + ".reasoning_content", *reasoning);
    }
  }
  const Json* calls = member(value, "tool_calls");
  if (calls == nullptr || calls->is_null()) return;
  if (!calls->is_array()) refuse({place, ".tool_calls"}, *calls, "an array");
  for (std::size_t i = 0; i < calls->size(); ++i) {
    message.tool_calls.push_back(parse_tool_call((*calls)[i], joined({place, ".tool_calls[", i, "]"})));
  }
}

/// A Boolean member; null and absence leave it unset.
[[nodiscard]] inline std::optional<bool> parse_switch(const Json& root, const char* key) {
  const Json* value = member(root, key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (!value->is_boolean()) refuse(key, *value, "true or false");
  return value->get<bool>();
}

}  // namespace chat_request

QWENLITE_INLINE ChatRequest parse_chat_request(std::string_view json, ChatFamily family) {
  using chat_request::Json;
  const Json root = python_json::parse(json, "chat request", ErrorCode::bad_text);
  if (!root.is_object()) chat_request::refuse("chat request", root, "an object with messages");
  const Json* messages = chat_request::member(root, "messages");
  if (messages == nullptr) throw Error(ErrorCode::bad_text, "messages", "nothing", "an array");
  if (!messages->is_array()) chat_request::refuse("messages", *messages, "an array");
  ChatRequest request;
  const chat_request::MessageReader reader{request, family};
  for (std::size_t i = 0; i < messages->size(); ++i) {
    reader.read((*messages)[i], joined({"messages[", i, "]"}));
  }
  const Json* tools = chat_request::member(root, "tools");
  if (tools != nullptr && !tools->is_null()) {
    if (!tools->is_array()) chat_request::refuse("tools", *tools, "an array");
    for (const Json& tool : *tools) request.options.tools.push_back(python_json::text_of(tool));
  }
  request.options.enable_thinking = chat_request::parse_switch(root, "enable_thinking");
  request.options.add_generation_prompt =
      chat_request::parse_switch(root, "add_generation_prompt").value_or(true);
  return request;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
