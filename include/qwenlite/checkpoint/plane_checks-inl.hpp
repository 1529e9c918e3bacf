// SPDX-License-Identifier: Apache-2.0
//
// Checks of the planes of packed matrices that are computed on where they lie: scales and zero points are a
// hundredth of their numbers, and read eight bytes at a time while a network is opened.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include <qwenlite/checkpoint/packed.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace plane_checks {

/// Scales are below this, so that a product with a number is finite.
inline constexpr float scale_limit = 0x1p119F;

/// Throws `bad_tensor` for a scale.
[[noreturn]] inline void reject_scale(const PackedMatrix& m, Index row, Index group, float scale) {
  const bool large = std::fabs(scale) >= scale_limit;
  throw Error(ErrorCode::bad_tensor, {m.name, ": its scale of row ", row, ", group ", group},
              std::isnan(scale)   ? "NaN"
              : std::isinf(scale) ? "infinity"
              : large             ? "a number too large"
                                  : "zero or less",
              m.layout == PackedLayout::e4m3 ? "a positive number" : "a finite number");
}

/// The first of `words` words of eight bytes of which `test` is not zero; `words` if there is none. Runs of
/// 64 words are tested together, which costs no branch for each of them.
template <class Test>
[[nodiscard]] inline Index first_word(const std::byte* bytes, Index words, const Test& test) noexcept {
  constexpr Index run = 64;
  const auto tested = [&](Index i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + 8 * i, 8);
    return test(word);
  };
  for (Index first = 0; first < words; first += run) {
    const Index end = first + run < words ? first + run : words;
    std::uint64_t any = 0;
    for (Index i = first; i < end; ++i) any |= tested(i);
    if (any == 0) continue;
    for (Index i = first; i < end; ++i) {
      if (tested(i) != 0) return i;
    }
  }
  return words;
}

/// The first of `count` float16 numbers that is NaN or infinite; `count` if there is none.
[[nodiscard]] inline Index first_not_finite(const std::byte* halves, Index count) noexcept {
  // An exponent of ones is NaN or infinite: one more carries into the bit of the sign.
  const auto test = [](std::uint64_t word) {
    return ((word & 0x7C00'7C00'7C00'7C00U) + 0x0400'0400'0400'0400U) & 0x8000'8000'8000'8000U;
  };
  for (Index i = 4 * first_word(halves, count / 4, test); i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, halves + 2 * i, 2);
    if ((bits & 0x7C00U) == 0x7C00U) return i;
  }
  return count;
}

/// The first of `count` bytes that is above 15; `count` if there is none.
[[nodiscard]] inline Index first_above_15(const std::byte* bytes, Index count) noexcept {
  const auto test = [](std::uint64_t word) { return word & 0xF0F0'F0F0'F0F0'F0F0U; };
  for (Index i = 8 * first_word(bytes, count / 8, test); i < count; ++i) {
    if (std::to_integer<unsigned>(bytes[i]) > 15U) return i;
  }
  return count;
}

/// Throws `bad_tensor` for the first scale or zero point of our own form that is out of range: nobody else
/// reads them before products do.
inline void check(const PackedMatrix& m) {
  const Index count = m.rows * m.groups;
  const Index scale = first_not_finite(m.scales.data, count);
  if (scale < count) {
    F16 bad;
    std::memcpy(&bad, m.scales.data + 2 * scale, 2);
    reject_scale(m, scale / m.groups, scale % m.groups, static_cast<float>(bad));
  }
  if (m.zeros.data == nullptr || m.bits != 4) return;
  const Index zero = first_above_15(m.zeros.data, count);
  if (zero == count) return;
  throw Error(ErrorCode::bad_tensor,
              {m.name, ": its zero point of row ", zero / m.groups, ", group ", zero % m.groups},
              std::to_integer<int>(m.zeros.data[zero]), "from 0 to 15");
}

}  // namespace plane_checks
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
