// SPDX-License-Identifier: Apache-2.0
//
// JSON written as it is computed: outputs may be far larger than memory should hold.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>

#include "programs/json_value.hpp"

namespace inspect {

using programs::json_value;

/// Writes an array; `write` is called for each element.
template <class Range, class Write>
void write_array(std::ostream& out, const Range& range, const Write& write) {
  out << '[';
  const char* separator = "";
  for (const auto& element : range) {
    out << separator;
    write(element);
    separator = ",";
  }
  out << ']';
}

/// Writes an array of numbers or strings.
template <class Range>
void write_values(std::ostream& out, const Range& range) {
  write_array(out, range, [&](const auto& value) { out << json_value(value); });
}

}  // namespace inspect
