// SPDX-License-Identifier: Apache-2.0
//
// The words of the NEON kernels: stored elements as float32 lanes, sums and maxima over lanes in one fixed
// order, and the exponential. Everything here is in every 64-bit Arm CPU, so there is no target region.
// Stored bytes may lie at any address, and no load reads outside the elements asked for.
#pragma once

#include <arm_neon.h>

#include <qwenlite/kernels/table.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::neon {

[[nodiscard]] inline Index smaller(Index a, Index b) {
  return a < b ? a : b;
}

// ------------------------------------------------------------------------------- stored elements

/// A register's worth of bytes from any address.
template <class Vector>
[[nodiscard]] inline Vector load_bytes(const std::byte* p) {
  Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

/// Four or eight stored elements as float32, one type per storage format.
struct LoadBf16 {
  static constexpr Index bytes = 2;
  static float32x4_t four(const std::byte* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(load_bytes<uint16x4_t>(p), 16));
  }
  static void eight(const std::byte* p, float32x4_t (&v)[2]) {
    const auto raw = load_bytes<uint16x8_t>(p);
    v[0] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(raw), 16));
    v[1] = vreinterpretq_f32_u32(vshll_high_n_u16(raw, 16));
  }
};
struct LoadF16 {
  static constexpr Index bytes = 2;
  static float32x4_t four(const std::byte* p) { return vcvt_f32_f16(load_bytes<float16x4_t>(p)); }
  static void eight(const std::byte* p, float32x4_t (&v)[2]) {
    const auto raw = load_bytes<float16x8_t>(p);
    v[0] = vcvt_f32_f16(vget_low_f16(raw));
    v[1] = vcvt_high_f32_f16(raw);
  }
};
struct LoadF32 {
  static constexpr Index bytes = 4;
  static float32x4_t four(const std::byte* p) { return load_bytes<float32x4_t>(p); }
  static void eight(const std::byte* p, float32x4_t (&v)[2]) {
    v[0] = four(p);
    v[1] = four(p + 16);
  }
};

/// n (1..8) stored elements, the rest zero.
template <class Load>
inline void load_eight(const std::byte* p, Index n, float32x4_t (&v)[2]) {
  if (n == 8) return Load::eight(p, v);
  alignas(16) std::byte copy[32] = {};
  std::memcpy(copy, p, static_cast<std::size_t>(n * Load::bytes));
  Load::eight(copy, v);
}

/// n (1..4) stored elements, the rest zero.
template <class Load>
[[nodiscard]] inline float32x4_t load_elements(const std::byte* p, Index n) {
  if (n == 4) return Load::four(p);
  alignas(16) std::byte copy[16] = {};
  std::memcpy(copy, p, static_cast<std::size_t>(n * Load::bytes));
  return Load::four(copy);
}

/// Calls f(i, n) for each run of n = 4 elements from i on, and for the n < 4 that may remain.
template <class Function>
inline void for_lanes(Index count, const Function& f) {
  Index i = 0;
  for (; i + 4 <= count; i += 4) f(i, Index{4});
  if (i < count) f(i, count - i);
}

/// The first n of four float32 values, the rest zero (n may lie outside 0..4). Only the n are read.
[[nodiscard]] inline float32x4_t load(const float* p, Index n) {
  if (n >= 4) return vld1q_f32(p);
  return n > 0 ? load_elements<LoadF32>(reinterpret_cast<const std::byte*>(p), n) : vdupq_n_f32(0);
}

/// Stores the first n (1..4) of four values.
inline void store(float* p, Index n, float32x4_t v) {
  if (n == 4) {
    vst1q_f32(p, v);
  } else {
    std::memcpy(p, &v, static_cast<std::size_t>(n) * sizeof(float));
  }
}

/// All bits set in the first `n` of four lanes.
[[nodiscard]] inline uint32x4_t first_lanes(Index n) {
  constexpr std::uint32_t lane[4] = {0, 1, 2, 3};
  return vcltq_u32(vld1q_u32(lane), vdupq_n_u32(static_cast<std::uint32_t>(n)));
}

// --------------------------------------------------------------------------------- over the lanes

/// Four sums over lanes at once, each (l0+l1) + (l2+l3).
[[nodiscard]] inline float32x4_t sum_lanes(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d) {
  return vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d));
}

[[nodiscard]] inline float sum_lanes(float32x4_t v) {
  const float32x4_t pairs = vpaddq_f32(v, v);
  return vgetq_lane_f32(vpaddq_f32(pairs, pairs), 0);
}

/// 2^n for integers -126..127 held as float32.
[[nodiscard]] inline float32x4_t power_of_two(float32x4_t n) {
  const int32x4_t biased = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
  return vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
}

/// e^x with relative error below 1.2e-7 where the result is a normal number: x = n ln 2 + r, e^r by a
/// polynomial of degree 6 (minimax on |r| <= ln(2)/2), and 2^n applied in two halves so that results
/// underflow gradually. Exactly 1 at 0, exactly 0 below -104 (also at -inf), +inf above 88.73; NaN stays.
[[nodiscard]] inline float32x4_t exp(float32x4_t x) {
  x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-105.0F)), vdupq_n_f32(90.0F));  // both keep NaN
  const float32x4_t n = vrndnq_f32(vmulq_f32(x, vdupq_n_f32(0x1.715476p+0F)));
  // ln 2 in two parts; the first has few enough bits that n times it is exact.
  float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0x1.62e4p-1F));
  r = vfmsq_f32(r, n, vdupq_n_f32(0x1.7f7d1cp-20F));
  float32x4_t p = vdupq_n_f32(0x1.6a2434p-10F);
  p = vfmaq_f32(vdupq_n_f32(0x1.1239e2p-7F), p, r);
  p = vfmaq_f32(vdupq_n_f32(0x1.5558f2p-5F), p, r);
  p = vfmaq_f32(vdupq_n_f32(0x1.555492p-3F), p, r);
  p = vfmaq_f32(vdupq_n_f32(0x1.fffffcp-2F), p, r);
  p = vfmaq_f32(r, vmulq_f32(r, r), p);
  p = vaddq_f32(p, vdupq_n_f32(1.0F));
  const float32x4_t half = vrndmq_f32(vmulq_f32(n, vdupq_n_f32(0.5F)));
  p = vmulq_f32(p, power_of_two(half));
  return vmulq_f32(p, power_of_two(vsubq_f32(n, half)));
}

/// The same for one number.
[[nodiscard]] inline float exp(float x) {
  return vgetq_lane_f32(exp(vdupq_n_f32(x)), 0);
}

}  // namespace kernels::neon
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
