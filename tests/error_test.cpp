// SPDX-License-Identifier: Apache-2.0
//
// Error: what its message is put together from, and the word for its code.
#include <string>

#include <qwenlite/error.hpp>

#include "catch_any.hpp"

using namespace qwenlite;

TEST_CASE("every error code has a name of its own, the one it is written with") {
  constexpr std::string_view names[] = {"io",          "bad_file",     "bad_config", "bad_tensor",
                                        "unsupported", "bad_argument", "bad_text",   "context_full",
                                        "numeric",     "cancelled"};
  std::uint8_t code = 0;
  for (const std::string_view name : names) CHECK(name_of(static_cast<ErrorCode>(code++)) == name);
  CHECK(name_of(static_cast<ErrorCode>(code)) == "?");
  CHECK(name_of(ErrorCode::cancelled) == "cancelled");
  STATIC_REQUIRE(name_of(ErrorCode::bad_file) == "bad_file");
}

TEST_CASE("an error says what, found and expected") {
  const Error error(ErrorCode::bad_argument, {"option ", 7}, -2, {"at least ", std::string("0")});
  CHECK(std::string(error.what()) == "option 7: found -2, expected at least 0");
  CHECK(name_of(error.code()) == "bad_argument");
  CHECK(std::string(Error(ErrorCode::io, "nothing to read").what()) == "nothing to read");
}
