// SPDX-License-Identifier: Apache-2.0
//
// What is quoted in messages: one line, bounded, nothing for a terminal to obey.
#include <string>

#include <qwenlite/in_quotes.hpp>

#include "catch_any.hpp"

using qwenlite::in_quotes;

TEST_CASE("quoted text is one line without control characters") {
  CHECK(in_quotes("") == "''");
  CHECK(in_quotes("a b") == "'a b'");
  CHECK(in_quotes("\x1b[31m\n\t\x7f") == "'?[31m" + std::string(3, '?') + "'");
  CHECK(in_quotes("\xC2\x9B") == "'?'");  // U+009B, which terminals take for ESC [
  CHECK(in_quotes("\xC2\xA0\xC3\x9B\xC2") == "'\xC2\xA0\xC3\x9B\xC2'");  // other characters, and half of one
}

TEST_CASE("long quoted text loses its middle") {
  const std::string most = std::string(60, 'a') + std::string(60, 'b');
  CHECK(in_quotes(most) == "'" + most + "'");
  CHECK(in_quotes(std::string(60, 'a') + "c" + std::string(60, 'b')) ==
        "'" + std::string(60, 'a') + "..." + std::string(60, 'b') + "'");
  CHECK(in_quotes(std::string(1000000, 'x')).size() == 125);
  std::string umlauts;
  for (int i = 0; i < 100; ++i) umlauts += "\xC3\xA4";
  const std::string half = umlauts.substr(0, 58);  // 60 bytes would cut one in two
  CHECK(in_quotes("a" + umlauts + "b") == "'a" + half + "..." + half + "b'");
}
