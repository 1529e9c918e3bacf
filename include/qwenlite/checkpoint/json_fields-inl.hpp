// SPDX-License-Identifier: Apache-2.0
//
// Typed access to the fields of one JSON object: a field is absent (null counts as absent), or has the
// right type and lies in its range, or the error names file, field, what was found and what was expected.
#pragma once

#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
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

/// A value as an error message shows it.
[[nodiscard]] inline std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::boolean: return value.get<bool>() ? "true" : "false";
    case Json::value_t::string: return in_quotes(value.get_ref<const std::string&>());
    case Json::value_t::number_integer: return std::to_string(value.get<std::int64_t>());
    case Json::value_t::number_unsigned: return std::to_string(value.get<std::uint64_t>());
    case Json::value_t::number_float: return number_text(value.get<double>());
    case Json::value_t::array: return "a list of " + std::to_string(value.size());
    case Json::value_t::object: return "an object";
    default: return "something else";
  }
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

class Fields {
 public:
  /// `object` is a JSON object that outlives this; `file` is for messages; `path` is "" or "OUTER.".
  Fields(const Json& object, std::string file, std::string path = "")
      : object_(&object), file_(std::move(file)), path_(std::move(path)) {}

  [[nodiscard]] const Json* find(const char* name) const {
    const auto found = object_->find(name);
    return found == object_->end() || found->is_null() ? nullptr : &*found;
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
    return Fields(*value, file_, path_ + name + ".");
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
      reject(name, describe(value),
             "an integer from " + std::to_string(range.least) + " to " + std::to_string(range.most));
    }
    return found;
  }

  /// "FILE: field 'PATH.NAME'".
  [[nodiscard]] std::string where(const char* name) const {
    return file_ + ": field " + in_quotes(path_ + name);
  }
  [[noreturn]] void reject(const char* name, const std::string& found, const std::string& expected,
                           ErrorCode code = ErrorCode::bad_config) const {
    throw Error(code, where(name), found, expected);
  }

  [[nodiscard]] const Json& json() const noexcept { return *object_; }
  [[nodiscard]] const std::string& file() const noexcept { return file_; }

 private:
  [[nodiscard]] static std::string text_of(NumberRange range) {
    constexpr double limit = std::numeric_limits<double>::max();
    std::string text = "a number";
    if (range.least > -limit)
      text += (range.open_below ? " above " : " of at least ") + number_text(range.least);
    if (range.least > -limit && range.most < limit) text += " and";
    if (range.most < limit) text += " of at most " + number_text(range.most);
    return text;
  }

  const Json* object_;
  std::string file_;
  std::string path_;
};

}  // namespace json_text
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
