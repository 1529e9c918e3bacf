// SPDX-License-Identifier: Apache-2.0
//
// Tasks that may throw. Those of an Executor must not; quantising has some that allocate, and memory can run
// out.
#pragma once

#include <atomic>
#include <exception>

#include <qwenlite/kernels/threads.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Executor::run() for tasks `void(Index task, int worker)` that may throw: the first exception goes on when
/// all have ended, and tasks that had not begun by then are left out.
template <class Task>
void run_throwing(Executor& executor, Index tasks, Task&& task) {
  std::exception_ptr first;
  std::atomic<bool> failed{false};
  auto guarded = [&](Index i, int worker) {
    if (failed) return;
    try {
      task(i, worker);
    } catch (...) {
      if (!failed.exchange(true)) first = std::current_exception();
    }
  };
  executor.run(tasks, TaskRef(guarded));
  if (first) std::rethrow_exception(first);
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
