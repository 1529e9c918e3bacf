// SPDX-License-Identifier: Apache-2.0
//
// Tool calls in the text of an answer: both forms, every division of the text, and everything that only
// looks like a call and must come out as text.
#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/text/chat_template.hpp>
#include <qwenlite/text/python_json.hpp>
#include <qwenlite/text/tool_calls.hpp>

#include "catch_any.hpp"

namespace ql = qwenlite;

namespace {

/// Calls as one text: name and arguments.
std::string listed(std::span<const ql::ToolCall> calls) {
  std::string text;
  for (const ql::ToolCall& call : calls) text += call.name + call.arguments + ";";
  return text;
}

struct Parsed {
  std::string text, calls;
  bool operator==(const Parsed& other) const { return text == other.text && calls == other.calls; }
};

/// Feeds `text` in parts of the given sizes, the last one again and again.
Parsed parsed(std::string_view text, const std::vector<std::size_t>& sizes,
              std::span<const std::string> tools = {}) {
  ql::ToolCallParser parser(tools);
  Parsed result;
  const auto take = [&](std::string_view part, bool last) {
    parser.push(part, last);
    result.text += parser.text();
    result.calls += listed(parser.calls());
  };
  for (std::size_t i = 0; !text.empty(); ++i) {
    const std::size_t size = std::min(text.size(), sizes[std::min(i, sizes.size() - 1)]);
    take(text.substr(0, size), false);
    text.remove_prefix(size);
  }
  take("", true);
  return result;
}

/// The result, after checking that it is the same for every division that is tried.
Parsed in_any_division(std::string_view text, std::span<const std::string> tools = {}) {
  const Parsed whole = parsed(text, {text.size() + 1}, tools);
  for (std::size_t size = 1; size <= 13; ++size) CHECK(parsed(text, {size}, tools) == whole);
  for (std::size_t cut = 1; cut < text.size(); ++cut) CHECK(parsed(text, {cut, text.size()}, tools) == whole);
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    std::vector<std::size_t> sizes;
    for (std::size_t n = 0; n < text.size(); ++n) sizes.push_back(1 + random() % 9);
    CHECK(parsed(text, sizes, tools) == whole);
  }
  return whole;
}

const std::string paris =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
const std::string rome =
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>";
const std::string paris_call = R"(get_weather{"city": "Paris"};)",
                  rome_call = R"(get_weather{"city": "Rome"};)";

}  // namespace

TEST_CASE("calls in both forms, alone, after text and one after the other") {
  struct Case {
    std::string input, text, calls;
  };
  const std::vector<Case> cases{
      {paris, "", paris_call},
      {rome, "", rome_call},
      {paris + "\n" + paris, "", paris_call + paris_call},
      {rome + "\n" + rome + "\n", "", rome_call + rome_call},
      {paris + rome, "", paris_call + rome_call},
      {"I will look.\n\n" + rome, "I will look.", rome_call},
      {"A line\nand one more\n" + paris + "\n", "A line\nand one more", paris_call},
      {paris + "\nDone.\n", "\nDone.\n", paris_call},
      {"a\n" + paris + "\n\nb\n" + paris, "a\n\nb", paris_call + paris_call},
      {"<tool_call>{\"name\":\"now\"}</tool_call>", "", "now{};"},
      {"<tool_call>{\"name\":\"now\",\"arguments\":null}</tool_call>", "", "now{};"},
      {"<tool_call>\n{\"name\": \"f\", \"arguments\": \"{\\\"n\\\": 3}\"}\n</tool_call>", "", "f{\"n\": 3};"},
      {"<tool_call>\n<function=now>\n</function>\n</tool_call>", "", "now{};"},
      {"<tool_call><function=f><parameter=a>1</parameter><parameter=b>2</parameter></function></tool_call>",
       "", R"(f{"a": "1", "b": "2"};)"},
  };
  for (const Case& c : cases) {
    const Parsed result = in_any_division(c.input);
    CHECK(result.text == c.text);
    CHECK(result.calls == c.calls);
  }
}

TEST_CASE("text without calls comes out as it is") {
  const std::vector<std::string> texts{
      "",
      "Hello\n",
      "\n\n",
      "a < b, <tool, <tool_cal and <tool_call",
      "</tool_call>",
      "an answer\n\n<tool_call",
      "\xE4\xBD\xA0\xE5\xA5\xBD <tool_response>",
  };
  for (const std::string& text : texts) {
    const Parsed result = in_any_division(text);
    CHECK(result.text == text);
    CHECK(result.calls.empty());
  }
}

TEST_CASE("a malformed call stays text, and what follows is looked at afresh") {
  const std::vector<std::string> malformed{
      "<tool_call>",
      "<tool_call></tool_call>",
      "<tool_call>\nget_weather(Paris)\n</tool_call>",
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call>",   // a brace is missing
      "<tool_call>\n{\"name\": \"f, \"arguments\": {}}\n</tool_call>",            // a quote is missing
      "<tool_call>\n{\"arguments\": {}}\n</tool_call>",                           // no name
      "<tool_call>\n{\"name\": \"\"}\n</tool_call>",                              //
      "<tool_call>\n{\"name\": 3}\n</tool_call>",                                 //
      "<tool_call>\n{\"name\": \"f\", \"arguments\": [1]}\n</tool_call>",         // no object
      "<tool_call>\n{\"name\": \"f\", \"arguments\": \"text\"}\n</tool_call>",    //
      "<tool_call>\n{\"name\": \"f\"} {\"name\": \"g\"}\n</tool_call>",           // two values
      "<tool_call>\n[{\"name\": \"f\"}]\n</tool_call>",                           //
      "<tool_call>\n<function=>\n</function>\n</tool_call>",                      // no name
      "<tool_call>\n<function=f\n</function>\n</tool_call>",                      //
      "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</tool_call>",  // not ended
      "<tool_call>\n<function=f>\n<parameter=a>\n1\n</function>\n</tool_call>",   //
      "<tool_call>\n<function=f>\n<parameter=>\n1\n</parameter>\n</function>\n</tool_call>",
      "<tool_call>\n<function=f>\nstray\n</function>\n</tool_call>",
      "<tool_call>\n<function=f>\n</function>\nstray\n</tool_call>",
  };
  for (const std::string& text : malformed) {
    INFO(text);
    Parsed result = in_any_division(text);
    CHECK(result.text == text);
    CHECK(result.calls.empty());
    result = in_any_division("before\n" + text + "\n" + paris);
    CHECK(result.text == "before\n" + text);
    CHECK(result.calls == paris_call);
    result = in_any_division(rome + "\n" + text + "\nafter");
    CHECK(result.text == "\n" + text + "\nafter");
    CHECK(result.calls == rome_call);
  }
}

TEST_CASE("arguments may hold the tags") {
  const Parsed json_form = in_any_division(
      "<tool_call>\n{\"name\": \"say\", \"arguments\": {\"text\": \"a \\\"</tool_call>\\\" and "
      "<tool_call>\"}}\n"
      "</tool_call>!");
  CHECK(json_form.text == "!");
  CHECK(json_form.calls == R"(say{"text": "a \"</tool_call>\" and <tool_call>"};)");
  const Parsed xml_form = in_any_division(
      "<tool_call>\n<function=say>\n<parameter=text>\n<tool_call> </tool_call> in </parameter> and\n\n"
      "</parameter>\n<parameter=more>\n\n</parameter>\n<parameter=none>\n</parameter>\n</function>\n</"
      "tool_call>");
  CHECK(xml_form.text.empty());
  CHECK(xml_form.calls ==
        R"(say{"text": "<tool_call> </tool_call> in </parameter> and\n", "more": "", "none": ""};)");
}

TEST_CASE("a definition gives the types of parameters") {
  const std::vector<std::string> tools{
      R"({"type": "function", "function": {"name": "other", "parameters": {}}})",
      R"({"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
             "i": {"type": "integer"}, "x": {"type": "number"}, "b": {"type": "boolean"}, "s": {"type": "string"},
             "a": {"type": "array"}, "o": {"type": "object"}, "u": {"type": ["string", "null"]}, "n": {}}}}})",
      R"({"name": "bare", "parameters": {"properties": {"i": {"type": "integer"}}}})",
      R"({"name": "odd", "parameters": [1]})"};
  const auto call = [](const std::string& name,
                       const std::vector<std::pair<std::string, std::string>>& values) {
    std::string text = "<tool_call>\n<function=" + name + ">\n";
    for (const auto& [key, value] : values) text += "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
    return text + "</function>\n</tool_call>";
  };
  const auto typed = [&](const std::string& key, const std::string& value, const std::string& name = "f") {
    const std::string calls = parsed(call(name, {{key, value}}), {5}, tools).calls;
    return calls.substr(name.size(), calls.size() - name.size() - 1);
  };
  CHECK(typed("i", "3") == R"({"i": 3})");
  CHECK(typed("i", "3.5") == R"({"i": "3.5"})");
  CHECK(typed("i", "many") == R"({"i": "many"})");
  CHECK(typed("x", "3.5") == R"({"x": 3.5})");
  CHECK(typed("b", "true") == R"({"b": true})");
  CHECK(typed("b", "True") == R"({"b": true})");
  CHECK(typed("b", "False") == R"({"b": false})");
  CHECK(typed("b", "None") == R"({"b": null})");
  CHECK(typed("s", "3") == R"({"s": "3"})");
  CHECK(typed("s", "True") == R"({"s": "True"})");
  CHECK(typed("a", "[1, \"x\"]") == R"({"a": [1, "x"]})");
  CHECK(typed("a", "{}") == R"({"a": "{}"})");
  CHECK(typed("o", "{\"k\": [1]}") == R"({"o": {"k": [1]}})");
  CHECK(typed("u", "3") == R"({"u": "3"})");
  CHECK(typed("n", "3") == R"({"n": "3"})");
  CHECK(typed("unknown", "3") == R"({"unknown": "3"})");
  CHECK(typed("i", "3", "bare") == R"({"i": 3})");
  CHECK(typed("i", "3", "odd") == R"({"i": "3"})");
  CHECK(typed("i", "3", "nowhere") == R"({"i": "3"})");
}

TEST_CASE("calls survive being rendered and read again") {
  const std::vector<ql::ToolCall> calls{{"get_weather", "{\"city\": \"Z\xC3\xBCrich\", \"days\": \"3\"}"},
                                        {"say", R"({"text": "two\nlines", "quoted": "a \"b\" \\ c"})"},
                                        {"now", "{}"}};
  for (const ql::ChatFamily family : {ql::ChatFamily::qwen3, ql::ChatFamily::qwen3_5}) {
    const std::vector<ql::Message> messages{
        {"user", "Go"}, {.role = "assistant", .content = "Looking.", .tool_calls = calls}};
    const std::string prompt = ql::ChatTemplate(family).render(messages, {.add_generation_prompt = false});
    const std::string after = "</think>\n\n", end = "<|im_end|>";
    const std::size_t begin = prompt.rfind(after) + after.size();
    const Parsed result = in_any_division(prompt.substr(begin, prompt.rfind(end) - begin));
    CHECK(result.text == "Looking.");
    CHECK(result.calls == listed(calls));
  }
}

TEST_CASE("tags and brackets by the thousand are text like any other") {
  std::string opens, closes = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"";
  for (int i = 0; i < 2000; ++i) opens += "<tool_call>";
  for (int i = 0; i < 2000; ++i) closes += "</tool_call>";
  CHECK(parsed(opens, {11}).text == opens);
  CHECK(parsed(closes, {12}).text == closes);
  CHECK(parsed(closes + "\"}}</tool_call>", {12}).calls.size() > closes.size() - 60);
  // Both, so that every opening meets every close, inside a string or a parameter: not one of them ends a
  // call.
  for (const std::string start : {"<tool_call>{", "<tool_call><function=f>\n"}) {
    std::string both;
    for (int i = 0; i < 2000; ++i) both += start;
    both += start.ends_with('{') ? "\"" : "<parameter=a>";
    for (int i = 0; i < 2000; ++i) both += "</tool_call>";
    CHECK(parsed(both, {13}).text == both);
  }
  std::string deep = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ";
  for (int i = 0; i < 100000; ++i) deep += '[';
  for (int i = 0; i < 100000; ++i) deep += ']';
  deep += "}}</tool_call>";
  CHECK(parsed(deep, {4096}).text == deep);
}
