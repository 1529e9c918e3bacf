// SPDX-License-Identifier: Apache-2.0
//
// Finding added tokens: the leftmost, and of those that begin there the longest.
#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/text/added_tokens.hpp>

#include "catch_any.hpp"

namespace ql = qwenlite;

namespace {

ql::AddedTokens made_of(const std::set<std::string>& contents) {
  std::vector<ql::AddedToken> tokens;
  for (const std::string& content : contents) {
    tokens.push_back({.id = static_cast<int>(tokens.size()), .content = content});
  }
  std::shuffle(tokens.begin(), tokens.end(), std::mt19937(7));
  return ql::AddedTokens(std::move(tokens));
}

/// What find() gives, as text; every token is tried at every place.
std::string plainly_found(const std::set<std::string>& contents, std::string_view text, std::size_t from) {
  for (std::size_t at = from; at < text.size(); ++at) {
    std::string longest;
    for (const std::string& content : contents) {
      if (text.substr(at, content.size()) == content && content.size() > longest.size()) longest = content;
    }
    if (!longest.empty()) return std::to_string(at) + ' ' + longest;
  }
  return "none";
}

std::string found(const ql::AddedTokens& tokens, std::string_view text, std::size_t from) {
  const auto match = tokens.find(text, from);
  if (!match) return "none";
  CHECK(match->bytes.end - match->bytes.begin == match->token->content.size());
  return std::to_string(match->bytes.begin) + ' ' + match->token->content;
}

}  // namespace

TEST_CASE("the longest of the added tokens that begin at a place is found") {
  const ql::AddedTokens tokens = made_of({"<a>", "<a>b", "<a>bcd", "<a>bx", "<", "\xff!"});
  CHECK(found(tokens, "x<a>bcd", 0) == "1 <a>bcd");
  CHECK(found(tokens, "x<a>bcx", 0) == "1 <a>b");
  CHECK(found(tokens, "x<a>bc", 0) == "1 <a>b");
  CHECK(found(tokens, "x<a>bz", 0) == "1 <a>b");
  CHECK(found(tokens, "x<a>", 0) == "1 <a>");
  CHECK(found(tokens, "x<a", 0) == "1 <");
  CHECK(found(tokens, "x<a>bcd", 2) == "none");
  CHECK(found(tokens, "\xff\xff!", 0) == "1 \xff!");
  CHECK(found(tokens, "", 0) == "none");
  CHECK(found(ql::AddedTokens(), "<a>", 0) == "none");
}

TEST_CASE("added tokens are found as by trying every one at every place") {
  std::mt19937 random(20);
  const std::string letters("ab\xfe\0", 4);
  const auto text_of = [&](std::size_t most) {
    std::string text(1 + random() % most, ' ');
    for (char& c : text) c = letters[random() % letters.size()];
    return text;
  };
  int hits = 0;
  for (int round = 0; round < 300; ++round) {
    std::set<std::string> contents;
    const std::size_t count = 1 + random() % 30;
    while (contents.size() < count) contents.insert(text_of(round % 2 == 0 ? 4 : 9));
    const ql::AddedTokens tokens = made_of(contents);
    const std::string text = text_of(40);
    for (std::size_t from = 0; from <= text.size(); ++from) {
      const std::string expected = plainly_found(contents, text, from);
      hits += static_cast<int>(expected != "none");
      REQUIRE(found(tokens, text, from) == expected);
    }
  }
  CHECK(hits > 3000);
}

TEST_CASE("white space before a token is taken along, half a character of it is not") {
  std::vector<ql::AddedToken> tokens(1);
  tokens[0] = {.id = 0, .content = "<a>", .left_strip = true};
  const ql::AddedTokens added(tokens);
  const auto begin_in = [&](std::string_view text, std::size_t floor) {
    return ql::AddedTokens::stripped(text, added.find(text, floor).value(), floor).begin;
  };
  CHECK(begin_in("x \xC2\xA0<a>", 0) == 1);
  CHECK(begin_in("x \xC2\xA0<a>", 2) == 2);
  CHECK(begin_in("x\xC2\xA0\xA0<a>", 0) == 4);
}
