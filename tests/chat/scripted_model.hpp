// SPDX-License-Identifier: Apache-2.0
//
// A model without weights that answers from a script, and its session: what a chat does can be seen token
// by token. Its next token depends only on the tokens before it, as with any model.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/chat.hpp>

#include "catch_any.hpp"
#include "text/small_tokenizer.hpp"

namespace scripted {

using qwenlite::Index;
using Ids = std::vector<int>;

/// What is said in one turn. A text is said in whole tokens, or byte by byte.
struct Line {
  std::string thinking{};  ///< without tags; said in a block unless the prompt has a closed one
  std::string answer{};
  bool endless = false;  ///< the thinking starts over and over and never ends by itself
  bool in_bytes = false;
};

struct Session {
  Index limit = 4096;
  Ids seen{};
  bool keeps = true;  ///< what was computed, as with a cache
  [[nodiscard]] bool retains() const { return keeps; }
  [[nodiscard]] Index length() const { return static_cast<Index>(seen.size()); }
  [[nodiscard]] Index max_tokens() const { return limit; }
  [[nodiscard]] std::span<const int> tokens() const { return seen; }
  void truncate(Index n) { seen.resize(static_cast<std::size_t>(n)); }
};

struct Defaults {
  std::optional<float> temperature = 0.0F;
  std::optional<int> top_k{};
  std::optional<float> top_p{}, min_p{};
};

class Model {
 public:
  using Session = scripted::Session;

  Model(const qwenlite::Tokenizer& tokenizer, std::vector<Line> lines)
      : tokenizer_(tokenizer), lines_(std::move(lines)) {}

  [[nodiscard]] Session new_session(const qwenlite::SessionOptions& options) const {
    return {.limit = options.max_tokens == 0 ? 4096 : options.max_tokens, .keeps = keeps};
  }
  void prefill(Session& session, std::span<const int> tokens) const {
    computed += tokens.size();
    session.seen.insert(session.seen.end(), tokens.begin(), tokens.end());
  }
  std::span<const float> logits(Session& session, std::span<const int> tokens) const {
    prefill(session, tokens);
    row_.assign(static_cast<std::size_t>(token_count()), 0.0F);
    if (broken) {
      row_[0] = std::numeric_limits<float>::quiet_NaN();
    } else {
      row_[static_cast<std::size_t>(next(session.seen))] = 1;
    }
    return row_;
  }
  [[nodiscard]] Index token_count() const { return tokenizer_.vocab_size(); }
  [[nodiscard]] std::span<const int> stop_ids() const { return {}; }
  [[nodiscard]] Defaults defaults() const { return {}; }

  mutable std::size_t computed = 0;  // tokens processed in all sessions
  bool broken = false;               // logits are NaN from now on
  bool keeps = true;                 // new sessions keep what is computed

 private:
  [[nodiscard]] int id(std::string_view text) const { return small::id_of(tokenizer_, text); }

  [[nodiscard]] Ids said(const std::string& text, bool in_bytes) const {
    if (!in_bytes) return tokenizer_.encode(text, {.control_tokens = true});
    Ids ids;
    for (const char c : text) ids.push_back(id(std::string(1, c)));
    return ids;
  }

  /// The script's line for this prompt: one per user message, the last one again and again.
  [[nodiscard]] const Line& line_of(const Ids& tokens) const {
    const Ids opening = tokenizer_.encode("<|im_start|>user", {.control_tokens = true});
    std::size_t questions = 0;
    auto at = tokens.begin();
    while ((at = std::search(at, tokens.end(), opening.begin(), opening.end())) != tokens.end()) {
      ++questions;
      ++at;
    }
    return lines_[std::min(std::max<std::size_t>(questions, 1), lines_.size()) - 1];
  }

  [[nodiscard]] int next(const Ids& tokens) const {
    const Ids opening = tokenizer_.encode("<|im_start|>assistant\n", {.control_tokens = true});
    const auto start = std::find_end(tokens.begin(), tokens.end(), opening.begin(), opening.end());
    REQUIRE(start != tokens.end());
    const Ids reply(start + static_cast<std::ptrdiff_t>(opening.size()), tokens.end());
    const Line& line = line_of(tokens);
    const auto closed = std::find(reply.begin(), reply.end(), id("</think>"));
    if (closed == reply.end() && !line.thinking.empty()) return next_thought(line, reply);
    Ids answer = said(line.answer, line.in_bytes);
    answer.push_back(id("<|im_end|>"));
    auto from = closed == reply.end() ? reply.begin() : closed + 1;
    const bool breaks = from != reply.begin() && from != reply.end() && *from == id("\n\n");
    if (from != reply.begin() && !breaks) return id("\n\n");
    if (breaks) ++from;
    return answer.at(static_cast<std::size_t>(reply.end() - from));
  }

  [[nodiscard]] int next_thought(const Line& line, const Ids& reply) const {
    const Ids open = said("<think>\n", false), close = said("\n</think>", false);
    if (reply.size() < open.size()) return open[reply.size()];
    const Ids thought = said(line.thinking, line.in_bytes);
    const std::size_t at = reply.size() - open.size();
    if (line.endless) return thought[at % thought.size()];
    return at < thought.size() ? thought[at] : close[at - thought.size()];
  }

  const qwenlite::Tokenizer& tokenizer_;
  std::vector<Line> lines_;
  mutable std::vector<float> row_;
};
static_assert(qwenlite::ChatModel<Model>);

inline qwenlite::Tokenizer tokenizer(qwenlite::ChatFamily family = qwenlite::ChatFamily::qwen3) {
  return qwenlite::Tokenizer::from_json(small::json(), {}, {.family = family});
}

}  // namespace scripted
