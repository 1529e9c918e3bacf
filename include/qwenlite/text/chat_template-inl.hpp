// SPDX-License-Identifier: Apache-2.0
//
// Definitions of chat_template.hpp: recognising template texts, and the two renderers.
//
// Each renderer follows its published Jinja template statement by statement, odd corners included;
// the comments name the corners. A further family is one more function and one more row of `known`.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/in_quotes.hpp>
#include <qwenlite/text/chat_template.hpp>
#include <qwenlite/text/python_json.hpp>
#include <qwenlite/text/unicode.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace chat {

// ------------------------------------------------------------------------------------ recognition

/// FNV-1a, 64 bits.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

struct KnownTemplate {
  std::size_t bytes;
  std::uint64_t hash;
  ChatFamily family;
  bool thinks;  // when nobody says
};
inline constexpr std::array<KnownTemplate, 4> known{{
    {4168, 0x959A4551391A6549ULL, ChatFamily::qwen3, true},  // Qwen3, current revision
    {4116, 0x2BFDB7AA9754484EULL, ChatFamily::qwen3, true},  // first revision: same text for string contents
    {7755, 0x407BBCDEB62737B7ULL, ChatFamily::qwen3_5, false},  // Qwen3.5, small models: thinking is opt-in
    {7756, 0xF07C510F47FBACA0ULL, ChatFamily::qwen3_5, true},   // Qwen3.5, from 4B on: thinking is opt-out
}};

// ------------------------------------------------------------------------------------- small parts

/// Collects segments; equal neighbours join.
class Prompt {
 public:
  Prompt& control(std::string_view text) { return add(text, true); }
  Prompt& content(std::string_view text) { return add(text, false); }
  /// The definition of a tool, laid out as the template's own printer does.
  Prompt& tool(const std::string& definition, std::size_t index) {
    const std::string place = joined({"tools[", index, "]"});
    return content(python_json::text_of(python_json::parse(definition, place, ErrorCode::bad_text)));
  }
  [[nodiscard]] std::vector<ChatSegment> take() { return std::move(segments_); }

 private:
  Prompt& add(std::string_view text, bool control) {
    if (text.empty()) return *this;
    if (segments_.empty() || segments_.back().control != control) segments_.push_back({"", control});
    segments_.back().text.append(text);
    return *this;
  }
  std::vector<ChatSegment> segments_;
};

[[nodiscard]] inline std::string_view strip_left(std::string_view text) noexcept {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}
[[nodiscard]] inline std::string_view strip_right(std::string_view text) noexcept {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

/// Python's str.strip(): White_Space and the four separators U+001C to U+001F, at both ends.
[[nodiscard]] inline std::string_view trim(std::string_view text) noexcept {
  const auto blank = [](std::uint32_t p) { return unicode::is_space(p) || (p >= 0x1C && p <= 0x1F); };
  while (!text.empty()) {
    const unicode::Decoded first = unicode::decode(text, 0);
    if (!blank(first.point)) break;
    text.remove_prefix(first.length);
  }
  while (!text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0U) == 0x80U) --last;
    const unicode::Decoded point = unicode::decode(text, last);
    if (!blank(point.point) || last + point.length != text.size()) break;
    text = text.substr(0, last);
  }
  return text;
}

/// An assistant's text, taken apart.
struct Answer {
  std::string_view reasoning;
  std::string_view content;
};

/// Thinking given as a field, else cut out of `content` by its tags.
[[nodiscard]] inline Answer split_answer(const Message& message, std::string_view content) noexcept {
  constexpr std::string_view open = "<think>", close = "</think>";
  if (message.reasoning_content) return {*message.reasoning_content, content};
  const std::size_t first = content.find(close);
  if (first == std::string_view::npos) return {{}, content};
  std::string_view reasoning = strip_right(content.substr(0, first));
  const std::size_t opened = reasoning.rfind(open);
  if (opened != std::string_view::npos) reasoning.remove_prefix(opened + open.size());
  return {strip_left(reasoning), strip_left(content.substr(content.rfind(close) + close.size()))};
}

/// True for a user message that only carries a tool's result.
[[nodiscard]] inline bool is_tool_response(std::string_view content) noexcept {
  constexpr std::string_view open = "<tool_response>", close = "</tool_response>";
  return content.substr(0, open.size()) == open && content.size() >= close.size() &&
         content.substr(content.size() - close.size()) == close;
}

/// Index of the last message in which the user asks something, or size() when there is none.
template <class ContentOf>
[[nodiscard]] std::size_t last_query(const std::vector<Message>& messages, ContentOf content_of) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    if (messages[i].role == "user" && !is_tool_response(content_of(messages[i]))) return i;
  }
  return messages.size();
}

[[noreturn]] inline void refuse(std::size_t index, const Message& message, std::string_view expected) {
  std::string role;
  unicode::append_valid(role, message.role);
  throw Error(ErrorCode::bad_text, {"messages[", index, "]"}, {"role \"", on_one_line(role, 40), "\""},
              expected);
}

// ------------------------------------------------------------------------------------------- Qwen3

inline constexpr std::string_view qwen3_tools_head =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
inline constexpr std::string_view qwen3_tools_tail =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";

inline void qwen3_system(Prompt& prompt, const Message& first, const ChatOptions& options) {
  const bool has_system = first.role == "system";
  if (options.tools.empty() && !has_system) return;
  prompt.control("<|im_start|>system\n");
  if (has_system) prompt.content(first.content);
  if (!options.tools.empty()) {
    if (has_system) prompt.control("\n\n");
    prompt.control(qwen3_tools_head);
    for (std::size_t i = 0; i < options.tools.size(); ++i) prompt.control("\n").tool(options.tools[i], i);
    prompt.control(qwen3_tools_tail);
  }
  prompt.control("<|im_end|>\n");
}

inline void qwen3_tool_calls(Prompt& prompt, const Message& message, bool has_content) {
  bool newline = has_content;
  for (const ToolCall& call : message.tool_calls) {
    prompt.control(newline ? "\n<tool_call>\n{\"name\": \"" : "<tool_call>\n{\"name\": \"");
    prompt.content(call.name).control("\", \"arguments\": ");
    prompt.content(call.arguments).control("}\n</tool_call>");
    newline = true;
  }
}

/// Whether a think block stays although the template would leave it out.
[[nodiscard]] inline bool keeps_thinking(const Message& message, const ChatOptions& options) noexcept {
  return options.keep_thinking && message.reasoning_content.has_value();
}

inline void qwen3_assistant(Prompt& prompt, const Message& message, bool keep, bool after_query, bool last) {
  const Answer answer = split_answer(message, message.content);
  prompt.control("<|im_start|>assistant\n");
  if (keep || (after_query && (last || !answer.reasoning.empty()))) {
    prompt.control("<think>\n").content(strip_left(strip_right(answer.reasoning)));
    prompt.control("\n</think>\n\n").content(strip_left(answer.content));
  } else {
    prompt.content(answer.content);
  }
  // The template asks for the content as it was before its leading newlines were cut.
  qwen3_tool_calls(prompt, message, !answer.content.empty());
  prompt.control("<|im_end|>\n");
}

inline std::vector<ChatSegment> render_qwen3(const std::vector<Message>& messages,
                                             const ChatOptions& options) {
  Prompt prompt;
  qwen3_system(prompt, messages.front(), options);
  std::size_t query = last_query(messages, [](const Message& m) { return std::string_view(m.content); });
  if (query == messages.size()) query = messages.size() - 1;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const bool last = i + 1 == messages.size();
    if (message.role == "user" || (message.role == "system" && i > 0)) {
      prompt.control("<|im_start|>").control(message.role).control("\n");
      prompt.content(message.content).control("<|im_end|>\n");
    } else if (message.role == "assistant") {
      qwen3_assistant(prompt, message, keeps_thinking(message, options), i > query, last);
    } else if (message.role == "tool") {
      if (i == 0 || messages[i - 1].role != "tool") prompt.control("<|im_start|>user");
      prompt.control("\n<tool_response>\n").content(message.content).control("\n</tool_response>");
      if (last || messages[i + 1].role != "tool") prompt.control("<|im_end|>\n");
    } else if (message.role != "system") {  // the template would leave the message out without a word
      refuse(i, message, "system, user, assistant or tool");
    }
  }
  if (options.add_generation_prompt) {
    prompt.control("<|im_start|>assistant\n");
    if (options.enable_thinking == false) prompt.control("<think>\n\n</think>\n\n");
  }
  return prompt.take();
}

// ----------------------------------------------------------------------------------------- Qwen3.5

inline constexpr std::string_view qwen3_5_tools_head =
    "# Tools\n\nYou have access to the following functions:\n\n<tools>";
inline constexpr std::string_view qwen3_5_tools_tail =
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\n"
    "multiple lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block must be "
    "nested within <tool_call></tool_call> XML tags\n- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the function "
    "call, but NOT after\n- If there is no function call available, answer the question like normal with "
    "your current knowledge and do not tell the user about function calls\n</IMPORTANT>";

inline void qwen3_5_system(Prompt& prompt, const Message& first, const ChatOptions& options) {
  const bool has_system = first.role == "system";
  const std::string_view content = has_system ? trim(first.content) : std::string_view();
  if (options.tools.empty() && !has_system) return;
  prompt.control("<|im_start|>system\n");
  if (!options.tools.empty()) {
    prompt.control(qwen3_5_tools_head);
    for (std::size_t i = 0; i < options.tools.size(); ++i) prompt.control("\n").tool(options.tools[i], i);
    prompt.control(qwen3_5_tools_tail);
    if (!content.empty()) prompt.control("\n\n");
  }
  prompt.content(content).control("<|im_end|>\n");
}

/// The arguments as an object, which the template walks through.
inline nlohmann::ordered_json argument_object(const ToolCall& call, std::size_t index) {
  const std::string place = joined({"messages[", index, "] arguments of a tool call"});
  nlohmann::ordered_json arguments = python_json::parse(call.arguments, place, ErrorCode::bad_text);
  if (arguments.is_null()) return nlohmann::ordered_json::object();
  if (!arguments.is_object()) {
    throw Error(ErrorCode::bad_text, place, python_json::kind_of(arguments), "an object");
  }
  return arguments;
}

inline void qwen3_5_tool_calls(Prompt& prompt, const Message& message, std::size_t index, bool has_content) {
  bool first = true;
  for (const ToolCall& call : message.tool_calls) {
    if (!first || has_content) prompt.control(first ? "\n\n" : "\n");
    first = false;
    prompt.control("<tool_call>\n<function=").content(call.name).control(">\n");
    const nlohmann::ordered_json arguments = argument_object(call, index);
    for (const auto& item : arguments.items()) {
      prompt.control("<parameter=").content(item.key()).control(">\n");
      prompt.content(python_json::python_string(item.value())).control("\n</parameter>\n");
    }
    prompt.control("</function>\n</tool_call>");
  }
}

inline void qwen3_5_assistant(Prompt& prompt, const Message& message, std::size_t index, bool with_block) {
  const Answer answer = split_answer(message, trim(message.content));
  prompt.control("<|im_start|>assistant\n");
  if (with_block) prompt.control("<think>\n").content(trim(answer.reasoning)).control("\n</think>\n\n");
  prompt.content(answer.content);
  qwen3_5_tool_calls(prompt, message, index, !trim(answer.content).empty());
  prompt.control("<|im_end|>\n");
}

inline std::vector<ChatSegment> render_qwen3_5(const std::vector<Message>& messages,
                                               const ChatOptions& options) {
  Prompt prompt;
  qwen3_5_system(prompt, messages.front(), options);
  const std::size_t query = last_query(messages, [](const Message& m) { return trim(m.content); });
  if (query == messages.size()) {
    throw Error(ErrorCode::bad_text, "messages", "no user message that asks something", "at least one");
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const bool last = i + 1 == messages.size();
    if (message.role == "system") {
      if (i > 0) refuse(i, message, "a system message only at the beginning");
    } else if (message.role == "user") {
      prompt.control("<|im_start|>user\n").content(trim(message.content)).control("<|im_end|>\n");
    } else if (message.role == "assistant") {
      qwen3_5_assistant(prompt, message, i, i > query || keeps_thinking(message, options));
    } else if (message.role == "tool") {
      // A tool message at the very beginning opens no user turn, as the template has it.
      if (i > 0 && messages[i - 1].role != "tool") prompt.control("<|im_start|>user");
      prompt.control("\n<tool_response>\n").content(trim(message.content)).control("\n</tool_response>");
      if (last || messages[i + 1].role != "tool") prompt.control("<|im_end|>\n");
    } else {
      refuse(i, message, "system, user, assistant or tool");
    }
  }
  if (options.add_generation_prompt) {
    prompt.control("<|im_start|>assistant\n");
    prompt.control(*options.enable_thinking ? "<think>\n" : "<think>\n\n</think>\n\n");
  }
  return prompt.take();
}

}  // namespace chat

// --------------------------------------------------------------------------------------- interface

QWENLITE_INLINE ChatTemplate ChatTemplate::recognise(std::string_view text, std::string_view place) {
  ChatTemplate result;
  result.place_ = place;
  const std::uint64_t hash = chat::fnv1a(text);
  for (const chat::KnownTemplate& known : chat::known) {
    if (known.bytes != text.size() || known.hash != hash) continue;
    result.family_ = known.family;
    result.thinks_ = known.thinks;
    return result;
  }
  result.unknown_ = joined({"an unknown text of ", text.size(), " bytes"});
  return result;
}

QWENLITE_INLINE void ChatTemplate::require_known() const {
  if (family_) return;
  throw Error(ErrorCode::unsupported, place_.empty() ? std::string("chat template") : place_,
              unknown_.empty() ? std::string("none") : unknown_,
              "the chat template of Qwen3 or Qwen3.5, or a family named in TokenizerOptions::family");
}

QWENLITE_INLINE std::vector<ChatSegment> ChatTemplate::segments(const std::vector<Message>& messages,
                                                                const ChatOptions& options) const {
  require_known();
  if (messages.empty()) throw Error(ErrorCode::bad_text, "messages", "none", "at least one");
  switch (*family_) {
    case ChatFamily::qwen3: return chat::render_qwen3(messages, options);
    case ChatFamily::qwen3_5: break;
  }
  ChatOptions decided = options;
  decided.enable_thinking = options.enable_thinking.value_or(thinks_);
  return chat::render_qwen3_5(messages, decided);
}

QWENLITE_INLINE std::string ChatTemplate::render(const std::vector<Message>& messages,
                                                 const ChatOptions& options) const {
  std::string text;
  for (const ChatSegment& segment : segments(messages, options)) text += segment.text;
  return text;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
