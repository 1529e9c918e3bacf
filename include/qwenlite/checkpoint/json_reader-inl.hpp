// SPDX-License-Identifier: Apache-2.0
//
// Reading JSON that a stranger wrote: the limits every file must keep, a base for readers that take a
// file as a stream of events, and a tree for the small ones.
//
// Nothing here recurses, whatever the depth of the text. All readers go through one virtual interface,
// so the parser is compiled once.
#pragma once

#include <string>
#include <string_view>

#include <qwenlite/error.hpp>
#include <qwenlite/in_quotes.hpp>
#include <qwenlite/json_text.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace json_text {

/// Throws `bad_file`: "FILE: PROBLEM".
[[noreturn]] inline void reject(std::string_view file, const MessageText& problem) {
  std::string message = joined({file, ": "});
  problem.append_to(message);
  throw Error(ErrorCode::bad_file, message);
}

/// Parses a small file into a tree. The root is an object, and no key stands twice in any.
inline Json parse_object(std::string_view text, const std::string& file) {
  Parsed parsed = parse(text, {.repeated_keys = false});
  if (parsed.problem) reject(file, *parsed.problem);
  if (!parsed.value.is_object()) {
    reject(file, {"found ", parsed.value.type_name(), ", expected a JSON object"});
  }
  return std::move(parsed.value);
}

/// A reader that refuses every event; derived ones accept what their format has. `where()` completes
/// "FILE: WHERE: found X" for the place in the text that has been reached.
class EventReader : public Handler {
 public:
  explicit EventReader(std::string file) : file_(std::move(file)) {}

  /// Reads all of `text`; throws for whatever does not fit.
  void read(std::string_view text) {
    if (const auto zero = zero_byte(text)) reject(file_, *zero);
    read_events(text, *this);
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { unexpected({value}); }
  bool number_unsigned(number_unsigned_t value) override { unexpected({value}); }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    unexpected({"the number ", in_quotes(text)});
  }
  bool string(string_t& value) override { unexpected({"the string ", in_quotes(value)}); }
  bool binary(binary_t& /*value*/) override { unexpected("binary data"); }
  bool start_object(std::size_t /*size*/) override { unexpected("an object"); }
  bool start_array(std::size_t /*size*/) override { unexpected("an array"); }
  bool key(string_t& name) override { unexpected({"the field ", in_quotes(name)}); }
  bool end_object() override { return true; }
  bool end_array() override { return true; }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const Json::exception& reason) override {
    reject(file_, broken_text(position, reason));
  }

 protected:
  /// What is being read, such as "tensor 'a': shape"; what may stand there, such as "a list of sizes".
  [[nodiscard]] virtual std::string where() const = 0;
  [[nodiscard]] virtual const char* expected() const = 0;

  [[noreturn]] void unexpected(const MessageText& found) const {
    throw Error(ErrorCode::bad_file, {file_, ": ", where()}, found, expected());
  }
  [[nodiscard]] const std::string& file() const noexcept { return file_; }

 private:
  std::string file_;
};

}  // namespace json_text
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
