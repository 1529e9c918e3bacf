// SPDX-License-Identifier: Apache-2.0
//
// The tree of a JSON text: order of keys, keys that stand twice, limits.
#include <string>

#include <qwenlite/json_text.hpp>

#include "catch_any.hpp"

using qwenlite::json_text::Json;
using qwenlite::json_text::parse;
using qwenlite::json_text::Parsed;

TEST_CASE("an object of many keys keeps their order, and the last value of each") {
  for (const int count : {1, 31, 32, 33, 50000}) {
    INFO(count);
    std::string text = "{";
    for (int i = 0; i < count; ++i) text += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
    text += "\"k0\":[1,{\"k0\":2}],\"last\":true,\"k0\":\"again\"}";
    const Parsed parsed = parse(text, {.max_commas = text.size()});
    REQUIRE_FALSE(parsed.problem);
    REQUIRE(parsed.value.size() == static_cast<std::size_t>(count) + 1);
    int at = 0;
    bool in_order = true;
    for (const auto& [key, value] : parsed.value.items()) {
      const bool is_last = at == count;
      in_order = in_order && key == (is_last ? "last" : "k" + std::to_string(at));
      in_order = in_order && value == (is_last ? Json(true) : at == 0 ? Json("again") : Json(at));
      ++at;
    }
    CHECK(in_order);
  }
}

TEST_CASE("a key that stands twice is told where it may not") {
  for (const int count : {1, 31, 32, 33, 50000}) {
    INFO(count);
    std::string text = "{\"in\":[{\"k0\":1}],";
    for (int i = 0; i < count; ++i) text += "\"k" + std::to_string(i) + "\":{\"k0\":0},";
    const auto problem_with = [&](const std::string& last) {
      return parse(text + last, {.max_commas = 100000, .repeated_keys = false}).problem;
    };
    CHECK(problem_with("\"other\":1}") == std::nullopt);
    CHECK(problem_with("\"k0\":1}") == "'k0' stands twice");
    CHECK(problem_with("\"in\":1}") == "'in' stands twice");
    CHECK(problem_with("\"x\":{\"y\":[],\"y\":[]}}") == "'y' stands twice");
  }
}

TEST_CASE("the limits of a JSON text") {
  CHECK(parse("[1,2,3]", {.max_commas = 2}).problem == std::nullopt);
  CHECK(parse("[1,2,3]", {.max_commas = 1}).problem == "JSON with more than 1 values");
  CHECK(parse("[[\"[[\"]]", {.max_depth = 2}).problem == std::nullopt);
  CHECK(parse("[[[]]]", {.max_depth = 2}).problem == "JSON nested more than 2 deep");
  CHECK(parse(std::string("[1]\0", 4), {}).problem == "zero byte at position 3 of the JSON text");
  CHECK(parse("[1", {}).problem == "not valid JSON at byte 3");
}
