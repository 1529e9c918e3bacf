// SPDX-License-Identifier: Apache-2.0
//
// The pre-split scanner against pieces worked out from the regexes by hand.
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/text/pre_split.hpp>

#include "catch_any.hpp"

using qwenlite::PreSplit;
namespace pre_split = qwenlite::pre_split;

namespace {

std::vector<std::string> pieces(std::string_view text, PreSplit rule = PreSplit::qwen3) {
  std::vector<std::string> found;
  for (pre_split::Scanner scanner(text, rule); !scanner.done();) found.emplace_back(scanner.next());
  return found;
}

using Pieces = std::vector<std::string>;

}  // namespace

TEST_CASE("words, digits and symbols") {
  CHECK(pieces("") == Pieces{});
  CHECK(pieces("Hello, world!") == Pieces{"Hello", ",", " world", "!"});
  CHECK(pieces("1234 56") == Pieces{"1", "2", "3", "4", " ", "5", "6"});
  CHECK(pieces("(x):\n") == Pieces{"(x", "):\n"});
  CHECK(pieces("a->b  => c") == Pieces{"a", "->", "b", " ", " =>", " c"});
  CHECK(pieces("f(a,b)") == Pieces{"f", "(a", ",b", ")"});
  CHECK(pieces("_name\tx") == Pieces{"_name", "\tx"});
  CHECK(pieces("// it's") == Pieces{"//", " it", "'s"});
  CHECK(pieces("...!?\r\n\n next") == Pieces{"...!?\r\n\n", " next"});
  CHECK(pieces("x\xC2\xB2y") == Pieces{"x", "\xC2\xB2", "y"});  // superscript two is a number
}

TEST_CASE("contractions in any case, only the listed ones") {
  CHECK(pieces("don't WE'LL I'm") == Pieces{"don", "'t", " WE", "'LL", " I", "'m"});
  CHECK(pieces("they'RE you'Ve she'd") == Pieces{"they", "'RE", " you", "'Ve", " she", "'d"});
  CHECK(pieces("'tis 'x o'clock") == Pieces{"'t", "is", " '", "x", " o", "'clock"});
  CHECK(pieces("'") == Pieces{"'"});
  CHECK(pieces("'l") == Pieces{"'l"});
  CHECK(pieces("'r'v") == Pieces{"'r", "'v"});
  CHECK(pieces("''s") == Pieces{"''", "s"});
}

TEST_CASE("white space") {
  CHECK(pieces("a  b") == Pieces{"a", " ", " b"});
  CHECK(pieces("a   b   ") == Pieces{"a", "  ", " b", "   "});
  CHECK(pieces(" \n \n") == Pieces{" \n \n"});
  CHECK(pieces(" \n  x") == Pieces{" \n", " ", " x"});
  CHECK(pieces("a\r\n\r\n\tb   c \n d") == Pieces{"a", "\r\n\r\n", "\tb", "  ", " c", " \n", " d"});
  CHECK(pieces("\t\t1") == Pieces{"\t", "\t", "1"});
  CHECK(pieces("  !") == Pieces{" ", " !"});
  CHECK(pieces("\t!") == Pieces{"\t", "!"});
  CHECK(pieces("x\xE3\x80\x80y") == Pieces{"x", "\xE3\x80\x80y"});  // U+3000 leads a word
  CHECK(pieces("\xC2\x85\n") == Pieces{"\xC2\x85\n"});
  CHECK(pieces("\xE2\x80\xA8") == Pieces{"\xE2\x80\xA8"});
}

TEST_CASE("combining marks tell the two families apart") {
  const std::string kitab = "\u0915\u093F\u0924\u093E\u092C";
  CHECK(pieces(kitab) == Pieces{"\u0915", "\u093F\u0924", "\u093E\u092C"});
  CHECK(pieces(kitab, PreSplit::qwen3_5) == Pieces{kitab});
  CHECK(pieces("\u0301a", PreSplit::qwen3_5) == Pieces{"\u0301a"});
  CHECK(pieces("\u0301") == Pieces{"\u0301"});
  CHECK(pieces("\u0301", PreSplit::qwen3_5) == Pieces{"\u0301"});
  CHECK(pieces(" \u0301x") == Pieces{" \u0301", "x"});
  CHECK(pieces(" \u0301x", PreSplit::qwen3_5) == Pieces{" \u0301x"});
  CHECK(pieces("!\u0301!") == Pieces{"!\u0301!"});
  CHECK(pieces("!\u0301!", PreSplit::qwen3_5) == Pieces{"!\u0301", "!"});
  CHECK(pieces("1\u0301", PreSplit::qwen3_5) == Pieces{"1", "\u0301"});
}

TEST_CASE("a rule is recognised by its exact regex") {
  CHECK(pre_split::rule_of(pre_split::qwen3_regex) == PreSplit::qwen3);
  CHECK(pre_split::rule_of(pre_split::qwen3_5_regex) == PreSplit::qwen3_5);
  CHECK_FALSE(pre_split::rule_of(std::string(pre_split::qwen3_regex) + " ").has_value());
  CHECK_FALSE(pre_split::rule_of("").has_value());
}

TEST_CASE("pieces always make up the text") {
  std::string text;
  unsigned state = 12345;
  const std::vector<std::string> atoms{"a", "Z",      "9",      " ",      "\n",     "\r",         "\t", "'",
                                       "!", "\u4E2D", "\u0301", "\u00A0", "\u2028", "\U0001F600", "s",  "ll"};
  for (int i = 0; i < 20000; ++i) {
    state = state * 1664525U + 1013904223U;
    text += atoms[(state >> 16U) % atoms.size()];
  }
  for (const PreSplit rule : {PreSplit::qwen3, PreSplit::qwen3_5}) {
    std::string joined;
    for (const std::string& piece : pieces(text, rule)) {
      REQUIRE_FALSE(piece.empty());
      joined += piece;
    }
    CHECK(joined == text);
  }
}
