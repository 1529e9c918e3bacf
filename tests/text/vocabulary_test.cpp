// SPDX-License-Identifier: Apache-2.0
//
// The hash tables of a tokenizer, with what a file may have been made for.
#include <bit>
#include <string>
#include <vector>

#include <qwenlite/text/vocabulary.hpp>

#include "catch_any.hpp"

using qwenlite::ByteStrings;
using qwenlite::Merge;
using qwenlite::MergeTable;
using qwenlite::Vocabulary;

namespace {

/// So many tokens, all looked for first in the same slot of a table of 4096.
std::vector<std::string> colliding_tokens(std::size_t count) {
  std::vector<std::string> tokens;
  for (int i = 0; tokens.size() < count; ++i) {
    std::string text = "t" + std::to_string(i);
    if (Vocabulary::hash(text) % 4096 == 0) tokens.push_back(text);
  }
  return tokens;
}

Vocabulary vocabulary_of(const std::vector<std::string>& tokens) {
  ByteStrings strings;
  for (const std::string& token : tokens) strings.push_back(token);
  return Vocabulary(std::move(strings));
}

}  // namespace

TEST_CASE("tokens are found again, up to a thousand of the same hash") {
  const std::vector<std::string> tokens = colliding_tokens(1100);
  const Vocabulary some = vocabulary_of({tokens.begin(), tokens.begin() + 1024});
  CHECK_FALSE(some.crowded());
  bool found = true;
  for (int id = 0; id < 1024; ++id) found = found && some.find(tokens[static_cast<std::size_t>(id)]) == id;
  CHECK(found);
  CHECK(some.find(tokens[1024]) == Vocabulary::none);
  CHECK(vocabulary_of(tokens).crowded());

  std::vector<std::string> ordinary;
  for (int i = 0; i < 200000; ++i) ordinary.push_back("word" + std::to_string(i));
  CHECK_FALSE(vocabulary_of(ordinary).crowded());
}

TEST_CASE("merges are found again, and pairs made to collide are refused") {
  constexpr std::size_t count = 4000;  // a table of 8192
  MergeTable table(count);
  std::vector<int> added;
  for (int right = 0; added.size() < count && !table.crowded(); ++right) {
    const std::uint64_t pair = (std::uint64_t{7} << 32U) | static_cast<std::uint32_t>(right);
    if ((pair * 0x9E3779B97F4A7C15ULL) >> 53U != 0) continue;  // the first four slots
    if (table.insert(7, right, {static_cast<std::uint32_t>(added.size()), right})) added.push_back(right);
  }
  CHECK(table.crowded());
  CHECK(added.size() >= 1024);
  CHECK(added.size() < 1030);
  bool found = true;
  for (const int right : added) found = found && table.find(7, right).token == right;
  CHECK(found);
  CHECK(table.find(8, 0).rank == Merge::never);

  MergeTable ordinary(200000);
  int refused = 0;
  for (int i = 0; i < 200000; ++i) refused += ordinary.insert(i / 400, i % 400 + 256, {0, i}) ? 0 : 1;
  CHECK(refused == 0);
  CHECK_FALSE(ordinary.insert(0, 256, {0, 0}));  // is there
  CHECK_FALSE(ordinary.crowded());
}
