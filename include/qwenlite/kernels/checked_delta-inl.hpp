// SPDX-License-Identifier: Apache-2.0
//
// The mixer of a Gated DeltaNet layer that looks at its own results (see checked.hpp): run as always, then by
// the scalar kernels on copies of the same memory, inputs and rows.
//
// Rounding in the state is fed back by every later row, and the norm of a small result enlarges it, so there
// is no tight bound: a result may be off by a hundredth of the largest of its head. A wrong index, a lost
// term or a stale row differ by much more. What the convolution makes is held to a few roundings.
#pragma once

#include <vector>

#include <qwenlite/kernels/checked-inl.hpp>
#include <qwenlite/kernels/ops_delta.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::checked {

/// A copy of what a layer remembers of a sequence: [state, decay, keys, values, conv].
class DeltaMemoryCopy {
 public:
  DeltaMemoryCopy(const DeltaMemory& from, const DeltaSizes& s)
      : format_(from.state_format),
        state_(bytes_of(from.state, 2 * s.state_floats() * element_bytes(from.state_format))),
        decay_(bytes_of(from.decay, 2 * s.num_value_heads * chunk_rows * 8)),
        keys_(bytes_of(from.keys, 2 * s.key_width() * chunk_rows * 4)),
        values_(bytes_of(from.values, 2 * s.value_width() * chunk_rows * 4)),
        conv_(bytes_of(from.conv, s.conv_rows() * s.channels() * 4)) {}

  [[nodiscard]] DeltaMemory view() const noexcept {
    return {.state = state_.data(),
            .state_format = format_,
            .keys = keys_.floats(),
            .values = values_.floats(),
            .decay = reinterpret_cast<double*>(decay_.data()),
            .conv = conv_.floats()};
  }

 private:
  [[nodiscard]] static AlignedBuffer bytes_of(const void* from, Index bytes) {
    AlignedBuffer copy(bytes);
    std::memcpy(copy.data(), from, static_cast<std::size_t>(bytes));
    return copy;
  }

  Format format_;
  AlignedBuffer state_;
  AlignedBuffer decay_;
  AlignedBuffer keys_;
  AlignedBuffer values_;
  AlignedBuffer conv_;
};

/// Compares groups of `width` columns: each number may be off by `part` of the largest of its group.
inline void compare_groups(Comparison& comparison, const Matrix<float>& found, const AlignedBuffer& expected,
                           Index width, double part) {
  for (Index t = 0; t < found.rows(); ++t) {
    const float* const ours = found.data() + t * found.outerStride();
    const float* const row = expected.floats() + t * found.cols();
    for (Index first = 0; first < found.cols(); first += width) {
      double slack = 0;
      for (Index c = first; c < first + width; ++c) {
        slack = std::max(slack, part * std::abs(static_cast<double>(row[c])));
      }
      for (Index c = first; c < first + width; ++c) {
        comparison.judge(t, c, static_cast<double>(ours[c]), static_cast<double>(row[c]), slack + vanishing);
      }
    }
  }
}

QWENLITE_INLINE void delta_net(const Ops& plain, const DeltaWeights& weights,
                               const DeltaActivations& activations, DeltaScratch& scratch) {
  const DeltaSizes& s = scratch.sizes();
  const Index tokens = activations.qkv.rows();
  const AlignedBuffer qkv = copied(unwritable(activations.qkv));
  const AlignedBuffer out = copied(unwritable(activations.out));  // rows of no piece stay as they are
  const Ops scalar_ops(scalar::table, plain.executor(), plain.precision());
  DeltaScratch again(scalar_ops, s, static_cast<Index>(scratch.pieces().size()));
  std::vector<DeltaMemoryCopy> copies;
  for (const DeltaPiece& piece : scratch.pieces()) {
    copies.emplace_back(piece.memory, s);
    again.pieces().push_back({copies.back().view(), piece.row, piece.count, piece.position});
  }
  qwenlite::delta_net(plain, weights, activations, scratch);
  const auto matrix = [tokens](const AlignedBuffer& rows, Index width) {
    return Matrix<float>(rows.floats(), tokens, width, Eigen::OuterStride<>(width));
  };
  qwenlite::delta_net(scalar_ops, weights,
                      {.qkv = matrix(qkv, s.channels()),
                       .z = activations.z,
                       .b = activations.b,
                       .a = activations.a,
                       .out = matrix(out, s.value_width())},
                      again);

  Comparison convolution(plain, 0);
  compare_groups(convolution, activations.qkv, qkv, s.channels(), 0x1p-18);
  convolution.report({"convolution of ", s.channels(), " channels"}, "channel ",
                     "a few roundings of the token's largest value");
  Comparison rule(plain, 0);
  compare_groups(rule, activations.out, out, s.value_head_dim, 0.01);
  rule.report({"delta rule of ", s.num_value_heads, " value heads of ", s.value_head_dim, " on ",
               s.num_key_heads, " key heads of ", s.key_head_dim},
              "element ", "a hundredth of the head's largest value", s.value_head_dim);
}

}  // namespace kernels::checked
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
