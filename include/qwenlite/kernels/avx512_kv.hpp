// SPDX-License-Identifier: Apache-2.0
//
// Compressed keys and values on AVX-512: codes as float32, sixteen at a time, and whole planes as bf16 in the
// layout of a bf16 block, for kernels that take no other. Nothing is rounded on the way; e4m3 numbers come
// out 2^8 times smaller, which factor_of() gives back with a position's scale.
#pragma once

#include <qwenlite/kernels/avx512_matmul.hpp>
#include <qwenlite/kernels/kv_unpacking.hpp>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), \
                             apply_to = function)
#else
// GCC 12 warns inside its own 512-bit intrinsics (an "undefined" operand that is never read).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx512 {

/// Codes i .. i + 15 of a row (i a multiple of 16) as float32.
struct Int8Codes {
  static constexpr Index bytes = 1;
  static __m512 widen(__m128i codes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)); }
  static __m512 all(const std::byte* p) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static __m512 some(const std::byte* p, __mmask16 m) { return widen(_mm_maskz_loadu_epi8(m, p)); }
  static __m512 sixteen(const std::byte* row, Index i) { return all(row + i); }
};
struct Fp8Codes {
  /// A float16 has room for sign, exponent and fraction of an e4m3; its exponents count from 8 less.
  static __m512 sixteen(const std::byte* row, Index i) {
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + i)));
    const __m256i half =
        _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<short>(0xBFFF)));
    return _mm512_cvtph_ps(half);
  }
};
struct Int4Codes {
  static __m512 sixteen(const std::byte* row, Index i) {
    const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + i / 32 * 16));
    const __m128i codes = _mm_and_si128(i % 32 == 0 ? both : _mm_srli_epi16(both, 4), _mm_set1_epi8(15));
    const __m128i numbers = _mm_setr_epi8(-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15);
    return Int8Codes::widen(_mm_shuffle_epi8(numbers, codes));
  }
};

/// [rows][dims] bf16.
template <class Codes>
inline void unpack_rows(const CodeRows& u, Index rows) {
  const __m512i upper_words = _mm512_add_epi16(
      _mm512_set1_epi32(0x00030001),
      _mm512_slli_epi32(
          _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                             _mm512_set1_epi32(0x00010001)),
          2));
  for (Index r = 0; r < rows; ++r) {
    const std::byte* const row = u.codes + r * u.row_bytes;
    for (Index i = 0; i < u.dims; i += 32) {
      const __m512i low = _mm512_castps_si512(Codes::sixteen(row, i));
      const __m512i high = _mm512_castps_si512(Codes::sixteen(row, i + 16));
      _mm512_store_si512(u.out + (r * u.dims + i) * 2, _mm512_permutex2var_epi16(low, upper_words, high));
    }
  }
}

/// [pairs][dims][2] bf16.
template <class Codes>
inline void unpack_pairs(const CodeRows& u, Index pairs) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
  for (Index j = 0; j < pairs; ++j) {
    const std::byte* const even = u.codes + 2 * j * u.row_bytes;
    for (Index i = 0; i < u.dims; i += 16) {
      const __m512i first = _mm512_srli_epi32(_mm512_castps_si512(Codes::sixteen(even, i)), 16);
      const __m512i second =
          _mm512_and_si512(_mm512_castps_si512(Codes::sixteen(even + u.row_bytes, i)), upper);
      _mm512_store_si512(u.out + (j * u.dims + i) * 4, _mm512_or_si512(first, second));
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

}  // namespace kernels::avx512
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
