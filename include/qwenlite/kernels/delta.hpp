// SPDX-License-Identifier: Apache-2.0
//
// The arguments of the kernels of Gated DeltaNet layers (Qwen3_5GatedDeltaNet), and how the delta rule is
// computed. A sequence is cut into chunks of 64 positions. With S the state at the chunk's start, g_i the log
// decay summed from there to row i, and k, q of unit length (q also divided by sqrt(key_dim)), row i is
//
//   v'_i = beta_i (v_i - e^{g_i} k_i S - sum_{j<i} e^{g_i - g_j} (k_i . k_j) v'_j)
//   o_i  = e^{g_i} q_i S + sum_{j<=i} e^{g_i - g_j} (q_i . k_j) v'_j
//   S   <- e^{g_63} S + sum_j e^{g_63 - g_j} k_j (x) v'_j          after row 63
//
// which is the recurrence of the model written from the chunk's start. The open chunk (k, v', g of its rows)
// is remembered, so that one row and sixty-four are the same sums in the same order, with the same bits.
#pragma once

#include <qwenlite/kernels/formats.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels {

inline constexpr Index chunk_rows = block_positions;
inline constexpr double l2_epsilon = 1e-6;  ///< added to the sum of squares of q and k, as the model does

/// Causal depthwise convolution, then SiLU, in place: with x_{-n} the rows of `history`,
/// x_t[c] = silu(sum_j taps[j][c] * x_{t - kernel + 1 + j}[c]), the products added in ascending j.
struct Conv1dArgs {
  float* x = nullptr;  ///< [rows, channels]
  Index stride = 0;    ///< elements between its rows
  Index rows = 0;
  Index channels = 0;
  const float* history = nullptr;  ///< [kernel - 1][channels], inputs before the first row, oldest first
  const float* taps = nullptr;     ///< [kernel][channels], the current token's last
  Index taps_stride = 0;           ///< elements between its rows
  Index kernel = 0;                ///< at most 64
};

/// New rows of one key head: `rows` rows of q and k, the first of which is row `first` of its chunk.
struct DeltaKeysArgs {
  const float* q = nullptr;  ///< [rows, key_dim], as they leave the convolution
  const float* k = nullptr;  ///< as q
  Index stride = 0;          ///< elements between rows of q and of k
  Index first = 0;
  Index rows = 0;  ///< first + rows <= 64
  Index key_dim = 0;
  float* keys = nullptr;  ///< [key_dim][64], the chunk's keys by column: columns of the new rows are written
  float* unit = nullptr;  ///< out: [2][64][key_dim], unit k of the new rows, then unit q / sqrt(key_dim)
  float* scores = nullptr;  ///< out: [2][64][64], k_i . k_j, then q_i . k_j, for j <= i; i counts new rows
};

/// The same rows for one value head that reads this key head.
struct DeltaRowsArgs {
  Index first = 0;
  Index rows = 0;
  Index key_dim = 0;
  Index value_dim = 0;
  const float* unit = nullptr;    ///< from DeltaKeysArgs
  const float* scores = nullptr;  ///< from DeltaKeysArgs
  const float* v = nullptr;       ///< [rows, value_dim]
  Index v_stride = 0;
  const float* log_decay = nullptr;  ///< [rows], of each token, not positive
  const float* beta = nullptr;       ///< [rows]
  const float* state = nullptr;      ///< [key_dim][value_dim] at the chunk's start; null: zero
  double* decay = nullptr;           ///< [64] log decay summed from the chunk's start: new rows are written
  float* values = nullptr;           ///< [64][value_dim], v' of the chunk: new rows are written
  float* out = nullptr;              ///< [rows, value_dim]
  Index out_stride = 0;
  float* factors = nullptr;  ///< scratch: [2][64][64], the factors of v'_j in the sums
};

/// The state after row 63 of a chunk, for one value head. `next` may be `state`.
struct DeltaCloseArgs {
  Index key_dim = 0;
  Index value_dim = 0;
  const float* keys = nullptr;    ///< [key_dim][64]
  const float* values = nullptr;  ///< [64][value_dim]
  const double* decay = nullptr;  ///< [64]
  const float* state = nullptr;   ///< [key_dim][value_dim]; null: zero
  float* next = nullptr;          ///< [key_dim][value_dim]
  float* weighted = nullptr;      ///< scratch: [64][value_dim]
};

/// Sums the log decays of new rows into `a.decay`. In double: a token that forgets everything must not take
/// the digits of those that follow it.
inline void extend_decay(const DeltaRowsArgs& a) {
  double sum = a.first > 0 ? a.decay[a.first - 1] : 0.0;
  for (Index r = 0; r < a.rows; ++r) {
    sum += static_cast<double>(a.log_decay[r]);
    a.decay[a.first + r] = sum;
  }
}

/// What q or k is multiplied with, given its sum of squares: `scale` / its length.
[[nodiscard]] inline float unit_factor(double squares, double scale) {
  return static_cast<float>(scale / __builtin_sqrt(squares + l2_epsilon));
}

}  // namespace kernels
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
