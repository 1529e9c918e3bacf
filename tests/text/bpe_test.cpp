// SPDX-License-Identifier: Apache-2.0
//
// Both ways of merging a piece against a plain encoder, and the growth of the merge queue.
#include <array>
#include <pthread.h>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/text/bpe.hpp>
#include <qwenlite/text/tokenizer.hpp>

#include "catch_any.hpp"
#include "small_tokenizer.hpp"

using qwenlite::EncodeStats;
using qwenlite::Tokenizer;

namespace {

/// Tables of a Spec, for calling the merge functions directly.
struct Tables {
  explicit Tables(const small::Spec& spec) : tokens(small::tokens_of(spec)), merges(spec.merges.size()) {
    qwenlite::ByteStrings strings;
    for (const std::string& token : tokens) strings.push_back(token);
    const qwenlite::Vocabulary vocabulary(std::move(strings));
    for (std::size_t b = 0; b < 256; ++b) {
      const char byte = static_cast<char>(b);
      bytes[b] = vocabulary.find({&byte, 1});
    }
    for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
      const auto& [left, right] = spec.merges[rank];
      REQUIRE(merges.insert(vocabulary.find(left), vocabulary.find(right),
                            {static_cast<std::uint32_t>(rank), vocabulary.find(left + right)}));
    }
  }

  [[nodiscard]] std::vector<std::string> texts(const std::vector<int>& ids) const {
    std::vector<std::string> out;
    for (const int id : ids) out.push_back(tokens[static_cast<std::size_t>(id)]);
    return out;
  }

  std::vector<std::string> tokens;
  qwenlite::MergeTable merges;
  std::array<int, 256> bytes{};
};

/// Random merges over three letters; a part may be the result of a later merge.
small::Spec random_spec(unsigned seed) {
  small::Spec spec;
  spec.merges.clear();
  std::vector<std::string> parts{"a", "b", "c"};
  unsigned state = seed;
  const auto draw = [&state](std::size_t n) {
    state = state * 1664525U + 1013904223U;
    return (state >> 16U) % n;
  };
  for (int i = 0; i < 40; ++i) {
    const std::string left = parts[draw(parts.size())], right = parts[draw(parts.size())];
    const std::string whole = left + right;
    bool fresh = whole.size() <= 12;
    for (const std::string& part : parts) fresh = fresh && part != whole;
    if (!fresh) continue;
    parts.push_back(whole);
    spec.merges.emplace_back(left, right);
  }
  if (spec.merges.size() > 6) std::swap(spec.merges[2], spec.merges.back());  // out of order of making
  return spec;
}

std::uint64_t operations(const Tokenizer& tokenizer, const std::string& text) {
  EncodeStats stats;
  (void)tokenizer.encode(text, {.control_tokens = false, .stats = &stats});
  return stats.queue_operations;
}

/// Runs `work` in a thread whose stack has 256 KiB.
template <class Work>
void in_small_stack(Work& work) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, 256 * 1024) == 0);
  pthread_t thread{};
  const auto entry = [](void* argument) -> void* {
    (*static_cast<Work*>(argument))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, entry, &work) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace

TEST_CASE("short and long merging agree with the definition") {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    const small::Spec spec = random_spec(seed);
    const Tables tables(spec);
    unsigned state = seed * 7919;
    for (std::size_t length = 1; length <= qwenlite::bpe::short_piece; length += 3) {
      std::string piece;
      for (std::size_t i = 0; i < length; ++i) {
        state = state * 1664525U + 1013904223U;
        piece += static_cast<char>('a' + (state >> 16U) % 3);
      }
      const std::vector<std::string> expected = small::merged(piece, spec);
      std::vector<int> by_scan, by_heap;
      qwenlite::bpe::encode_short(piece, tables.bytes, tables.merges, by_scan);
      qwenlite::bpe::LongPieces().encode(piece, tables.bytes, tables.merges, by_heap);
      REQUIRE(tables.texts(by_scan) == expected);
      REQUIRE(tables.texts(by_heap) == expected);
    }
  }
}

TEST_CASE("equal pairs merge leftmost first") {
  const Tables tables{small::Spec{}};
  std::vector<int> ids;
  qwenlite::bpe::encode_short("aaaaa", tables.bytes, tables.merges, ids);
  CHECK(tables.texts(ids) == std::vector<std::string>{"aaaa", "a"});
}

TEST_CASE("pieces on both sides of the limit between the two ways encode alike") {
  const Tokenizer tokenizer = small::tokenizer();
  for (std::size_t n = qwenlite::bpe::short_piece - 3; n <= qwenlite::bpe::short_piece + 9; ++n) {
    const std::vector<int> ids = tokenizer.encode(std::string(n, 'a'));
    CHECK(ids.size() == n / 8 + (n % 8 >= 4 ? 1 : 0) + (n % 4 >= 2 ? 1 : 0) + n % 2);
    CHECK(tokenizer.decode(ids) == std::string(n, 'a'));
  }
}

TEST_CASE("the merge queue grows with the text, not with its square") {
  const Tokenizer tokenizer = small::tokenizer();
  std::string mixed;
  for (int i = 0; i < 40000; ++i) mixed += "helothinkaaaab"[(i * 7 + i / 13) % 14];
  for (const std::string& text :
       {std::string(40000, 'a'), std::string(40000, '\n'), std::string(40000, 'x'), mixed}) {
    const std::uint64_t half = operations(tokenizer, text.substr(0, text.size() / 2));
    const std::uint64_t whole = operations(tokenizer, text);
    CHECK(static_cast<double>(whole) <= 2.3 * static_cast<double>(half));
    CHECK(whole <= 6 * text.size());
  }
  CHECK(operations(tokenizer, std::string(40000, 'a')) > 40000);
}

TEST_CASE("long runs of one character need little stack") {
  const Tokenizer tokenizer = small::tokenizer();
  for (const std::string& text :
       {std::string(131072, 'A'), std::string(131072, 'a'), std::string(100000, '\n'),
        std::string(100000, ' '), std::string(100000, '.'), std::string(43000, '\xCC')}) {
    std::vector<int> ids;
    std::string back;
    auto work = [&] {
      ids = tokenizer.encode(text, {.control_tokens = true, .stats = nullptr});
      back = tokenizer.decode(ids);
    };
    in_small_stack(work);
    if (text[0] != '\xCC') CHECK(back == text);
    if (text[0] == '\xCC') CHECK(back.size() == 3 * text.size());  // each a U+FFFD
    if (text[0] == 'a') CHECK(ids.size() == 131072 / 8);
    if (text[0] == '\n') CHECK(ids.size() == 50000);
  }
}

TEST_CASE("the full-size tokenizers encode long runs in little stack") {
  const auto shared = shared_directory("tokenizers");
  if (!shared) return;
  for (const char* name : {"qwen3", "qwen3.5"}) {
    const Tokenizer tokenizer(*shared / "tokenizers" / name);
    for (const std::string& text :
         {std::string(131072, 'A'), std::string(43000, 'Z'), std::string(100000, '\n'),
          std::string(100000, ' '), std::string(100000, '.')}) {
      std::string back;
      auto work = [&] { back = tokenizer.decode(tokenizer.encode(text)); };
      in_small_stack(work);
      CHECK(back == text);
      const auto half = static_cast<double>(operations(tokenizer, text.substr(0, text.size() / 2)));
      CHECK(static_cast<double>(operations(tokenizer, text)) <= 2.3 * half);
    }
  }
}
