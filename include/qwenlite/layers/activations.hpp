// SPDX-License-Identifier: Apache-2.0
//
// What layers share while some tokens pass through them: named buffers for intermediate results
// (Activations), the sequences the tokens belong to (Pieces, Memory), and all of it together (Pass).
//
// Layers are templates over the pass, so they know no cache class. An observer may be attached to a
// pass; it then sees intermediate results under the names of the Python reference implementations.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <qwenlite/kernels/ops_delta.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// The same memory, not to be written.
[[nodiscard]] inline ConstMatrix<float> read_only(const Matrix<float>& m) noexcept {
  return {m.data(), m.rows(), m.cols(), Eigen::OuterStride<>(m.outerStride())};
}

/// Rows [first, first + count).
[[nodiscard]] inline Matrix<float> rows_of(Matrix<float>& m, Index first, Index count) noexcept {
  return {m.data() + first * m.outerStride(), count, m.cols(), Eigen::OuterStride<>(m.outerStride())};
}
[[nodiscard]] inline ConstMatrix<float> rows_of(const ConstMatrix<float>& m, Index first,
                                                Index count) noexcept {
  return {m.data() + first * m.outerStride(), count, m.cols(), Eigen::OuterStride<>(m.outerStride())};
}

/// Contiguous rows [rows, width] at `data`.
[[nodiscard]] inline Matrix<float> matrix_at(float* data, Index rows, Index width) noexcept {
  return {data, rows, width, Eigen::OuterStride<>(width)};
}

/// Widths of the intermediate results of a network's layers.
struct ActivationWidths {
  Index hidden = 0;     ///< hidden_size
  Index attention = 0;  ///< num_attention_heads * head_dim
  Index kv = 0;         ///< num_key_value_heads * head_dim
  Index gated = 0;      ///< intermediate_size

  Index query_and_gate = 0;  ///< 2 * attention where attention has an output gate
  Index other_input = 0;     ///< widest input of products that is none of the above
  DeltaSizes delta{};        ///< zeros where there are no Gated DeltaNet layers

  /// Of the inputs of products.
  [[nodiscard]] Index widest() const noexcept {
    return std::max({hidden, attention, kv, gated, other_input, delta.value_width()});
  }
};

/// Every format in either set.
[[nodiscard]] inline FormatSet either(FormatSet a, const FormatSet& b) noexcept {
  for (Index f = 0; f < format_count; ++f) {
    if (b.contains(static_cast<Format>(f))) a.insert(static_cast<Format>(f));
  }
  return a;
}

/// One buffer for each intermediate result, for up to `rows` tokens; reused by every layer.
class Activations {
 public:
  Activations(Index rows, const ActivationWidths& widths)
      : widths_(widths),
        q_(rows * widths.attention * 4),
        k_(rows * widths.kv * 4),
        v_(rows * widths.kv * 4),
        attention_out_(rows * widths.attention * 4),
        gated_(rows * widths.gated * 4),
        query_and_gate_(rows * widths.query_and_gate * 4),
        delta_qkv_(rows * widths.delta.channels() * 4),
        delta_z_(rows * widths.delta.value_width() * 4),
        delta_b_(rows * widths.delta.num_value_heads * 4),
        delta_a_(rows * widths.delta.num_value_heads * 4),
        delta_out_(rows * widths.delta.value_width() * 4) {}

  [[nodiscard]] Matrix<float> q(Index rows) const noexcept { return of(q_, rows, widths_.attention); }
  [[nodiscard]] Matrix<float> k(Index rows) const noexcept { return of(k_, rows, widths_.kv); }
  [[nodiscard]] Matrix<float> v(Index rows) const noexcept { return of(v_, rows, widths_.kv); }
  [[nodiscard]] Matrix<float> attention_out(Index rows) const noexcept {
    return of(attention_out_, rows, widths_.attention);
  }
  /// silu(gate) * up of the MLP.
  [[nodiscard]] Matrix<float> gated(Index rows) const noexcept { return of(gated_, rows, widths_.gated); }

  /// The query and then the output gate of each head.
  [[nodiscard]] Matrix<float> query_and_gate(Index rows) const noexcept {
    return of(query_and_gate_, rows, widths_.query_and_gate);
  }
  /// Of a Gated DeltaNet layer; see DeltaActivations.
  [[nodiscard]] Matrix<float> delta_qkv(Index rows) const noexcept {
    return of(delta_qkv_, rows, widths_.delta.channels());
  }
  [[nodiscard]] Matrix<float> delta_z(Index rows) const noexcept {
    return of(delta_z_, rows, widths_.delta.value_width());
  }
  [[nodiscard]] Matrix<float> delta_b(Index rows) const noexcept {
    return of(delta_b_, rows, widths_.delta.num_value_heads);
  }
  [[nodiscard]] Matrix<float> delta_a(Index rows) const noexcept {
    return of(delta_a_, rows, widths_.delta.num_value_heads);
  }
  [[nodiscard]] Matrix<float> delta_out(Index rows) const noexcept {
    return of(delta_out_, rows, widths_.delta.value_width());
  }

  [[nodiscard]] Index bytes() const noexcept {
    return q_.bytes() + k_.bytes() + v_.bytes() + attention_out_.bytes() + gated_.bytes() +
           query_and_gate_.bytes() + delta_qkv_.bytes() + delta_z_.bytes() + delta_b_.bytes() +
           delta_a_.bytes() + delta_out_.bytes();
  }

 private:
  [[nodiscard]] static Matrix<float> of(const AlignedBuffer& buffer, Index rows, Index width) noexcept {
    return matrix_at(buffer.floats(), rows, width);
  }

  ActivationWidths widths_;
  AlignedBuffer q_;              // [rows, attention]
  AlignedBuffer k_;              // [rows, kv]
  AlignedBuffer v_;              // [rows, kv]
  AlignedBuffer attention_out_;  // [rows, attention]
  AlignedBuffer gated_;          // [rows, gated]

  AlignedBuffer query_and_gate_;  // [rows, query_and_gate]
  AlignedBuffer delta_qkv_;       // [rows, delta.channels()]
  AlignedBuffer delta_z_;         // [rows, delta.value_width()]
  AlignedBuffer delta_b_;         // [rows, delta.num_value_heads]
  AlignedBuffer delta_a_;         // as delta_b_
  AlignedBuffer delta_out_;       // as delta_z_
};

/// Receives intermediate results: name ("model.layers.0.mixer") and rows [tokens, width]. A forward of
/// many tokens calls it several times per name, in the order of the tokens.
using TraceSink = std::function<void(std::string_view name, const ConstMatrix<float>& rows)>;

/// What one sequence remembers, to be extended by the layers.
template <class Kv, class State>
struct Memory {
  Kv* kv = nullptr;
  State* state = nullptr;
};

/// One trip of some rows through the layers.
template <class Kv, class State>
struct Pass {
  const Ops& ops;
  OpsScratch& scratch;
  const Activations& activations;
  Angles angles;                                ///< rotary angles of the rows
  std::span<const Piece<Kv>> pieces;            ///< which rows are whose; together all, in their order
  std::span<const Memory<Kv, State>> memories;  ///< of the same sequences
  DeltaScratch* delta = nullptr;                ///< of networks with Gated DeltaNet layers
  const TraceSink* trace = nullptr;

  /// norm(x), ready for products with weights of `formats`.
  [[nodiscard]] Packed pack_normed(const Matrix<float>& x, const NormSpec& norm, FormatSet formats) const {
    return ops.pack(read_only(x), &norm, formats, scratch);
  }
  [[nodiscard]] Packed pack(const Matrix<float>& x, FormatSet formats) const {
    return ops.pack(read_only(x), nullptr, formats, scratch);
  }

  /// residual += layer(...), where layer(out, accumulate) adds to `out` or overwrites it. The sum is part
  /// of the layer's last product; only an observed pass takes the detour over a buffer, with equal bits.
  template <class Layer>
  void add_to(Matrix<float> residual, const std::string& prefix, std::string_view name,
              const Layer& layer) const {
    if (trace == nullptr) {
      layer(residual, true);
      return;
    }
    const AlignedBuffer buffer(residual.size() * 4);
    Matrix<float> result = matrix_at(buffer.floats(), residual.rows(), residual.cols());
    layer(result, false);
    record(prefix, name, result);
    for (Index row = 0; row < residual.rows(); ++row) {
      for (Index i = 0; i < residual.cols(); ++i) residual(row, i) += result(row, i);
    }
  }

  /// Shows `rows` to the observer, if there is one.
  void record(const std::string& prefix, std::string_view name, const Matrix<float>& rows) const {
    if (trace != nullptr) (*trace)(std::string(prefix).append(name), read_only(rows));
  }
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
