// SPDX-License-Identifier: Apache-2.0
//
// Text that is safe on a terminal. What a model writes, and what files hold, may contain escape sequences:
// those could recolour the screen, retitle the window or worse, so control characters are shown, not sent.
#pragma once

#include <string>
#include <string_view>

namespace chat {

/// `text` (UTF-8) with control characters made visible: ESC becomes ^[, U+009B becomes <U+009B>. Line breaks
/// and tabs stay. The parts of a text may be passed one by one if each holds whole characters.
inline std::string printable(std::string_view text) {
  constexpr const char* hex = "0123456789ABCDEF";
  std::string shown;
  shown.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+0080 to U+009F: the 8-bit control characters
      shown.append("<U+00").append({hex[next >> 4U], hex[next & 15U], '>'});
      ++i;
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      shown.append({'^', static_cast<char>(byte ^ 0x40U)});
    } else {
      shown.push_back(text[i]);
    }
  }
  return shown;
}

/// The same on one line.
inline std::string printable_line(std::string_view text) {
  std::string shown = printable(text);
  for (char& c : shown) c = c == '\n' ? ' ' : c;
  return shown;
}

}  // namespace chat
