// SPDX-License-Identifier: Apache-2.0
//
// Formats of weights as words, on command lines and in the config.json of quantised checkpoints: int8:row,
// int8:128, int4:64, int4:64:zeros, fp8, bf16. A name alone stands for the usual choice, as in WeightFormat.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <qwenlite/kernels/quantised.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// The word of a valid format, in full: "int4:64", never "int4".
[[nodiscard]] inline std::string word_of(const WeightFormat& f) {
  std::string word(name_of(f.format));
  if (!is_quantised(f.format) || f.format == Format::fp8) return word;
  word += f.group == 0 ? std::string(":row") : joined({":", f.group});
  return f.symmetric ? word : word + ":zeros";
}

/// The format of a word; empty when there is none.
[[nodiscard]] inline std::optional<WeightFormat> weight_format_of(std::string_view word) {
  for (Index f = 0; f < format_count; ++f) {
    const auto format = static_cast<Format>(f);
    if (word == name_of(format)) return WeightFormat(format);
    for (const Index group : {0, 32, 64, 128}) {
      for (const bool symmetric : {true, false}) {
        const WeightFormat candidate(format, group, symmetric);
        if (candidate.is_valid() && word == word_of(candidate)) return candidate;
      }
    }
  }
  return {};
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
