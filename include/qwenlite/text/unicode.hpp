// SPDX-License-Identifier: Apache-2.0
//
// What the tokenizer needs of Unicode: UTF-8, the four categories of the pre-split rules, and NFC.
//
// Invalid UTF-8 is never an error: each maximal invalid part (the longest prefix of a well-formed
// sequence, else one byte) counts as one U+FFFD, as WHATWG and Unicode chapter 3 recommend.
// Categories are those of Unicode 14; NFC leaves marks newer than Unicode 9 alone, as the tokenizer
// library does whose ids are to be matched. Hangul is composed by arithmetic (Unicode 3.12).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/text/unicode_tables.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace unicode {

// ------------------------------------------------------------------------------------------ UTF-8

inline constexpr std::uint32_t replacement = 0xFFFD;
inline constexpr std::string_view replacement_utf8 = "\xEF\xBF\xBD";

/// One code point of a text. `valid` is false when the bytes are not UTF-8 (then `point` is U+FFFD);
/// `complete` is false when they are the beginning of a character that the end of the text cuts off.
struct Decoded {
  std::uint32_t point = replacement;
  std::uint32_t length = 1;
  bool valid = false;
  bool complete = true;
};

/// Decodes the character at `text[at]`; `at` must be inside the text.
[[nodiscard]] inline Decoded decode(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const std::uint32_t lead = byte(at);
  if (lead < 0x80) return {lead, 1, true, true};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::uint32_t length = lead < 0xE0 ? 2U : lead < 0xF0 ? 3U : 4U;
  // The second byte has a narrower range after some leads: no overlong forms, surrogates, > U+10FFFF.
  std::uint32_t low = lead == 0xE0 ? 0xA0U : lead == 0xF0 ? 0x90U : 0x80U;
  std::uint32_t high = lead == 0xED ? 0x9FU : lead == 0xF4 ? 0x8FU : 0xBFU;
  std::uint32_t point = lead & (0x7FU >> length);
  for (std::uint32_t i = 1; i < length; ++i) {
    if (at + i >= text.size()) return {replacement, i, false, false};
    const std::uint32_t next = byte(at + i);
    if (next < low || next > high) return {replacement, i, false, true};
    point = (point << 6U) | (next & 0x3FU);
    low = 0x80;
    high = 0xBF;
  }
  return {point, length, true, true};
}

/// Appends a code point (below 0x110000) as UTF-8.
inline void append(std::string& out, std::uint32_t point) {
  const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | (point >> 6U));
    put(0x80 | (point & 0x3FU));
  } else if (point < 0x10000) {
    put(0xE0 | (point >> 12U));
    put(0x80 | ((point >> 6U) & 0x3FU));
    put(0x80 | (point & 0x3FU));
  } else {
    put(0xF0 | (point >> 18U));
    put(0x80 | ((point >> 12U) & 0x3FU));
    put(0x80 | ((point >> 6U) & 0x3FU));
    put(0x80 | (point & 0x3FU));
  }
}

/// Length of the prefix of `text` that is plain ASCII.
[[nodiscard]] inline std::size_t ascii_prefix(std::string_view text) noexcept {
  std::size_t i = 0;
  for (; i + 16 <= text.size(); i += 16) {
    unsigned any = 0;
    for (std::size_t j = 0; j < 16; ++j) any |= static_cast<unsigned char>(text[i + j]);
    if ((any & 0x80U) != 0) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

/// Length of the prefix of `text` that is valid UTF-8.
[[nodiscard]] inline std::size_t valid_prefix(std::string_view text) noexcept {
  std::size_t i = ascii_prefix(text);
  while (i < text.size()) {
    const Decoded next = decode(text, i);
    if (!next.valid) return i;
    i += next.length;
  }
  return i;
}

/// Appends `text` with every maximal invalid part replaced by U+FFFD.
inline void append_valid(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const std::size_t good = valid_prefix(text);
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) return;
    out.append(replacement_utf8);
    text.remove_prefix(decode(text, 0).length);
  }
}

// ------------------------------------------------------------------------------------- categories

enum class Category : std::uint8_t { other = 0, letter = 1, mark = 2, number = 3, space = 4 };

inline constexpr unsigned category_mask = 7;
inline constexpr unsigned reorders = 8;   ///< has a canonical combining class
inline constexpr unsigned unstable = 16;  ///< NFC_Quick_Check is No or Maybe

/// The property byte of a code point: its Category in the lower three bits, `reorders`, `unstable`.
[[nodiscard]] inline unsigned properties(std::uint32_t point) noexcept {
  if (point >= 0x110000) return 0;
  constexpr unsigned bits = unicode_tables::block_bits;
  const std::size_t block = unicode_tables::block_of[point >> bits];
  return unicode_tables::properties[(block << bits) + (point & ((1U << bits) - 1U))];
}

[[nodiscard]] inline Category category(std::uint32_t point) noexcept {
  return static_cast<Category>(properties(point) & category_mask);
}
[[nodiscard]] inline bool is_letter(std::uint32_t point) noexcept {
  return category(point) == Category::letter;
}
[[nodiscard]] inline bool is_mark(std::uint32_t point) noexcept {
  return category(point) == Category::mark;
}
[[nodiscard]] inline bool is_number(std::uint32_t point) noexcept {
  return category(point) == Category::number;
}
/// White_Space: U+0009-000D, 0020, 0085, 00A0, 1680, 2000-200A, 2028, 2029, 202F, 205F, 3000.
[[nodiscard]] inline bool is_space(std::uint32_t point) noexcept {
  return category(point) == Category::space;
}

// -------------------------------------------------------------------------------------------- NFC

/// A code point with its canonical combining class.
struct Classed {
  std::uint32_t point;
  std::uint8_t combining_class;
};

[[nodiscard]] inline std::uint8_t combining_class(std::uint32_t point) noexcept {
  if ((properties(point) & reorders) == 0) return 0;
  const auto& runs = unicode_tables::combining_runs;
  const auto after = std::upper_bound(runs.begin(), runs.end(), point,
                                      [](std::uint32_t p, const auto& run) { return p < run.first; });
  return after == runs.begin() ? std::uint8_t{0} : (after - 1)->combining_class;
}

inline constexpr std::uint32_t hangul_first = 0xAC00, hangul_count = 11172;
inline constexpr std::uint32_t lead_first = 0x1100, vowel_first = 0x1161, tail_first = 0x11A7;
inline constexpr std::uint32_t lead_count = 19, vowel_count = 21, tail_count = 28;

/// The primary composite of two characters, or 0.
[[nodiscard]] inline std::uint32_t compose(std::uint32_t first, std::uint32_t second) noexcept {
  if (first - lead_first < lead_count && second - vowel_first < vowel_count) {
    return hangul_first + ((first - lead_first) * vowel_count + (second - vowel_first)) * tail_count;
  }
  const std::uint32_t syllable = first - hangul_first;
  if (syllable < hangul_count && syllable % tail_count == 0 && second - tail_first - 1 < tail_count - 1) {
    return first + (second - tail_first);
  }
  const auto& table = unicode_tables::compositions;
  const auto found = std::lower_bound(table.begin(), table.end(), first, [second](const auto& row, auto f) {
    return row.first != f ? row.first < f : row.second < second;
  });
  const bool hit = found != table.end() && found->first == first && found->second == second;
  return hit ? found->composed : 0;
}

/// Appends the full canonical decomposition of a character (at most four code points).
inline void decompose(std::uint32_t point, std::vector<Classed>& out) {
  if (point - hangul_first < hangul_count) {
    const std::uint32_t syllable = point - hangul_first;
    out.push_back({lead_first + syllable / (vowel_count * tail_count), 0});
    out.push_back({vowel_first + syllable / tail_count % vowel_count, 0});
    if (syllable % tail_count != 0) out.push_back({tail_first + syllable % tail_count, 0});
    return;
  }
  std::uint32_t trailing[4];
  std::size_t trailing_count = 0;
  const auto& table = unicode_tables::decompositions;
  while (true) {  // only the first part decomposes further
    const auto row = std::lower_bound(table.begin(), table.end(), point,
                                      [](const auto& r, std::uint32_t p) { return r.composed < p; });
    if (row == table.end() || row->composed != point) break;
    if (row->second != 0 && trailing_count < 4) trailing[trailing_count++] = row->second;
    point = row->first;
  }
  out.push_back({point, combining_class(point)});
  while (trailing_count > 0) {
    const std::uint32_t next = trailing[--trailing_count];
    out.push_back({next, combining_class(next)});
  }
}

/// Sorts by combining class, in linear time: a run of marks can be as long as the text. Equal ones keep
/// their order.
inline void sort_by_class(std::span<Classed> marks) {
  std::array<std::size_t, 257> place{};  // where the next mark of a class goes
  for (const Classed& mark : marks) ++place[mark.combining_class + 1U];
  for (std::size_t i = 1; i < place.size(); ++i) place[i] += place[i - 1];
  const std::vector<Classed> given(marks.begin(), marks.end());
  for (const Classed& mark : given) marks[place[mark.combining_class]++] = mark;
}

/// Normalises one segment (a starter and what may combine with it), decomposed in `parts`.
inline void append_composed(std::string& out, std::vector<Classed>& parts) {
  for (std::size_t i = 0; i < parts.size();) {  // canonical order: stable by class between starters
    std::size_t end = i + 1;
    while (end < parts.size() && parts[end].combining_class != 0) ++end;
    const auto marks = parts[i].combining_class == 0 ? i + 1 : i;
    if (end - marks > 1) sort_by_class(std::span(parts).subspan(marks, end - marks));
    i = end;
  }
  std::size_t starter = parts.size();  // index of the last starter, if any
  std::size_t kept = 0;
  for (const Classed part : parts) {
    if (starter < kept) {
      // Blocked: something between the starter and this one has class 0 or the same or a higher class.
      const bool adjacent = kept == starter + 1;
      const bool blocked = !adjacent && parts[kept - 1].combining_class >= part.combining_class;
      const std::uint32_t composed = blocked ? 0 : compose(parts[starter].point, part.point);
      if (composed != 0) {
        parts[starter].point = composed;
        continue;
      }
    }
    if (part.combining_class == 0) starter = kept;
    parts[kept++] = part;
  }
  for (std::size_t i = 0; i < kept; ++i) append(out, parts[i].point);
}

/// Offset of the first segment of valid UTF-8 that NFC might change; text.size() when there is none.
[[nodiscard]] inline std::size_t nfc_prefix(std::string_view text) noexcept {
  std::size_t i = ascii_prefix(text);
  std::size_t boundary = i > 0 ? i - 1 : 0;  // the last character that begins a segment
  std::uint8_t last_class = 0;
  while (i < text.size()) {
    const Decoded next = decode(text, i);
    const unsigned flags = properties(next.point);
    if ((flags & unstable) != 0) return boundary;
    if ((flags & reorders) != 0) {
      const std::uint8_t this_class = combining_class(next.point);
      if (this_class < last_class) return boundary;
      last_class = this_class;
    } else {
      boundary = i;
      last_class = 0;
    }
    i += next.length;
  }
  return text.size();
}

/// End of the segment that begins at `at`: the next character that never combines with what precedes.
[[nodiscard]] inline std::size_t segment_end(std::string_view text, std::size_t at) noexcept {
  std::size_t i = at + decode(text, at).length;
  while (i < text.size()) {
    const Decoded next = decode(text, i);
    if ((properties(next.point) & (unstable | reorders)) == 0) break;
    i += next.length;
  }
  return i;
}

/// Normalisation form C of valid UTF-8. Linear.
[[nodiscard]] inline std::string nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<Classed> parts;
  while (!text.empty()) {
    const std::size_t stable = nfc_prefix(text);
    out.append(text.substr(0, stable));
    text.remove_prefix(stable);
    if (text.empty()) break;
    const std::size_t end = segment_end(text, 0);
    parts.clear();
    for (std::size_t i = 0; i < end;) {
      const Decoded next = decode(text, i);
      decompose(next.point, parts);
      i += next.length;
    }
    append_composed(out, parts);
    text.remove_prefix(end);
  }
  return out;
}

/// True when NFC surely leaves valid UTF-8 as it is (the quick check: a false answer may be too careful).
[[nodiscard]] inline bool is_surely_nfc(std::string_view text) noexcept {
  return nfc_prefix(text) == text.size();
}

}  // namespace unicode
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
