// SPDX-License-Identifier: Apache-2.0
//
// The mixer of a Gated DeltaNet layer between its projections, as one operation: convolution and SiLU of q, k
// and v, gates, the delta rule, and the gated norm of its result. A task is one key head of one sequence with
// the value heads that read it; it walks the sequence's rows chunk by chunk. Every channel belongs to exactly
// one task, so the whole operation is one parallel pass.
//
// A row's bits depend on the rows before it alone: not on how many come in one call, with which others, or
// on how many threads.
#pragma once

#include <span>
#include <vector>

#include <qwenlite/kernels/ops.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// The sizes of a Gated DeltaNet layer (linear_num_key_heads, ... in config.json).
struct DeltaSizes {
  Index num_key_heads = 0;
  Index num_value_heads = 0;  ///< a multiple of num_key_heads: value head h reads key head h / (their ratio)
  Index key_head_dim = 0;
  Index value_head_dim = 0;
  Index conv_kernel_dim = 0;

  /// Throws `bad_argument` unless all are positive, fit together and are small enough to multiply.
  void check() const;

  [[nodiscard]] Index group() const noexcept { return num_value_heads / num_key_heads; }
  [[nodiscard]] Index key_width() const noexcept { return num_key_heads * key_head_dim; }
  [[nodiscard]] Index value_width() const noexcept { return num_value_heads * value_head_dim; }
  /// Channels of the convolution: q, k, v one after the other, each by heads.
  [[nodiscard]] Index channels() const noexcept { return 2 * key_width() + value_width(); }
  [[nodiscard]] Index state_floats() const noexcept {
    return num_value_heads * key_head_dim * value_head_dim;
  }
  /// Inputs of the convolution that are remembered: of the last 64 positions and of those before that the
  /// first of them needs. Any of the last 64 positions can then follow.
  [[nodiscard]] Index conv_rows() const noexcept { return block_positions + conv_kernel_dim - 1; }
  [[nodiscard]] bool operator==(const DeltaSizes&) const noexcept = default;
};

/// What one layer remembers of one sequence, as every state policy hands it out. Two chunks have a place:
/// chunk c (positions 64 c ... 64 c + 63) uses place c % 2. Nothing is read that was not written before.
struct DeltaMemory {
  std::byte* state = nullptr;         ///< [2][num_value_heads][key_dim][value_dim] at the chunks' starts
  Format state_format = Format::f32;  ///< f32 or bf16: what states are rounded to at the end of a chunk
  float* keys = nullptr;              ///< [2][num_key_heads][key_dim][64] unit keys
  float* values = nullptr;            ///< [2][num_value_heads][64][value_dim] corrected values
  double* decay = nullptr;            ///< [2][num_value_heads][64] log decay summed from the chunk's start
  float* conv = nullptr;              ///< [conv_rows][channels] inputs; position p in row p % conv_rows
};

/// Rows [row, row + count) of the activations stand at positions [position, position + count) of a sequence.
struct DeltaPiece {
  DeltaMemory memory;
  Index row = 0;
  Index count = 0;
  Index position = 0;
};

/// The small weights of a layer.
struct DeltaWeights {
  const float* taps = nullptr;  ///< [conv_kernel_dim][channels], see conv_taps()
  VectorView A_log{};           ///< [num_value_heads]
  VectorView dt_bias{};         ///< [num_value_heads]
  NormSpec norm{};              ///< [value_head_dim]
};

/// The outputs of the layer's projections, and the operation's.
struct DeltaActivations {
  Matrix<float> qkv;     ///< [tokens, channels]; convolved in place
  ConstMatrix<float> z;  ///< [tokens, value_width], gate of the result
  ConstMatrix<float> b;  ///< [tokens, num_value_heads], beta = sigmoid(b)
  ConstMatrix<float> a;  ///< [tokens, num_value_heads], log decay = -exp(A_log) softplus(a + dt_bias)
  Matrix<float> out;     ///< [tokens, value_width]: rms_norm(o) * norm weight * silu(z)
};

/// Memory that the operation needs while it runs, one part for each worker, and the list of its pieces.
class DeltaScratch {
 public:
  /// `pieces`: most sequences in one call. Throws `bad_argument` as DeltaSizes::check() does.
  DeltaScratch(const Ops& ops, const DeltaSizes& sizes, Index pieces);

  [[nodiscard]] const DeltaSizes& sizes() const noexcept { return sizes_; }
  [[nodiscard]] Index bytes() const noexcept { return workers_.bytes(); }

  /// The pieces of the call under preparation: cleared and filled by the layer, without allocating up to
  /// the number of sequences given to the constructor.
  [[nodiscard]] std::vector<DeltaPiece>& pieces() noexcept { return pieces_; }

 private:
  friend void delta_net(const Ops& ops, const DeltaWeights& weights, const DeltaActivations& activations,
                        DeltaScratch& scratch);

  DeltaSizes sizes_;
  Index worker_floats_ = 0;
  AlignedBuffer workers_;  // [concurrency][worker_floats_]
  std::vector<DeltaPiece> pieces_;
};

/// Runs the mixer on all of scratch.pieces(), whose memories take up the rows. Throws `bad_argument` when
/// shapes do not fit together, before anything is written; `numeric` when `ops` is checked and finds a fault.
void delta_net(const Ops& ops, const DeltaWeights& weights, const DeltaActivations& activations,
               DeltaScratch& scratch);

namespace kernels::checked {
/// The operation, run by `plain` (which is not checked itself), then compared; see checked.hpp.
void delta_net(const Ops& plain, const DeltaWeights& weights, const DeltaActivations& activations,
               DeltaScratch& scratch);
}  // namespace kernels::checked

/// The taps of a stored convolution weight [channels, conv_kernel_dim] as the operation takes them:
/// [conv_kernel_dim][channels] float32.
[[nodiscard]] AlignedBuffer conv_taps(const WeightView& weight);

/// beta and the log decay of one token and value head, float32 from double.
struct DeltaGates {
  float beta;
  float log_decay;
};
/// `rate` is exp(A_log). Finite for every finite input: the decay saturates where its exponential is zero.
[[nodiscard]] DeltaGates delta_gates(float b, float a, float dt_bias, double rate) noexcept;

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/kernels/checked_delta-inl.hpp>
#include <qwenlite/kernels/ops_delta-inl.hpp>
#endif
