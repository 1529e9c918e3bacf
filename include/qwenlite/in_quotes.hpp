// SPDX-License-Identifier: Apache-2.0
//
// Names that came out of a file, made fit for an error message: one line, bounded length.
#pragma once

#include <string>
#include <string_view>

#include <qwenlite/error.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// `text` in single quotes, control characters as '?', cut to 120 bytes with "..." in the middle.
/// Files decide tensor names, so a message must survive a name of a megabyte or with line breaks.
[[nodiscard]] inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t limit = 120;
  constexpr std::size_t half = limit / 2;
  std::string out = "'";
  const auto append = [&out](std::string_view part) {
    for (const char c : part) out += (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) ? '?' : c;
  };
  if (text.size() <= limit) {
    append(text);
  } else {
    append(text.substr(0, half));
    out += "...";
    append(text.substr(text.size() - half));
  }
  out += '\'';
  return out;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
