// SPDX-License-Identifier: Apache-2.0
//
// The random numbers of sampling: a pure function of a seed and a position, without any state.
#pragma once

#include <array>
#include <cstdint>

#include <qwenlite/error.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
/// A pure function: 64 bits of key and 128 bits of counter in, 128 random bits out.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                            std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32U) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32U) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// The uniform number in [0, 1) that belongs to a seed and a position, with 53 random bits.
[[nodiscard]] constexpr double uniform_at(std::uint64_t seed, std::uint64_t position) noexcept {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32U); };
  const auto random = philox({low(position), high(position), 0, 0}, {low(seed), high(seed)});
  const std::uint64_t bits = (std::uint64_t{random[0]} << 32U | random[1]) >> 11U;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
