// SPDX-License-Identifier: Apache-2.0
//
// Printing JSON as Python's json.dumps(ensure_ascii=False) does. Expected texts were made with Python.
#include <string>

#include <qwenlite/text/python_json.hpp>

#include "catch_any.hpp"

namespace python_json = qwenlite::python_json;
using qwenlite::Error;
using qwenlite::ErrorCode;

namespace {

std::string reprinted(const std::string& text) {
  std::string out;
  python_json::append(out, python_json::parse(text, "test", ErrorCode::bad_text));
  return out;
}

}  // namespace

TEST_CASE("structure and order") {
  CHECK(reprinted(R"({"b":1,"a":[1,2,{"z":null}],"e":{},"f":[]})") ==
        R"({"b": 1, "a": [1, 2, {"z": null}], "e": {}, "f": []})");
  CHECK(reprinted("true") == "true");
  CHECK(reprinted("[[],[[]],false]") == "[[], [[]], false]");
  CHECK(reprinted(R"({"k":1,"j":2,"k":3})") == R"({"k": 3, "j": 2})");
}

TEST_CASE("strings") {
  CHECK(reprinted(R"("\u4e2d\u6587 \u00e9 </b> & '")") == "\"\u4E2D\u6587 \u00E9 </b> & '\"");
  CHECK(reprinted(R"("\"\\\/\b\f\n\r\t\u0001\u001f\u007f")") ==
        "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7F\"");
  CHECK(reprinted(R"("\ud83d\ude00")") == "\"\U0001F600\"");
  CHECK(reprinted(R"({"\n":1})") == R"({"\n": 1})");
}

TEST_CASE("numbers as Python writes them") {
  CHECK(reprinted("[0, -0, 17, -5, 18446744073709551615, -9223372036854775808]") ==
        "[0, 0, 17, -5, 18446744073709551615, -9223372036854775808]");
  CHECK(reprinted("[1.0, 0.1, -2.50, 1e5, 1E22, 1e16, 123456789012345.6]") ==
        "[1.0, 0.1, -2.5, 100000.0, 1e+22, 1e+16, 123456789012345.6]");
  CHECK(reprinted("[0.0001, 0.00001, 1.5e-7, 1e-10, -0.0, 1e300, 5e-324, 9999999999999998.0]") ==
        "[0.0001, 1e-05, 1.5e-07, 1e-10, -0.0, 1e+300, 5e-324, 9999999999999998.0]");
}

TEST_CASE("Python's str of a value") {
  const auto text = [](const char* json) {
    return python_json::python_string(python_json::parse(json, "test", ErrorCode::bad_text));
  };
  CHECK(text("true") == "True");
  CHECK(text("false") == "False");
  CHECK(text("null") == "None");
  CHECK(text("\"a\\\"b\"") == "a\"b");
  CHECK(text("3.50") == "3.5");
  CHECK(text("[1,\"a\"]") == "[1, \"a\"]");
}

TEST_CASE("broken and hostile JSON is one clear error") {
  for (const std::string text : {"", "{", "[1,]", "nul", "\"\xFF\"", "1 2", "1e999"}) {
    REQUIRE_THROWS_AS(python_json::parse(text, "thing", ErrorCode::bad_text), Error);
    REQUIRE_THROWS_WITH(python_json::parse(text, "thing", ErrorCode::bad_text), has_text("thing"));
  }
  REQUIRE_THROWS_WITH(python_json::parse(std::string(1000000, '['), "thing", ErrorCode::bad_text),
                      has_text("64"));
  CHECK(reprinted(std::string(64, '[') + std::string(64, ']')) ==
        std::string(64, '[') + std::string(64, ']'));
  CHECK(reprinted("\"" + std::string(100, '[') + "\"") == "\"" + std::string(100, '[') + "\"");
}
