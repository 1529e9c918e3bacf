// SPDX-License-Identifier: Apache-2.0
#include "perplexity/texts.hpp"

#include <algorithm>

namespace ql = qwenlite;

namespace perplexity {
namespace {

constexpr std::string_view answer_begins = "<|im_start|>assistant\n";
constexpr std::string_view think_begins = "<think>\n";
constexpr std::string_view empty_block = "<think>\n\n</think>\n\n";
constexpr std::string_view message_ends = "<|im_end|>";
constexpr std::string_view conversation_ends = "<|endoftext|>";

/// Cuts off what comes before `mark`, and the mark; everything where there is none.
std::string_view cut_off(std::string_view& text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  const std::size_t count = at == std::string_view::npos ? text.size() : at + mark.size();
  const std::string_view front = text.substr(0, count);
  text.remove_prefix(count);
  return front;
}

void append(Text& text, const ql::Tokenizer& tokenizer, std::string_view piece, bool scored) {
  const std::vector<int> ids = tokenizer.encode(piece, {.control_tokens = true});
  text.ids.insert(text.ids.end(), ids.begin(), ids.end());
  text.scored.resize(text.ids.size(), scored ? 1 : 0);
}

/// What the prompt holds of an answer's think block: an empty one whole, and of others what the template of
/// the family puts there.
std::string_view given(const ql::Tokenizer& tokenizer, std::string_view answer) {
  if (answer.substr(0, empty_block.size()) == empty_block) return empty_block;
  return tokenizer.chat_template().family() == ql::ChatFamily::qwen3_5 ? think_begins : std::string_view();
}

Text conversation(const ql::Tokenizer& tokenizer, std::string_view content) {
  Text text;
  while (!content.empty()) {
    append(text, tokenizer, cut_off(content, answer_begins), false);
    if (content.substr(0, think_begins.size()) != think_begins) continue;
    const std::string_view opening = given(tokenizer, content);
    append(text, tokenizer, opening, false);
    content.remove_prefix(opening.size());
    append(text, tokenizer, cut_off(content, message_ends), true);
  }
  return text;
}

}  // namespace

Text whole_text(const ql::Tokenizer& tokenizer, std::string_view content) {
  Text text;
  append(text, tokenizer, content, true);
  return text;
}

std::vector<Text> conversations(const ql::Tokenizer& tokenizer, std::string_view content) {
  std::vector<Text> texts;
  while (!content.empty()) {
    Text text = conversation(tokenizer, cut_off(content, conversation_ends));
    if (!content.empty() && content.front() == '\n') content.remove_prefix(1);
    if (std::count(text.scored.begin(), text.scored.end(), 1) > 0) texts.push_back(std::move(text));
  }
  return texts;
}

void shorten(std::vector<Text>& texts, ql::Index most) {
  auto left = static_cast<std::size_t>(most);
  for (Text& text : texts) {
    const std::size_t kept = std::min(left, text.ids.size());
    text.ids.resize(kept);
    text.scored.resize(kept);
    left -= kept;
  }
  const auto too_short = [](const Text& text) { return text.ids.size() < 2; };
  if (texts.size() > 1) texts.erase(std::remove_if(texts.begin() + 1, texts.end(), too_short), texts.end());
}

}  // namespace perplexity
