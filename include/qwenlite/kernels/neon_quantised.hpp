// SPDX-License-Identifier: Apache-2.0
//
// Quantised weights on NEON: each element becomes its float32 in registers, u * scale + shift in one fused
// multiply-add, an fp8 by way of float16, then takes part in the chain that neon_matmul.hpp describes. One
// column reads the weights where they lie; more share a panel of decoded rows, with the same values and so
// the same bits.
#pragma once

#include <qwenlite/kernels/neon_matmul.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::neon {

/// Scale and shift of group g of a row, in all lanes.
struct GroupScale {
  float32x4_t scale;
  float32x4_t shift;

  GroupScale() = default;
  GroupScale(const WeightView& w, Index row, Index g) {
    if (w.format == Format::fp8) {
      scale = vdupq_n_f32(256.0F * block_scale(w, row, g));  // see decode_fp8()
      shift = vdupq_n_f32(0);
      return;
    }
    const Index at = row * ceil_div(w.cols, w.planes.group) + g;
    std::uint16_t half;
    std::memcpy(&half, w.planes.scales + 2 * at, 2);
    const int zero =
        w.planes.zeros != nullptr ? std::to_integer<int>(w.planes.zeros[at]) : middle_value(w.format);
    scale = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half)));
    shift = vmulq_n_f32(scale, -static_cast<float>(zero));
  }
};

/// Eight fp8: a float16 of the same sign, exponent and fraction is 2^8 times smaller. Adding 1 to the
/// fraction carries into the top bit of the exponent for the code of NaN alone; together with it that is a
/// NaN.
inline void decode_fp8(const std::byte* p, float32x4_t scale, float32x4_t (&v)[2]) {
  const int16x8_t codes = vmovl_s8(load_bytes<int8x8_t>(p));
  const uint16x8_t halves = vreinterpretq_u16_s16(vshlq_n_s16(codes, 7));  // the sign in both top bits
  const uint16x8_t next = vaddq_u16(halves, vdupq_n_u16(0x80));
  const float16x8_t h = vreinterpretq_f16_u16(veorq_u16(halves, vandq_u16(next, vdupq_n_u16(0x4000))));
  v[0] = vmulq_f32(vcvt_f32_f16(vget_low_f16(h)), scale);
  v[1] = vmulq_f32(vcvt_high_f32_f16(h), scale);
}

/// Elements [8 i, 8 i + 8) of a row of values.
inline void decode_eight(Format format, const std::byte* row, Index i, const GroupScale& s,
                         float32x4_t (&v)[2]) {
  if (format == Format::fp8) return decode_fp8(row + 8 * i, s.scale, v);
  uint32x4_t u[2];
  if (format == Format::int8) {
    const uint16x8_t wide = vmovl_u8(load_bytes<uint8x8_t>(row + 8 * i));
    u[0] = vmovl_u16(vget_low_u16(wide));
    u[1] = vmovl_high_u16(wide);
  } else {
    const std::byte* words = row + i / 16 * 64 + i % 2 * 32;
    const int32x4_t bits = vdupq_n_s32(-static_cast<std::int32_t>(i % 16 / 2 * 4));
    u[0] = vandq_u32(vshlq_u32(load_bytes<uint32x4_t>(words), bits), vdupq_n_u32(15));
    u[1] = vandq_u32(vshlq_u32(load_bytes<uint32x4_t>(words + 16), bits), vdupq_n_u32(15));
  }
  v[0] = vfmaq_f32(s.shift, vcvtq_f32_u32(u[0]), s.scale);
  v[1] = vfmaq_f32(s.shift, vcvtq_f32_u32(u[1]), s.scale);
}

/// The steps of eight elements that a row has, and those that end with group g.
[[nodiscard]] inline Index steps_until(const WeightView& w, Index g) {
  return smaller(ceil_div(w.cols, 8), (g + 1) * w.planes.group / 8);
}

/// R rows by one column.
template <Format format, int R>
inline void quantised_rows(const WeightView& w, Index row, const float* x, float32x4_t* sums) {
  const std::byte* p = w.row(row);
  const Index stride = w.row_bytes();
  constexpr Index per_line = format == Format::int4 ? 16 : 8;  // steps of eight in 64 bytes
  float32x4_t sum[static_cast<std::size_t>(R)];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sum[r] = vdupq_n_f32(0);
  GroupScale scales[static_cast<std::size_t>(R)];
  for (Index g = 0, i = 0; 8 * i < w.cols; ++g) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) scales[r] = GroupScale(w, row + r, g);
    for (const Index last = steps_until(w, g); i < last; ++i) {
      if (i % per_line == 0) {  // the rows that follow, in as many streams as there are rows here
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) __builtin_prefetch(p + (r + R) * stride + i / per_line * 64);
      }
      const float32x4_t low = vld1q_f32(x + 8 * i);
      const float32x4_t high = vld1q_f32(x + 8 * i + 4);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        float32x4_t v[2];
        decode_eight(format, p + r * stride, i, scales[r], v);
        sum[r] = vfmaq_f32(sum[r], v[0], low);
        sum[r] = vfmaq_f32(sum[r], v[1], high);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r] = sum[r];
}

/// One column of a strip.
template <Format format>
inline void multiply_quantised(const WeightView& w, const float* x, float* out, bool accumulate) {
  for (Index row = 0; row < w.rows; row += 4) {
    const Index rows = smaller(4, w.rows - row);
    float32x4_t sums[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    if (rows == 4) {
      quantised_rows<format, 4>(w, row, x, sums);
    } else {
      for (Index r = 0; r < rows; ++r) quantised_rows<format, 1>(w, row + r, x, sums + r);
    }
    store_outputs(sum_lanes(sums[0], sums[1], sums[2], sums[3]), rows, out + row, accumulate);
  }
}

/// Decodes a row to out[cols].
inline void decode_quantised(const WeightView& w, Index row, float* out) {
  for (Index g = 0, i = 0; 8 * i < w.cols; ++g) {
    const GroupScale scale(w, row, g);
    for (const Index last = steps_until(w, g); i < last; ++i) {
      float32x4_t v[2];
      decode_eight(w.format, w.row(row), i, scale, v);
      const Index left = w.cols - 8 * i;
      store(out + 8 * i, smaller(4, left), v[0]);
      if (left > 4) store(out + 8 * i + 4, smaller(4, left - 4), v[1]);
    }
  }
}

inline Index quantised_scratch_bytes(Index rows, Index in, Index columns) {
  return matmul_scratch_bytes(rows, in, columns);
}

/// Many columns: decodes as many rows as fit the panel, multiplies them by all columns, and goes on.
inline void multiply_decoded(const MatmulArgs& a) {
  const WeightView w = a.strip();
  auto* panel = reinterpret_cast<float*>(a.scratch);
  const Index stride = panel_stride(a.in);
  const Index fitting = panel_bytes / (stride * 4) / tile_rows * tile_rows;
  const Index together = fitting < tile_rows ? tile_rows : fitting;
  for (Index row = 0; row < a.rows; row += together) {
    const Index rows = smaller(together, a.rows - row);
    for (Index r = 0; r < rows; ++r) {
      float* const to = panel + r * stride;
      decode_quantised(w, row + r, to);
      for (Index i = a.in; i < round_up(a.in, 8); ++i) to[i] = 0;
    }
    multiply<LoadF32, false>({.weights = a.scratch,
                              .row_bytes = stride * 4,
                              .rows = rows,
                              .in = round_up(a.in, 8),
                              .x = reinterpret_cast<const float*>(a.packed),
                              .x_stride = round_up(a.in, 32),
                              .out = a.out + row,
                              .out_stride = a.out_stride,
                              .accumulate = a.accumulate},
                             a.columns);
  }
}

inline void matmul_quantised(const MatmulArgs& a) {
  if (a.columns > 1) return multiply_decoded(a);
  const auto* x = reinterpret_cast<const float*>(a.packed);
  if (a.format == Format::int8) return multiply_quantised<Format::int8>(a.strip(), x, a.out, a.accumulate);
  if (a.format == Format::fp8) return multiply_quantised<Format::fp8>(a.strip(), x, a.out, a.accumulate);
  multiply_quantised<Format::int4>(a.strip(), x, a.out, a.accumulate);
}

}  // namespace kernels::neon
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
