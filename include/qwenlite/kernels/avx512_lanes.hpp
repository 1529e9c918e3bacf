// SPDX-License-Identifier: Apache-2.0
//
// The words of the AVX-512 kernels: stored elements as sixteen float32 lanes, sums and maxima over lanes in
// one fixed order, and the exponential. Masked-out elements never touch memory.
#pragma once

#include <immintrin.h>

#include <qwenlite/kernels/table.hpp>

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

/// Asks for a cache line that will be needed soon; any address is allowed. To the second-level cache: more
/// lines can be on their way to it than to the first, and there they would hold up this step's own loads.
inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

/// The same to the first-level cache, for a stream that the CPU follows by itself.
inline void prefetch_near(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

/// v, which is computed at this place of the program: no load that follows goes before it. Left to itself
/// clang moves the loads of several steps ahead, and then has no registers left for a tile's sums.
[[nodiscard]] [[gnu::always_inline]] inline __m512 in_order(__m512 v) {
  asm volatile("" : "+v"(v));
  return v;
}

/// A product, rounded: it does not become one multiply-add with a sum that follows.
template <class T>
[[nodiscard]] [[gnu::always_inline]] inline T rounded(T product) {
  asm("" : "+v"(product));
  return product;
}

[[nodiscard]] inline __mmask16 first_lanes(Index n) {
  return static_cast<__mmask16>(n >= 16 ? 0xFFFFU : (1U << static_cast<unsigned>(n)) - 1U);
}

/// The elements from `at` on that belong to [0, size), at most 16, as a mask.
[[nodiscard]] inline __mmask16 lanes_from(Index at, Index size) {
  return at >= size ? static_cast<__mmask16>(0) : first_lanes(size - at);
}

/// Sixteen stored elements as float32, whole or masked (masked-out elements are not read).
struct LoadBf16 {
  static constexpr Index bytes = 2;
  static __m512 widen(__m256i raw) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));
  }
  static __m512 all(const std::byte* p) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static __m512 some(const std::byte* p, __mmask16 m) { return widen(_mm256_maskz_loadu_epi16(m, p)); }
};
struct LoadF16 {
  static constexpr Index bytes = 2;
  static __m512 all(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static __m512 some(const std::byte* p, __mmask16 m) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p));
  }
};
struct LoadF32 {
  static constexpr Index bytes = 4;
  static __m512 all(const std::byte* p) { return _mm512_loadu_ps(p); }
  static __m512 some(const std::byte* p, __mmask16 m) { return _mm512_maskz_loadu_ps(m, p); }
};

/// The tree over lanes: l + (l+8), then + (l+4), + (l+2), + (l+1).
[[nodiscard]] inline float sum_lanes(__m512 v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// The same tree for four vectors at once.
[[nodiscard]] inline __m128 sum_lanes(const __m512 (&v)[4]) {
  const __m512 ab =
      _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44), _mm512_shuffle_f32x4(v[0], v[1], 0xEE));
  const __m512 cd =
      _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44), _mm512_shuffle_f32x4(v[2], v[3], 0xEE));
  const __m512 four = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
  const __m512 two = _mm512_add_ps(four, _mm512_permute_ps(four, 0x4E));
  const __m512 one = _mm512_add_ps(two, _mm512_permute_ps(two, 0xB1));
  const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, one));
}

/// The largest lane.
[[nodiscard]] inline float max_lanes(__m512 v) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/// e^x by reduction to |r| <= ln(2)/2 and a polynomial of degree 7: relative error below 2e-7. Arguments
/// at or below -104 give exactly zero, those above 88.8 infinity.
[[nodiscard]] inline __m512 exp(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-150.0F), x);  // in this order of operands NaN passes through
  x = _mm512_min_ps(_mm512_set1_ps(100.0F), x);
  const __m512 n = _mm512_cvtepi32_ps(_mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504F))));
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752F), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6F), r);
  __m512 p = _mm512_set1_ps(1.0F / 5040.0F);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 720.0F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 120.0F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 24.0F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 6.0F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
  return _mm512_scalef_ps(p, n);
}

/// Calls f(offset, mask) for each sixteen elements of n; the last mask may be partial.
template <class F>
inline void for_lanes(Index n, F&& f) {
  for (Index i = 0; i < n; i += 16) f(i, first_lanes(n - i));
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
