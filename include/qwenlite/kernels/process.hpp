// SPDX-License-Identifier: Apache-2.0
//
// What only the operating system can say about this process or grant it: the CPUs it may run on, the use of
// AMX tiles, large pages, and what an Arm CPU has. The calls to the system that concern files are in
// checkpoint/mapped_file-inl.hpp; no third file of the library makes any.
#pragma once

#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace topology {

/// The logical CPUs that this process may run on, ascending, never empty.
[[nodiscard]] inline std::vector<int> affinity_cpus() {
  std::vector<int> cpus;
#if defined(__linux__)
  // The kernel refuses a mask smaller than its own, so grow it until it fits.
  for (std::size_t most = CPU_SETSIZE; cpus.empty() && most <= (std::size_t{1} << 20U); most *= 4) {
    std::vector<cpu_set_t> mask(most / CPU_SETSIZE);
    const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) != 0) continue;
    for (std::size_t cpu = 0; cpu < most; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask.data())) cpus.push_back(static_cast<int>(cpu));
    }
  }
#endif
  const int known = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (int cpu = 0; cpus.empty() && cpu < known; ++cpu) cpus.push_back(cpu);
  return cpus;
}

}  // namespace topology

namespace kernels {

/// Asks for pages of 2 MB where they fit into memory that was not touched yet: what reads it from end to end,
/// as decoding a token does, then waits less for translations of addresses. Never more memory than without.
inline void prefer_huge_pages([[maybe_unused]] std::byte* data, [[maybe_unused]] Index bytes) noexcept {
#if defined(__linux__)
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + static_cast<std::uintptr_t>(bytes)) / page * page;
  if (first < last) (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace kernels

namespace kernels::amx {

/// Asks the system for the use of tiles by all threads of this process, present and future. It refuses when
/// a thread has a signal stack too small for the tile registers.
[[nodiscard]] inline bool request_permission() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr long request_feature = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;            // the state component of tile registers
  return syscall(SYS_arch_prctl, request_feature, tile_data) == 0;
#else
  return false;
#endif
}

}  // namespace kernels::amx

namespace kernels::neon_bf16 {

/// Whether the CPU has instructions on bf16 matrices.
[[nodiscard]] inline bool is_available() noexcept {
#if defined(__linux__) && defined(__aarch64__)
  constexpr unsigned long bf16 = 1UL << 14U;  // HWCAP2_BF16
  return (getauxval(AT_HWCAP2) & bf16) != 0;
#else
  return false;
#endif
}

}  // namespace kernels::neon_bf16
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
