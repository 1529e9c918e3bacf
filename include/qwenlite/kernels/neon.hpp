// SPDX-License-Identifier: Apache-2.0
//
// NEON kernels, for every 64-bit Arm CPU: norms, rotary embedding, activation and packing here, matrix
// products in neon_matmul.hpp and neon_quantised.hpp, attention in neon_attention.hpp, Gated DeltaNet in
// neon_delta.hpp, and the table of all of them. Float32 throughout; a product followed by a sum is always an
// explicit fused multiply-add, since compilers fuse what is written as two where they like.
#pragma once

#include <qwenlite/kernels/neon_attention.hpp>
#include <qwenlite/kernels/neon_delta.hpp>
#include <qwenlite/kernels/neon_matmul.hpp>
#include <qwenlite/kernels/neon_quantised.hpp>
#include <qwenlite/kernels/scalar.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::neon {

/// sum x[i]^2: four chains of four lanes, then one tree.
[[nodiscard]] inline float sum_of_squares(const float* x, Index size) {
  float32x4_t sums[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
  for_lanes(size, [&](Index i, Index n) {
    const float32x4_t v = load(x + i, n);
    float32x4_t& sum = sums[i / 4 % 4];
    sum = vfmaq_f32(sum, v, v);
  });
  return sum_lanes(vaddq_f32(vaddq_f32(sums[0], sums[1]), vaddq_f32(sums[2], sums[3])));
}

template <class Load>
inline void scale_by_weight(const float* x, float scale, VectorView weight, float* out) {
  for_lanes(weight.size, [&](Index i, Index n) {
    const float32x4_t normed = vmulq_f32(load(x + i, n), vdupq_n_f32(scale));
    const float32x4_t stored = load_elements<Load>(weight.data + i * Load::bytes, n);
    const float32x4_t w = vaddq_f32(stored, vdupq_n_f32(weight.offset));
    store(out + i, n, vmulq_f32(normed, w));
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
    const float32x4_t a = load(x + i, n);
    const float32x4_t b = load(y + i, n);
    const float32x4_t c = load(cos + i, n);
    const float32x4_t s = load(sin + i, n);
    store(x + i, n, vfmsq_f32(vmulq_f32(a, c), b, s));
    store(y + i, n, vfmaq_f32(vmulq_f32(a, s), b, c));
  });
}

inline void silu_mul(const float* gate, const float* up, float* out, Index size) {
  for_lanes(size, [&](Index i, Index n) {
    const float32x4_t g = load(gate + i, n);
    const float32x4_t decay = exp(vnegq_f32(g));
    const float32x4_t silu = vdivq_f32(g, vaddq_f32(vdupq_n_f32(1.0F), decay));
    store(out + i, n, vmulq_f32(silu, load(up + i, n)));
  });
}

inline void sigmoid_mul(const float* gate, const float* x, float* out, Index size) {
  for_lanes(size, [&](Index i, Index n) {
    const float32x4_t decay = exp(vnegq_f32(load(gate + i, n)));
    store(out + i, n, vdivq_f32(load(x + i, n), vaddq_f32(vdupq_n_f32(1.0F), decay)));
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
  t.name = "neon";
  t.pack = pack;
  t.matmul = matmul;
  t.matmul_scratch_bytes = matmul_scratch_bytes;
  t.matmul_quantised = matmul_quantised;
  t.quantised_scratch_bytes = quantised_scratch_bytes;
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

}  // namespace kernels::neon
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
