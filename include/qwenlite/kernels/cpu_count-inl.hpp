// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cpu_count.hpp.
#pragma once

#include <algorithm>
#include <vector>

#include <qwenlite/kernels/cpu_count.hpp>
#include <qwenlite/kernels/topology.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

QWENLITE_INLINE int usable_cpu_count() {
  const int cpus = static_cast<int>(topology::affinity_cpus().size());
  return std::max(1, std::min(cpus, topology::cgroup_cpu_limit().value_or(cpus)));
}

QWENLITE_INLINE DefaultThreads default_threads() {
  const std::vector<int> cpus = topology::affinity_cpus();
  DefaultThreads found;
  found.cpus = static_cast<int>(cpus.size());
  found.cores = topology::count_cores(cpus);
  found.quota = topology::cgroup_cpu_limit();
  found.threads = std::max(1, std::min(found.cores, found.quota.value_or(found.cores)));
  return found;
}

QWENLITE_INLINE int default_thread_count() {
  return default_threads().threads;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
