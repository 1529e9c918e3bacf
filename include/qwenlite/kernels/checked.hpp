// SPDX-License-Identifier: Apache-2.0
//
// Operations that look at their own results (QWENLITE_CHECK=1): each runs as always, and then every number of
// its output is compared with what the scalar kernels make of the same inputs. The first one that rounding
// cannot explain is an Error (`numeric`) with operation, shape, position, both values and the rule; it is
// thrown on the calling thread. Nothing here runs, and kernels contain nothing, unless Ops is `checked`.
//
// Inputs are taken as the kernel got them, packed and rounded, so that a fault is named where it begins.
#pragma once

#include <span>

#include <qwenlite/kernels/ops_arguments.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

class Ops;
class OpsScratch;

namespace kernels::checked {

/// The arguments of Ops::gated_matmul().
struct GatedProduct {
  const Packed& x;
  const WeightView& gate;
  const WeightView& up;
  const Matrix<float>& out;
};

/// A Piece whose cache has any type.
struct SequencePiece {
  const void* cache;
  KvBlock (*block)(const void* cache, Index layer, Index kv_head, Index index);
  Index row;
  Index count;
  Index position;

  template <class Kv>
  explicit SequencePiece(const Piece<Kv>& piece)
      : cache(piece.cache),
        block([](const void* kv, Index layer, Index kv_head, Index index) {
          return static_cast<const Kv*>(kv)->block(layer, kv_head, index);
        }),
        row(piece.row),
        count(piece.count),
        position(piece.position) {}
};

// The operation of the same name, run by `plain` (which is not checked itself), then compared.

[[nodiscard]] Packed pack(const Ops& plain, const ConstMatrix<float>& x, const NormSpec* norm,
                          FormatSet formats, OpsScratch& scratch);
void matmul(const Ops& plain, const Packed& x, std::span<const Product> products, OpsScratch& scratch);
void gated_matmul(const Ops& plain, const GatedProduct& product, OpsScratch& scratch);
void embed(const Ops& plain, const WeightView& table, std::span<const int> tokens, const Matrix<float>& out);
void norm_and_rotate(const Ops& plain, Matrix<float> x, Index head_dim, const NormSpec& norm,
                     const Angles& angles);
void apply_gates(const Ops& plain, const ConstMatrix<float>& x, Index head_dim, Matrix<float> out);
void rms_norm(const Ops& plain, const ConstMatrix<float>& x, const NormSpec& norm, Matrix<float> out);

/// Only compares: `out` holds the attention of q over the piece, as `ops` computed it.
void attend(const Ops& ops, const SequencePiece& piece, const AttentionShape& shape,
            const ConstMatrix<float>& q, const Matrix<float>& out);

}  // namespace kernels::checked
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
