// SPDX-License-Identifier: Apache-2.0
//
// Damaged texts and files: the same damage every time, and a count of what opened all the same.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/fixtures.hpp"

namespace fixtures {

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  /// `text` with one to three changes inside its first `reach` bytes.
  std::string damaged(std::string text, std::size_t reach) {
    const std::size_t changes = 1 + below(3);
    for (std::size_t i = 0; i < changes && !text.empty(); ++i) change(text, std::min(reach, text.size()));
    return text;
  }

 private:
  std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }

  void change(std::string& text, std::size_t reach) {
    static const std::vector<std::string> pieces = {"-1",
                                                    "0",
                                                    "1e400",
                                                    "0.5",
                                                    "9223372036854775807",
                                                    "18446744073709551615",
                                                    "99999999999999999999",
                                                    "[",
                                                    "]",
                                                    "{",
                                                    "}",
                                                    ",",
                                                    ":",
                                                    "\"",
                                                    "\\",
                                                    "null",
                                                    "true",
                                                    "NaN",
                                                    "\"\"",
                                                    "[]",
                                                    "{}",
                                                    "[[[[[[[[[[",
                                                    "{\"a\":{\"a\":{\"a\":",
                                                    "\\u0000",
                                                    "\\ud800",
                                                    "/",
                                                    "../x",
                                                    "BF16",
                                                    "F64",
                                                    "U8",
                                                    "\"dtype\"",
                                                    "\"shape\":[0],",
                                                    "\"__metadata__\":",
                                                    "data_offsets",
                                                    std::string(1, '\0'),
                                                    "\xFF",
                                                    "\xC3",
                                                    "yarn",
                                                    "1e-300",
                                                    "4294967296"};
    const std::size_t at = below(reach);
    const std::size_t length = std::min(text.size() - at, 1 + below(12));
    switch (below(6)) {
      case 0: text[at] = static_cast<char>(below(256)); break;
      case 1: text[at] = static_cast<char>(text[at] ^ static_cast<char>(1U << below(8))); break;
      case 2: text.erase(at, length); break;
      case 3: text.insert(at, text.substr(below(reach), length)); break;
      case 4: text.insert(at, pieces[below(pieces.size())]); break;
      default: text.replace(at, length, pieces[below(pieces.size())]); break;
    }
  }

  std::mt19937 random_;
};

struct Outcome {
  int opened = 0;
  int refused = 0;
};

/// Runs `open` on `count` damaged copies of `text`.
template <class Open>
inline Outcome damage(const std::string& text, std::size_t reach, int count, Open&& open) {
  Outcome outcome;
  Mutator mutator(20240607);
  for (int i = 0; i < count; ++i) {
    const std::string given = mutator.damaged(text, reach);
    try {
      open(given);
      ++outcome.opened;
    } catch (const qwenlite::Error& e) {
      ++outcome.refused;
      if (std::string_view(e.what()).find('\n') != std::string_view::npos) FAIL("two lines: " << e.what());
    }
  }
  CHECK(outcome.opened + outcome.refused == count);
  return outcome;
}

}  // namespace fixtures
