// SPDX-License-Identifier: Apache-2.0
//
// Packing and matrix products of every instruction set against sums in double: all formats, precisions and
// awkward sizes, weights at odd addresses and right before an inaccessible page. And the rule the library
// stands on: an output has the same bits alone, beside other columns and in another strip of rows.

#include <cmath>

#include "kernel_tables.hpp"

using namespace kernel_tests;
using qwenlite::ceil_div;
using qwenlite::element_bytes;
using qwenlite::round_up;
using qwenlite::VectorView;
using qwenlite::kernels::PackLayout;

namespace {

/// One product with its inputs in guarded memory.
struct Problem {
  Format format;
  Precision precision;
  Index rows;
  Index in;
  Index columns;
  std::vector<float> x;   // [columns][in]
  GuardedMemory weights;  // [rows][in] as stored

  Problem(Format f, Precision p, Index r, Index i, Index c)
      : format(f),
        precision(p),
        rows(r),
        in(i),
        columns(c),
        x(random_floats(c * i, static_cast<unsigned>(c * 131 + i))),
        weights(r * i * element_bytes(f), (r + i + c) % 2) {
    const std::vector<float> values = random_floats(r * i, static_cast<unsigned>(r * 977 + i));
    for (Index k = 0; k < r * i; ++k) encode(f, values[static_cast<std::size_t>(k)], weights.data(), k);
  }

  [[nodiscard]] Index row_bytes() const { return in * element_bytes(format); }
  [[nodiscard]] float input(const KernelTable& t, Index column, Index i) const {
    const float value = x[static_cast<std::size_t>(column * in + i)];
    return rounds_to_bf16(t.layout(format, precision)) ? round_to_bf16(value) : value;
  }
};

/// Runs rows [first_row, first_row + rows) by columns [first_column, first_column + columns) of a problem; a
/// single column in one stream too, which must give the same bits.
/// Everything the kernels may touch lies against an inaccessible page.
struct Piece {
  Index first_row = 0;
  Index rows = 0;
  Index first_column = 0;
  Index columns = 0;
};
void run(const KernelTable& t, const Problem& p, const Piece& piece, float* out, Index out_stride,
         bool accumulate) {
  const PackLayout layout = t.layout(p.format, p.precision);
  static const GuardedMemory packed_space(Index{4} << 20);
  static const GuardedMemory scratch_space(Index{4} << 20);
  std::byte* packed = packed_space.last(qwenlite::kernels::packed_bytes(layout, piece.columns, p.in));
  for (Index first = 0; first < piece.columns; first += 16) {
    t.pack({.x = p.x.data() + piece.first_column * p.in,
            .x_stride = p.in,
            .in = p.in,
            .first = first,
            .last = std::min(piece.columns, first + 16),
            .layout = layout,
            .out = packed});
  }
  const Index scratch_bytes = round_up(t.matmul_scratch_bytes(piece.rows, p.in, piece.columns), 64);
  qwenlite::kernels::MatmulArgs args{.weights = p.weights.data() + piece.first_row * p.row_bytes(),
                                     .format = p.format,
                                     .row_bytes = p.row_bytes(),
                                     .rows = piece.rows,
                                     .in = p.in,
                                     .packed = packed,
                                     .layout = layout,
                                     .columns = piece.columns,
                                     .out = out,
                                     .out_stride = out_stride,
                                     .accumulate = accumulate,
                                     .scratch = scratch_space.last(scratch_bytes)};
  std::vector<float> in_one_stream(out, out + piece.rows);
  t.matmul(args);
  if (piece.columns > 1) return;
  args.out = in_one_stream.data();
  args.one_stream = true;
  t.matmul(args);
  CHECK(same_bits(in_one_stream.data(), out, piece.rows));
}

/// Largest |output - sum in double| over sum |w| |x|.
double worst_error(const KernelTable& t, const Problem& p, const std::vector<float>& out, Index stride) {
  double worst = 0;
  for (Index c = 0; c < p.columns; ++c) {
    for (Index r = 0; r < p.rows; ++r) {
      double sum = 0;
      double size = 1e-30;
      for (Index i = 0; i < p.in; ++i) {
        const double term =
            static_cast<double>(qwenlite::decode(p.format, p.weights.data() + r * p.row_bytes(), i)) *
            static_cast<double>(p.input(t, c, i));
        sum += term;
        size += std::abs(term);
      }
      const double error = std::abs(static_cast<double>(out[static_cast<std::size_t>(c * stride + r)]) - sum);
      worst = std::max(worst, error / size);
    }
  }
  return worst;
}

constexpr float untouched = -12345.0F;

/// The whole product with gaps between output rows; the gaps must stay as they are.
std::vector<float> whole(const KernelTable& t, const Problem& p, Index stride) {
  std::vector<float> out(static_cast<std::size_t>(p.columns * stride), untouched);
  run(t, p, {0, p.rows, 0, p.columns}, out.data(), stride, false);
  bool gaps = true;
  for (Index c = 0; c < p.columns; ++c) {
    for (Index r = p.rows; r < stride; ++r)
      gaps &= out[static_cast<std::size_t>(c * stride + r)] == untouched;
  }
  CHECK(gaps);
  return out;
}

void check_problem(const KernelTable& t, const Problem& p) {
  const Index stride = p.rows + 3;
  const std::vector<float> out = whole(t, p, stride);
  // Sums over at most 1,024 terms in float32; three bf16 parts carry 24 bits.
  CHECK(worst_error(t, p, out, stride) < 1e-6);

  std::vector<float> added(out.size(), 0.75F);
  run(t, p, {0, p.rows, 0, p.columns}, added.data(), stride, true);
  bool exact = true;
  for (Index c = 0; c < p.columns; ++c) {
    for (Index r = 0; r < p.rows; ++r) {
      const auto k = static_cast<std::size_t>(c * stride + r);
      exact &= added[k] == 0.75F + out[k];
    }
  }
  CHECK(exact);

  if ((p.rows + p.in + p.columns) % 3 != 0) return;  // emulated tiles are slow: a third of the sizes will do
  std::vector<float> alone(static_cast<std::size_t>(p.rows));
  bool same = true;
  for (const Index c : {Index{0}, p.columns / 2, p.columns - 1}) {
    run(t, p, {0, p.rows, c, 1}, alone.data(), p.rows, false);
    same &= same_bits(alone.data(), out.data() + c * stride, p.rows);
    for (const Index r : {Index{0}, p.rows / 2, p.rows - 1}) {
      float one = 0;
      run(t, p, {r, 1, c, 1}, &one, 1, false);
      same &= same_bits(&one, out.data() + c * stride + r, 1);
    }
  }
  CHECK(same);
}

/// Calls f for every combination of format and precision that differs for this table.
template <class Function>
void for_each_kind(const KernelTable& t, const Function& f) {
  for (const Format format : {Format::bf16, Format::f16, Format::f32}) {
    f(format, Precision::exact);
    if (t.layout(format, Precision::bf16) != t.layout(format, Precision::exact)) f(format, Precision::bf16);
  }
}

}  // namespace

TEST_CASE("matmul: every table agrees with sums in double, whatever shares the call") {
  for (const KernelTable* t : runnable_tables()) {
    for_each_kind(*t, [&](Format format, Precision precision) {
      INFO(t->name << " " << name_of(format) << " " << name_of(precision));
      for (const Index rows : {1, 2, 3, 5, 15, 16, 17, 31, 32, 33, 64}) {
        for (const Index in : {1, 2, 7, 8, 31, 32, 33, 64, 96, 100}) {
          for (const Index columns : {1, 2, 3, 7, 15, 16, 17, 31, 33, 40}) {
            INFO("rows " << rows << " in " << in << " columns " << columns);
            check_problem(*t, Problem(format, precision, rows, in, columns));
          }
        }
      }
    });
  }
}

TEST_CASE("matmul: long inputs and many columns") {
  for (const KernelTable* t : runnable_tables()) {
    for_each_kind(*t, [&](Format format, Precision precision) {
      INFO(t->name << " " << name_of(format) << " " << name_of(precision));
      check_problem(*t, Problem(format, precision, 33, 1024, 7));
      check_problem(*t, Problem(format, precision, 33, 1030, 9));
      check_problem(*t, Problem(format, precision, 19, 1339, 1));
      check_problem(*t, Problem(format, precision, 50, 70, 100));
      check_problem(*t, Problem(format, precision, 62, 3002, 8));   // several panels of decoded rows
      check_problem(*t, Problem(format, precision, 6, 20000, 8));   // hardly any rows fit one
      check_problem(*t, Problem(format, precision, 13, 2500, 67));  // parts of `in`, sums kept between them
      check_problem(*t, Problem(format, precision, 5, 1101, 265));  // more columns than sums are kept of
    });
  }
}

TEST_CASE("matmul: an output does not depend on the strip it is computed in") {
  for (const KernelTable* t : runnable_tables()) {
    for_each_kind(*t, [&](Format format, Precision precision) {
      INFO(t->name << " " << name_of(format) << " " << name_of(precision));
      const Problem p(format, precision, 64, 100, 40);
      const std::vector<float> out = whole(*t, p, p.rows);
      for (const Index strip : {1, 5, 16, 24, 33}) {
        std::vector<float> pieces(out.size());
        for (Index r = 0; r < p.rows; r += strip) {
          run(*t, p, {r, std::min(strip, p.rows - r), 0, p.columns}, pieces.data() + r, p.rows, false);
        }
        CHECK(pieces == out);
      }
      for (const Index some : {1, 2, 3, 4, 6, 7, 16, 20, 32}) {
        std::vector<float> pieces(out.size());
        for (Index c = 0; c < p.columns; c += some) {
          run(*t, p, {0, p.rows, c, std::min(some, p.columns - c)}, pieces.data() + c * p.rows, p.rows,
              false);
        }
        CHECK(pieces == out);
      }
    });
  }
}

TEST_CASE("matmul: scratch for a larger product is enough for a smaller one") {
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    for (const Index in : {64, 1000, 1024, 3000, 3072, 30000}) {
      const Index bytes = t->matmul_scratch_bytes(64, in, 512);
      for (const Index smaller : {1, 60, 900, 1023, 1024, 2047, 2900}) {
        if (smaller <= in) CHECK(t->matmul_scratch_bytes(64, smaller, 512) <= bytes);
      }
      CHECK(t->matmul_scratch_bytes(32, in, 512) <= bytes);
      CHECK(t->matmul_scratch_bytes(64, in, 16) <= bytes);
    }
  }
}

TEST_CASE("pack: float32 rows are padded with zeros, normalised on the way") {
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    for (const Index in : {1, 7, 31, 32, 33, 100, 129}) {
      const Index columns = 21;
      const std::vector<float> x = random_floats(columns * in, 5);
      const std::vector<float> weight = random_floats(in, 6);
      const GuardedMemory stored(in * 2, 1);
      for (Index i = 0; i < in; ++i)
        encode(Format::bf16, weight[static_cast<std::size_t>(i)], stored.data(), i);
      const VectorView norm{stored.data(), in, Format::bf16};
      const Index stride = round_up(in, 32);
      const GuardedMemory packed(columns * stride * 4);
      for (const bool normed : {false, true}) {
        std::memset(packed.data(), 0x5A, static_cast<std::size_t>(columns * stride * 4));
        pack_columns(*t, x, in, normed ? norm : VectorView{}, PackLayout::rows_f32, packed.data());
        std::vector<float> row(static_cast<std::size_t>(stride));
        bool same = true;
        for (Index c = 0; c < columns; ++c) {
          std::fill(row.begin(), row.end(), 0.0F);
          std::copy_n(x.data() + c * in, in, row.data());
          if (normed) t->rms_norm(x.data() + c * in, norm, 1e-6F, row.data());
          same &= same_bits(row.data(), packed.floats() + c * stride, stride);
        }
        CHECK(same);
      }
    }
  }
}
