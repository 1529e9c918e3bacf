// SPDX-License-Identifier: Apache-2.0
//
// Compressed keys and values on AVX2: whole planes as bf16 in the layout of a bf16 block. Nothing is rounded
// on the way; e4m3 numbers come out 2^8 times smaller, which factor_of() gives back with a position's scale.
#pragma once

#include <qwenlite/kernels/avx2_lanes.hpp>
#include <qwenlite/kernels/kv_unpacking.hpp>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx2 {

/// Sixteen numbers in two vectors of float32.
struct Sixteen {
  __m256 low;
  __m256 high;
};

/// Codes i .. i + 15 of a row (i a multiple of 16) as float32.
struct Int8Codes {
  static Sixteen widen(__m128i codes) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8)))};
  }
  static Sixteen sixteen(const std::byte* row, Index i) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + i)));
  }
};
struct Fp8Codes {
  /// A float16 has room for sign, exponent and fraction of an e4m3; its exponents count from 8 less.
  static Sixteen sixteen(const std::byte* row, Index i) {
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + i)));
    const __m256i half =
        _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<short>(0xBFFF)));
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
  }
};
struct Int4Codes {
  static Sixteen sixteen(const std::byte* row, Index i) {
    const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + i / 32 * 16));
    const __m128i codes = _mm_and_si128(i % 32 == 0 ? both : _mm_srli_epi16(both, 4), _mm_set1_epi8(15));
    const __m128i numbers = _mm_setr_epi8(-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15);
    return Int8Codes::widen(_mm_shuffle_epi8(numbers, codes));
  }
};

/// [rows][dims] bf16.
template <class Codes>
inline void unpack_rows(const CodeRows& u, Index rows) {
  for (Index r = 0; r < rows; ++r) {
    for (Index i = 0; i < u.dims; i += 16) {
      const Sixteen v = Codes::sixteen(u.codes + r * u.row_bytes, i);
      const __m256i low = _mm256_srli_epi32(_mm256_castps_si256(v.low), 16);
      const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(v.high), 16);
      const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(u.out + (r * u.dims + i) * 2), words);
    }
  }
}

[[nodiscard]] inline __m256i pair_of(__m256 even, __m256 odd) {
  const __m256i low = _mm256_srli_epi32(_mm256_castps_si256(even), 16);
  return _mm256_blend_epi16(low, _mm256_castps_si256(odd), 0xAA);
}

/// [pairs][dims][2] bf16.
template <class Codes>
inline void unpack_pairs(const CodeRows& u, Index pairs) {
  for (Index j = 0; j < pairs; ++j) {
    const std::byte* const row = u.codes + 2 * j * u.row_bytes;
    for (Index i = 0; i < u.dims; i += 16) {
      const Sixteen even = Codes::sixteen(row, i);
      const Sixteen odd = Codes::sixteen(row + u.row_bytes, i);
      auto* const out = reinterpret_cast<__m256i*>(u.out + (j * u.dims + i) * 4);
      _mm256_storeu_si256(out, pair_of(even.low, odd.low));
      _mm256_storeu_si256(out + 1, pair_of(even.high, odd.high));
    }
  }
}

/// The first `rows` keys of a block of a compressed format: [rows][padded head_dim] bf16.
inline void unpack_keys(const KvBlock& block, Index head_dim, Index rows, std::byte* out) {
  const CodeRows u(block.format, head_dim, block.k, out);
  for_codes_of<Int8Codes, Fp8Codes, Int4Codes>(block.format,
                                               [&](auto codes) { unpack_rows<decltype(codes)>(u, rows); });
}

/// The first values of a block of a compressed format: [pairs][padded head_dim][2] bf16.
inline void unpack_values(const KvBlock& block, Index head_dim, Index pairs, std::byte* out) {
  const CodeRows u(block.format, head_dim, block.v, out);
  for_codes_of<Int8Codes, Fp8Codes, Int4Codes>(block.format,
                                               [&](auto codes) { unpack_pairs<decltype(codes)>(u, pairs); });
}

}  // namespace kernels::avx2
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
