// SPDX-License-Identifier: Apache-2.0
//
// Typed access to the fields of one JSON object: a field is absent (null counts as absent), or has the
// right type and lies in its range, or the error names file, field, what was found and what was expected.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <qwenlite/checkpoint/json_reader-inl.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace json_text {

/// "1e-06", without the locale or the digits std::to_string would give.
[[nodiscard]] inline std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

/// A number that was written as one with a fraction or an exponent: "1000.0", "1e-06", all digits it takes.
[[nodiscard]] inline std::string fraction_text(double value) {
  char text[32];
  const auto [end, status] = std::to_chars(text, text + sizeof text, value);
  const std::string_view digits(text, status == std::errc{} ? static_cast<std::size_t>(end - text) : 0);
  const bool whole = digits.find_first_not_of("-0123456789") == std::string_view::npos;
  return std::string(digits).append(whole ? ".0" : "");
}

/// A value as an error message shows it.
[[nodiscard]] inline std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::boolean: return value.get<bool>() ? "true" : "false";
    case Json::value_t::string: return in_quotes(value.get_ref<const std::string&>());
    case Json::value_t::number_integer: return joined({value.get<std::int64_t>()});
    case Json::value_t::number_unsigned: return joined({value.get<std::uint64_t>()});
    case Json::value_t::number_float: return fraction_text(value.get<double>());
    case Json::value_t::array: return joined({"a list of ", value.size()});
    case Json::value_t::object: return "an object";
    case Json::value_t::binary:
    case Json::value_t::discarded: break;
  }
  return "something else";
}

struct IndexRange {
  Index least = 0;
  Index most = std::numeric_limits<Index>::max();
};

/// Bounds of a number; an open end excludes the bound itself.
struct NumberRange {
  double least = -std::numeric_limits<double>::max();
  double most = std::numeric_limits<double>::max();
  bool open_below = false;
};

/// A view of one object of a file, and of the objects around it: whatever it is made from outlives it.
class Fields {
 public:
  /// `object` is a JSON object; `file` is for messages.
  Fields(const Json& object, std::string_view file) : object_(&object), file_(file) {}

  [[nodiscard]] const Json* find(const char* name) const {
    const Json* found = member(*object_, name);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

  [[nodiscard]] std::optional<Index> integer(const char* name, IndexRange range) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    return to_integer(*value, name, range);
  }
  [[nodiscard]] Index required_integer(const char* name, IndexRange range) const {
    return to_integer(required(name, "an integer"), name, range);
  }

  [[nodiscard]] std::optional<double> number(const char* name, NumberRange range) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    const double found = value->is_number() ? value->get<double>() : std::nan("");
    const bool enough = range.open_below ? found > range.least : found >= range.least;
    if (!enough || !(found <= range.most)) reject(name, describe(*value), text_of(range));
    return found;
  }

  [[nodiscard]] double required_number(const char* name, NumberRange range) const {
    const auto value = number(name, range);
    if (!value) reject(name, "nothing", text_of(range));
    return *value;
  }

  [[nodiscard]] std::optional<bool> boolean(const char* name) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) reject(name, describe(*value), "true or false");
    return value->get<bool>();
  }

  [[nodiscard]] std::optional<std::string> string(const char* name) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) reject(name, describe(*value), "a string");
    return value->get_ref<const std::string&>();
  }

  [[nodiscard]] std::optional<Fields> object(const char* name) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_object()) reject(name, describe(*value), "an object");
    Fields inner(*value, file_);
    inner.outer_ = this;
    inner.name_ = name;
    return inner;
  }

  [[nodiscard]] const Json& required(const char* name, const char* expected) const {
    const Json* value = find(name);
    if (value == nullptr) reject(name, "nothing", expected);
    return *value;
  }

  /// Checks one value that stands in field `name`, alone or in a list.
  [[nodiscard]] Index to_integer(const Json& value, const char* name, IndexRange range) const {
    const bool fits = value.is_number_unsigned() ? std::in_range<Index>(value.get<std::uint64_t>())
                                                 : value.is_number_integer();
    const Index found = fits ? value.get<Index>() : 0;
    if (!fits || found < range.least || found > range.most) {
      reject(name, describe(value), {"an integer from ", range.least, " to ", range.most});
    }
    return found;
  }

  /// "FILE: field 'OUTER.NAME'".
  [[nodiscard]] std::string where(std::string_view name) const {
    std::string path(name);
    for (const Fields* inner = this; inner->outer_ != nullptr; inner = inner->outer_) {
      path.insert(0, joined({inner->name_, "."}));
    }
    return joined({file_, ": field ", in_quotes(path)});
  }
  [[noreturn]] void reject(std::string_view name, const MessageText& found, const MessageText& expected,
                           ErrorCode code = ErrorCode::bad_config) const {
    throw Error(code, where(name), found, expected);
  }

  [[nodiscard]] const Json& json() const noexcept { return *object_; }
  [[nodiscard]] std::string_view file() const noexcept { return file_; }

 private:
  [[nodiscard]] static std::string text_of(NumberRange range) {
    constexpr double limit = std::numeric_limits<double>::max();
    std::string text = "a number";
    const bool has_least = range.least > -limit;
    const bool has_most = range.most < limit;
    if (has_least)
      text.append(range.open_below ? " above " : " of at least ").append(number_text(range.least));
    if (has_most) text.append(has_least ? " and" : "").append(" of at most ").append(number_text(range.most));
    return text;
  }

  const Json* object_;
  std::string_view file_;
  const Fields* outer_ = nullptr;  // of which this is the field name_; null at top level
  const char* name_ = "";
};

}  // namespace json_text
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
