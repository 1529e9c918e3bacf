// SPDX-License-Identifier: Apache-2.0
//
// Compressed keys and values on NEON: whole planes as bf16 in the layout of a bf16 block. Nothing is rounded
// on the way; e4m3 numbers come out 2^8 times smaller, which factor_of() gives back with a position's scale.
#pragma once

#include <qwenlite/kernels/kv_unpacking.hpp>
#include <qwenlite/kernels/neon_lanes.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::neon {

/// Sixteen numbers as the bits of float32.
struct Sixteen {
  uint32x4_t at[4];
};

/// Codes i .. i + 15 of a row (i a multiple of 16).
struct Int8Codes {
  static Sixteen widen(int8x16_t codes) {
    const int16x8_t low = vmovl_s8(vget_low_s8(codes));
    const int16x8_t high = vmovl_high_s8(codes);
    const auto number = [](int32x4_t v) { return vreinterpretq_u32_f32(vcvtq_f32_s32(v)); };
    return {{number(vmovl_s16(vget_low_s16(low))), number(vmovl_high_s16(low)),
             number(vmovl_s16(vget_low_s16(high))), number(vmovl_high_s16(high))}};
  }
  static Sixteen sixteen(const std::byte* row, Index i) { return widen(load_bytes<int8x16_t>(row + i)); }
};
struct Fp8Codes {
  /// A float16 has room for sign, exponent and fraction of an e4m3; its exponents count from 8 less.
  static Sixteen sixteen(const std::byte* row, Index i) {
    const auto codes = load_bytes<int8x16_t>(row + i);
    const auto half = [](int16x8_t wide) {
      return vreinterpretq_f16_u16(
          vandq_u16(vreinterpretq_u16_s16(vshlq_n_s16(wide, 7)), vdupq_n_u16(0xBFFF)));
    };
    const float16x8_t low = half(vmovl_s8(vget_low_s8(codes)));
    const float16x8_t high = half(vmovl_high_s8(codes));
    return {{vreinterpretq_u32_f32(vcvt_f32_f16(vget_low_f16(low))),
             vreinterpretq_u32_f32(vcvt_high_f32_f16(low)),
             vreinterpretq_u32_f32(vcvt_f32_f16(vget_low_f16(high))),
             vreinterpretq_u32_f32(vcvt_high_f32_f16(high))}};
  }
};
struct Int4Codes {
  static Sixteen sixteen(const std::byte* row, Index i) {
    constexpr std::int8_t numbers[16] = {-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15};
    const auto both = load_bytes<uint8x16_t>(row + i / 32 * 16);
    const uint8x16_t codes = i % 32 == 0 ? vandq_u8(both, vdupq_n_u8(15)) : vshrq_n_u8(both, 4);
    return Int8Codes::widen(vqtbl1q_s8(vld1q_s8(numbers), codes));
  }
};

/// [rows][dims] bf16.
template <class Codes>
inline void unpack_rows(const CodeRows& u, Index rows) {
  for (Index r = 0; r < rows; ++r) {
    auto* const out = reinterpret_cast<std::uint16_t*>(u.out) + r * u.dims;
    for (Index i = 0; i < u.dims; i += 16) {
      const Sixteen v = Codes::sixteen(u.codes + r * u.row_bytes, i);
      vst1q_u16(out + i, vshrn_high_n_u32(vshrn_n_u32(v.at[0], 16), v.at[1], 16));
      vst1q_u16(out + i + 8, vshrn_high_n_u32(vshrn_n_u32(v.at[2], 16), v.at[3], 16));
    }
  }
}

/// [pairs][dims][2] bf16.
template <class Codes>
inline void unpack_pairs(const CodeRows& u, Index pairs) {
  for (Index j = 0; j < pairs; ++j) {
    const std::byte* const row = u.codes + 2 * j * u.row_bytes;
    auto* const out = reinterpret_cast<std::uint32_t*>(u.out) + j * u.dims;
    for (Index i = 0; i < u.dims; i += 16) {
      const Sixteen even = Codes::sixteen(row, i);
      const Sixteen odd = Codes::sixteen(row + u.row_bytes, i);
#pragma GCC unroll 4
      for (Index p = 0; p < 4; ++p) vst1q_u32(out + i + p * 4, vsriq_n_u32(odd.at[p], even.at[p], 16));
    }
  }
}

/// The first `rows` keys of a block of a compressed format: [rows][padded head_dim] bf16.
inline void unpack_keys(const KvBlock& block, Index head_dim, Index rows, std::byte* out) {
  const CodeRows u(block.format, head_dim, block.k, out);
  for_codes_of<Int8Codes, Fp8Codes, Int4Codes>(block.format,
                                               [&](auto codes) { unpack_rows<decltype(codes)>(u, rows); });
}

/// The first values of a block of a compressed format: [pairs][padded head_dim][2] bf16.
inline void unpack_values(const KvBlock& block, Index head_dim, Index pairs, std::byte* out) {
  const CodeRows u(block.format, head_dim, block.v, out);
  for_codes_of<Int8Codes, Fp8Codes, Int4Codes>(block.format,
                                               [&](auto codes) { unpack_pairs<decltype(codes)>(u, pairs); });
}

}  // namespace kernels::neon
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
