// SPDX-License-Identifier: Apache-2.0
//
// What is particular to AMX: the meaning of the tile instructions (in hardware, or in the emulator that
// stands in for it), the packed layouts, and which kernels the table chooses.

#include <cmath>
#include <cstring>
#include <limits>

#include "kernel_tables.hpp"

#if defined(__x86_64__)

using namespace kernel_tests;
using qwenlite::round_up;
using qwenlite::VectorView;
using qwenlite::kernels::PackLayout;
namespace amx = qwenlite::kernels::amx;

namespace {

/// False, with a loud line, where AMX code cannot run at all.
bool amx_runs() {
  const bool runs = ensure_amx();
  if (!runs) WARN("SKIPPED: AMX kernels (neither AMX nor the AVX-512 that emulation needs)");
  return runs;
}

std::uint16_t bf16_bits(float value) {
  return Bf16(value).bits;
}

/// A left operand [16][32], a right operand [16 pairs][16][2] and the sums [16][16].
struct Tiles {
  alignas(64) std::uint16_t left[16][32] = {};
  alignas(64) std::uint16_t right[16][16][2] = {};
  alignas(64) float sums[16][16] = {};

  /// sums += left * right, through tile registers 0, 1 and 2.
  void multiply() {
    const amx::TileScope scope;
    asm volatile("tileloadd (%0,%1,1), %%tmm0" : : "r"(sums), "r"(Index{64}) : "memory");
    amx::tile_load<1>(reinterpret_cast<const std::byte*>(left), 64);
    amx::tile_load<2>(reinterpret_cast<const std::byte*>(right), 64);
    amx::tile_multiply<0, 1, 2>();
    amx::tile_store<0>(&sums[0][0], 64);
  }
};

/// One product computed from its definition: even and odd chains, their sum, then the destination.
float defined_product(const Tiles& t, int m, int n) {
  const auto value = [](std::uint16_t bits) {
    Bf16 stored;
    stored.bits = bits;
    return static_cast<float>(stored);
  };
  float even = 0;
  float odd = 0;
  for (int k = 0; k < 16; ++k) {
    even = std::fma(value(t.left[m][2 * k]), value(t.right[k][n][0]), even);
    odd = std::fma(value(t.left[m][2 * k + 1]), value(t.right[k][n][1]), odd);
  }
  return t.sums[m][n] + (even + odd);
}

}  // namespace

TEST_CASE("amx: a tile product is what its definition says, bit for bit") {
  if (!amx_runs()) return;
  Tiles t;
  const std::vector<float> values = random_floats(16 * 32 * 3, 11);
  auto next = values.begin();
  for (auto& row : t.left) {
    for (auto& element : row) element = bf16_bits(*next++);
  }
  for (auto& row : t.right) {
    for (auto& pair : row) {
      pair[0] = bf16_bits(*next++);
      pair[1] = bf16_bits(*next++);
    }
  }
  for (auto& row : t.sums) {
    for (auto& element : row) element = *next++;
    next -= 8;
  }
  float expected[16][16];
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 16; ++n) expected[m][n] = defined_product(t, m, n);
  }
  t.multiply();
  CHECK(same_bits(&expected[0][0], &t.sums[0][0], 256));
}

TEST_CASE("amx: even and odd products are summed apart, denormals count as zero") {
  if (!amx_runs()) return;
  Tiles t;
  // Row 0: even 2^24, 1; odd 1, 1. One chain over all would lose both odd ones to rounding.
  t.left[0][0] = bf16_bits(16777216.0F);
  t.left[0][1] = t.left[0][2] = t.left[0][3] = bf16_bits(1.0F);
  t.right[0][5][0] = t.right[0][5][1] = t.right[1][5][0] = t.right[1][5][1] = bf16_bits(1.0F);
  // Row 1: a denormal input times 2^100. Row 2: a product of normal inputs below the normal range.
  t.left[1][0] = 0x0040;
  t.right[0][6][0] = bf16_bits(std::ldexp(1.0F, 100));
  t.left[2][0] = bf16_bits(std::ldexp(1.0F, -100));
  t.right[0][7][0] = bf16_bits(std::ldexp(1.0F, -40));
  // Row 3: a denormal destination is flushed even though nothing is added.
  t.sums[3][8] = std::numeric_limits<float>::denorm_min() * 3;
  t.sums[0][5] = 2.0F;
  t.multiply();
  CHECK(t.sums[0][5] == 16777220.0F);
  CHECK(t.sums[1][6] == 0.0F);
  CHECK(t.sums[2][7] == 0.0F);
  CHECK(t.sums[3][8] == 0.0F);
}

TEST_CASE("amx: smaller configurations and every form of address") {
  if (!amx_runs()) return;
  amx::TileConfig config;
  config.palette = 1;
  for (const int tile : {0, 3, 7}) config.rows[tile] = 16;
  for (const int tile : {0, 3, 7}) config.row_bytes[tile] = 64;
  config.rows[3] = 3;
  config.row_bytes[3] = 20;
  asm volatile("ldtilecfg %0" : : "m"(config));
  alignas(64) std::uint8_t memory[64 * 16];
  for (std::size_t i = 0; i < sizeof(memory); ++i) memory[i] = static_cast<std::uint8_t>(i * 7 + 1);

  // Rows 2, 1, 0 of the memory through a negative stride, extended registers, a scale and displacements.
  std::uint8_t out[4][64] = {};
  asm volatile(
      "mov %0, %%r13\n mov $-32, %%r9\n tileloadd 128(%%r13,%%r9,2), %%tmm3\n"
      "mov %1, %%r12\n mov $16, %%r10\n tilestored %%tmm3, 0x10(%%r12,%%r10,4)\n"
      :
      : "r"(memory), "r"(&out[0][0])
      : "r9", "r10", "r12", "r13", "memory");
  std::uint8_t expected[4][64] = {};
  for (int r = 0; r < 3; ++r) std::memcpy(&expected[r][16], memory + (2 - r) * 64, 20);
  CHECK(std::memcmp(out, expected, sizeof(out)) == 0);

  // Without an index register the stride is zero: every row is the same.
  asm volatile("tileloadd 64(%0), %%tmm3\n tilestored %%tmm3, (%1,%2,1)\n"
               :
               : "r"(memory), "r"(&out[0][0]), "r"(Index{64})
               : "memory");
  for (int r = 0; r < 3; ++r) CHECK(std::memcmp(out[r], memory + 64, 20) == 0);

  asm volatile("tilezero %tmm3");
  asm volatile("tilestored %%tmm3, (%0,%1,1)" : : "r"(&out[0][0]), "r"(Index{64}) : "memory");
  const std::uint8_t zeros[20] = {};
  for (int r = 0; r < 3; ++r) CHECK(std::memcmp(out[r], zeros, 20) == 0);
  asm volatile("tilerelease");
}

TEST_CASE("amx: the emulator really runs where the hardware is missing") {
  if (!amx_runs() || hardware_amx()) return;
  const long before = amx_emulator::executed;
  Tiles t;
  t.multiply();
  CHECK(amx_emulator::executed == before + 7);  // configure, three loads, product, store, release
}

TEST_CASE("amx: the table takes tiles for bf16 weights and float32 rows for the rest") {
  const KernelTable& t = compiled_table("amx");
  CHECK(t.default_precision == Precision::bf16);
  CHECK(t.layout(Format::bf16, Precision::bf16) == PackLayout::tiles_bf16);
  CHECK(t.layout(Format::bf16, Precision::exact) == PackLayout::tiles_bf16x3);
  for (const Format format : {Format::f16, Format::f32}) {
    CHECK(t.layout(format, Precision::bf16) == PackLayout::rows_f32);
    CHECK(t.layout(format, Precision::exact) == PackLayout::rows_f32);
  }
  if (!qwenlite::kernels::probe_cpu().amx) CHECK_FALSE(amx::request_permission());
}

TEST_CASE("amx: packed tiles hold every value at its place, padding is zero") {
  if (!amx_runs()) return;
  const KernelTable& table = compiled_table("amx");
  const Index in = 45;
  const Index columns = 19;
  const std::vector<float> x = random_floats(columns * in, 3);
  const std::vector<float> weight = random_floats(in, 4);
  const VectorView norm{reinterpret_cast<const std::byte*>(weight.data()), in, Format::f32};
  for (const bool normed : {false, true}) {
    for (const Index parts : {1, 3}) {
      const PackLayout layout = parts == 3 ? PackLayout::tiles_bf16x3 : PackLayout::tiles_bf16;
      const GuardedMemory packed(qwenlite::kernels::packed_bytes(layout, columns, in));
      std::memset(packed.data(), 0x5A, static_cast<std::size_t>(2 * 2 * parts * 1024));
      pack_columns(table, x, in, normed ? norm : VectorView{}, layout, packed.data());
      double worst = 0;
      for (Index c = 0; c < 32; ++c) {
        std::vector<float> row(64, 0.0F);
        if (c < columns) {
          std::copy_n(x.data() + c * in, in, row.data());
          if (normed) table.rms_norm(x.data() + c * in, norm, 1e-6F, row.data());
        }
        for (Index i = 0; i < 64; ++i) {
          double sum = 0;
          for (Index part = 0; part < parts; ++part) {
            const Index tile = (c / 16 * 2 + i / 32) * parts + part;
            const Index word = (tile * 16 + i % 32 / 2) * 32 + c % 16 * 2 + i % 2;
            sum += static_cast<double>(qwenlite::decode(Format::bf16, packed.data(), word));
          }
          const double expected = static_cast<double>(row[static_cast<std::size_t>(i)]);
          worst = std::max(worst, std::abs(sum - expected) / (std::abs(expected) + 1e-30));
        }
      }
      // One rounding to 8 bits, or 24 bits; a norm's own rounding may differ by a unit or two.
      CHECK(worst < (parts == 1 ? 4e-3 : normed ? 3e-7 : 1e-7));
    }
  }
}

#endif
