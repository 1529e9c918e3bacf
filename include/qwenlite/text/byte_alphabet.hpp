// SPDX-License-Identifier: Apache-2.0
//
// The byte alphabet: tokenizer files spell each byte of a token as one printable character.
//
// Turned back into bytes while a file is read, so nothing after the reader knows of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <qwenlite/error.hpp>
#include <qwenlite/in_quotes.hpp>
#include <qwenlite/text/unicode.hpp>
#include <qwenlite/text/vocabulary.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace tokenizer_file {

/// At most 60 bytes of a text from a file, made fit for one line of an error message.
[[nodiscard]] inline std::string shown(std::string_view text) {
  std::string out;
  unicode::append_valid(out, text.substr(0, 60));
  return on_one_line(out, out.size()) + (text.size() > 60 ? "..." : "");
}

/// Byte of each code point of the byte alphabet below U+0144, or -1. Printable bytes stand for
/// themselves; the other 68, in rising order, are U+0100 and up.
[[nodiscard]] constexpr std::array<std::int16_t, 0x144> byte_alphabet() noexcept {
  std::array<std::int16_t, 0x144> table{};
  for (auto& entry : table) entry = -1;
  std::size_t next = 0x100;
  for (std::int16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    table[printable ? static_cast<std::size_t>(byte) : next++] = byte;
  }
  return table;
}
inline constexpr std::array<std::int16_t, 0x144> byte_of = byte_alphabet();

/// Appends a token, turned into bytes, as a new string; false when it is empty or not in the alphabet.
[[nodiscard]] inline bool append_token(ByteStrings& out, std::string_view text) {
  bool good = !text.empty();
  for (std::size_t i = 0; i < text.size();) {
    const unicode::Decoded next = unicode::decode(text, i);
    const bool known = next.valid && next.point < byte_of.size() && byte_of[next.point] >= 0;
    if (known) out.push_byte(static_cast<char>(byte_of[next.point]));
    good = good && known;
    i += next.length;
  }
  out.close();
  return good;
}

/// Appends the two parts of "left right"; false when it is not that.
[[nodiscard]] inline bool append_merge(ByteStrings& out, std::string_view text) {
  const std::size_t space = text.find(' ');
  return space != std::string_view::npos && append_token(out, text.substr(0, space)) &&
         append_token(out, text.substr(space + 1));
}

}  // namespace tokenizer_file
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
