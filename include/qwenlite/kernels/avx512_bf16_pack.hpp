// SPDX-License-Identifier: Apache-2.0
//
// Activations rounded to bf16 by the instructions of AVX512_BF16 (to nearest, ties to even, NaN stays NaN;
// denormal numbers become zero), and packed as rows, normalised on the way.
#pragma once

#include <qwenlite/kernels/avx512.hpp>

#if defined(__clang__)
#pragma clang attribute push(                                                               \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c"))), \
    apply_to = function)
#else
// GCC 12 warns inside its own 512-bit intrinsics (an "undefined" operand that is never read).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx512_bf16 {

/// Two vectors of float32 rounded to bf16, `low` in the lower half.
[[nodiscard]] inline __m512i to_bf16(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

/// Rounds a row of n numbers into n rounded up to 32, the tail zero. value(i, mask) gives sixteen of them
/// from the i-th on, those that the mask leaves out zero.
template <class Value>
inline void round_row(Index n, std::byte* out, const Value& value) {
  for (Index i = 0; i < n; i += 32) {
    const __m512 low = value(i, avx512::lanes_from(i, n));
    const __m512 high = value(i + 16, avx512::lanes_from(i + 16, n));
    _mm512_store_si512(out + i * 2, to_bf16(low, high));
  }
}

/// The same numbers as avx512::rms_norm() gives, rounded.
template <class Load>
inline void round_normed(const PackArgs& a, const float* x, std::byte* out) {
  const __m512 scale = _mm512_set1_ps(avx512::norm_scale(x, a.in, a.epsilon));
  const __m512 offset = _mm512_set1_ps(a.norm_weight.offset);
  round_row(a.in, out, [&](Index i, __mmask16 m) {
    const __m512 normed = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), scale);
    const __m512 stored = Load::some(a.norm_weight.data + i * Load::bytes, m);
    return _mm512_maskz_mul_ps(m, normed, _mm512_add_ps(stored, offset));
  });
}

inline void pack(const PackArgs& a) {
  if (a.layout != PackLayout::rows_bf16) return avx512::pack(a);
  for (Index t = a.first; t < a.last; ++t) {
    const float* x = a.x + t * a.x_stride;
    std::byte* const row = a.out + t * packed_bytes(PackLayout::rows_bf16, 1, a.in);
    if (a.norm_weight.data == nullptr) {
      round_row(a.in, row, [&](Index i, __mmask16 m) { return _mm512_maskz_loadu_ps(m, x + i); });
    } else if (a.norm_weight.format == Format::bf16) {
      round_normed<avx512::LoadBf16>(a, x, row);
    } else if (a.norm_weight.format == Format::f16) {
      round_normed<avx512::LoadF16>(a, x, row);
    } else {
      round_normed<avx512::LoadF32>(a, x, row);
    }
  }
}

}  // namespace kernels::avx512_bf16
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
