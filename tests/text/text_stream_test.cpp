// SPDX-License-Identifier: Apache-2.0
//
// Streaming: characters and stop strings across tokens, and the division into reasoning and answer.
// The small tokenizer has a token for each byte, so that any text can arrive in any division.
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/text/text_stream.hpp>
#include <qwenlite/text/tokenizer.hpp>

#include "catch_any.hpp"
#include "small_tokenizer.hpp"

using qwenlite::TextDelta;
using qwenlite::TextPiece;
using qwenlite::TextStream;
using qwenlite::TextStreamOptions;
using qwenlite::ThinkPartKind;
using qwenlite::ThinkState;
using qwenlite::Tokenizer;

namespace {

/// Added tokens that stand for pieces of text, beside those of the small tokenizer.
Tokenizer tokenizer_with(const std::vector<std::string>& pieces) {
  small::Spec spec;
  for (const std::string& piece : pieces) spec.added.push_back({piece, false});
  return small::tokenizer(spec);
}

std::vector<int> byte_tokens(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int> ids;
  for (const char c : text) ids.push_back(small::id_of(tokenizer, std::string(1, c)));
  return ids;
}

bool is_valid(std::string_view text) {
  return qwenlite::unicode::valid_prefix(text) == text.size();
}

/// Everything a stream gave.
struct Output {
  std::string text, thinking, answer;
  std::vector<std::string> deltas;
  bool stopped = false;

  void add(const TextDelta& delta) {
    CHECK(is_valid(delta.text()));
    text += delta.text();
    deltas.emplace_back(delta);
    for (const TextPiece& piece : delta.pieces()) {
      CHECK(is_valid(piece.text));
      CHECK_FALSE(piece.text.empty());
      (piece.thinking ? thinking : answer) += piece.text;
    }
  }
};

Output streamed(const Tokenizer& tokenizer, const std::vector<int>& ids,
                const TextStreamOptions& options = {}) {
  TextStream stream(tokenizer, options);
  Output output;
  for (const int id : ids) output.add(stream.push(id));
  output.add(stream.flush());
  CHECK(stream.flush().text().empty());
  output.stopped = stream.stopped();
  return output;
}

std::vector<int> ids_of(const Tokenizer& tokenizer, const std::vector<std::string>& pieces) {
  std::vector<int> ids;
  for (const std::string& piece : pieces) ids.push_back(small::id_of(tokenizer, piece));
  return ids;
}

}  // namespace

TEST_CASE("a character split over tokens arrives whole") {
  const Tokenizer tokenizer = small::tokenizer();
  TextStream stream(tokenizer);
  const auto ids = byte_tokens(tokenizer, "\xF0\x9F\x98\x80!");
  CHECK(stream.push(ids[0]).text().empty());
  CHECK(stream.push(ids[1]).text().empty());
  CHECK(stream.push(ids[2]).text().empty());
  CHECK(stream.push(ids[3]).text() == "\xF0\x9F\x98\x80");
  CHECK(stream.push(ids[4]).text() == "!");
  CHECK(stream.flush().text().empty());
}

TEST_CASE("every division of a text into two or three tokens gives the same text") {
  const std::string text = "\u00E9\u20AC\U0001F600\U0001F468\u200D\U0001F469\u200D\U0001F467";
  small::Spec spec;
  spec.merges.clear();
  // Tokens are made by bytes, so that halves of characters can be tokens: join "text" left to right, and
  // every tail by its last two parts.
  for (std::size_t i = 1; i < text.size(); ++i)
    spec.merges.emplace_back(text.substr(0, i), text.substr(i, 1));
  for (std::size_t i = text.size() - 1; i-- > 1;) {
    const std::string left = text.substr(i, 1), right = text.substr(i + 1);
    bool fresh = true;
    for (const auto& [a, b] : spec.merges) fresh = fresh && a + b != left + right;
    if (fresh) spec.merges.emplace_back(left, right);
  }
  const Tokenizer tokenizer = small::tokenizer(spec);
  std::size_t checked = 0;
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    const auto head = tokenizer.token_to_id(text.substr(0, cut)),
               tail = tokenizer.token_to_id(text.substr(cut));
    REQUIRE(head.has_value());
    if (!tail) continue;
    const Output output = streamed(tokenizer, {*head, *tail});
    CHECK(output.text == text);
    CHECK(output.text == tokenizer.decode(std::vector<int>{*head, *tail}));
    ++checked;
  }
  CHECK(checked > 20);
  for (std::size_t from = 0; from < text.size(); ++from) {  // bytes one by one after a longer head
    if (from == 0) {
      CHECK(streamed(tokenizer, byte_tokens(tokenizer, text)).text == text);
      continue;
    }
    std::vector<int> ids{small::id_of(tokenizer, text.substr(0, from))};
    for (const int id : byte_tokens(tokenizer, text.substr(from))) ids.push_back(id);
    CHECK(streamed(tokenizer, ids).text == text);
  }
}

TEST_CASE("plain text is not delayed") {
  const Tokenizer tokenizer = small::tokenizer();
  TextStream stream(tokenizer);
  CHECK(stream.push(small::id_of(tokenizer, "hello")).text() == "hello");
  std::ostringstream out;
  out << stream.push(small::id_of(tokenizer, " hello")) << stream.push(small::id_of(tokenizer, "!"));
  CHECK(out.str().size() > 0);
}

TEST_CASE("bytes that are not UTF-8 become U+FFFD as in decode") {
  const Tokenizer tokenizer = small::tokenizer();
  for (const std::string text : {"\xFF", "a\xE4\xB8",
                                 "\xE4\xB8"
                                 "b",
                                 "\x80\x80", "\xF0\x9F\x98\xE4\xB8\xAD", "\xC3"}) {
    const auto ids = byte_tokens(tokenizer, text);
    CHECK(streamed(tokenizer, ids).text == tokenizer.decode(ids));
  }
}

TEST_CASE("special tokens are left out unless asked for, others shown, ids without text nothing") {
  const Tokenizer tokenizer = small::tokenizer();
  const std::vector<int> ids{small::id_of(tokenizer, "hello"),
                             small::id_of(tokenizer, "<|im_end|>"),
                             small::id_of(tokenizer, "<tool_call>"),
                             99999,
                             -1,
                             small::id_of(tokenizer, "!")};
  CHECK(streamed(tokenizer, ids).text == "hello<tool_call>!");
  TextStreamOptions options;
  options.skip_special = false;
  CHECK(streamed(tokenizer, ids, options).text == "hello<|im_end|><tool_call>!");
}

TEST_CASE("stop strings across tokens") {
  const Tokenizer tokenizer = tokenizer_with({"DEF", "HI", "DEFGHIJ", "abDEFGHIJcd"});
  TextStreamOptions options;
  options.stop_strings = {"DEFGHIJ"};
  Output output = streamed(tokenizer, ids_of(tokenizer, {"DEF", "G", "HI", "J"}), options);
  CHECK(output.text.empty());
  CHECK(output.stopped);
  output = streamed(tokenizer, ids_of(tokenizer, {"DEF", "G", "X"}), options);
  CHECK(output.text == "DEFGX");
  CHECK(output.deltas == std::vector<std::string>{"", "", "DEFGX", ""});
  CHECK_FALSE(output.stopped);
  output = streamed(tokenizer, ids_of(tokenizer, {"DEF", "G"}), options);  // held tail comes at the end
  CHECK(output.text == "DEFG");
  CHECK_FALSE(output.stopped);
  output = streamed(tokenizer, ids_of(tokenizer, {"a", "abDEFGHIJcd", "x", "hello"}), options);
  CHECK(output.text == "aab");
  CHECK(output.stopped);
  output = streamed(tokenizer, ids_of(tokenizer, {"DEF", "DEFGHIJ"}), options);
  CHECK(output.text == "DEF");
  options.stop_strings = {""};
  REQUIRE_THROWS_AS(TextStream(tokenizer, options), qwenlite::Error);
}

TEST_CASE("with several stop strings the first completed one counts, however the text is divided") {
  const Tokenizer tokenizer =
      tokenizer_with({"abcd", "abc", "xabcdy", "bcd", "ab", "cd", "xab", "cdy", "bcdy", "dy"});
  struct Case {
    std::vector<std::string> stops;
    std::string text;
  };
  for (const Case& c : {Case{{"abcd", "bc"}, "xa"}, Case{{"bc", "abcd"}, "xa"}, Case{{"cd", "abcd"}, "x"},
                        Case{{"abcd"}, "x"}, Case{{"zz", "bcdyy"}, "xabcdy"}, Case{{"y", "dy"}, "xabc"}}) {
    TextStreamOptions options;
    options.stop_strings = c.stops;
    for (const std::vector<std::string>& division :
         std::vector<std::vector<std::string>>{{"xabcdy"},
                                               {"x", "a", "b", "c", "d", "y"},
                                               {"xab", "cdy"},
                                               {"x", "abc", "dy"},
                                               {"x", "a", "bcdy"},
                                               {"x", "ab", "cd", "y"}}) {
      CHECK(streamed(tokenizer, ids_of(tokenizer, division), options).text == c.text);
    }
  }
}

TEST_CASE("a repeated beginning of a stop string is released as soon as it cannot be one") {
  const Tokenizer tokenizer = small::tokenizer();
  TextStreamOptions options;
  options.stop_strings = {"aab"};
  TextStream stream(tokenizer, options);
  const int a = small::id_of(tokenizer, "a"), b = small::id_of(tokenizer, "b");
  CHECK(stream.push(a).text().empty());
  CHECK(stream.push(a).text().empty());
  CHECK(stream.push(a).text() == "a");
  CHECK(stream.push(b).text().empty());
  CHECK(stream.stopped());
  CHECK(stream.push(a).text().empty());
  CHECK(stream.flush().text().empty());
}

TEST_CASE("reasoning and answer, at every division") {
  struct Case {
    ThinkState start;
    std::string text, thinking, answer;
    ThinkState end;
  };
  const std::vector<Case> cases{
      {ThinkState::before, "Hi", "", "Hi", ThinkState::after},
      {ThinkState::before, "<think>\nx\n</think>\n\nHi", "x", "Hi", ThinkState::after},
      {ThinkState::before, "\n<think>x</think>Hi", "x", "Hi", ThinkState::after},
      {ThinkState::before, "<thin air", "", "<thin air", ThinkState::after},
      {ThinkState::before, " a <think>b</think>", "", " a <think>b</think>", ThinkState::after},
      {ThinkState::before, "<think>\n\n</think>\n\n", "", "", ThinkState::after},
      {ThinkState::before, "  ", "", "  ", ThinkState::before},
      {ThinkState::inside, "x</think>\n\nHi", "x", "Hi", ThinkState::after},
      {ThinkState::inside, "\na\n\nb\n</think>\nHi\n\n</think>", "a\n\nb", "Hi\n\n</think>",
       ThinkState::after},
      {ThinkState::inside, "x </thin </think>y", "x </thin ", "y", ThinkState::after},
      {ThinkState::inside, "open\n", "open", "", ThinkState::inside},
      {ThinkState::inside, "open</th", "open</th", "", ThinkState::inside},
      {ThinkState::inside, "a\n<\n</think>\n", "a\n<", "", ThinkState::after},
      {ThinkState::after, "\n<think>Hi</think>", "", "\n<think>Hi</think>", ThinkState::after},
  };
  const Tokenizer tokenizer = small::tokenizer();
  for (const Case& c : cases) {
    INFO(c.text);
    TextStreamOptions options;
    options.think = c.start;
    const Output bytes = streamed(tokenizer, byte_tokens(tokenizer, c.text), options);
    CHECK(bytes.text == c.text);
    CHECK(bytes.thinking == c.thinking);
    CHECK(bytes.answer == c.answer);
    for (std::size_t cut = 0; cut <= c.text.size(); ++cut) {
      qwenlite::ThinkSplitter splitter(c.start);
      std::string thinking, answer, all;
      const auto take = [&](std::string_view text, bool last) {
        splitter.push(text, last);
        for (const qwenlite::ThinkPart& part : splitter.parts()) {
          all += part.text;
          if (part.kind == ThinkPartKind::thinking) thinking += part.text;
          if (part.kind == ThinkPartKind::answer) answer += part.text;
        }
      };
      take(std::string_view(c.text).substr(0, cut), false);
      take(std::string_view(c.text).substr(cut), true);
      CHECK(thinking == c.thinking);
      CHECK(answer == c.answer);
      CHECK(all == c.text);
      CHECK(splitter.state() == c.end);
    }
  }
}

TEST_CASE("think tokens, and one token that ends thinking and begins the answer") {
  const Tokenizer tokenizer = tokenizer_with({"x</think>\n\nHi"});
  Output output =
      streamed(tokenizer, ids_of(tokenizer, {"<think>", "\n", "hello", "\n", "</think>", "\n\n", "i"}));
  CHECK(output.thinking == "hello");
  CHECK(output.answer == "i");
  CHECK(output.text == "<think>\nhello\n</think>\n\ni");
  TextStreamOptions options;
  options.think = ThinkState::inside;
  TextStream stream(tokenizer, options);
  const TextDelta delta = stream.push(small::id_of(tokenizer, "x</think>\n\nHi"));
  REQUIRE(delta.pieces().size() == 2);
  CHECK(delta.pieces()[0].thinking);
  CHECK(delta.pieces()[0].text == "x");
  CHECK_FALSE(delta.pieces()[1].thinking);
  CHECK(delta.pieces()[1].text == "Hi");
}

TEST_CASE("a stop string in the thinking ends the text there") {
  const Tokenizer tokenizer = small::tokenizer();
  TextStreamOptions options;
  options.stop_strings = {"END"};
  options.think = ThinkState::inside;
  const Output output = streamed(tokenizer, byte_tokens(tokenizer, "abc\nENDdef</think>x"), options);
  CHECK(output.stopped);
  CHECK(output.text == "abc\n");
  CHECK(output.thinking == "abc");
  CHECK(output.answer.empty());
}

TEST_CASE("stop strings are looked for in thinking and answer apart, not in or across the markup") {
  struct Case {
    ThinkState start;
    std::string stop, text, shown, thinking, answer;
    ThinkState end;
  };
  constexpr ThinkState before = ThinkState::before, inside = ThinkState::inside, after = ThinkState::after;
  const std::string block = "<think>\nab\n</think>\n\n";
  const std::vector<Case> cases{
      {before, "hi", block + "this", block + "t", "ab", "t", after},
      {before, "<think>", block + "x", block + "x", "ab", "x", after},
      {before, "</think>", block + "x", block + "x", "ab", "x", after},
      {before, "\n", block + "x\ny", block + "x", "ab", "x", after},
      {before, "b\n", block + "x", block + "x", "ab", "x", after},
      {before, "abx", block + "x", block + "x", "ab", "x", after},
      {before, "xy", "<think>x</think>y", "<think>x</think>y", "x", "y", after},
      {before, "b", block + "x", "<think>\na", "a", "", inside},
      {before, "a", block + "x", "<think>\n", "", "", inside},
      {before, "\n<", " \n<think>a\n</think>x", " \n<think>a\n</think>x", "a", "x", after},
      {before, "think", "I think", "I ", "", "I ", after},
      {before, "hi", "<thin", "<t", "", "<t", before},
      {before, "x", "<thinx", "<thin", "", "<thin", after},
      {before, " <", " <thin", "", "", "", before},
      {before, "\n", "\nx", "", "", "", after},
      {before, "\n", "\n<think>x", "\n<think>x", "x", "", inside},
      {inside, "END", "a\n\nEND</think>x", "a\n\n", "a", "", inside},
      {inside, "END", "a\n\nEN</think>x", "a\n\nEN</think>x", "a\n\nEN", "x", after},
      {inside, "think", "a </think>\nthink", "a </think>\n", "a ", "", after},
      {inside, "k>", "a</thin k></think>", "a</thin ", "a</thin ", "", inside},
      {after, "</think>", "a</think>b", "a", "", "a", after},
  };
  const Tokenizer small = small::tokenizer();
  for (const Case& c : cases) {
    INFO("stop '" << c.stop << "' in '" << c.text << "'");
    TextStreamOptions options;
    options.think = c.start;
    options.stop_strings = {c.stop};
    for (std::size_t cut = 0; cut <= c.text.size(); ++cut) {  // two tokens, then single bytes
      const std::string head = c.text.substr(0, cut), tail = c.text.substr(cut);
      std::vector<std::string> pieces;
      for (const std::string& piece : {head, tail}) {
        if (!small.token_to_id(piece) && !piece.empty()) pieces.push_back(piece);
      }
      const Tokenizer tokenizer = tokenizer_with(pieces);
      const std::vector<int> ids = cut == 0       ? byte_tokens(tokenizer, c.text)
                                   : tail.empty() ? ids_of(tokenizer, {head})
                                                  : ids_of(tokenizer, {head, tail});
      TextStream stream(tokenizer, options);
      Output output;
      for (const int id : ids) output.add(stream.push(id));
      output.add(stream.flush());
      CHECK(stream.flush().text().empty());
      CHECK(output.text == c.shown);
      CHECK(output.thinking == c.thinking);
      CHECK(output.answer == c.answer);
      CHECK(stream.stopped() == (c.shown != c.text));
      CHECK(stream.think_state() == c.end);
    }
  }
}

TEST_CASE("the prompt's tail says whether the reply begins inside a think block") {
  const Tokenizer qwen3 = small::tokenizer();
  small::Spec spec;
  spec.regex = qwenlite::pre_split::qwen3_5_regex;
  const Tokenizer qwen3_5 = small::tokenizer(spec);
  const auto state = [](const Tokenizer& tokenizer, std::optional<bool> thinking, const char* content) {
    qwenlite::ChatOptions options;
    options.enable_thinking = thinking;
    const auto prompt = tokenizer.encode_chat(
        {{"user", "Hi"}, {"assistant", "<think>a</think>b"}, {"user", content}}, options);
    return qwenlite::think_state_from_prompt(tokenizer, prompt);
  };
  for (const char* content : {"Hi", "<think>", "</think>", "<|im_start|>assistant\n<think>"}) {
    CHECK(state(qwen3, std::nullopt, content) == ThinkState::before);
    CHECK(state(qwen3, true, content) == ThinkState::before);
    CHECK(state(qwen3, false, content) == ThinkState::after);
    CHECK(state(qwen3_5, std::nullopt, content) == ThinkState::after);
    CHECK(state(qwen3_5, true, content) == ThinkState::inside);
    CHECK(state(qwen3_5, false, content) == ThinkState::after);
  }
  qwenlite::ChatOptions options;
  options.enable_thinking = true;
  TextStream stream(qwen3_5);
  stream.begin(qwen3_5.encode_chat({{"user", "Hi"}}, options));
  CHECK(stream.think_state() == ThinkState::inside);
  CHECK(stream.push(small::id_of(qwen3_5, "hello")).pieces()[0].thinking);
  CHECK(qwenlite::think_state_from_prompt(qwen3, {}) == ThinkState::before);
}
