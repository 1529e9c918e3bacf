// SPDX-License-Identifier: Apache-2.0
//
// Activations become int8 on AVX-512, with the same bits as quantise_block() makes. Products of them are in
// avx512_vnni_int8.hpp; CPUs without that extension take those of AVX2.
#pragma once

#include <qwenlite/kernels/avx512_lanes.hpp>
#include <qwenlite/kernels/scalar_int8.hpp>

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

/// Sums over groups of codes, from the 128 of a block.
inline void store_sums(const std::byte* codes, std::byte* out) {
  alignas(64) std::uint64_t eights[16];  // of codes + 128
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  for (int half = 0; half < 2; ++half) {
    const __m512i raised = _mm512_xor_si512(_mm512_loadu_si512(codes + 64 * half), sign);
    _mm512_store_si512(eights + 8 * half, _mm512_sad_epu8(raised, _mm512_setzero_si512()));
  }
  int sums[7];
  for (int g = 0; g < 4; ++g) {
    const std::uint64_t sum = eights[4 * g] + eights[4 * g + 1] + eights[4 * g + 2] + eights[4 * g + 3];
    sums[g] = static_cast<int>(sum) - 32 * 128;
  }
  sums[4] = sums[0] + sums[1];
  sums[5] = sums[2] + sums[3];
  sums[6] = sums[4] + sums[5];
  std::int16_t stored[8] = {};
  for (int i = 0; i < 7; ++i) stored[i] = static_cast<std::int16_t>(sums[i]);
  std::memcpy(out, stored, sizeof stored);
}

/// The magnitude of the largest of 128 numbers, as bits.
[[nodiscard]] inline std::uint32_t largest_magnitude(const float* values) {
  __m512i most = _mm512_setzero_si512();
  for (Index i = 0; i < quantised_block; i += 16) {
    const __m512i bits = _mm512_and_si512(_mm512_loadu_si512(values + i), _mm512_set1_epi32(0x7FFFFFFF));
    most = _mm512_max_epu32(most, bits);
  }
  const __m256i eight = _mm256_max_epu32(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
  const __m128i four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4E));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_max_epu32(two, _mm_shuffle_epi32(two, 0xB1))));
}

inline void quantise_by_vectors(const float* values, const Int8Column& parts, Index b, std::byte* column) {
  const Int8Scale to(largest_magnitude(values));
  const __mmask16 lanes = to.finite ? first_lanes(16) : first_lanes(0);
  const __m512 inverse = _mm512_set1_ps(to.inverse);
  std::byte* const codes = column + b * quantised_block;
  for (Index i = 0; i < quantised_block; i += 16) {
    const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(values + i), inverse));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), _mm512_maskz_cvtepi32_epi8(lanes, whole));
  }
  store_sums(codes, column + parts.sums() + b * 16);
  std::memcpy(column + parts.scales() + b * 4, &to.scale, 4);
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
