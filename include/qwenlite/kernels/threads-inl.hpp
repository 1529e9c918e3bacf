// SPDX-License-Identifier: Apache-2.0
//
// Definitions of threads.hpp: how the pool starts, shares out, waits and ends.
#pragma once

#include <string>
#include <system_error>

#include <qwenlite/kernels/cpu_count.hpp>
#include <qwenlite/kernels/threads.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

QWENLITE_INLINE ThreadPool::ThreadPool(int threads)
    : concurrency_(threads > 0 ? threads : default_thread_count()) {
  if (concurrency_ > max_threads) {
    throw Error(ErrorCode::bad_argument, "threads", threads, {"at most ", max_threads});
  }
  may_spin_ = concurrency_ <= usable_cpu_count();
  shares_ = std::make_unique<Share[]>(static_cast<std::size_t>(concurrency_));
  start_threads();
}

QWENLITE_INLINE ThreadPool::~ThreadPool() {
  stop_threads();
}

QWENLITE_INLINE void ThreadPool::start_threads() {
  threads_.reserve(static_cast<std::size_t>(concurrency_ - 1));
  try {
    for (int worker = 1; worker < concurrency_; ++worker) {
      threads_.emplace_back([this, worker] { worker_loop(worker); });
    }
  } catch (const std::system_error&) {
    const std::size_t started = threads_.size() + 1;
    stop_threads();
    throw Error(ErrorCode::bad_argument, "threads", concurrency_,
                {"at most ", started, ", as the system refuses to start more"});
  } catch (...) {  // out of memory
    stop_threads();
    throw;
  }
}

QWENLITE_INLINE void ThreadPool::stop_threads() noexcept {
  stopping_.store(true);
  phase_.fetch_add(2);  // the value must change for sleepers to look up; its parity must not
  phase_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

QWENLITE_INLINE void ThreadPool::run(Index tasks, TaskRef task) noexcept {
  // Taking the pool also keeps a task's own run() out: it finds the pool busy.
  if (tasks <= 1 || concurrency_ == 1 || busy_.exchange(true, std::memory_order_acquire)) {
    for (Index i = 0; i < tasks; ++i) task(i, 0);
    return;
  }
  deal(tasks);
  task_ = &task;
  mode_ = FloatingPointMode::of_this_thread();
  phase_.fetch_add(1);
  if (sleeping_workers_.load() != 0) phase_.notify_all();
  take_tasks(0, task);
  phase_.fetch_add(1);
  wait_for_workers();
  busy_.store(false, std::memory_order_release);
}

/// Gives every worker a contiguous range of tasks, the first ones a task more when they do not divide.
QWENLITE_INLINE void ThreadPool::deal(Index tasks) noexcept {
  const Index each = tasks / concurrency_;
  const Index left_over = tasks % concurrency_;
  Index begin = 0;
  for (int worker = 0; worker < concurrency_; ++worker) {
    Share& share = shares_[static_cast<std::size_t>(worker)];
    share.next.store(begin, std::memory_order_relaxed);
    begin += each + (worker < left_over ? 1 : 0);
    share.end = begin;
  }
}

/// Runs the tasks of this worker's own range, then what is left of the others'.
QWENLITE_INLINE void ThreadPool::take_tasks(int worker, const TaskRef& task) noexcept {
  for (int i = 0; i < concurrency_; ++i) {
    Share& share = shares_[static_cast<std::size_t>((worker + i) % concurrency_)];
    if (share.next.load(std::memory_order_relaxed) >= share.end) continue;
    for (;;) {
      const Index index = share.next.fetch_add(1, std::memory_order_relaxed);
      if (index >= share.end) break;
      task(index, worker);
    }
  }
}

/// A worker announces itself before it looks whether the run is open; the caller closes the run before it
/// looks who is inside. As both do so sequentially consistently, either the worker sees the end of the run
/// and touches nothing of it, or the caller sees the worker and waits.
QWENLITE_INLINE void ThreadPool::worker_loop(int worker) noexcept {
  Share& own = shares_[static_cast<std::size_t>(worker)];
  std::uint32_t last = 0;  // the run this worker took part in last
  for (;;) {
    wait_for_run(last);
    if (stopping_.load()) return;
    own.inside.store(1);
    const std::uint32_t phase = phase_.load();
    if (phase % 2 == 1) {
      last = phase;
      mode_.apply();
      take_tasks(worker, *task_);
    }
    own.inside.store(0);
    if (caller_sleeps_.load()) own.inside.notify_one();
  }
}

/// Returns when a run other than `last` is open or the pool stops.
QWENLITE_INLINE void ThreadPool::wait_for_run(std::uint32_t last) noexcept {
  std::uint32_t phase = 0;
  const auto ready = [&] {
    phase = phase_.load();
    return (phase % 2 == 1 && phase != last) || stopping_.load();
  };
  if (spin(ready)) return;
  sleeping_workers_.fetch_add(1);
  while (!ready()) phase_.wait(phase);
  sleeping_workers_.fetch_sub(1);
}

/// Returns when no worker is left in the run that was closed before.
QWENLITE_INLINE void ThreadPool::wait_for_workers() noexcept {
  int worker = 1;
  const auto left = [&] {
    while (worker < concurrency_ && shares_[static_cast<std::size_t>(worker)].inside.load() == 0) ++worker;
    return worker == concurrency_;
  };
  if (spin(left)) return;
  caller_sleeps_.store(true);
  while (!left()) shares_[static_cast<std::size_t>(worker)].inside.wait(1);
  caller_sleeps_.store(false);
}

/// Polls for about `spin_time`, or once if spinning is pointless here; says whether the condition held.
template <class Condition>
bool ThreadPool::spin(Condition&& holds) const noexcept {
  constexpr int polls_per_clock = 16;  // about a microsecond
  if (holds()) return true;
  if (!may_spin_) return false;
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < polls_per_clock; ++i) {
      if (holds()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
#endif
    }
  } while (std::chrono::steady_clock::now() - start < spin_time);
  return false;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
