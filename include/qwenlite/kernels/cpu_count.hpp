// SPDX-License-Identifier: Apache-2.0
//
// How many threads are worth starting: CPUs and cores of the process's affinity mask, within the quota of
// its control groups.
#pragma once

#include <optional>

#include <qwenlite/error.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Logical CPUs' worth of time that this process can get, at least 1. More threads than that must wait for
/// each other.
[[nodiscard]] int usable_cpu_count();

/// How many threads a pool has unless told otherwise, and what decided it.
struct DefaultThreads {
  int threads = 1;           ///< `cores`, or the quota if that is less
  int cores = 1;             ///< physical cores in the process's affinity mask
  int cpus = 1;              ///< logical CPUs in it
  std::optional<int> quota;  ///< whole CPUs' worth of time that the control groups allow
};

[[nodiscard]] DefaultThreads default_threads();

/// The physical cores in the process's affinity mask, at most what its control group's quota allows, at
/// least 1. What a pool uses unless told otherwise.
[[nodiscard]] int default_thread_count();

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/kernels/cpu_count-inl.hpp>
#endif
