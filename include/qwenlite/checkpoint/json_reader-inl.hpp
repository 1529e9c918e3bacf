// SPDX-License-Identifier: Apache-2.0
//
// Reading JSON that a stranger wrote: the limits every file must keep, a base for readers that take a
// file as a stream of events, and a tree for the small ones.
//
// Nothing here recurses, whatever the depth of the text. All readers go through one virtual interface,
// so the parser is compiled once. The parser stops at a zero byte as if the text ended there, which
// is why text with one is refused before it is parsed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include <qwenlite/checkpoint/in_quotes.hpp>
#include <qwenlite/error.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace json_text {

using Json = nlohmann::ordered_json;

[[noreturn]] inline void reject(const std::string& file, const std::string& problem) {
  throw Error(ErrorCode::bad_file, file + ": " + problem);
}

/// Throws unless brackets nest at most `max_depth` deep, there are at most `max_commas` commas outside
/// of strings (objects are searched one by one, so a huge one would cost quadratic time), and no byte
/// is zero. Says nothing else about the text.
inline void check_limits(std::string_view text, const std::string& file, std::size_t max_depth,
                         std::size_t max_commas) {
  std::size_t depth = 0;
  std::size_t commas = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\0') reject(file, "zero byte at position " + std::to_string(i) + " of the JSON text");
    if (in_string) {
      if (c == '\\' && i + 1 < text.size() && text[i + 1] != '\0') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == ',' && ++commas > max_commas) {
      reject(file, "JSON with more than " + std::to_string(max_commas) + " values");
    }
    if ((c == '{' || c == '[') && ++depth > max_depth) {
      reject(file, "JSON nested more than " + std::to_string(max_depth) + " deep");
    }
    if ((c == '}' || c == ']') && depth > 0) --depth;
  }
}

/// Parses a small file into a tree. The root is an object.
inline Json parse_object(std::string_view text, const std::string& file) {
  constexpr std::size_t max_depth = 32;
  constexpr std::size_t max_commas = 65536;
  check_limits(text, file, max_depth, max_commas);
  Json root;
  try {
    root = Json::parse(text.data(), text.data() + text.size());
  } catch (const Json::parse_error& e) {
    reject(file, "not valid JSON at byte " + std::to_string(e.byte));
  } catch (const Json::exception&) {
    reject(file, "JSON with a number out of range");
  }
  if (!root.is_object()) reject(file, std::string("found ") + root.type_name() + ", expected a JSON object");
  return root;
}

/// A reader that refuses every event; derived ones accept what their format has. `where()` completes
/// "FILE: WHERE: found X" for the place in the text that has been reached.
class EventReader : public nlohmann::json_sax<Json> {
 public:
  explicit EventReader(std::string file) : file_(std::move(file)) {}

  /// Reads all of `text`; throws for whatever does not fit.
  void read(std::string_view text) {
    if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
      reject(file_, "zero byte at position " + std::to_string(zero) + " of the JSON text");
    }
    nlohmann::json_sax<Json>* events = this;
    Json::sax_parse(text.data(), text.data() + text.size(), events);
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { unexpected(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { unexpected(std::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    unexpected("the number " + in_quotes(text));
  }
  bool string(string_t& value) override { unexpected("the string " + in_quotes(value)); }
  bool binary(binary_t& /*value*/) override { unexpected("binary data"); }
  bool start_object(std::size_t /*size*/) override { unexpected("an object"); }
  bool start_array(std::size_t /*size*/) override { unexpected("an array"); }
  bool key(string_t& name) override { unexpected("the field " + in_quotes(name)); }
  bool end_object() override { return true; }
  bool end_array() override { return true; }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const Json::exception& /*reason*/) override {
    reject(file_, "not valid JSON at byte " + std::to_string(position) + " of the JSON text");
  }

 protected:
  /// What is being read, such as "tensor 'a': shape"; what may stand there, such as "a list of sizes".
  [[nodiscard]] virtual std::string where() const = 0;
  [[nodiscard]] virtual std::string expected() const = 0;

  [[noreturn]] void unexpected(const std::string& found) const {
    throw Error(ErrorCode::bad_file, file_ + ": " + where(), found, expected());
  }
  [[nodiscard]] const std::string& file() const noexcept { return file_; }

 private:
  std::string file_;
};

}  // namespace json_text
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
