// SPDX-License-Identifier: Apache-2.0
//
// AVX2 + FMA + F16C kernels: norms, rotary embedding, activation and packing here, matrix products in
// avx2_matmul.hpp, attention in avx2_attention.hpp, and the table of all of them. Float32 throughout; a
// product followed by a sum is always an explicit fused multiply-add, so both compilers round alike.
#pragma once

#include <qwenlite/kernels/avx2_attention.hpp>
#include <qwenlite/kernels/avx2_delta.hpp>
#include <qwenlite/kernels/avx2_int8.hpp>
#include <qwenlite/kernels/avx2_matmul.hpp>
#include <qwenlite/kernels/avx2_quantised.hpp>
#include <qwenlite/kernels/scalar.hpp>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx2 {

/// sum x[i]^2: four chains of eight lanes, then one tree.
[[nodiscard]] inline float sum_of_squares(const float* x, Index size) {
  __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
  for_lanes(size, [&](Index i, Index n) {
    const __m256 v = load(x + i, n);
    __m256& sum = sums[i / 8 % 4];
    sum = _mm256_fmadd_ps(v, v, sum);
  });
  return sum_lanes(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
}

template <class Load>
inline void scale_by_weight(const float* x, float scale, VectorView weight, float* out) {
  for_lanes(weight.size, [&](Index i, Index n) {
    const __m256 normed = _mm256_mul_ps(load(x + i, n), _mm256_set1_ps(scale));
    const __m256 stored = load_elements<Load>(weight.data + i * Load::bytes, n);
    const __m256 w = _mm256_add_ps(stored, _mm256_set1_ps(weight.offset));
    store(out + i, n, _mm256_mul_ps(normed, w));
  });
}

/// 1 / sqrt(mean(x^2) + epsilon).
[[nodiscard]] inline float norm_scale(const float* x, Index size, float epsilon) {
  const float mean = sum_of_squares(x, size) / static_cast<float>(size);
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
  if (a.layout == PackLayout::rows_int8) return pack_int8(a, norm_scale, scale_by_weight, quantise_block);
  const Index stride = round_up(a.in, 32);
  for (Index t = a.first; t < a.last; ++t) {
    const float* x = a.x + t * a.x_stride;
    float* row = reinterpret_cast<float*>(a.out) + t * stride;
    if (a.norm_weight.data != nullptr) {
      rms_norm(x, a.norm_weight, a.epsilon, row);
    } else {
      std::memcpy(row, x, static_cast<std::size_t>(a.in) * sizeof(float));
    }
    for (Index i = a.in; i < stride; ++i) row[i] = 0;
  }
}

/// Rotate-half form: (a, b) -> (a cos - b sin, b cos + a sin) for a = x[i], b = x[i + rotary_dim/2].
inline void rope(float* x, Index rotary_dim, const float* cos, const float* sin) {
  float* y = x + rotary_dim / 2;
  for_lanes(rotary_dim / 2, [&](Index i, Index n) {
    const __m256 a = load(x + i, n);
    const __m256 b = load(y + i, n);
    const __m256 c = load(cos + i, n);
    const __m256 s = load(sin + i, n);
    store(x + i, n, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
    store(y + i, n, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
  });
}

inline void silu_mul(const float* gate, const float* up, float* out, Index size) {
  for_lanes(size, [&](Index i, Index n) {
    const __m256 g = load(gate + i, n);
    const __m256 decay = exp(_mm256_sub_ps(_mm256_setzero_ps(), g));
    const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1.0F), decay));
    store(out + i, n, _mm256_mul_ps(silu, load(up + i, n)));
  });
}

inline void sigmoid_mul(const float* gate, const float* x, float* out, Index size) {
  for_lanes(size, [&](Index i, Index n) {
    const __m256 decay = exp(_mm256_sub_ps(_mm256_setzero_ps(), load(gate + i, n)));
    store(out + i, n, _mm256_div_ps(load(x + i, n), _mm256_add_ps(_mm256_set1_ps(1.0F), decay)));
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

inline constexpr KernelTable table = [] {
  KernelTable t = scalar::table;
  t.name = "avx2";
  t.pack = pack;
  t.matmul = matmul;
  t.matmul_scratch_bytes = matmul_scratch_bytes;
  t.matmul_quantised = matmul_quantised;
  t.quantised_scratch_bytes = quantised_scratch_bytes;
  t.matmul_int8 = matmul_int8;
  t.int8_scratch_bytes = int8_scratch_bytes;
  t.rms_norm = rms_norm;
  t.rope = rope;
  t.silu_mul = silu_mul;
  t.sigmoid_mul = sigmoid_mul;
  t.decode_row = decode_row;
  t.decode_quantised = decode_quantised;
  t.attend_span = attend_span;
  t.attend_scratch_bytes = attend_scratch_bytes;
  t.merge_span = merge_span;
  t.conv1d = conv1d;
  t.delta_keys = delta_keys;
  t.delta_rows = delta_rows;
  t.delta_close = delta_close;
  return t;
}();

}  // namespace kernels::avx2
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
