// SPDX-License-Identifier: Apache-2.0
//
// Which kernels run: the fastest instruction set that the CPU has and the system lets us use, chosen once per
// process when the first model is opened. The environment variable QWENLITE_ISA forces another one;
// a name that is unknown or not available here is an error, never ignored.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <qwenlite/kernels/table.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels {

/// What CPUID and XCR0 say, or the kernel's list of capabilities on Arm: the CPU has it and the system saves
/// its registers.
struct CpuFeatures {
  bool avx2 = false;         ///< AVX2, FMA and F16C
  bool avx512 = false;       ///< F, BW, DQ and VL
  bool avx512_vnni = false;  ///< its dot products of bytes as well
  bool avx512_bf16 = false;  ///< and those of bf16, with permutations of bytes (VBMI)
  bool fast_bf16 = false;    ///< these do twice the work of float32 multiply-adds in a cycle (AMD), not half
  bool one_stream = false;   ///< memory delivers most to one stream without prefetching by software (AMD)
  bool amx = false;          ///< AMX-TILE and AMX-BF16, with all of AVX-512 above
  bool neon_bf16 = false;    ///< Arm's products of bf16 matrices; NEON itself is in every 64-bit Arm CPU
};

[[nodiscard]] CpuFeatures probe_cpu() noexcept;

/// probe_cpu().one_stream, found once.
[[nodiscard]] bool reads_one_stream() noexcept;

/// All tables in this program, weakest first, whether or not this CPU can run them.
[[nodiscard]] std::span<const KernelTable* const> compiled() noexcept;

/// The tables that this CPU can run, weakest first. Whether the system grants AMX is found when it is chosen.
[[nodiscard]] std::span<const KernelTable* const> supported();

/// The table of that name, if this CPU can run it; throws `unsupported` naming the choices otherwise.
/// `asked_by` says in the message who asked.
[[nodiscard]] const KernelTable& by_name(std::string_view name, const char* asked_by = "instruction set");

/// The chosen table and why it was chosen.
struct Choice {
  const KernelTable* table = nullptr;
  std::string reason;
};

/// The fastest table of a CPU with these features, on a system that grants the use of tiles or does not.
[[nodiscard]] Choice fastest(const CpuFeatures& cpu, bool tiles_granted);

/// Makes the choice anew: `forced` as QWENLITE_ISA would have it, or null for the fastest.
[[nodiscard]] Choice choose(const char* forced);

/// The choice of this process.
[[nodiscard]] const Choice& active_choice();

/// The kernels that models use unless told otherwise. Throws when QWENLITE_ISA names none that can run.
[[nodiscard]] const KernelTable& active();

}  // namespace kernels
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/kernels/dispatch-inl.hpp>
#endif
