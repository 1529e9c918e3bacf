// SPDX-License-Identifier: Apache-2.0
//
// How products, norms and embeddings are cut into tasks (declarations and contracts in ops.hpp). A product's
// tasks are strips of 32 or 64 weight rows by all tokens: weights are read once per call, whatever the number
// of tokens, and a strip's unpacked rows stay in the second-level cache.
#pragma once

#include <qwenlite/kernels/dispatch.hpp>
#include <qwenlite/kernels/ops.hpp>
#include <qwenlite/kernels/ops_attention.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace kernels {

inline constexpr Index pack_columns = 16;  ///< tokens in one packing task

[[nodiscard]] constexpr Index strip_rows(Index tokens) noexcept {
  return tokens > 16 ? 64 : 32;
}

}  // namespace kernels

QWENLITE_INLINE OpsScratch::OpsScratch(const Ops& ops, const OpsLimits& limits) : limits_(limits) {
  const kernels::KernelTable& table = ops.table();
  for (Index f = 0; f < format_count; ++f) {
    const auto format = static_cast<Format>(f);
    if (!limits.formats.contains(format)) continue;
    const kernels::PackLayout layout = table.layout(format, ops.precision());
    AlignedBuffer& buffer = packed_[static_cast<std::size_t>(layout)];
    if (buffer.data() != nullptr) continue;
    buffer = AlignedBuffer(kernels::packed_bytes(layout, limits.tokens, limits.width));
    packed_bytes_ += buffer.bytes();
  }
  const Index strip = kernels::strip_rows(limits.tokens);
  Index matmul_bytes = round_up(table.matmul_scratch_bytes(strip, limits.width, limits.tokens), 64);
  if (limits.formats.contains_quantised()) {
    const Index bytes = table.quantised_scratch_bytes(strip, limits.width, limits.tokens);
    matmul_bytes = std::max(matmul_bytes, round_up(bytes, 64));
  }
  if (packed_[static_cast<std::size_t>(kernels::PackLayout::rows_int8)].data() != nullptr) {
    const Index bytes = table.int8_scratch_bytes(strip, limits.width, limits.tokens);
    matmul_bytes = std::max(matmul_bytes, round_up(bytes, 64));
  }
  const Index gated_bytes = 2 * limits.tokens * strip * 4;
  const Index partial_bytes = kernels::PartialResult::floats(limits.head_dim) * 4;
  const Index attend_bytes = round_up(2 * partial_bytes, 64) + table.attend_scratch_bytes(limits.head_dim);
  worker_bytes_ = round_up(std::max(matmul_bytes + gated_bytes, attend_bytes), 64);
  workers_ = AlignedBuffer(worker_bytes_ * ops.executor().concurrency());
  const Index spans = ceil_div(limits.max_tokens, span_positions);
  if (spans > 1) {
    const Index head_tiles = ceil_div(limits.num_heads / limits.num_kv_heads, kernels::max_query_rows);
    partials_ = AlignedBuffer(limits.pieces * limits.num_kv_heads * head_tiles * spans * partial_bytes);
  }
}

QWENLITE_INLINE Packed Ops::pack(ConstMatrix<float> x, const NormSpec* norm, FormatSet formats,
                                 OpsScratch& scratch) const {
  if (checked_) return kernels::checked::pack(unchecked(), x, norm, formats, scratch);
  const Index tokens = x.rows();
  const Index width = x.cols();
  require(tokens <= scratch.limits_.tokens && width <= scratch.limits_.width,
          "pack: more activations than the scratch memory was created for");
  Packed packed{.columns = tokens, .in = width};
  for (Index f = 0; f < format_count; ++f) {
    if (!formats.contains(static_cast<Format>(f))) continue;
    const kernels::PackLayout wanted = layout(static_cast<Format>(f));
    const std::byte*& slot = packed.data[static_cast<std::size_t>(wanted)];
    if (slot != nullptr) continue;
    if (wanted == kernels::PackLayout::rows_f32 && norm == nullptr && width % 32 == 0 &&
        x.outerStride() == width) {
      slot = reinterpret_cast<const std::byte*>(x.data());  // already as the kernels want it
      continue;
    }
    std::byte* out = scratch.packed_[static_cast<std::size_t>(wanted)].data();
    require(out != nullptr, "pack: a weight format that the scratch memory was not created for");
    auto task = [&](Index i, int /*worker*/) {
      const Index first = i * kernels::pack_columns;
      table_->pack({.x = x.data(),
                    .x_stride = x.outerStride(),
                    .in = width,
                    .first = first,
                    .last = std::min(tokens, first + kernels::pack_columns),
                    .norm_weight = norm != nullptr ? norm->weight : VectorView{},
                    .epsilon = norm != nullptr ? norm->epsilon : 0.0F,
                    .layout = wanted,
                    .out = out});
    };
    executor_->run(ceil_div(tokens, kernels::pack_columns), TaskRef(task));
    slot = out;
  }
  return packed;
}

QWENLITE_INLINE void Ops::matmul_strip(const Packed& x, const WeightView& w, Index first_row, Index rows,
                                       float* out, Index out_stride, bool accumulate,
                                       std::byte* scratch) const {
  const kernels::PackLayout from = layout(w.format);
  const auto multiply = from == kernels::PackLayout::rows_int8 ? table_->matmul_int8
                        : is_quantised(w.format)               ? table_->matmul_quantised
                                                               : table_->matmul;
  multiply({.weights = w.row(first_row),
            .format = w.format,
            .row_bytes = w.row_bytes(),
            .planes = w.planes_from(first_row),
            .rows = rows,
            .in = x.in,
            .packed = x.data[static_cast<std::size_t>(from)],
            .layout = from,
            .columns = x.columns,
            .out = out,
            .out_stride = out_stride,
            .accumulate = accumulate,
            .one_stream = kernels::reads_one_stream(),
            .scratch = scratch});
}

QWENLITE_INLINE void Ops::matmul(const Packed& x, std::span<const Product> products,
                                 OpsScratch& scratch) const {
  if (checked_) return kernels::checked::matmul(unchecked(), x, products, scratch);
  const Index strip = kernels::strip_rows(x.columns);
  Index tasks = 0;
  for (const Product& p : products) {
    require(p.weight.cols == x.in && p.out.rows() == x.columns && p.out.cols() == p.weight.rows,
            "matmul: shapes of weight, input and output do not fit together");
    require(x.data[static_cast<std::size_t>(layout(p.weight.format))] != nullptr,
            "matmul: the input was not packed for this weight format");
    tasks += ceil_div(p.weight.rows, strip);
  }
  auto task = [&](Index i, int worker) {
    const Product* p = products.data();
    for (; i >= ceil_div(p->weight.rows, strip); ++p) i -= ceil_div(p->weight.rows, strip);
    const Index first = i * strip;
    const Index rows = std::min(strip, p->weight.rows - first);
    float* out = const_cast<float*>(p->out.data()) + first;  // an Eigen map is as const as its handle
    matmul_strip(x, p->weight, first, rows, out, p->out.outerStride(), p->accumulate, scratch.worker(worker));
  };
  executor_->run(tasks, TaskRef(task));
}

QWENLITE_INLINE void Ops::gated_matmul(const Packed& x, const WeightView& gate, const WeightView& up,
                                       Matrix<float> out, OpsScratch& scratch) const {
  if (checked_) return kernels::checked::gated_matmul(unchecked(), {x, gate, up, out}, scratch);
  require(gate.cols == x.in && up.cols == x.in && gate.rows == up.rows && out.rows() == x.columns &&
              out.cols() == gate.rows,
          "gated_matmul: shapes of weights, input and output do not fit together");
  const Index strip = kernels::strip_rows(x.columns);
  const Index half = x.columns * strip;
  auto task = [&](Index i, int worker) {
    const Index first = i * strip;
    const Index rows = std::min(strip, gate.rows - first);
    auto* gates = reinterpret_cast<float*>(scratch.worker(worker));  // [tokens][strip]
    float* ups = gates + half;                                       // [tokens][strip]
    auto* rest = reinterpret_cast<std::byte*>(ups + half);
    matmul_strip(x, gate, first, rows, gates, strip, false, rest);
    matmul_strip(x, up, first, rows, ups, strip, false, rest);
    for (Index t = 0; t < x.columns; ++t) {
      table_->silu_mul(gates + t * strip, ups + t * strip, out.data() + t * out.outerStride() + first, rows);
    }
  };
  executor_->run(ceil_div(gate.rows, strip), TaskRef(task));
}

QWENLITE_INLINE void Ops::embed(const WeightView& table, std::span<const int> tokens,
                                Matrix<float> out) const {
  if (checked_) return kernels::checked::embed(unchecked(), table, tokens, out);
  require(static_cast<Index>(tokens.size()) == out.rows() && table.cols == out.cols(),
          "embed: shapes of table and output do not fit together");
  auto task = [&](Index t, int /*worker*/) {
    const Index row = tokens[static_cast<std::size_t>(t)];
    float* const to = out.data() + t * out.outerStride();
    if (is_quantised(table.format)) return table_->decode_quantised(table, row, to);
    table_->decode_row(table.format, table.row(row), table.cols, to);
  };
  executor_->run(out.rows(), TaskRef(task));
}

QWENLITE_INLINE void Ops::norm_and_rotate(Matrix<float> x, Index head_dim, const NormSpec& norm,
                                          const Angles& angles) const {
  if (checked_) return kernels::checked::norm_and_rotate(unchecked(), x, head_dim, norm, angles);
  require(norm.weight.size == head_dim && x.cols() % head_dim == 0 && 2 * angles.half <= head_dim,
          "norm_and_rotate: head_dim does not fit the norm, the input or the rotary dimension");
  auto task = [&](Index t, int /*worker*/) {
    float* row = x.data() + t * x.outerStride();
    for (Index d = 0; d < x.cols(); d += head_dim) {
      table_->rms_norm(row + d, norm.weight, norm.epsilon, row + d);
      table_->rope(row + d, 2 * angles.half, angles.cos + t * angles.half, angles.sin + t * angles.half);
    }
  };
  executor_->run(x.rows(), TaskRef(task));
}

QWENLITE_INLINE void Ops::take_queries(ConstMatrix<float> x, Index head_dim, Matrix<float> out) const {
  require(out.rows() == x.rows() && 2 * out.cols() == x.cols() && out.cols() % head_dim == 0,
          "take_queries: head_dim does not fit the input or the output");
  auto task = [&](Index t, int /*worker*/) {
    const float* from = x.data() + t * x.outerStride();
    float* const to = out.data() + t * out.outerStride();
    for (Index d = 0; d < out.cols(); d += head_dim) std::copy_n(from + 2 * d, head_dim, to + d);
  };
  executor_->run(x.rows(), TaskRef(task));
}

QWENLITE_INLINE void Ops::apply_gates(ConstMatrix<float> x, Index head_dim, Matrix<float> out) const {
  if (checked_) return kernels::checked::apply_gates(unchecked(), x, head_dim, out);
  require(out.rows() == x.rows() && 2 * out.cols() == x.cols() && out.cols() % head_dim == 0,
          "apply_gates: head_dim does not fit the input or the output");
  auto task = [&](Index t, int /*worker*/) {
    const float* gates = x.data() + t * x.outerStride() + head_dim;
    float* const row = out.data() + t * out.outerStride();
    for (Index d = 0; d < out.cols(); d += head_dim) {
      table_->sigmoid_mul(gates + 2 * d, row + d, row + d, head_dim);
    }
  };
  executor_->run(x.rows(), TaskRef(task));
}

QWENLITE_INLINE void Ops::rms_norm(ConstMatrix<float> x, const NormSpec& norm, Matrix<float> out) const {
  if (checked_) return kernels::checked::rms_norm(unchecked(), x, norm, out);
  require(norm.weight.size == x.cols() && out.cols() == x.cols() && out.rows() == x.rows(),
          "rms_norm: shapes of norm, input and output do not fit together");
  auto task = [&](Index t, int /*worker*/) {
    table_->rms_norm(x.data() + t * x.outerStride(), norm.weight, norm.epsilon,
                     out.data() + t * out.outerStride());
  };
  executor_->run(x.rows(), TaskRef(task));
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
