// SPDX-License-Identifier: Apache-2.0
//
// JSON that a stranger wrote: the limits every text must keep, the one parser of the library, and the tree
// it makes of small texts.
//
// Nothing here recurses, whatever the depth of the text, and what is no JSON is told by the byte. All
// readers are handlers behind one virtual interface, so the parser is compiled once.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/in_quotes.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace json_text {

/// Keys keep their order: tool definitions and arguments are printed as they were written.
using Json = nlohmann::ordered_json;
using Handler = nlohmann::json_sax<Json>;

struct Limits {
  std::size_t max_depth = 32;
  std::size_t max_commas = 65536;  ///< outside of strings
  /// Whether an object may have a key twice; the last value counts then. In a file, readers would not agree
  /// which value it states.
  bool repeated_keys = true;
};

/// That there is a zero byte, or nothing. The parser would stop there as if the text ended.
[[nodiscard]] inline std::optional<std::string> zero_byte(std::string_view text) {
  const auto zero = text.find('\0');
  if (zero == std::string_view::npos) return std::nullopt;
  return "zero byte at position " + std::to_string(zero) + " of the JSON text";
}

/// What breaks the limits of the text as a whole, or nothing. Says nothing else about the text.
[[nodiscard]] inline std::optional<std::string> broken_limit(std::string_view text, Limits limits) {
  if (auto zero = zero_byte(text)) return zero;
  std::size_t depth = 0;
  std::size_t commas = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == ',' && ++commas > limits.max_commas) {
      return "JSON with more than " + std::to_string(limits.max_commas) + " values";
    }
    if ((c == '{' || c == '[') && ++depth > limits.max_depth) {
      return "JSON nested more than " + std::to_string(limits.max_depth) + " deep";
    }
    if ((c == '}' || c == ']') && depth > 0) --depth;
  }
  return std::nullopt;
}

/// Feeds the events of `text` to `handler`. This is the parser that Json::sax_parse uses for text; that
/// function would also compile the readers of five binary formats into every program.
inline void read_events(std::string_view text, Handler& handler) {
  auto input = nlohmann::detail::input_adapter(text.data(), text.data() + text.size());
  nlohmann::detail::parser<Json, decltype(input)> parser(std::move(input));
  parser.sax_parse(&handler);
}

/// What a parser's complaint means, in words that fit behind a file's name.
[[nodiscard]] inline std::string broken_text(std::size_t position, const Json::exception& reason) {
  constexpr int number_overflow = 406;
  if (reason.id == number_overflow) return "JSON with a number out of range";
  return "not valid JSON at byte " + std::to_string(position);
}

/// Builds the tree.
class TreeBuilder final : public Handler {
 public:
  explicit TreeBuilder(bool repeated_keys) : repeated_keys_(repeated_keys) {}

  Json root;
  std::optional<std::string> problem;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }  // JSON text has none
  bool start_object(std::size_t /*size*/) override { return open(Json::value_t::object); }
  bool start_array(std::size_t /*size*/) override { return open(Json::value_t::array); }
  bool key(string_t& name) override {
    Level& level = levels_.back();
    const std::size_t members = level.value->size();
    place_ = &level.member(name);
    if (!repeated_keys_ && level.value->size() == members) problem = in_quotes(name) + " stands twice";
    return !problem;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const Json::exception& reason) override {
    problem = broken_text(position, reason);
    return false;
  }

 private:
  bool add(Json value) {
    Json& place = next_place();
    place = std::move(value);
    return true;
  }
  bool open(Json::value_t type) {
    Json& place = next_place();
    place = Json(type);
    levels_.push_back({.value = &place});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }
  [[nodiscard]] Json& next_place() {
    if (levels_.empty()) return root;
    Json& outer = *levels_.back().value;
    if (outer.is_object()) return *place_;
    auto& array = outer.get_ref<Json::array_t&>();
    array.emplace_back();
    return array.back();
  }

  /// An open object or array.
  struct Level {
    Json* value = nullptr;                                     // moves only when the level around it grows
    std::map<std::string, std::size_t, std::less<>> places{};  // of the keys, when there are many

    /// The member of this name, new if there is none. Json itself looks at one key after another, and a
    /// hostile text has a million.
    Json& member(const std::string& name) {
      constexpr std::size_t few = 32;
      auto& object = value->get_ref<Json::object_t&>();
      if (object.size() < few) return object[name];
      if (places.empty()) {
        for (std::size_t i = 0; i < object.size(); ++i) places.emplace(object.data()[i].first, i);
      }
      const auto [place, is_new] = places.emplace(name, object.size());
      if (is_new) object.emplace_back(name, nullptr);
      return object.data()[place->second].second;
    }
  };

  bool repeated_keys_;
  std::vector<Level> levels_;
  Json* place_ = nullptr;  // where the value of the latest key goes
};

/// A text as a tree, or what is wrong with it.
struct Parsed {
  Json value;
  std::optional<std::string> problem;
};

[[nodiscard]] inline Parsed parse(std::string_view text, Limits limits) {
  if (auto problem = broken_limit(text, limits)) return {nullptr, std::move(problem)};
  TreeBuilder tree(limits.repeated_keys);
  read_events(text, tree);
  return {std::move(tree.root), std::move(tree.problem)};
}

/// The member of an object, or null when it is absent.
[[nodiscard]] inline const Json* member(const Json& object, std::string_view name) {
  for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) {
    if (key == name) return &value;
  }
  return nullptr;
}

/// Whether a value is this string.
[[nodiscard]] inline bool is_text(const Json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

}  // namespace json_text
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
