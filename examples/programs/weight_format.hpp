// SPDX-License-Identifier: Apache-2.0
//
// Formats of weights as words on the command line: int8, int4, fp8, and with how many elements share a scale,
// as in int8:row, int4:32 or int4:64:zeros.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>

#include <qwenlite/kernels/weight_words.hpp>

namespace programs {

/// Empty when there is no such format.
inline std::optional<qwenlite::WeightFormat> weight_format(std::string_view text) {
  return qwenlite::weight_format_of(text);
}

inline CLI::Validator a_weight_format() {
  const auto check = [](const std::string& text) -> std::string {
    if (weight_format(text)) return {};
    return "found '" + text +
           "', expected bf16, int8, int4 or fp8, or with a group of 32, 64 or 128 as in int4:32 or "
           "int4:64:zeros, or int8:row";
  };
  return CLI::Validator(check, "");
}

}  // namespace programs
