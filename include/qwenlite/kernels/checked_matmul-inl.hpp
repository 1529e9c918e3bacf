// SPDX-License-Identifier: Apache-2.0
//
// Implementation of checked.hpp: packing and matrix products.
//
// Activations that were rounded to int8 or bf16 are those that the kernel packed; where it rounds quantised
// weights too, so does the comparison. Sums of integers have no error, the chains over groups less than
// others.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <qwenlite/kernels/checked-inl.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::checked {

// ---------------------------------------------------------------------------------------- packing

[[nodiscard]] inline const char* name_of(PackLayout layout) {
  if (layout == PackLayout::rows_f32) return "float32 rows";
  if (layout == PackLayout::split_f32) return "split float32 rows";
  if (layout == PackLayout::rows_bf16) return "bf16 rows";
  if (layout == PackLayout::blocks_bf16) return "bf16 blocks";
  if (layout == PackLayout::pairs_bf16) return "bf16 pairs of columns";
  if (layout == PackLayout::rows_int8) return "int8 rows";
  return layout == PackLayout::tiles_bf16 ? "bf16 tiles" : "tiles of three bf16 parts";
}

/// A column packed as int8, as float32.
inline void unpack_int8(const std::byte* column, Index in, float* out) {
  const Int8Column parts(in);
  for (Index i = 0; i < in; ++i) {
    float scale = 0;
    std::memcpy(&scale, column + parts.scales() + i / quantised_block * 4, 4);
    out[i] = static_cast<float>(static_cast<std::int8_t>(std::to_integer<std::uint8_t>(column[i]))) * scale;
  }
}

/// One column of packed activations as float32: out [in].
inline void unpack(PackLayout layout, const std::byte* packed, Index in, Index column, float* out) {
  if (layout == PackLayout::rows_f32) {
    std::memcpy(out, packed + column * round_up(in, 32) * 4, static_cast<std::size_t>(in) * 4);
    return;
  }
  if (layout == PackLayout::split_f32) {
    const auto* row = reinterpret_cast<const float*>(packed) + column * round_up(in, 32);
    for (Index i = 0; i < in; ++i) out[i] = row[i / 32 * 32 + i % 2 * 16 + i % 32 / 2];
    return;
  }
  if (layout == PackLayout::rows_int8) return unpack_int8(packed + column * int8_column_bytes(in), in, out);
  if (layout == PackLayout::rows_bf16) {
    const std::byte* row = packed + column * packed_bytes(layout, 1, in);
    for (Index i = 0; i < in; ++i) out[i] = decode(Format::bf16, row, i);
    return;
  }
  if (layout == PackLayout::blocks_bf16) {
    const std::byte* row = packed + column * packed_bytes(layout, 1, in);
    for (Index i = 0; i < in; ++i) {
      const Index block = i / quantised_block * quantised_block;
      out[i] = decode(Format::bf16, row, block + place_in_block(i - block));
    }
    return;
  }
  if (layout == PackLayout::pairs_bf16) {
    const std::byte* pair = packed + column / 2 * packed_bytes(layout, 2, in);
    for (Index i = 0; i < in; ++i) out[i] = decode(Format::bf16, pair, i / 4 * 8 + column % 2 * 4 + i % 4);
    return;
  }
  const Index parts = layout == PackLayout::tiles_bf16 ? 1 : 3;
  const std::byte* group = packed + column / 16 * ceil_div(in, 32) * parts * 1024;
  for (Index i = 0; i < in; ++i) {
    double value = 0;
    for (Index part = 0; part < parts; ++part) {
      const std::byte* tile = group + (i / 32 * parts + part) * 1024;
      value += static_cast<double>(decode(Format::bf16, tile, i % 32 / 2 * 32 + column % 16 * 2 + i % 2));
    }
    out[i] = static_cast<float>(value);
  }
}

/// What packing may be off by, relative to each number: the norm, and the rounding of the layout.
[[nodiscard]] inline double pack_bound(PackLayout layout, bool normed, Index in) {
  const bool whole = keeps_f32(layout) || layout == PackLayout::rows_int8;  // see add_int8_steps()
  const double rounding = whole ? 0 : rounds_to_bf16(layout) ? 0x1p-8 : 2 * u;
  return rounding + (normed ? norm_bound(in) : 0);
}

/// What rounding to int8 adds to the slack of each number: half a step of its block.
inline void add_int8_steps(const float* expected, Index in, float* slack) {
  for (Index first = 0; first < in; first += quantised_block) {
    const Index last = std::min(in, first + quantised_block);
    float largest = 0;
    for (Index i = first; i < last; ++i) largest = std::max(largest, std::abs(expected[i]) + slack[i]);
    for (Index i = first; i < last; ++i) slack[i] += largest * (0.5001F / 127.0F) + 0x1p-99F;
  }
}

inline void compare_packed(const Ops& ops, const ConstMatrix<float>& x, const NormSpec* norm,
                           const Packed& packed, PackLayout layout) {
  const std::byte* data = packed.data[static_cast<std::size_t>(layout)];
  if (data == nullptr || data == reinterpret_cast<const std::byte*>(x.data())) return;  // used where it lies
  const Index in = packed.in;
  const double bound = pack_bound(layout, norm != nullptr, in);
  Comparison comparison(ops, 3 * round_up(in, 32));
  auto task = [&](Index t, int worker) {
    float* const expected = comparison.memory(worker);
    float* const found = expected + 2 * round_up(in, 32);
    unpack(layout, data, in, t, found);
    scalar::pack({.x = x.data() + t * x.outerStride(),
                  .in = in,
                  .last = 1,
                  .norm_weight = norm != nullptr ? norm->weight : VectorView{},
                  .epsilon = norm != nullptr ? norm->epsilon : 0.0F,
                  .out = reinterpret_cast<std::byte*>(expected)});
    for (Index i = 0; i < in; ++i) expected[in + i] = relative(bound, expected[i]);
    if (layout == PackLayout::rows_int8) add_int8_steps(expected, in, expected + in);
    comparison.judge(t, 0, found, expected, in);
  };
  comparison.run(packed.columns, TaskRef(task));
  comparison.report({"pack", norm != nullptr ? " with RMS norm" : "", " of [", packed.columns, ", ", in,
                     "] into ", name_of(layout)},
                    "element ", "float32 sum of squares and rounding of the layout");
}

QWENLITE_INLINE Packed pack(const Ops& plain, const ConstMatrix<float>& x, const NormSpec* norm,
                            FormatSet formats, OpsScratch& scratch) {
  const Packed packed = plain.pack(x, norm, formats, scratch);
  for (Index layout = 0; layout < layout_count; ++layout) {
    compare_packed(plain, x, norm, packed, static_cast<PackLayout>(layout));
  }
  return packed;
}

// --------------------------------------------------------------------------------------- products

/// A product's input as float32, and what sums over it may be off by.
struct Input {
  AlignedBuffer rows;                // [columns][in rounded up to 32]
  const std::byte* codes = nullptr;  // the packed columns, if they are int8
  bool rounds;                       // quantised weights become bf16, as activations do
  Index in;
  Index columns;
  double bound;

  Input(const Ops& ops, const Packed& x, Format weights)
      : rows(x.columns * round_up(x.in, 32) * 4),
        rounds(rounds_to_bf16(ops.layout(weights))),
        in(x.in),
        columns(x.columns),
        bound(sum_bound(x.in, ops.layout(weights))) {
    const PackLayout layout = ops.layout(weights);
    if (layout == PackLayout::rows_int8) codes = x.data[static_cast<std::size_t>(layout)];
    for (Index t = 0; t < columns; ++t) {
      unpack(layout, x.data[static_cast<std::size_t>(layout)], in, t, rows.floats() + t * round_up(in, 32));
    }
  }

  /// out[t] = weight row r times column t.
  void multiply(const WeightView& w, Index r, float* out) const {
    if (rounds && is_quantised(w.format) && !has_row_scales(w)) {
      const std::vector<Bf16> elements = rounded_row(w, r);
      return multiply(scalar::matmul,
                      {reinterpret_cast<const std::byte*>(elements.data()), 1, in, Format::bf16}, out);
    }
    multiply(codes != nullptr         ? scalar::matmul_int8
             : is_quantised(w.format) ? scalar::matmul_quantised
                                      : scalar::matmul,
             {w.row(r), 1, in, w.format, w.planes_from(r)}, out);
  }

  /// What such a sum may be off by: `bound` of the sum of |w x|.
  [[nodiscard]] double slack(const WeightView& w, Index r, Index t) const {
    const float* x = rows.floats() + t * round_up(in, 32);
    double size = 0;
    for (Index i = 0; i < in; ++i) {
      size += std::abs(static_cast<double>(decode(w, r, i)) * static_cast<double>(x[i]));
    }
    return bound * size;
  }

 private:
  void multiply(void (*product)(const MatmulArgs&), const WeightView& row, float* out) const {
    product({.weights = row.data,
             .format = row.format,
             .row_bytes = row.row_bytes(),
             .planes = row.planes,
             .rows = 1,
             .in = in,
             .packed = codes != nullptr ? codes : rows.data(),
             .columns = columns,
             .out = out,
             .out_stride = 1});
  }

  [[nodiscard]] std::vector<Bf16> rounded_row(const WeightView& w, Index r) const {
    std::vector<Bf16> elements;
    elements.reserve(static_cast<std::size_t>(in));
    for (Index i = 0; i < in; ++i) elements.emplace_back(decode(w, r, i));
    return elements;
  }
};

inline constexpr const char* sum_rule = "float32 sums: 2^-24 of the sum of |w x| for each step of a chain";

inline void report_product(const Comparison& comparison, const char* operation, const WeightView& w,
                           Index columns) {
  comparison.report({operation, " of ", name_of(w.format), " weights [", w.rows, ", ", w.cols, "] and ",
                     columns, columns == 1 ? " token" : " tokens"},
                    "weight row ", sum_rule);
}

/// `before` is what `product.out` held, when it accumulates.
inline void compare_product(const Ops& ops, const Packed& x, const Product& product, const float* before) {
  const WeightView& w = product.weight;
  const Input input(ops, x, w.format);
  Comparison comparison(ops, x.columns);
  auto task = [&](Index r, int worker) {
    float* const sums = comparison.memory(worker);
    input.multiply(w, r, sums);
    for (Index t = 0; t < x.columns; ++t) {
      const auto sum = static_cast<double>(sums[t]);
      const double old = product.accumulate ? static_cast<double>(before[t * w.rows + r]) : 0;
      const auto found = static_cast<double>(product.out.data()[t * product.out.outerStride() + r]);
      const double slack = (input.bound + 2 * u) * std::abs(sum) + 2 * u * std::abs(old) + vanishing;
      if (agree(found, old + sum, slack)) continue;
      comparison.judge(t, r, found, old + sum, slack + input.slack(w, r, t));
    }
  };
  comparison.run(w.rows, TaskRef(task));
  report_product(comparison, product.accumulate ? "matmul onto a sum" : "matmul", w, x.columns);
}

QWENLITE_INLINE void matmul(const Ops& plain, const Packed& x, std::span<const Product> products,
                            OpsScratch& scratch) {
  Index sums = 0;
  for (const Product& p : products) sums += p.out.size();
  const AlignedBuffer before(sums * 4);  // outputs that are added to, one after another
  float* at = before.floats();
  for (const Product& p : products) {
    if (p.accumulate)
      std::memcpy(at, copied(unwritable(p.out)).data(), static_cast<std::size_t>(p.out.size()) * 4);
    at += p.out.size();
  }
  plain.matmul(x, products, scratch);
  at = before.floats();
  for (const Product& p : products) {
    compare_product(plain, x, p, at);
    at += p.out.size();
  }
}

/// silu changes by at most 1.1 times what its argument changes by, and is no larger than it.
QWENLITE_INLINE void gated_matmul(const Ops& plain, const GatedProduct& product, OpsScratch& scratch) {
  const Packed& x = product.x;
  plain.gated_matmul(x, product.gate, product.up, product.out, scratch);
  const Input gate_input(plain, x, product.gate.format);
  const Input up_input(plain, x, product.up.format);
  Comparison comparison(plain, 2 * x.columns);
  auto task = [&](Index r, int worker) {
    float* const gates = comparison.memory(worker);
    float* const ups = gates + x.columns;
    gate_input.multiply(product.gate, r, gates);
    up_input.multiply(product.up, r, ups);
    for (Index t = 0; t < x.columns; ++t) {
      float value = 0;
      scalar::silu_mul(gates + t, ups + t, &value, 1);
      const auto expected = static_cast<double>(value);
      const auto found = static_cast<double>(product.out.data()[t * product.out.outerStride() + r]);
      double slack = 0x1p-20 * std::abs(expected) + vanishing;  // silu's own exp, division and product
      if (agree(found, expected, slack)) continue;
      const double up_slack = up_input.slack(product.up, r, t);
      slack +=
          1.1 * gate_input.slack(product.gate, r, t) * (std::abs(static_cast<double>(ups[t])) + up_slack) +
          std::abs(static_cast<double>(gates[t])) * up_slack;
      comparison.judge(t, r, found, expected, slack);
    }
  };
  comparison.run(product.gate.rows, TaskRef(task));
  report_product(comparison, "gated matmul", product.gate, x.columns);
}

}  // namespace kernels::checked
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
