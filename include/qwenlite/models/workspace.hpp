// SPDX-License-Identifier: Apache-2.0
//
// Workspace: the memory a forward needs besides weights, keys and values. Its size follows from the limits
// alone, so that a step of known size allocates nothing; a forward beyond the limits makes it grow first.
#pragma once

#include <optional>

#include <qwenlite/cache/delta_state.hpp>
#include <qwenlite/layers/activations.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// The sizes of a network that scratch memory depends on.
struct NetworkSizes {
  ActivationWidths widths;
  Index num_attention_heads = 0;
  Index num_key_value_heads = 0;
  Index head_dim = 0;
  Index rotary_half = 0;
  Index vocab_size = 0;
  FormatSet formats;  ///< of the layers' weight matrices
  Format head_format = Format::bf16;
  DeltaLayout delta{};  ///< zeros where there are no Gated DeltaNet layers
};

/// What a workspace has room for.
struct WorkspaceLimits {
  Index rows = 0;         ///< tokens that pass through a layer together
  Index stream_rows = 0;  ///< tokens whose residual stream is kept; rows unless nothing is cached
  Index sequences = 0;    ///< of one forward
  Index max_tokens = 0;   ///< longest sequence
};

/// What the output matrix rounds its input to. Rounding errors would go straight into the logits, and so few
/// rows are multiplied that the weights set the pace: the input is taken in full. Where the matrix itself is
/// quantised, which costs several times as much, rounding to bf16 is allowed if it is elsewhere.
[[nodiscard]] constexpr Precision head_precision(Precision precision, Format head) noexcept {
  return precision == Precision::bf16 && is_quantised(head) ? precision : Precision::exact;
}

class Workspace {
 public:
  Workspace(const Ops& ops, const NetworkSizes& sizes)
      : ops_(ops), head_ops_(ops.with(head_precision(ops.precision(), sizes.head_format))), sizes_(sizes) {}

  /// Makes room for at least `needed`; what was in the buffers is lost if they have to grow.
  void grow(const WorkspaceLimits& needed);
  /// Makes room for results: `selected` rows gathered at once, `logits` and `hidden` rows kept.
  void grow_results(Index selected, Index logits, Index hidden);

  [[nodiscard]] OpsScratch& scratch() noexcept { return *scratch_; }
  /// For the output matrix alone, see Model::read_out().
  [[nodiscard]] const Ops& head_ops() const noexcept { return head_ops_; }
  [[nodiscard]] OpsScratch& head_scratch() noexcept { return *head_scratch_; }
  [[nodiscard]] const Activations& activations() const noexcept { return *activations_; }
  /// Null where there are no Gated DeltaNet layers.
  [[nodiscard]] DeltaScratch* delta_scratch() noexcept { return delta_scratch_ ? &*delta_scratch_ : nullptr; }

  /// Rows of the residual stream [count, hidden_size].
  [[nodiscard]] Matrix<float> stream(Index first, Index count) const noexcept {
    return rows_at(stream_, first, count, sizes_.widths.hidden);
  }
  /// Rotary cosines and sines of the same rows [.., rotary_half].
  [[nodiscard]] float* cos(Index first) const noexcept { return cos_.floats() + first * sizes_.rotary_half; }
  [[nodiscard]] float* sin(Index first) const noexcept { return sin_.floats() + first * sizes_.rotary_half; }

  /// Rows gathered for the output layer [count, hidden_size].
  [[nodiscard]] Matrix<float> selected(Index count) const noexcept {
    return rows_at(selected_, 0, count, sizes_.widths.hidden);
  }
  /// Results [count, vocab_size] and, after the final norm, [count, hidden_size].
  [[nodiscard]] Matrix<float> logits(Index first, Index count) const noexcept {
    return rows_at(logits_, first, count, sizes_.vocab_size);
  }
  [[nodiscard]] Matrix<float> hidden(Index first, Index count) const noexcept {
    return rows_at(hidden_, first, count, sizes_.widths.hidden);
  }

  [[nodiscard]] Index bytes() const noexcept {
    return stream_.bytes() + cos_.bytes() + sin_.bytes() + selected_.bytes() + logits_.bytes() +
           hidden_.bytes() + (activations_ ? activations_->bytes() : 0) + (scratch_ ? scratch_->bytes() : 0) +
           (head_scratch_ ? head_scratch_->bytes() : 0) + (delta_scratch_ ? delta_scratch_->bytes() : 0);
  }

 private:
  [[nodiscard]] static Matrix<float> rows_at(const AlignedBuffer& buffer, Index first, Index count,
                                             Index width) noexcept {
    return matrix_at(buffer.floats() + first * width, count, width);
  }
  static void grow_rows(AlignedBuffer& buffer, Index rows, Index width);

  Ops ops_;
  Ops head_ops_;
  NetworkSizes sizes_;
  WorkspaceLimits limits_;
  AlignedBuffer stream_;    // [stream_rows, hidden_size]
  AlignedBuffer cos_;       // [stream_rows, rotary_half]
  AlignedBuffer sin_;       // [stream_rows, rotary_half]
  AlignedBuffer selected_;  // [selected, hidden_size]
  AlignedBuffer logits_;    // [logits, vocab_size]
  AlignedBuffer hidden_;    // [hidden, hidden_size]
  std::optional<Activations> activations_;
  std::optional<OpsScratch> scratch_;
  std::optional<OpsScratch> head_scratch_;
  std::optional<DeltaScratch> delta_scratch_;
};

/// Replaces `buffer` if it has less than rows * width floats.
inline void Workspace::grow_rows(AlignedBuffer& buffer, Index rows, Index width) {
  Index bytes = 0;
  if (!multiply_checked(rows, width, bytes) || !multiply_checked(bytes, 4, bytes)) {
    throw Error(ErrorCode::bad_argument, "a forward's results do not fit in memory");
  }
  if (bytes <= buffer.bytes()) return;
  buffer = AlignedBuffer();
  buffer = AlignedBuffer(bytes);
}

inline void Workspace::grow(const WorkspaceLimits& needed) {
  grow_rows(stream_, needed.stream_rows, sizes_.widths.hidden);
  grow_rows(cos_, needed.stream_rows, sizes_.rotary_half);
  grow_rows(sin_, needed.stream_rows, sizes_.rotary_half);
  WorkspaceLimits now = limits_;
  now.rows = std::max(now.rows, needed.rows);
  now.sequences = std::max(now.sequences, needed.sequences);
  now.max_tokens = std::max(now.max_tokens, needed.max_tokens);
  if (scratch_ && now.rows == limits_.rows && now.sequences == limits_.sequences &&
      now.max_tokens == limits_.max_tokens) {
    return;
  }
  scratch_.reset();  // first give back, then ask
  if (!activations_ || now.rows != limits_.rows) {
    activations_.reset();
    activations_.emplace(now.rows, sizes_.widths);
  }
  scratch_.emplace(ops_, OpsLimits{.tokens = now.rows,
                                   .width = sizes_.widths.widest(),
                                   .head_dim = sizes_.head_dim,
                                   .num_heads = sizes_.num_attention_heads,
                                   .num_kv_heads = sizes_.num_key_value_heads,
                                   .pieces = now.sequences,
                                   .max_tokens = now.max_tokens,
                                   .formats = sizes_.formats});
  if (sizes_.delta.layers > 0 && (!delta_scratch_ || now.sequences != limits_.sequences)) {
    delta_scratch_.reset();
    delta_scratch_.emplace(ops_, sizes_.delta.sizes, now.sequences);
  }
  limits_ = now;
}

inline void Workspace::grow_results(Index selected, Index logits, Index hidden) {
  grow_rows(selected_, selected, sizes_.widths.hidden);
  grow_rows(logits_, logits, sizes_.vocab_size);
  grow_rows(hidden_, hidden, sizes_.widths.hidden);
  if (head_scratch_ && head_scratch_->limits().tokens >= selected) return;
  head_scratch_.reset();
  head_scratch_.emplace(head_ops_, OpsLimits{.tokens = std::max<Index>(selected, 1),
                                             .width = sizes_.widths.hidden,
                                             .formats = {sizes_.head_format}});
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
