// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 kernels (F, BW, DQ, VL) in float32: norms, rotary embedding, activation and packing here, matrix
// products in avx512_matmul.hpp, attention and the table of all in avx512_attention.hpp.
#pragma once

#include <qwenlite/kernels/avx512_int8.hpp>
#include <qwenlite/kernels/avx512_lanes.hpp>
#include <qwenlite/kernels/avx512_matmul.hpp>
#include <qwenlite/kernels/scalar.hpp>

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

template <class Load>
inline void unpack_row(const std::byte* p, Index n, float* out) {
  for_lanes(n, [&](Index i, __mmask16 m) {
    _mm512_mask_storeu_ps(out + i, m, Load::some(p + i * Load::bytes, m));
  });
}

// ----------------------------------------------------------------------------------- elementwise

template <class Load>
inline void scale_by_weight(const float* x, float scale, VectorView weight, float* out) {
  for_lanes(weight.size, [&](Index i, __mmask16 m) {
    const __m512 normed = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), _mm512_set1_ps(scale));
    const __m512 stored = Load::some(weight.data + i * Load::bytes, m);
    const __m512 w = _mm512_add_ps(stored, _mm512_set1_ps(weight.offset));
    _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(normed, w));
  });
}

/// 1 / sqrt(mean(x^2) + epsilon).
[[nodiscard]] inline float norm_scale(const float* x, Index size, float epsilon) {
  __m512 squares = _mm512_setzero_ps();
  for_lanes(size, [&](Index i, __mmask16 m) {
    const __m512 v = _mm512_maskz_loadu_ps(m, x + i);
    squares = _mm512_fmadd_ps(v, v, squares);
  });
  const float mean = sum_lanes(squares) / static_cast<float>(size);
  return 1.0F / __builtin_sqrtf(mean + epsilon);
}

/// out[i] = x[i] * scale * (weight[i] + its offset).
inline void scale_by_weight(const float* x, float scale, VectorView weight, float* out) {
  switch (weight.format) {
    case Format::bf16: return scale_by_weight<LoadBf16>(x, scale, weight, out);
    case Format::f16: return scale_by_weight<LoadF16>(x, scale, weight, out);
    case Format::f32: return scale_by_weight<LoadF32>(x, scale, weight, out);
    case Format::int8:
    case Format::int4:
    case Format::fp8: return;  // vectors are never quantised
  }
}

inline void rms_norm(const float* x, VectorView weight, float epsilon, float* out) {
  scale_by_weight(x, norm_scale(x, weight.size, epsilon), weight, out);
}

inline void pack(const PackArgs& a) {
  if (a.layout == PackLayout::rows_int8)
    return pack_int8(a, norm_scale, scale_by_weight, quantise_by_vectors);
  const Index stride = round_up(a.in, 32);
  for (Index t = a.first; t < a.last; ++t) {
    const float* x = a.x + t * a.x_stride;
    float* row = reinterpret_cast<float*>(a.out) + t * stride;
    if (a.norm_weight.data != nullptr) {
      rms_norm(x, a.norm_weight, a.epsilon, row);
    } else {
      unpack_row<LoadF32>(reinterpret_cast<const std::byte*>(x), a.in, row);
    }
    for (Index i = a.in; i < stride; ++i) row[i] = 0;
    if (a.layout == PackLayout::split_f32) split_row(row, stride);
  }
}

inline void rope(float* x, Index rotary_dim, const float* cos, const float* sin) {
  float* y = x + rotary_dim / 2;
  for_lanes(rotary_dim / 2, [&](Index i, __mmask16 m) {
    const __m512 a = _mm512_maskz_loadu_ps(m, x + i);
    const __m512 b = _mm512_maskz_loadu_ps(m, y + i);
    const __m512 c = _mm512_maskz_loadu_ps(m, cos + i);
    const __m512 s = _mm512_maskz_loadu_ps(m, sin + i);
    _mm512_mask_storeu_ps(x + i, m, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
    _mm512_mask_storeu_ps(y + i, m, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
  });
}

inline void silu_mul(const float* gate, const float* up, float* out, Index n) {
  for_lanes(n, [&](Index i, __mmask16 m) {
    const __m512 g = _mm512_maskz_loadu_ps(m, gate + i);
    const __m512 u = _mm512_maskz_loadu_ps(m, up + i);
    const __m512 e = exp(_mm512_sub_ps(_mm512_setzero_ps(), g));
    const __m512 silu = _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0F), e));
    _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(silu, u));
  });
}

inline void sigmoid_mul(const float* gate, const float* x, float* out, Index n) {
  for_lanes(n, [&](Index i, __mmask16 m) {
    const __m512 e = exp(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_maskz_loadu_ps(m, gate + i)));
    const __m512 below = _mm512_add_ps(_mm512_set1_ps(1.0F), e);
    _mm512_mask_storeu_ps(out + i, m, _mm512_div_ps(_mm512_maskz_loadu_ps(m, x + i), below));
  });
}

inline void decode_row(Format format, const std::byte* row, Index n, float* out) {
  switch (format) {
    case Format::bf16: return unpack_row<LoadBf16>(row, n, out);
    case Format::f16: return unpack_row<LoadF16>(row, n, out);
    case Format::f32: return unpack_row<LoadF32>(row, n, out);
    case Format::int8:
    case Format::int4:
    case Format::fp8: return;  // see decode_quantised()
  }
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

#include <qwenlite/kernels/avx512_attention.hpp>
