// SPDX-License-Identifier: Apache-2.0
//
// Names and values that came out of a file, a command line or the environment, made fit for an error message:
// one line, bounded length, nothing that a terminal would obey.
#pragma once

#include <string>
#include <string_view>

#include <qwenlite/error.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// `text` with control characters as '?', also those of 8 bits in UTF-8 (U+0080 to U+009F), cut to about
/// `limit` bytes with "..." in the middle.
[[nodiscard]] inline std::string on_one_line(std::string_view text, std::size_t limit) {
  std::string out;
  const auto append = [&out](std::string_view part) {
    for (std::size_t i = 0; i < part.size(); ++i) {
      const auto byte = static_cast<unsigned char>(part[i]);
      const auto next = static_cast<unsigned char>(i + 1 < part.size() ? part[i + 1] : 0);
      const bool eight_bits = byte == 0xC2 && next >= 0x80 && next < 0xA0;
      out += byte < 0x20 || byte == 0x7F || eight_bits ? '?' : part[i];
      if (eight_bits) ++i;
    }
  };
  if (text.size() <= limit) {
    append(text);
    return out;
  }
  const auto inside = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U; };
  std::size_t first = limit / 2, last = text.size() - limit / 2;  // between characters, if it is UTF-8
  for (int i = 0; i < 3 && first > 0 && inside(first); ++i) --first;
  for (int i = 0; i < 3 && last < text.size() && inside(last); ++i) ++last;
  append(text.substr(0, first));
  out += "...";
  append(text.substr(last));
  return out;
}

/// That in single quotes, of 120 bytes at most: files decide tensor names, so a message must survive a name
/// of a megabyte or with line breaks.
[[nodiscard]] inline std::string in_quotes(std::string_view text) {
  return "'" + on_one_line(text, 120) + "'";
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
