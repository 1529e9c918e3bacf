// SPDX-License-Identifier: Apache-2.0
//
// Definitions of dispatch.hpp. This is the one place that includes the kernels of every instruction set.
#pragma once

#include <array>
#include <cstdlib>

#include <qwenlite/in_quotes.hpp>
#include <qwenlite/kernels/dispatch.hpp>
#include <qwenlite/kernels/process.hpp>
#include <qwenlite/kernels/scalar.hpp>

#if defined(__x86_64__)
#include <cpuid.h>

#include <qwenlite/kernels/amx.hpp>
#include <qwenlite/kernels/avx2.hpp>
#include <qwenlite/kernels/avx512.hpp>
#include <qwenlite/kernels/avx512_bf16.hpp>
#include <qwenlite/kernels/avx512_vnni.hpp>
#elif defined(__aarch64__)
#include <qwenlite/kernels/neon.hpp>
#include <qwenlite/kernels/neon_bf16.hpp>
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels {

QWENLITE_INLINE CpuFeatures probe_cpu() noexcept {
  CpuFeatures found;
#if defined(__x86_64__)
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  unsigned vendor = 0;
  if (__get_cpuid_max(0, &vendor) < 7) return found;
  const bool is_amd = vendor == signature_AMD_ebx;
  __cpuid(1, eax, ebx, ecx, edx);
  const auto bit = [](unsigned word, unsigned i) { return (word >> i & 1U) != 0; };
  const bool fma = bit(ecx, 12);
  const bool f16c = bit(ecx, 29);
  if (!bit(ecx, 27) || !bit(ecx, 28)) return found;  // OSXSAVE, AVX
  unsigned xcr0 = 0;
  unsigned xcr0_high = 0;
  __asm__("xgetbv" : "=a"(xcr0), "=d"(xcr0_high) : "c"(0));
  __cpuid_count(7, 0, eax, ebx, ecx, edx);
  const bool amx = bit(edx, 24) && bit(edx, 22);
  found.avx2 = (xcr0 & 0x6U) == 0x6U && bit(ebx, 5) && fma && f16c;
  found.avx512 =
      found.avx2 && (xcr0 & 0xE6U) == 0xE6U && bit(ebx, 16) && bit(ebx, 17) && bit(ebx, 30) && bit(ebx, 31);
  found.avx512_vnni = found.avx512 && bit(ecx, 11);
  const bool vbmi = bit(ecx, 1);
  __cpuid_count(7, 1, eax, ebx, ecx, edx);
  found.avx512_bf16 = found.avx512_vnni && vbmi && bit(eax, 5);
  found.one_stream = is_amd;
  found.fast_bf16 = found.avx512_bf16 && is_amd;
  found.amx = found.avx512_bf16 && amx && (xcr0 & 0x60000U) == 0x60000U;
#elif defined(__aarch64__)
  found.neon_bf16 = neon_bf16::is_available();
#endif
  return found;
}

QWENLITE_INLINE bool reads_one_stream() noexcept {
  static const bool found = probe_cpu().one_stream;
  return found;
}

QWENLITE_INLINE std::span<const KernelTable* const> compiled() noexcept {
#if defined(__x86_64__)
  static constexpr const KernelTable* tables[] = {&scalar::table,      &avx2::table,        &avx512::table,
                                                  &avx512_vnni::table, &avx512_bf16::table, &amx::table};
#elif defined(__aarch64__)
  static constexpr const KernelTable* tables[] = {&scalar::table, &neon::table, &neon_bf16::table};
#else
  static constexpr const KernelTable* tables[] = {&scalar::table};
#endif
  return tables;
}

QWENLITE_INLINE std::span<const KernelTable* const> supported() {
  struct List {
    std::array<const KernelTable*, 6> tables{};
    std::size_t count = 0;
    List() {
      [[maybe_unused]] const CpuFeatures cpu = probe_cpu();
#if defined(__x86_64__)
      const bool runs[] = {true, cpu.avx2, cpu.avx512, cpu.avx512_vnni, cpu.avx512_bf16, cpu.amx};
#elif defined(__aarch64__)
      const bool runs[] = {true, true, cpu.neon_bf16};
#else
      const bool runs[] = {true};
#endif
      for (std::size_t i = 0; i < std::size(runs); ++i) {
        if (runs[i]) tables[count++] = compiled()[i];
      }
    }
  };
  static const List list;
  return {list.tables.data(), list.count};
}

QWENLITE_INLINE const KernelTable& by_name(std::string_view name, const char* asked_by) {
  std::string choices;
  for (const KernelTable* t : supported()) {
    if (t->name == name) return *t;
    choices += (choices.empty() ? "" : ", ") + std::string(t->name);
  }
  throw Error(ErrorCode::unsupported, asked_by, in_quotes(name), "one that this CPU runs (" + choices + ")");
}

QWENLITE_INLINE Choice fastest([[maybe_unused]] const CpuFeatures& cpu, [[maybe_unused]] bool tiles_granted) {
  const char* reason = "the fastest this CPU runs";
#if defined(__x86_64__)
  if (cpu.amx && tiles_granted) return {&amx::table, reason};
  if (cpu.amx) reason = "AMX is present, but the system refuses its use";
  if (cpu.fast_bf16) return {&avx512_bf16::table, reason};
  if (cpu.avx512_vnni) return {&avx512_vnni::table, reason};
  if (cpu.avx512) return {&avx512::table, reason};
  if (cpu.avx2) return {&avx2::table, reason};
  return {&scalar::table, reason};
#elif defined(__aarch64__)
  return {cpu.neon_bf16 ? &neon_bf16::table : &neon::table, reason};
#else
  return {&scalar::table, reason};
#endif
}

QWENLITE_INLINE Choice choose(const char* forced) {
  if (forced != nullptr && *forced != '\0') {
    const KernelTable& table = by_name(forced, "QWENLITE_ISA");
    if (std::string_view(table.name) == "amx" && !amx::request_permission()) {
      throw Error(ErrorCode::unsupported, "QWENLITE_ISA: the system refuses the use of AMX tiles");
    }
    return {&table, "forced by QWENLITE_ISA"};
  }
  const CpuFeatures cpu = probe_cpu();
  return fastest(cpu, cpu.amx && amx::request_permission());
}

QWENLITE_INLINE const Choice& active_choice() {
  static const Choice choice = choose(std::getenv("QWENLITE_ISA"));
  return choice;
}

QWENLITE_INLINE const KernelTable& active() {
  return *active_choice().table;
}

}  // namespace kernels
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
