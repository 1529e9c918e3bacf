// SPDX-License-Identifier: Apache-2.0
//
// Checked operations: right kernels of every instruction set pass, at all formats and precisions and with
// infinities about; a kernel with one fault is caught, and the message says which and where.

#include <cmath>
#include <limits>
#include <string>

#include <qwenlite/kernels/ops.hpp>

#include "kernel_tables.hpp"

using namespace kernel_tests;
using namespace qwenlite::kernels;
using qwenlite::AlignedBuffer;
using qwenlite::Angles;
using qwenlite::AttentionShape;
using qwenlite::ConstMatrix;
using qwenlite::KvBlock;
using qwenlite::KvFormat;
using qwenlite::Matrix;
using qwenlite::NormSpec;
using qwenlite::Ops;
using qwenlite::OpsScratch;
using qwenlite::Piece;
using qwenlite::Product;
using qwenlite::WeightView;

namespace {

constexpr Index width = 96;
constexpr Index rows = 70;
constexpr Index head_dim = 32;

/// Keys and values of one layer and head.
struct OneHead {
  KvFormat format;
  std::vector<AlignedBuffer> blocks;
  Index count;

  OneHead(KvFormat f, Index positions) : format(f), count(positions) {
    const Index plane = kv_plane_bytes(f, head_dim);
    for (Index b = 0; b < qwenlite::ceil_div(positions, 64); ++b) blocks.emplace_back(2 * plane);
    for (Index p = 0; p < positions; ++p) {
      const std::vector<float> k = random_floats(head_dim, static_cast<unsigned>(p));
      const std::vector<float> v = random_floats(head_dim, static_cast<unsigned>(p + 99999));
      std::byte* data = blocks[static_cast<std::size_t>(p / 64)].data();
      store_kv(f, head_dim, p % 64, k.data(), v.data(), data, data + plane);
    }
  }
  [[nodiscard]] KvBlock block(Index /*layer*/, Index /*kv_head*/, Index index) const {
    const std::byte* data = blocks[static_cast<std::size_t>(index)].data();
    return {data, data + kv_plane_bytes(format, head_dim), index * 64,
            std::min<Index>(64, count - index * 64), format};
  }
};

Matrix<float> rows_at(std::vector<float>& values, Index tokens) {
  const Index cols = static_cast<Index>(values.size()) / tokens;
  return {values.data(), tokens, cols, Eigen::OuterStride<>(cols)};
}
ConstMatrix<float> read_only(const std::vector<float>& values, Index tokens) {
  const Index cols = static_cast<Index>(values.size()) / tokens;
  return {values.data(), tokens, cols, Eigen::OuterStride<>(cols)};
}

/// Weights [rows, width] and every operation on random inputs.
struct Problem {
  Format format;
  Index tokens;
  AlignedBuffer weights{rows * width * 4 + 64};
  AlignedBuffer norm_weights{width * 4 + 64};
  std::vector<float> x;
  qwenlite::ThreadPool pool{2};

  Problem(Format f, Index t) : format(f), tokens(t), x(random_floats(t * width, 3)) {
    const std::vector<float> w = random_floats(rows * width, 4);
    const std::vector<float> n = random_floats(width, 5);
    for (Index i = 0; i < rows * width; ++i) encode(f, w[static_cast<std::size_t>(i)], weights.data() + 8, i);
    for (Index i = 0; i < width; ++i) encode(f, n[static_cast<std::size_t>(i)], norm_weights.data() + 8, i);
  }
  [[nodiscard]] WeightView matrix() const { return {weights.data() + 8, rows, width, format}; }
  [[nodiscard]] NormSpec norm(Index size) const { return {{norm_weights.data() + 8, size, format}, 1e-6F}; }
  [[nodiscard]] Ops ops(const KernelTable& table, Precision precision, bool checked) {
    return {table, pool, precision, checked};
  }
  [[nodiscard]] OpsScratch scratch(const Ops& ops) const {
    return {ops,
            {.tokens = tokens,
             .width = width,
             .head_dim = head_dim,
             .num_heads = 2,
             .num_kv_heads = 1,
             .max_tokens = 1200,
             .formats = {format}}};
  }

  /// The outputs of all operations one after another.
  std::vector<float> run(const KernelTable& table, Precision precision, bool checked) {
    const Ops op = ops(table, precision, checked);
    OpsScratch space = scratch(op);
    std::vector<float> all;
    const auto keep = [&](const std::vector<float>& out) { all.insert(all.end(), out.begin(), out.end()); };
    std::vector<float> out(static_cast<std::size_t>(tokens * rows), 0.5F);
    std::vector<float> sum = out;
    const NormSpec spec = norm(width);
    for (const bool normed : {true, false}) {
      const auto packed = op.pack(read_only(x, tokens), normed ? &spec : nullptr, {format}, space);
      const Product products[2] = {{matrix(), rows_at(out, tokens), false},
                                   {matrix(), rows_at(sum, tokens), true}};
      op.matmul(packed, products, space);
      keep(out);
      keep(sum);
      op.gated_matmul(packed, matrix(), matrix(), rows_at(out, tokens), space);
      keep(out);
    }
    std::vector<float> wide(x.size());
    op.rms_norm(read_only(x, tokens), norm(width), rows_at(wide, tokens));
    keep(wide);
    const std::vector<float> turns = random_floats(2 * tokens * 8, 6);  // 16 of 32 dimensions are rotated
    op.norm_and_rotate(rows_at(wide, tokens), head_dim, norm(head_dim),
                       Angles{turns.data(), turns.data() + tokens * 8, 8});
    keep(wide);
    std::vector<float> queries(static_cast<std::size_t>(tokens * width / 2));
    op.take_queries(read_only(x, tokens), 16, rows_at(queries, tokens));
    op.apply_gates(read_only(x, tokens), 16, rows_at(queries, tokens));
    keep(queries);
    std::vector<int> ids;
    for (Index t = 0; t < tokens; ++t) ids.push_back(static_cast<int>(t * 7 % rows));
    op.embed(matrix(), ids, rows_at(wide, tokens));
    keep(wide);
    return all;
  }

  /// Attention of two heads over `positions` cached ones, the last of which are the queries'.
  std::vector<float> attend(const Ops& op, KvFormat kv, Index positions) const {
    const OneHead cache(kv, positions);
    OpsScratch space = scratch(op);
    const std::vector<float> q = random_floats(tokens * 2 * head_dim, 7);
    std::vector<float> out(q.size());
    const std::array<Piece<OneHead>, 1> pieces{Piece<OneHead>{&cache, 0, tokens, positions - tokens}};
    op.attend(std::span<const Piece<OneHead>>(pieces),
              AttentionShape{.num_heads = 2, .num_kv_heads = 1, .head_dim = head_dim, .scale = 0.17F},
              read_only(q, tokens), rows_at(out, tokens), space);
    return out;
  }
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), static_cast<Index>(a.size()));
}

/// The message of the error that f throws.
template <class F>
std::string fault_of(const F& f) {
  try {
    f();
  } catch (const qwenlite::Error& e) {
    CHECK(e.code() == qwenlite::ErrorCode::numeric);
    return e.what();
  }
  return "no error";
}

// ----------------------------------------------------------------- kernels with one fault each

const KernelTable& right() {
  return active();
}

void short_matmul(const MatmulArgs& a) {  // loses the last of 96 terms
  MatmulArgs fewer = a;
  fewer.in = a.in - 1;
  right().matmul(fewer);
}
void displaced_matmul(const MatmulArgs& a) {
  right().matmul(a);
  if (a.columns > 3 && a.rows > 5) a.out[3 * a.out_stride + 5] += 0.01F;
}
void wrong_pack(const PackArgs& a) {
  right().pack(a);
  if (a.norm_weight.data == nullptr || a.first > 0) return;
  auto* first = reinterpret_cast<std::uint16_t*>(a.out) + (qwenlite::kernels::keeps_f32(a.layout) ? 1 : 0);
  *first = static_cast<std::uint16_t>(*first ^ 0x10U);  // one bit of column 0, element 0
}
void wrong_rms_norm(const float* x, qwenlite::VectorView weight, float epsilon, float* out) {
  right().rms_norm(x, weight, epsilon, out);
  out[weight.size - 1] *= 1.0001F;
}
void wrong_rope(float* x, Index rotary_dim, const float* cos, const float* sin) {
  right().rope(x, rotary_dim, sin, cos);
}
void wrong_silu_mul(const float* gate, const float* up, float* out, Index n) {
  right().silu_mul(gate, up, out, n);
  out[0] *= 1.1F;
}
void wrong_sigmoid_mul(const float* gate, const float* x, float* out, Index n) {
  right().sigmoid_mul(x, gate, out, n);
}
void wrong_decode_row(Format format, const std::byte* row, Index n, float* out) {
  right().decode_row(format, row, n, out);
  out[n / 2] = std::nextafterf(out[n / 2], 100.0F);
}
void wrong_attend_span(const SpanArgs& a) {  // does not see the newest key
  std::vector<Index> last(a.last, a.last + a.rows);
  for (Index& l : last) l -= l > 0 ? 1 : 0;
  SpanArgs other = a;
  other.last = last.data();
  right().attend_span(other);
}
void wrong_merge_span(const MergeArgs& a) {  // forgets the earlier span
  std::copy_n(a.span_out, a.rows * a.head_dim, a.out);
  std::copy_n(a.span_sum, a.rows, a.sum);
}

}  // namespace

TEST_CASE("checked operations: right kernels pass and give the bits they give unchecked") {
  for (const KernelTable* table : runnable_tables()) {
    for (const Format format : {Format::bf16, Format::f16, Format::f32}) {
      for (const Precision precision : {Precision::exact, Precision::bf16}) {
        for (const Index tokens : {1, 7, 21}) {
          INFO(table->name << " " << name_of(format) << " " << name_of(precision) << " " << tokens);
          Problem problem(format, tokens);
          std::vector<float> found;
          REQUIRE_NOTHROW(found = problem.run(*table, precision, true));
          CHECK(same(found, problem.run(*table, precision, false)));
        }
      }
    }
  }
}

TEST_CASE("checked attention: right kernels pass, over several spans too") {
  for (const KernelTable* table : runnable_tables()) {
    for (const KvFormat kv : qwenlite::kv_formats) {
      for (const Precision precision : {Precision::exact, Precision::bf16}) {
        for (const Index positions : {21, 90, 1100}) {
          Problem problem(Format::bf16, positions == 1100 ? 1 : 21);
          INFO(table->name << " " << name_of(kv) << " " << name_of(precision) << " " << positions);
          std::vector<float> found;
          REQUIRE_NOTHROW(found = problem.attend(problem.ops(*table, precision, true), kv, positions));
          CHECK(same(found, problem.attend(problem.ops(*table, precision, false), kv, positions)));
        }
      }
    }
  }
}

TEST_CASE("checked operations: infinities and NaN in the inputs are nobody's fault") {
  for (const KernelTable* table : runnable_tables()) {
    INFO(table->name);
    for (const float value : {std::numeric_limits<float>::infinity(), std::nanf(""), 1e18F, 1e-40F}) {
      Problem problem(Format::bf16, 17);
      problem.x[5] = value;
      problem.x[6 * width + 95] = -value;
      CHECK_NOTHROW(problem.run(*table, Precision::exact, true));
    }
  }
}

TEST_CASE("checked operations: a fault is caught and named") {
  struct Fault {
    const char* name;
    void (*put_in)(KernelTable&);
    std::vector<std::string> parts;  // of the message
  };
  const std::vector<Fault> faults{
      {"short",
       [](KernelTable& t) { t.matmul = short_matmul; },
       {"matmul of bf16 weights [70, 96] and 21 tokens", "sum of |w x|"}},
      {"displaced",
       [](KernelTable& t) { t.matmul = displaced_matmul; },
       {"matmul", "token 3, weight row 5: found"}},
      {"pack",
       [](KernelTable& t) { t.pack = wrong_pack; },
       {"pack with RMS norm of [21, 96]", "token 0, element 0"}},
      {"norm",
       [](KernelTable& t) { t.rms_norm = wrong_rms_norm; },
       {"RMS norm [21, 96]", "token 0, element 95"}},
      {"rope",
       [](KernelTable& t) { t.rope = wrong_rope; },
       {"rotary embedding [21, 96] in heads of 32", "head 0, dimension 0"}},
      {"sigmoid",
       [](KernelTable& t) { t.sigmoid_mul = wrong_sigmoid_mul; },
       {"output gates of 3 heads", "head 0, dimension 0"}},
      {"silu",
       [](KernelTable& t) { t.silu_mul = wrong_silu_mul; },
       {"gated matmul of bf16 weights", "token 0, weight row "}},
      {"decode",
       [](KernelTable& t) { t.decode_row = wrong_decode_row; },
       {"embedding of bf16 rows of 96", "token 0, element 48"}},
  };
  for (const Fault& fault : faults) {
    KernelTable table = right();
    table.name = "doubtful";
    fault.put_in(table);
    Problem problem(Format::bf16, 21);
    CHECK_NOTHROW(problem.run(table, Precision::exact, false));
    const std::string message = fault_of([&] { problem.run(table, Precision::exact, true); });
    INFO(fault.name << ": " << message);
    CHECK_THAT(message, has_text("QWENLITE_CHECK: "));
    CHECK_THAT(message, has_text("doubtful kernels, exact precision"));
    CHECK_THAT(message, has_text("as the scalar kernel has it, within "));
    for (const std::string& part : fault.parts) CHECK_THAT(message, has_text(part));
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("checked attention: a fault is caught and named") {
  KernelTable table = right();
  table.attend_span = wrong_attend_span;
  Problem problem(Format::bf16, 21);
  const Ops few = problem.ops(table, Precision::exact, true);
  CHECK_THAT(fault_of([&] { problem.attend(few, KvFormat::bf16, 90); }),
             has_text("attention of 2 heads on 1 of 32, bf16 cache, layer 0, 21 tokens from position 69") &&
                 has_text("token 0, head 0, dimension 0"));
  table = right();
  table.merge_span = wrong_merge_span;
  Problem one(Format::bf16, 1);
  const Ops long_one = one.ops(table, Precision::exact, true);
  CHECK_THAT(fault_of([&] { one.attend(long_one, KvFormat::f32, 1100); }), has_text("f32 cache"));
  CHECK_NOTHROW(one.attend(long_one, KvFormat::f32, 900));  // a single span
}
