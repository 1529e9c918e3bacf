// SPDX-License-Identifier: Apache-2.0
//
// Matrix products on AMX tiles. Sixteen weight rows as they lie in the file are a left operand; activations
// are packed as right operands, rounded once to bf16 or split into three bf16 parts that together keep
// float32's accuracy. An output is one chain along `in` (blocks of 32 in order; within a block high, middle,
// low part), whatever tiles it is computed with.
//
// Nothing outside the weights is read: partial row groups and the partial last block are copied and padded.
// Quantised weights are decoded into such copies.
#pragma once

#include <qwenlite/kernels/amx_tiles.hpp>
#include <qwenlite/kernels/avx512_bf16_quantised.hpp>

#if defined(__clang__)
#pragma clang attribute push(                                                                          \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c"))), \
    apply_to = function)
#else
// GCC 12 warns inside its own 512-bit intrinsics (an "undefined" operand that is never read).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::amx {

// ---------------------------------------------------------------------------------------- packing

/// The float32 values of a vector of 32 bf16: elements 0..15 and 16..31.
[[nodiscard]] inline __m512 lower_values(__m512i bf16) {
  return avx512::LoadBf16::widen(_mm512_castsi512_si256(bf16));
}
[[nodiscard]] inline __m512 upper_values(__m512i bf16) {
  return avx512::LoadBf16::widen(_mm512_extracti64x4_epi64(bf16, 1));
}

/// Splits 32 values into bf16 parts, each the rounded rest of those before; row r of every part's tile.
template <int Parts>
inline void split(__m512 low, __m512 high, int r, __m512i (*parts)[16]) {
  for (int p = 0; p < Parts; ++p) {
    parts[p][r] = to_bf16(low, high);
    low = _mm512_sub_ps(low, lower_values(parts[p][r]));
    high = _mm512_sub_ps(high, upper_values(parts[p][r]));
  }
}

[[nodiscard]] inline __m512 load_some(const VectorView& v, Index at) {
  const __mmask16 mask = lanes_from(at, v.size);
  const std::byte* p = v.data + at * element_bytes(v.format);
  switch (v.format) {
    case Format::bf16: return avx512::LoadBf16::some(p, mask);
    case Format::f16: return avx512::LoadF16::some(p, mask);
    case Format::f32: return avx512::LoadF32::some(p, mask);
    case Format::int8:
    case Format::int4:
    case Format::fp8: break;  // vectors are never quantised
  }
  return _mm512_setzero_ps();
}

/// 1 / sqrt(mean(x^2) + epsilon).
[[nodiscard]] inline float norm_scale(const float* x, Index size, float epsilon) {
  __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (Index i = 0; i < size; i += 16) {
    const __m512 v = _mm512_maskz_loadu_ps(lanes_from(i, size), x + i);
    sums[i / 16 % 2] = _mm512_fmadd_ps(v, v, sums[i / 16 % 2]);
  }
  const float mean = avx512::sum_lanes(_mm512_add_ps(sums[0], sums[1])) / static_cast<float>(size);
  return 1.0F / __builtin_sqrtf(mean + epsilon);
}

/// One group of (up to) 16 columns.
template <int Parts>
inline void pack_group(const PackArgs& a, Index first, Index columns, std::byte* out) {
  const bool normed = a.norm_weight.data != nullptr;
  const __m512 offset = _mm512_set1_ps(a.norm_weight.offset);
  __m512 scale[16];
  for (Index c = 0; c < columns && normed; ++c) {
    scale[c] = _mm512_set1_ps(norm_scale(a.x + (first + c) * a.x_stride, a.in, a.epsilon));
  }
  for (Index i = 0; i < a.in; i += 32, out += Parts * tile_bytes) {
    const __m512 low_weight =
        _mm512_add_ps(normed ? load_some(a.norm_weight, i) : _mm512_setzero_ps(), offset);
    const __m512 high_weight =
        _mm512_add_ps(normed ? load_some(a.norm_weight, i + 16) : _mm512_setzero_ps(), offset);
    __m512i parts[static_cast<std::size_t>(Parts)][16];
    for (int c = 0; c < 16; ++c) {
      if (c >= columns) {
        for (int p = 0; p < Parts; ++p) parts[p][c] = _mm512_setzero_si512();
        continue;
      }
      const float* x = a.x + (first + c) * a.x_stride + i;
      __m512 low = _mm512_maskz_loadu_ps(lanes_from(i, a.in), x);
      __m512 high = _mm512_maskz_loadu_ps(lanes_from(i + 16, a.in), x + 16);
      if (normed) {
        low = _mm512_mul_ps(_mm512_mul_ps(low, scale[c]), low_weight);
        high = _mm512_mul_ps(_mm512_mul_ps(high, scale[c]), high_weight);
      }
      split<Parts>(low, high, c, parts);
    }
    for (int p = 0; p < Parts; ++p) {
      transpose(parts[p]);
      for (int pair = 0; pair < 16; ++pair) {
        _mm512_store_si512(out + p * tile_bytes + pair * 64, parts[p][pair]);
      }
    }
  }
}

inline void pack(const PackArgs& a) {
  if (keeps_f32(a.layout) || a.layout == PackLayout::rows_int8) return avx512::pack(a);
  const bool split = a.layout == PackLayout::tiles_bf16x3;
  const Index group_bytes = ceil_div(a.in, 32) * tile_bytes * (split ? 3 : 1);
  for (Index t = a.first; t < a.last; t += 16) {
    const Index columns = a.last - t < 16 ? a.last - t : 16;
    std::byte* out = a.out + t / 16 * group_bytes;
    if (split) {
      pack_group<3>(a, t, columns, out);
    } else {
      pack_group<1>(a, t, columns, out);
    }
  }
}

// --------------------------------------------------------------------------------------- products

inline constexpr Index panel_columns = 64;  ///< from here on copying weights pays: tiles then load aligned

/// Scratch of one product, laid out one after another.
struct MatmulScratch {
  float* sums = nullptr;       ///< 2 x 2 tiles
  std::byte* tails = nullptr;  ///< 2 tiles: last blocks of two row groups
  std::byte* panel = nullptr;  ///< 2 row groups, [in/32] tiles each

  explicit MatmulScratch(std::byte* memory)
      : sums(reinterpret_cast<float*>(memory)),
        tails(memory + 4 * tile_bytes),
        panel(memory + 6 * tile_bytes) {}
};

inline Index matmul_scratch_bytes(Index rows, Index in, Index columns) {
  const Index own = (6 + 2 * ceil_div(in, 32)) * tile_bytes;
  const Index rows_f32 = avx512::matmul_scratch_bytes(rows, in, columns);  // other weight formats
  return own > rows_f32 ? own : rows_f32;
}

/// Row group `g` (0 or 1 of a pair) from `row` on: where it lies if it can be read there, else a copy.
inline Left left_operand(const MatmulArgs& a, Index row, Index g, const MatmulScratch& s) {
  const std::byte* data = a.weights + row * a.row_bytes;
  const Index rows = a.rows - row < 16 ? a.rows - row : 16;
  const Index blocks = ceil_div(a.in, 32);
  const bool partial_block = a.in % 32 != 0;
  if (rows == 16 && a.columns < panel_columns) {
    Left left{.data = data, .stride = a.row_bytes, .step = 64, .ahead = 32 * a.row_bytes};
    if (partial_block) {
      std::byte* tail = s.tails + g * tile_bytes;
      copy_tile(data + (blocks - 1) * 64, a.row_bytes, 16, a.in % 32, tail);
      left.tail = tail;
    }
    return left;
  }
  std::byte* panel = s.panel + g * blocks * tile_bytes;
  for (Index b = 0; b < blocks; ++b) {
    copy_tile(data + b * 64, a.row_bytes, rows, a.in - b * 32, panel + b * tile_bytes);
  }
  return {.data = panel,
          .stride = 64,
          .step = tile_bytes,
          .tail = partial_block ? panel + (blocks - 1) * tile_bytes : nullptr};
}

/// Writes one tile of sums [16 rows][16 columns] to out[column][row], each times its row's scale if rows have
/// one each.
inline void store_sums(const MatmulArgs& a, const float* sums, Index row, Index column) {
  __m512i v[16];
  for (int r = 0; r < 16; ++r) v[r] = _mm512_load_si512(sums + r * 16);
  transpose(v);
  const __mmask16 rows = lanes_from(row, a.rows);
  const bool scaled = has_row_scales(a.strip());
  const __m512 scales = scaled ? avx512::LoadF16::some(a.planes.scales + 2 * row, rows) : _mm512_setzero_ps();
  for (int c = 0; c < 16 && column + c < a.columns; ++c) {
    float* out = a.out + (column + c) * a.out_stride + row;
    __m512 values = _mm512_castsi512_ps(v[c]);
    if (scaled) values = avx512::rounded(_mm512_mul_ps(values, scales));
    if (a.accumulate) values = _mm512_add_ps(_mm512_maskz_loadu_ps(rows, out), values);
    _mm512_mask_storeu_ps(out, rows, values);
  }
}

/// One or two row groups by all columns, two column groups at a time.
template <int Lefts, int Parts>
inline void multiply_rows(const MatmulArgs& a, const Left* left, Index row, const MatmulScratch& s) {
  const Index blocks = ceil_div(a.in, 32);
  const Index step = Parts * tile_bytes;
  for (Index column = 0; column < a.columns; column += 32) {
    const std::byte* packed = a.packed + column / 16 * blocks * step;
    const Right right[2] = {{packed, 64, step}, {packed + blocks * step, 64, step}};
    const bool two = a.columns - column > 16;
    if (two) {
      multiply_tiles<Lefts, 2, Parts>(left, right, blocks, s.sums);
    } else {
      multiply_tiles<Lefts, 1, Parts>(left, right, blocks, s.sums);
    }
    for (int t = 0; t < (two ? 2 : 1) * Lefts; ++t) {
      store_sums(a, s.sums + t * 256, row + t % Lefts * 16, column + t / Lefts * 16);
    }
  }
}

/// All rows; operand(row, g, scratch) is row group `g` of a pair.
template <int Parts, class Operand>
inline void multiply(const MatmulArgs& a, const Operand& operand) {
  const MatmulScratch s(a.scratch);
  const TileScope tiles;
  for (Index row = 0; row < a.rows; row += 32) {
    Left left[2] = {operand(row, 0, s), {}};
    if (a.rows - row > 16) {
      left[1] = operand(row + 16, 1, s);
      multiply_rows<2, Parts>(a, left, row, s);
    } else {
      multiply_rows<1, Parts>(a, left, row, s);
    }
  }
}

inline void matmul(const MatmulArgs& a) {
  const auto stored = [&](Index row, Index g, const MatmulScratch& s) { return left_operand(a, row, g, s); };
  if (a.layout == PackLayout::rows_f32) return avx512::matmul(a);
  if (a.layout == PackLayout::tiles_bf16) return multiply<1>(a, stored);
  multiply<3>(a, stored);
}

// ----------------------------------------------------------------------------- quantised weights

/// Row group `g` of a pair from `row` on: decoded, rounded to bf16 (see avx512_bf16_quantised.hpp) and laid
/// out as tiles.
inline Left decoded_operand(const WeightView& w, Index row, Index g, const MatmulScratch& s) {
  std::byte* const panel = s.panel + g * ceil_div(w.cols, 32) * tile_bytes;
  for (Index r = 0; r < 16; ++r) {
    std::byte* const to = panel + r * 64;
    if (row + r < w.rows) {
      avx512_bf16::decode_steps(w, row + r,
                                [&](Index i, __m512i v) { _mm512_store_si512(to + i * tile_bytes, v); });
      continue;
    }
    for (Index i = 0; i < ceil_div(w.cols, 32); ++i) {
      _mm512_store_si512(to + i * tile_bytes, _mm512_setzero_si512());
    }
  }
  return {.data = panel, .stride = 64, .step = tile_bytes};
}

inline Index quantised_scratch_bytes(Index rows, Index in, Index columns) {
  const Index own = matmul_scratch_bytes(rows, in, columns);
  const Index exact = avx512::quantised_scratch_bytes(rows, in, columns);
  return own > exact ? own : exact;
}

inline void matmul_quantised(const MatmulArgs& a) {
  if (keeps_f32(a.layout)) return avx512::matmul_quantised(a);
  const WeightView w = a.strip();
  multiply<1>(a, [&](Index row, Index g, const MatmulScratch& s) { return decoded_operand(w, row, g, s); });
}

}  // namespace kernels::amx
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
