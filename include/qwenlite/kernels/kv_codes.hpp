// SPDX-License-Identifier: Apache-2.0
//
// The small numbers of compressed keys and values: how a row of float32 becomes codes and one scale, and the
// rotation that comes before four bits. Portable loops over groups of 32, which compilers vectorise; a row's
// codes depend on the row alone. A row that is not finite gets a NaN as its scale, so that it is not hidden.
#pragma once

#include <algorithm>
#include <limits>

#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Small numbers of a row come in groups of so many, the last one padded with zeros.
inline constexpr Index code_group = 32;

/// Calls f(group, values) for each group of a row: its 32 numbers, zeros beyond the row's end.
template <class F>
inline void for_code_groups(const float* row, Index n, const F& f) noexcept {
  float values[code_group];
  for (Index i = 0; i < n; i += code_group) {
    const Index count = std::min(code_group, n - i);
    for (Index j = count; j < code_group; ++j) values[j] = 0;
    std::copy_n(row + i, count, values);
    f(i / code_group, values);
  }
}

/// Which scale maps the largest magnitude of a row to `top`: 0 for rows of zeros (or as good as), NaN for
/// rows that are not finite. `inverse` is 1 / scale, or 0.
struct RowScale {
  float scale = 0;
  float inverse = 0;

  RowScale(const float* row, Index n, float top) noexcept {
    std::uint32_t largest = 0;  // magnitudes of float32 are ordered as integers are, NaN last
    for_code_groups(row, n, [&](Index /*group*/, const float* values) {
      std::uint32_t most = 0;
      for (Index j = 0; j < code_group; ++j) {
        const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(values[j]) & 0x7FFFFFFFU;
        most = magnitude > most ? magnitude : most;
      }
      largest = std::max(largest, most);
    });
    if (largest >= 0x7F800000U) {
      scale = std::numeric_limits<float>::quiet_NaN();
    } else if (largest >= 0x0D800000U) {  // 2^-100: what is smaller has no scale that is a normal number
      const float magnitude = std::bit_cast<float>(largest);
      scale = magnitude / top;
      inverse = top / magnitude;
    }
  }
};

/// Whole numbers near x (|x| < 2^21) in the lowest bits of the result, ties to even.
[[nodiscard]] inline std::uint32_t nearest(float x) noexcept {
  return std::bit_cast<std::uint32_t>(x + 12582912.0F);  // 1.5 * 2^23: the unit is the last bit
}

/// Codes of a row [n], padded to groups of 32; returns the row's scale.
inline float encode_int8(const float* row, Index n, std::uint8_t* codes) noexcept {
  const RowScale to(row, n, 127);
  for_code_groups(row, n, [&](Index group, const float* values) {
    std::uint8_t out[code_group];
    for (Index j = 0; j < code_group; ++j) {
      out[j] = static_cast<std::uint8_t>(nearest(values[j] * to.inverse));
    }
    std::copy_n(out, code_group, codes + group * code_group);
  });
  return to.scale;
}

inline float encode_fp8(const float* row, Index n, std::uint8_t* codes) noexcept {
  const RowScale to(row, n, 448);
  for_code_groups(row, n, [&](Index group, const float* values) {
    std::uint8_t out[code_group];
    for (Index j = 0; j < code_group; ++j) {
      out[j] = F8E4M3(values[j] * to.inverse).bits;
    }
    std::copy_n(out, code_group, codes + group * code_group);
  });
  return to.scale;
}

// --------------------------------------------------------------------------------------- rotation

inline constexpr Index max_rotated_dim = 1024;

[[nodiscard]] constexpr bool can_rotate(Index n) noexcept {
  return n >= 2 && n <= max_rotated_dim && (n & (n - 1)) == 0;
}

/// x <- H x / sqrt(n) with the Hadamard matrix H of order n, a power of two. This is orthogonal and its own
/// inverse: products of two rotated vectors are those of the vectors, and what a few elements hold spreads
/// over all of them. n log2(n) additions (the fast Walsh-Hadamard transform).
inline void rotate(float* x, Index n) noexcept {
  const auto factor = static_cast<float>(1 / std::sqrt(static_cast<double>(n)));
  for (Index i = 0; i < n; ++i) x[i] *= factor;
  for (Index i = 0; i < n; i += 2) {
    const float a = x[i];
    x[i] = a + x[i + 1];
    x[i + 1] = a - x[i + 1];
  }
  for (Index i = 0; i + 4 <= n; i += 4) {
    for (Index j = i; j < i + 2; ++j) {
      const float a = x[j];
      x[j] = a + x[j + 2];
      x[j + 2] = a - x[j + 2];
    }
  }
  for (Index half = 4; half < n; half *= 2) {
    for (Index i = 0; i < n; i += 2 * half) {
      for (Index j = i; j < i + half; j += 4) {
        float low[4];
        float high[4];
        for (Index l = 0; l < 4; ++l) low[l] = x[j + l] + x[j + half + l];
        for (Index l = 0; l < 4; ++l) high[l] = x[j + l] - x[j + half + l];
        std::copy_n(low, 4, x + j);
        std::copy_n(high, 4, x + j + half);
      }
    }
  }
}

/// Code c stands for 2 c - 15: all sixteen codes of a range around zero are used, though zero is none of them
/// (a row of zeros has the scale 0).
[[nodiscard]] inline int decode_int4(const std::uint8_t* codes, Index i) noexcept {
  const unsigned both = codes[i / code_group * 16 + i % 16];
  return static_cast<int>(2 * (i % code_group < 16 ? both & 15U : both >> 4U)) - 15;
}

/// Rotates a copy of the row; its codes take half the bytes.
inline float encode_int4(const float* row, Index n, std::uint8_t* codes) noexcept {
  float rotated[max_rotated_dim];
  std::copy_n(row, n, rotated);
  rotate(rotated, n);
  const RowScale to(rotated, n, 15);
  for_code_groups(rotated, n, [&](Index group, const float* values) {
    std::uint32_t nibbles[code_group];
    for (Index j = 0; j < code_group; ++j) {
      const float code = values[j] * to.inverse * 0.5F + 7.5F;  // 0 .. 15
      nibbles[j] = nearest(code) & 15U;
    }
    std::uint8_t out[code_group / 2];
    for (Index j = 0; j < code_group / 2; ++j) {
      out[j] = static_cast<std::uint8_t>(nibbles[j] | nibbles[j + code_group / 2] << 4U);
    }
    std::copy_n(out, code_group / 2, codes + group * (code_group / 2));
  });
  return to.scale;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
