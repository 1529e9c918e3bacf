// SPDX-License-Identifier: Apache-2.0
//
// Blocks of compressed keys and values as kernels unpack them, to bf16 in the layout of a bf16 block: which
// codes, and where they go. How sixteen codes become numbers is each instruction set's own.
#pragma once

#include <qwenlite/kernels/kv_formats.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels {

/// By what a scale is multiplied for numbers as kernels make them of codes: those of e4m3 come out 2^8 times
/// smaller, as float16 of the same bits.
[[nodiscard]] inline float factor_of(KvFormat format) {
  return format == KvFormat::fp8 ? 256.0F : 1.0F;
}

/// Bytes of the unpacked keys of a block, or of its values.
[[nodiscard]] inline Index unpacked_bytes(Index head_dim) {
  return block_positions * padded_dim(head_dim) * 2;
}

/// Rows of codes and where their numbers go.
struct CodeRows {
  const std::byte* codes = nullptr;
  Index row_bytes = 0;
  Index dims = 0;            ///< a multiple of 32
  std::byte* out = nullptr;  ///< aligned to 64

  CodeRows(KvFormat format, Index head_dim, const std::byte* plane, std::byte* to)
      : codes(plane), row_bytes(kv_row_bytes(format, head_dim)), dims(padded_dim(head_dim)), out(to) {}
};

/// Calls f(Codes()) with the one of three types that reads the codes of a compressed format.
template <class Int8Codes, class Fp8Codes, class Int4Codes, class F>
inline void for_codes_of(KvFormat format, const F& f) {
  switch (format) {
    case KvFormat::int8: return f(Int8Codes());
    case KvFormat::fp8: return f(Fp8Codes());
    case KvFormat::int4: return f(Int4Codes());
    case KvFormat::bf16:
    case KvFormat::f32: return;  // not compressed
  }
}

}  // namespace kernels
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
