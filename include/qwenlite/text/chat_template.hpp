// SPDX-License-Identifier: Apache-2.0
//
// Chat messages to prompt text, natively: one rendering function per family, no template language.
//
// A template is recognised by its exact text (length and hash); a text that is not known renders only
// when the caller names the family. A prompt is a list of segments: what the template itself writes may
// hold control tokens, what messages bring (contents, names, tool definitions) never becomes one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/error.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// A tool call of an assistant message.
struct ToolCall {
  std::string name;
  std::string arguments = "{}";  ///< a JSON object, as text
};

/// One chat message. Roles: system, user, assistant, tool.
struct Message {
  std::string role;
  std::string content{};
  std::optional<std::string> reasoning_content{};  ///< the assistant's thinking, without its tags
  std::vector<ToolCall> tool_calls{};
};

/// How a conversation is rendered.
struct ChatOptions {
  /// Unset leaves the choice to the template: Qwen3 thinks, and Qwen3.5 from 4B on; the smaller do not.
  std::optional<bool> enable_thinking{};
  bool add_generation_prompt = true;  ///< end with the opening of an assistant turn
  std::vector<std::string> tools{};   ///< definitions the model may call, each a JSON object as text
  /// Keep the think block of every assistant message whose reasoning_content is set, an empty one too. The
  /// published templates leave out those of earlier turns, and that is what the models were trained on; but
  /// with them a prompt goes on exactly where the last reply ended, so nothing is computed twice.
  bool keep_thinking = false;
};

/// Whose published template renders a conversation.
enum class ChatFamily : std::uint8_t { qwen3, qwen3_5 };

/// A stretch of a prompt. `control`: written by the template, so control tokens in it count.
struct ChatSegment {
  std::string text;
  bool control = false;
};

/// Renders conversations the way one family's published template does.
class ChatTemplate {
 public:
  ChatTemplate() = default;
  /// The template of a family, whatever a checkpoint brings.
  explicit ChatTemplate(ChatFamily family) : family_(family), thinks_(family == ChatFamily::qwen3) {}

  /// The template whose text a checkpoint brings. An unknown text is no error until it is to be rendered;
  /// `place` is where it stands, for that error.
  [[nodiscard]] static ChatTemplate recognise(std::string_view text, std::string_view place = {});

  /// Empty when the checkpoint's template is none of the known ones.
  [[nodiscard]] std::optional<ChatFamily> family() const noexcept { return family_; }
  /// Whether a model thinks where ChatOptions::enable_thinking is not set: Qwen3 does, Qwen3.5 from 4B on.
  [[nodiscard]] bool thinks() const noexcept { return thinks_; }

  /// Throws `unsupported` unless the family is known: says where the template stands.
  void require_known() const;

  /// The prompt in segments; neighbours differ in `control`. Throws `unsupported` for an unknown template
  /// and `bad_text` for messages the family's template refuses.
  [[nodiscard]] std::vector<ChatSegment> segments(const std::vector<Message>& messages,
                                                  const ChatOptions& options = {}) const;

  /// The prompt as one text, equal to what the published template gives.
  [[nodiscard]] std::string render(const std::vector<Message>& messages,
                                   const ChatOptions& options = {}) const;

 private:
  std::optional<ChatFamily> family_;
  bool thinks_ = false;
  std::string place_;    // of the text
  std::string unknown_;  // why family_ is empty
};

/// A conversation as a client sends it.
struct ChatRequest {
  std::vector<Message> messages;
  ChatOptions options;
  /// Fields that the family's template passes over in silence because of their type, which clients seldom
  /// mean: "messages[1].content: found an array, expected a string".
  std::vector<std::string> passed_over{};
};

/// Parses {"messages": [...], "tools": [...], "enable_thinking": true, "add_generation_prompt": true};
/// all but messages may be absent, other keys are ignored. Tool calls may be wrapped in "function", their
/// arguments may be an object or a string. Content that is null counts as empty; a list of parts counts
/// as empty for Qwen3 and as its text parts joined for Qwen3.5, and reasoning_content that is no string as
/// absent, as their templates have it; what counts for nothing so is told in `passed_over`.
/// Throws `bad_text` naming the message and field.
[[nodiscard]] ChatRequest parse_chat_request(std::string_view json, ChatFamily family = ChatFamily::qwen3);

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/text/chat_request-inl.hpp>
#include <qwenlite/text/chat_template-inl.hpp>
#endif
