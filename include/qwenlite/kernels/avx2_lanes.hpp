// SPDX-License-Identifier: Apache-2.0
//
// The words of the AVX2 kernels: stored elements as eight float32 lanes, sums and maxima over lanes in one
// fixed order, and the exponential. Partial vectors never touch memory outside the elements asked for.
#pragma once

#include <immintrin.h>

#include <qwenlite/kernels/table.hpp>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx2 {

[[nodiscard]] inline Index smaller(Index a, Index b) {
  return a < b ? a : b;
}

/// Asks for a cache line that will be needed soon; any address is allowed. To the second-level cache: more
/// lines can be on their way to it than to the first.
inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

// ------------------------------------------------------------------------------- stored elements

/// v, which is computed at this place of the program: no load that follows goes before it. Left to itself
/// clang moves the loads of several steps ahead, and then has no registers left for a tile's sums.
[[nodiscard]] [[gnu::always_inline]] inline __m256 in_order(__m256 v) {
  asm volatile("" : "+x"(v));
  return v;
}

/// All bits set in the first `n` of eight lanes (n may lie outside 0..8).
[[nodiscard]] inline __m256i first_lanes(Index n) {
  const int count = static_cast<int>(n < 0 ? 0 : smaller(n, 8));
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/// Eight stored elements as float32, one type per storage format.
struct LoadBf16 {
  static constexpr Index bytes = 2;
  static __m256 all(const std::byte* p) {
    const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
  }
};
struct LoadF16 {
  static constexpr Index bytes = 2;
  static __m256 all(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};
struct LoadF32 {
  static constexpr Index bytes = 4;
  static __m256 all(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
};

/// The first n (1..7) of eight elements, the rest zero; only the n are read.
template <class Load>
[[nodiscard]] inline __m256 load_some(const std::byte* p, Index n) {
  alignas(32) std::byte copy[32] = {};
  std::memcpy(copy, p, static_cast<std::size_t>(n * Load::bytes));
  return Load::all(copy);
}

/// Calls f(i, n) for each run of n = 8 elements from i on, and for the n < 8 that may remain.
template <class Function>
inline void for_lanes(Index count, const Function& f) {
  Index i = 0;
  for (; i + 8 <= count; i += 8) f(i, Index{8});
  if (i < count) f(i, count - i);
}

/// The first n of eight float32 values, the rest zero (n may lie outside 0..8). Only the n are read: a copy,
/// since masked loads next to an unmapped page fault in some emulators, though not in hardware.
[[nodiscard]] inline __m256 load(const float* p, Index n) {
  if (n >= 8) return _mm256_loadu_ps(p);
  return n > 0 ? load_some<LoadF32>(reinterpret_cast<const std::byte*>(p), n) : _mm256_setzero_ps();
}

/// Stores the first n (1..8) of eight values.
inline void store(float* p, Index n, __m256 v) {
  if (n == 8) {
    _mm256_storeu_ps(p, v);
  } else {
    _mm256_maskstore_ps(p, first_lanes(n), v);
  }
}

/// n (1..8) stored elements.
template <class Load>
[[nodiscard]] inline __m256 load_elements(const std::byte* p, Index n) {
  return n == 8 ? Load::all(p) : load_some<Load>(p, n);
}

// --------------------------------------------------------------------------------- over the lanes

/// Four sums over lanes at once, each ((l0+l1) + (l2+l3)) + ((l4+l5) + (l6+l7)).
[[nodiscard]] inline __m128 sum_lanes(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256 pairs_ab = _mm256_hadd_ps(a, b);
  const __m256 pairs_cd = _mm256_hadd_ps(c, d);
  const __m256 halves = _mm256_hadd_ps(pairs_ab, pairs_cd);
  return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}
[[nodiscard]] inline float sum_lanes(__m256 v) {
  return _mm_cvtss_f32(sum_lanes(v, v, v, v));
}

[[nodiscard]] inline float max_lanes(__m256 v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/// 2^n for integers -126..127 held as float32.
[[nodiscard]] inline __m256 power_of_two(__m256 n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}

/// e^x with relative error below 1.2e-7 where the result is a normal number: x = n ln 2 + r, e^r by a
/// polynomial of degree 6 (minimax on |r| <= ln(2)/2), and 2^n applied in two halves so that results
/// underflow gradually. Exactly 1 at 0, exactly 0 below -104 (also at -inf), +inf above 88.73; NaN stays.
[[nodiscard]] inline __m256 exp(__m256 x) {
  x = _mm256_max_ps(_mm256_set1_ps(-105.0F), x);  // in this order of operands NaN passes through
  x = _mm256_min_ps(_mm256_set1_ps(90.0F), x);
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0F)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // ln 2 in two parts; the first has few enough bits that n times it is exact.
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1F), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20F), r);
  __m256 p = _mm256_set1_ps(0x1.6a2434p-10F);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.1239e2p-7F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558f2p-5F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.555492p-3F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffcp-2F));
  p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r);
  p = _mm256_add_ps(p, _mm256_set1_ps(1.0F));
  const __m256 half =
      _mm256_round_ps(_mm256_mul_ps(n, _mm256_set1_ps(0.5F)), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  p = _mm256_mul_ps(p, power_of_two(half));
  return _mm256_mul_ps(p, power_of_two(_mm256_sub_ps(n, half)));
}

}  // namespace kernels::avx2
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
