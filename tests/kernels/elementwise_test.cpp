// SPDX-License-Identifier: Apache-2.0
//
// Norms, rotary embedding, the gated activation and row decoding of every instruction set against double,
// at sizes that do and do not fill a vector and at the ends of float32's range.

#include <cmath>
#include <limits>

#include "kernel_tables.hpp"

using namespace kernel_tests;
using qwenlite::element_bytes;
using qwenlite::VectorView;

namespace {

/// Sizes around the vector widths.
constexpr Index sizes[] = {1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 128, 1023, 1024};

/// A stored vector against an inaccessible page, at an odd address when `spare` is odd.
struct StoredVector {
  GuardedMemory memory;
  VectorView view;

  StoredVector(Format format, const std::vector<float>& values, Index spare)
      : memory(static_cast<Index>(values.size()) * element_bytes(format), spare),
        view{memory.data(), static_cast<Index>(values.size()), format} {
    for (Index i = 0; i < view.size; ++i)
      encode(format, values[static_cast<std::size_t>(i)], memory.data(), i);
  }
};

double sigmoid(float gate) {
  return 1 / (1 + std::exp(-static_cast<double>(gate)));
}

double silu_times(float gate, float up) {
  const auto g = static_cast<double>(gate);
  return g / (1 + std::exp(-g)) * static_cast<double>(up);
}

/// Floats right before an inaccessible page.
GuardedMemory& guarded(const std::vector<float>& values, GuardedMemory& memory) {
  std::memcpy(memory.data(), values.data(), values.size() * sizeof(float));
  return memory;
}

}  // namespace

TEST_CASE("rms_norm: agrees with double, in place too") {
  for (const KernelTable* t : runnable_tables()) {
    for (const Format format : {Format::bf16, Format::f16, Format::f32}) {
      INFO(t->name << " " << name_of(format));
      for (const Index n : sizes) {
        const StoredVector weight(format, random_floats(n, 2), n % 2);
        for (const float spread : {1.0F, 1e-5F, 1e4F}) {
          const std::vector<float> x = random_floats(n, static_cast<unsigned>(n), spread);
          GuardedMemory out(n * 4);
          t->rms_norm(x.data(), weight.view, 1e-6F, out.floats());
          double squares = 0;
          for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
          const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
          double worst = 0;
          for (Index i = 0; i < n; ++i) {
            const double expected = static_cast<double>(x[static_cast<std::size_t>(i)]) * scale *
                                    static_cast<double>(qwenlite::decode(format, weight.view.data, i));
            worst = std::max(worst, std::abs(static_cast<double>(out.floats()[i]) - expected) /
                                        (std::abs(expected) + 1e-30));
          }
          CHECK(worst < 1e-6);
          GuardedMemory in_place(n * 4);
          guarded(x, in_place);
          t->rms_norm(in_place.floats(), weight.view, 1e-6F, in_place.floats());
          CHECK(same_bits(in_place.floats(), out.floats(), n));
        }
      }
    }
  }
}

TEST_CASE("rms_norm: an offset is added to the weight in float32") {
  for (const KernelTable* t : runnable_tables()) {
    for (const Format format : {Format::bf16, Format::f16, Format::f32}) {
      INFO(t->name << " " << name_of(format));
      for (const Index n : sizes) {
        StoredVector weight(format, random_floats(n, 2, 0.01F), n % 2);
        weight.view.offset = 1;
        const std::vector<float> x = random_floats(n, static_cast<unsigned>(n));
        double squares = 0;
        for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
        const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
        std::vector<float> out(x.size());
        t->rms_norm(x.data(), weight.view, 1e-6F, out.data());
        double worst = 0;
        for (Index i = 0; i < n; ++i) {
          const double w = 1 + static_cast<double>(qwenlite::decode(format, weight.view.data, i));
          const double expected = static_cast<double>(x[static_cast<std::size_t>(i)]) * scale * w;
          worst = std::max(worst, std::abs(static_cast<double>(out[static_cast<std::size_t>(i)]) - expected) /
                                      (std::abs(expected) + 1e-30));
        }
        CHECK(worst < 1e-6);  // rounded to bf16, 1 + weight would be off by 0.004
      }
    }
  }
}

TEST_CASE("sigmoid_mul: agrees with double, saturates, any size, in place") {
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    std::vector<float> gate = {0.0F, -0.0F, 1e4F, 88.0F, 3e38F, -104.0F, -1e4F, -3e38F};
    for (float g = -80.0F; g < 100.0F; g += 0.0137F) gate.push_back(g);
    const std::vector<float> x = random_floats(static_cast<Index>(gate.size()), 63);
    std::vector<float> out(gate.size());
    t->sigmoid_mul(gate.data(), x.data(), out.data(), static_cast<Index>(gate.size()));
    double worst = 0;
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double expected = sigmoid(gate[i]) * static_cast<double>(x[i]);
      worst =
          std::max(worst, std::abs(static_cast<double>(out[i]) - expected) / (std::abs(expected) + 1e-36));
    }
    CHECK(worst < 5e-7);
    for (const Index n : sizes) {
      GuardedMemory gates(n * 4);
      GuardedMemory values(n * 4);
      std::memcpy(gates.data(), gate.data(), static_cast<std::size_t>(n) * 4);
      std::memcpy(values.data(), x.data(), static_cast<std::size_t>(n) * 4);
      t->sigmoid_mul(gates.floats(), values.floats(), values.floats(), n);
      CHECK(same_bits(values.floats(), out.data(), n));
    }
  }
}

TEST_CASE("rms_norm: zeros stay zero, a tiny weight is not lost") {
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    const std::vector<float> zeros(37, 0.0F);
    const StoredVector ones(Format::bf16, std::vector<float>(37, 1.0F), 0);
    std::vector<float> out(37, 5.0F);
    t->rms_norm(zeros.data(), ones.view, 1e-6F, out.data());
    CHECK(out == zeros);
    const StoredVector tiny(Format::bf16, std::vector<float>(37, std::ldexp(1.0F, -9)), 0);
    const std::vector<float> x(37, 3.0F);
    t->rms_norm(x.data(), tiny.view, 0.0F, out.data());
    for (const float v : out) CHECK(v == Approx(std::ldexp(1.0F, -9)).epsilon(1e-6));
  }
}

TEST_CASE("rope: rotates halves, leaves position zero and the rest alone") {
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    for (const Index half : {1, 3, 8, 16, 17, 32, 64}) {
      const std::vector<float> x = random_floats(2 * half + 5, 9);
      std::vector<float> cos(static_cast<std::size_t>(half));
      std::vector<float> sin(cos.size());
      for (std::size_t i = 0; i < cos.size(); ++i) {
        cos[i] = std::cos(static_cast<float>(i) * 0.7F);
        sin[i] = std::sin(static_cast<float>(i) * 0.7F);
      }
      std::vector<float> rotated = x;
      t->rope(rotated.data(), 2 * half, cos.data(), sin.data());
      double worst = 0;
      for (std::size_t i = 0; i < cos.size(); ++i) {
        const auto j = i + cos.size();
        const auto a = static_cast<double>(x[i]);
        const auto b = static_cast<double>(x[j]);
        const auto c = static_cast<double>(cos[i]);
        const auto s = static_cast<double>(sin[i]);
        worst = std::max(worst, std::abs(static_cast<double>(rotated[i]) - (a * c - b * s)));
        worst = std::max(worst, std::abs(static_cast<double>(rotated[j]) - (b * c + a * s)));
      }
      CHECK(worst < 1e-6);
      CHECK(same_bits(rotated.data() + 2 * half, x.data() + 2 * half, 5));

      std::vector<float> still = x;
      const std::vector<float> ones(cos.size(), 1.0F);
      const std::vector<float> zeros(cos.size(), 0.0F);
      t->rope(still.data(), 2 * half, ones.data(), zeros.data());
      CHECK(still == x);
    }
  }
}

TEST_CASE("silu_mul: agrees with double over the whole range") {
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    std::vector<float> gate;
    for (float g = -87.0F; g < 100.0F; g += 0.0137F) gate.push_back(g);
    for (int e = -37; e <= 4; ++e) {
      gate.push_back(std::pow(10.0F, static_cast<float>(e)));
      gate.push_back(-std::pow(10.0F, static_cast<float>(e < 1 ? e : 1)));
    }
    std::vector<float> out(gate.size());
    const std::vector<float> up(gate.size(), 1.0F);
    t->silu_mul(gate.data(), up.data(), out.data(), static_cast<Index>(gate.size()));
    double worst = 0;
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double expected = silu_times(gate[i], 1.0F);
      // Below -80 the result leaves the normal numbers: there an absolute error counts.
      worst =
          std::max(worst, std::abs(static_cast<double>(out[i]) - expected) / (std::abs(expected) + 1e-36));
    }
    CHECK(worst < 5e-7);  // exp 2e-7, one addition, one division
  }
}

TEST_CASE("silu_mul: saturates without NaN") {
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    const float denormal = std::numeric_limits<float>::denorm_min();
    const std::vector<float> gate = {1e4F,  -1e4F,    88.0F,     -88.0F, 3e38F,   -3e38F, 0.0F,
                                     -0.0F, denormal, -denormal, 104.0F, -104.0F, -89.5F};
    const std::vector<float> up = {2.0F, 2.0F, 2.0F, 2.0F, 0.5F, 0.5F, 7.0F,
                                   7.0F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F};
    std::vector<float> out(gate.size());
    t->silu_mul(gate.data(), up.data(), out.data(), static_cast<Index>(gate.size()));
    for (std::size_t i = 0; i < gate.size(); ++i) {
      INFO("gate " << gate[i]);
      CHECK(std::isfinite(out[i]));
      CHECK(std::abs(static_cast<double>(out[i]) - silu_times(gate[i], up[i])) <=
            5e-7 * std::abs(silu_times(gate[i], up[i])) + 1e-36);
    }
    CHECK(out[0] == 2e4F);
    CHECK(out[4] == 1.5e38F);
  }
}

TEST_CASE("silu_mul: any size, in place, and no element depends on its place") {
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    const std::vector<float> gate = random_floats(1024, 61, 3.0F);
    const std::vector<float> up = random_floats(1024, 62, 3.0F);
    std::vector<float> all(1024);
    t->silu_mul(gate.data(), up.data(), all.data(), 1024);
    for (const Index n : sizes) {
      GuardedMemory a(n * 4);
      GuardedMemory b(n * 4);
      std::memcpy(a.data(), gate.data() + 1024 - n, static_cast<std::size_t>(n) * 4);
      std::memcpy(b.data(), up.data() + 1024 - n, static_cast<std::size_t>(n) * 4);
      t->silu_mul(a.floats(), b.floats(), a.floats(), n);
      CHECK(same_bits(a.floats(), all.data() + 1024 - n, n));
    }
  }
}

TEST_CASE("decode_row: exact for every bit pattern and size") {
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    for (const Format format : {Format::bf16, Format::f16}) {
      std::vector<std::uint16_t> bits(65536);
      for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
      const auto* row = reinterpret_cast<const std::byte*>(bits.data());
      std::vector<float> out(bits.size());
      t->decode_row(format, row, 65536, out.data());
      bool exact = true;
      for (Index i = 0; i < 65536; ++i) {
        const float expected = qwenlite::decode(format, row, i);
        const float got = out[static_cast<std::size_t>(i)];
        exact &= std::isnan(expected) ? std::isnan(got) : same_bits(&expected, &got, 1);
      }
      CHECK(exact);
    }
    for (const Format format : {Format::bf16, Format::f16, Format::f32}) {
      for (const Index n : sizes) {
        const StoredVector stored(format, random_floats(n, 71), n % 2);
        GuardedMemory out(n * 4);
        t->decode_row(format, stored.view.data, n, out.floats());
        bool exact = true;
        for (Index i = 0; i < n; ++i)
          exact &= out.floats()[i] == qwenlite::decode(format, stored.view.data, i);
        CHECK(exact);
      }
    }
  }
}

TEST_CASE("exp: as the softmax uses it, within 2e-7 down to the smallest normal results") {
  // One key far below the other: its probability is exp(s - m), visible in the sum of attention.
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    alignas(64) float k[64 * 2] = {};
    alignas(64) float v[64 * 2] = {};
    const qwenlite::KvBlock block{reinterpret_cast<const std::byte*>(k),
                                  reinterpret_cast<const std::byte*>(v), 0, 2, qwenlite::KvFormat::f32};
    v[0] = 0.0F;  // position 0 is the strong key
    v[1] = 1.0F;  // position 1 the weak one: the output is its probability
    const float q[2] = {1.0F, 0.0F};
    const Index offset = 0;
    const Index last = 1;
    const GuardedMemory scratch(qwenlite::round_up(t->attend_scratch_bytes(2), 64));
    double worst = 0;
    for (float x = 0; x > -110.0F; x -= 0.00917F) {
      k[2] = x;
      float max = 0;
      float sum = 0;
      float out[2] = {};
      t->attend_span({.q = q,
                      .q_offset = &offset,
                      .last = &last,
                      .rows = 1,
                      .head_dim = 2,
                      .blocks = &block,
                      .block_count = 1,
                      .max = &max,
                      .sum = &sum,
                      .out = out,
                      .scratch = scratch.data()});
      const double expected = std::exp(static_cast<double>(x));
      const double error = std::abs(static_cast<double>(out[0]) - expected);
      if (x >= -87.0F) worst = std::max(worst, error / expected);
      CHECK(error <= 2e-7 * expected + 1.5e-45);
      if (x < -104.0F) CHECK(out[0] == 0.0F);
    }
    CHECK(worst < 2e-7);
  }
}
