// SPDX-License-Identifier: Apache-2.0
//
// The reference kernels: plain loops in double precision where it matters, no intrinsics, no target flags.
// They run everywhere, and they are what every other instruction set is tested against.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <qwenlite/kernels/scalar_delta.hpp>
#include <qwenlite/kernels/scalar_int8.hpp>
#include <qwenlite/kernels/scalar_quantised.hpp>
#include <qwenlite/kernels/table.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::scalar {

inline PackLayout layout(Format format, Precision precision) {
  return takes_int8(format, precision) ? PackLayout::rows_int8 : PackLayout::rows_f32;
}

/// rsqrt(mean(x^2) + epsilon).
[[nodiscard]] inline double norm_scale(const float* x, Index size, float epsilon) {
  double squares = 0;
  for (Index i = 0; i < size; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double mean = squares / static_cast<double>(size);
  return 1.0 / std::sqrt(mean + static_cast<double>(epsilon));
}

inline void scale_by_weight(const float* x, double scale, VectorView weight, float* out) {
  for (Index i = 0; i < weight.size; ++i) {
    const double w = static_cast<double>(decode(weight.format, weight.data, i) + weight.offset);
    out[i] = static_cast<float>(static_cast<double>(x[i]) * scale * w);
  }
}

/// y[i] = x[i] * rsqrt(mean(x^2) + epsilon) * weight[i]  (transformers, Qwen3RMSNorm), or with 1 + weight[i]
/// (Qwen3_5RMSNorm).
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

inline Index matmul_scratch_bytes(Index /*rows*/, Index /*in*/, Index /*columns*/) {
  return 0;
}

inline void matmul(const MatmulArgs& a) {
  const Index stride = round_up(a.in, 32);
  for (Index t = 0; t < a.columns; ++t) {
    const float* x = reinterpret_cast<const float*>(a.packed) + t * stride;
    for (Index r = 0; r < a.rows; ++r) {
      const std::byte* w = a.weights + r * a.row_bytes;
      double sum = 0;
      for (Index i = 0; i < a.in; ++i) {
        sum += static_cast<double>(decode(a.format, w, i)) * static_cast<double>(x[i]);
      }
      float& out = a.out[t * a.out_stride + r];
      out = a.accumulate ? out + static_cast<float>(sum) : static_cast<float>(sum);
    }
  }
}

/// Rotate-half form: (a, b) -> (a cos - b sin, b cos + a sin) for a = x[i], b = x[i + rotary_dim/2].
inline void rope(float* x, Index rotary_dim, const float* cos, const float* sin) {
  const Index half = rotary_dim / 2;
  for (Index i = 0; i < half; ++i) {
    const auto a = static_cast<double>(x[i]);
    const auto b = static_cast<double>(x[i + half]);
    const auto c = static_cast<double>(cos[i]);
    const auto s = static_cast<double>(sin[i]);
    x[i] = static_cast<float>(a * c - b * s);
    x[i + half] = static_cast<float>(b * c + a * s);
  }
}

inline void silu_mul(const float* gate, const float* up, float* out, Index n) {
  for (Index i = 0; i < n; ++i) {
    const auto g = static_cast<double>(gate[i]);
    out[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * static_cast<double>(up[i]));
  }
}

inline void sigmoid_mul(const float* gate, const float* x, float* out, Index n) {
  for (Index i = 0; i < n; ++i) {
    const auto g = static_cast<double>(gate[i]);
    out[i] = static_cast<float>(static_cast<double>(x[i]) / (1.0 + std::exp(-g)));
  }
}

inline void decode_row(Format format, const std::byte* row, Index n, float* out) {
  for (Index i = 0; i < n; ++i) out[i] = decode(format, row, i);
}

// ------------------------------------------------------------------------------------- attention

/// The scores of a block in double, and one query row.
inline Index attend_scratch_bytes(Index head_dim) {
  return block_positions * Index{sizeof(double)} + head_dim * Index{sizeof(float)};
}

/// One query row over one block: extends the running maximum, sum and output (online softmax).
inline void attend_block(const SpanArgs& a, Index r, const KvBlock& block, const float* q, double* scores) {
  const Index visible = std::min(block.count, a.last[r] - block.first + 1);
  if (visible <= 0) return;
  float* out = a.out + r * a.head_dim;
  auto top = static_cast<double>(a.max[r]);
  for (Index j = 0; j < visible; ++j) {
    double dot = 0;
    for (Index d = 0; d < a.head_dim; ++d) {
      dot += static_cast<double>(q[d]) * static_cast<double>(key_in(block, a.head_dim, j, d));
    }
    scores[j] = dot * static_cast<double>(a.scale);
    top = std::max(top, scores[j]);
  }
  top = static_cast<double>(static_cast<float>(top));  // what the next block will find in max[r]
  const double shrink = std::exp(static_cast<double>(a.max[r]) - top);
  double sum = static_cast<double>(a.sum[r]) * shrink;
  for (Index j = 0; j < visible; ++j) {
    scores[j] = std::exp(scores[j] - top);
    sum += scores[j];
  }
  for (Index d = 0; d < a.head_dim; ++d) {
    double value = static_cast<double>(out[d]) * shrink;
    for (Index j = 0; j < visible; ++j) {
      value += scores[j] * static_cast<double>(value_in(block, a.head_dim, j, d));
    }
    out[d] = static_cast<float>(value);
  }
  a.max[r] = static_cast<float>(top);
  a.sum[r] = static_cast<float>(sum);
}

inline void attend_span(const SpanArgs& a) {
  auto* scores = reinterpret_cast<double*>(a.scratch);
  auto* q = reinterpret_cast<float*>(scores + block_positions);
  const bool rotated = a.blocks[0].format == KvFormat::int4;
  for (Index r = 0; r < a.rows; ++r) {
    a.max[r] = -std::numeric_limits<float>::infinity();
    a.sum[r] = 0;
    float* out = a.out + r * a.head_dim;
    std::fill_n(out, a.head_dim, 0.0F);
    std::copy_n(a.q + a.q_offset[r], a.head_dim, q);
    if (rotated) rotate(q, a.head_dim);
    for (Index b = 0; b < a.block_count; ++b) attend_block(a, r, a.blocks[b], q, scores);
    if (rotated) rotate(out, a.head_dim);
  }
}

/// Two partial softmax results become one: each is scaled to the common maximum.
inline void merge_span(const MergeArgs& a) {
  for (Index r = 0; r < a.rows; ++r) {
    if (a.span_sum[r] == 0) continue;  // the later span had no visible key
    const auto m = static_cast<double>(std::max(a.max[r], a.span_max[r]));
    const double keep = std::exp(static_cast<double>(a.max[r]) - m);
    const double take = std::exp(static_cast<double>(a.span_max[r]) - m);
    a.max[r] = static_cast<float>(m);
    a.sum[r] =
        static_cast<float>(static_cast<double>(a.sum[r]) * keep + static_cast<double>(a.span_sum[r]) * take);
    for (Index d = r * a.head_dim; d < (r + 1) * a.head_dim; ++d) {
      a.out[d] = static_cast<float>(static_cast<double>(a.out[d]) * keep +
                                    static_cast<double>(a.span_out[d]) * take);
    }
  }
}

inline constexpr KernelTable table = [] {
  KernelTable t;
  t.name = "scalar";
  t.default_precision = Precision::exact;
  t.layout = layout;
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

}  // namespace kernels::scalar
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
