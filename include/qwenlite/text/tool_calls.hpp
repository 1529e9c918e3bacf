// SPDX-License-Identifier: Apache-2.0
//
// ToolCallParser: the text of an answer, in any division, to plain text and tool calls.
//
// Knows both forms between <tool_call> and </tool_call>: Qwen3's JSON object and Qwen3.5's <function=...>
// with <parameter=...>; the first character inside says which. Only what is wholly well-formed becomes a
// call; anything else comes out as the text it is, nothing lost and nothing twice. Results never depend on
// how the text is divided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/text/chat_template.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Reads what stands between <tool_call> and </tool_call> in either form; empty when it is malformed.
/// `tools`: definitions as in ChatOptions. Parameters in the <parameter=...> form are text; one whose
/// definition names another type (integer, number, boolean, array, object) becomes that if it can.
[[nodiscard]] std::optional<ToolCall> parse_tool_call(std::string_view text,
                                                      std::span<const std::string> tools = {});

class ToolCallParser {
 public:
  /// `tools` must outlive the parser.
  explicit ToolCallParser(std::span<const std::string> tools = {}) noexcept : tools_(tools) {}

  /// Takes the next part of an answer. Held back are a call that is not finished, text that may become
  /// <tool_call>, and line breaks before it. With `last`, gives out what was held back.
  void push(std::string_view text, bool last);

  /// What the latest push made known: text outside calls, and the calls completed by it. Line breaks
  /// before a call, and those after one that nothing but a call or the end follows, belong to neither.
  [[nodiscard]] std::string_view text() const noexcept { return text_; }
  [[nodiscard]] std::span<const ToolCall> calls() const noexcept { return calls_; }

 private:
  [[nodiscard]] bool step();
  [[nodiscard]] bool step_outside();
  [[nodiscard]] bool step_inside();
  void emit(std::size_t count);
  void give_up();

  /// Where the text of a call has been read to, and what is open there.
  struct Reading {
    std::size_t read = 0;
    bool in_string = false;     // of JSON
    bool escaped = false;       // after a backslash in one
    bool in_parameter = false;  // of the <function=...> form

    void go_on(std::string_view inner) noexcept;
    [[nodiscard]] bool may_close(std::string_view inner) noexcept;
  };

  std::span<const std::string> tools_;
  std::string held_;         // not given out; inside a call it begins with the opening tag
  std::string breaks_;       // line breaks before held_ whose fate is not known
  std::size_t scanned_ = 0;  // of held_: no close of the call begins before here
  bool inside_ = false;      // in a call
  Reading reading_;          // of the call
  bool after_call_ = false;  // nothing but line breaks since the last call
  std::string text_;
  std::vector<ToolCall> calls_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/text/tool_calls-inl.hpp>
#endif
