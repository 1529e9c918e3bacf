// SPDX-License-Identifier: Apache-2.0
//
// Which table is chosen for which CPU, whatever CPU this is.

#include <string>

#include "kernel_tables.hpp"

using namespace kernel_tests;
using qwenlite::kernels::Choice;
using qwenlite::kernels::CpuFeatures;
using qwenlite::kernels::fastest;

namespace {

std::string name_for(const CpuFeatures& cpu, bool tiles_granted = true) {
  return fastest(cpu, tiles_granted).table->name;
}

}  // namespace

#if defined(__x86_64__)

TEST_CASE("dispatch: each x86 CPU gets its fastest table") {
  CpuFeatures cpu;
  CHECK(name_for(cpu) == "scalar");
  cpu.avx2 = true;
  CHECK(name_for(cpu) == "avx2");
  cpu.avx512 = true;
  CHECK(name_for(cpu) == "avx512");
  cpu.avx512_vnni = true;
  CHECK(name_for(cpu) == "avx512_vnni");
  cpu.avx512_bf16 = true;
  CHECK(name_for(cpu) == "avx512_vnni");  // where bf16 products are slower than those in float32
  cpu.fast_bf16 = true;
  CHECK(name_for(cpu) == "avx512_bf16");
}

TEST_CASE("dispatch: tiles where the system grants them, else the next fastest with the reason") {
  CpuFeatures cpu{.avx2 = true, .avx512 = true, .avx512_vnni = true, .avx512_bf16 = true, .amx = true};
  CHECK(name_for(cpu) == "amx");
  const Choice refused = fastest(cpu, false);
  CHECK(std::string(refused.table->name) == "avx512_vnni");
  CHECK_THAT(refused.reason, has_text("the system refuses its use"));
  cpu.fast_bf16 = true;
  CHECK(name_for(cpu, false) == "avx512_bf16");
  CHECK(name_for(cpu) == "amx");
}

TEST_CASE("dispatch: what is found on this CPU fits together") {
  const CpuFeatures cpu = qwenlite::kernels::probe_cpu();
  CHECK(cpu.avx512 <= cpu.avx2);
  CHECK(cpu.avx512_vnni <= cpu.avx512);
  CHECK(cpu.avx512_bf16 <= cpu.avx512_vnni);
  CHECK(cpu.fast_bf16 <= cpu.avx512_bf16);
  CHECK(cpu.amx <= cpu.avx512_bf16);
  CHECK(cpu.avx512_bf16 == (cpu.avx512_vnni && __builtin_cpu_supports("avx512bf16") != 0));
  CHECK(cpu.fast_bf16 == (cpu.avx512_bf16 && __builtin_cpu_is("amd") != 0));
  CHECK_FALSE(cpu.neon_bf16);
}

TEST_CASE("dispatch: no table for vectors computes a row element by element") {
  const KernelTable& plain = qwenlite::kernels::scalar::table;
  for (const KernelTable* t : qwenlite::kernels::supported()) {
    if (t == &plain || std::string(t->name) == "scalar") continue;
    INFO(t->name);
    CHECK(t->pack != plain.pack);
    CHECK(t->matmul != plain.matmul);
    CHECK(t->matmul_quantised != plain.matmul_quantised);
    CHECK(t->matmul_int8 != plain.matmul_int8);
    CHECK(t->rms_norm != plain.rms_norm);
    CHECK(t->rope != plain.rope);
    CHECK(t->silu_mul != plain.silu_mul);
    CHECK(t->sigmoid_mul != plain.sigmoid_mul);
    CHECK(t->decode_row != plain.decode_row);
    CHECK(t->decode_quantised != plain.decode_quantised);
    CHECK(t->attend_span != plain.attend_span);
    CHECK(t->merge_span != plain.merge_span);
    CHECK(t->conv1d != plain.conv1d);
    CHECK(t->delta_keys != plain.delta_keys);
    CHECK(t->delta_rows != plain.delta_rows);
    CHECK(t->delta_close != plain.delta_close);
  }
}

#elif defined(__aarch64__)

TEST_CASE("dispatch: each Arm CPU gets its fastest table") {
  CHECK(name_for({}) == "neon");
  CHECK(name_for({.neon_bf16 = true}) == "neon_bf16");
}

#endif

TEST_CASE("dispatch: the choice is one of the supported tables, and each of them can be asked for") {
  const auto supported = qwenlite::kernels::supported();
  const Choice free = qwenlite::kernels::choose(nullptr);
  CHECK(std::count(supported.begin(), supported.end(), free.table) == 1);
  CHECK(qwenlite::kernels::choose("").table == free.table);
  for (const KernelTable* t : supported) {
    if (std::string(t->name) == "amx" && free.table != t) continue;  // the system refuses it
    const Choice forced = qwenlite::kernels::choose(t->name);
    CHECK(forced.table == t);
    CHECK(forced.reason == "forced by QWENLITE_ISA");
  }
  CHECK_THROWS_WITH(qwenlite::kernels::choose("sse9"),
                    has_text("QWENLITE_ISA") && has_text(supported.front()->name));
}
