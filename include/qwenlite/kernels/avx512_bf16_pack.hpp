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

/// The same in the order of PackLayout::blocks_bf16.
template <class Value>
inline void round_blocks(Index n, std::byte* out, const Value& value) {
  const __m512i halves = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,  //
                                          23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  for (Index block = 0; block < n; block += quantised_block, out += 2 * quantised_block) {
    for (Index part = 0; part < 4; ++part) {
      const Index i = block + 16 * part;
      const __m512 low = value(i, avx512::lanes_from(i, n));
      const __m512 high = value(i + 64, avx512::lanes_from(i + 64, n));
      _mm512_store_si512(out + part * 64, _mm512_permutexvar_epi16(halves, to_bf16(low, high)));
    }
  }
}

/// Rounds the same numbers as avx512::rms_norm() gives; rounded(value) writes them.
template <class Load, class Rounded>
inline void round_normed(const PackArgs& a, const float* x, const Rounded& rounded) {
  const __m512 scale = _mm512_set1_ps(avx512::norm_scale(x, a.in, a.epsilon));
  const __m512 offset = _mm512_set1_ps(a.norm_weight.offset);
  rounded([&](Index i, __mmask16 m) {
    const __m512 normed = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), scale);
    const __m512 stored = Load::some(a.norm_weight.data + i * Load::bytes, m);
    return _mm512_maskz_mul_ps(m, normed, _mm512_add_ps(stored, offset));
  });
}

template <class Rounded>
inline void round_column(const PackArgs& a, const float* x, const Rounded& rounded) {
  if (a.norm_weight.data == nullptr) {
    rounded([&](Index i, __mmask16 m) { return _mm512_maskz_loadu_ps(m, x + i); });
  } else if (a.norm_weight.format == Format::bf16) {
    round_normed<avx512::LoadBf16>(a, x, rounded);
  } else if (a.norm_weight.format == Format::f16) {
    round_normed<avx512::LoadF16>(a, x, rounded);
  } else {
    round_normed<avx512::LoadF32>(a, x, rounded);
  }
}

inline void pack(const PackArgs& a) {
  if (!rounds_to_bf16(a.layout)) return avx512::pack(a);
  for (Index t = a.first; t < a.last; ++t) {
    const float* x = a.x + t * a.x_stride;
    std::byte* const out = a.out + t * packed_bytes(a.layout, 1, a.in);
    if (a.layout == PackLayout::blocks_bf16) {
      round_column(a, x, [&](const auto& value) { round_blocks(a.in, out, value); });
    } else {
      round_column(a, x, [&](const auto& value) { round_row(a.in, out, value); });
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
