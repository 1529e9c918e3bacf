// SPDX-License-Identifier: Apache-2.0
//
// Where operations run their tasks: an Executor, which is the built-in pool or a user's own class.
//
// Results never depend on who runs a task: boundaries come from shapes, so the pool may hand tasks out by
// load. A run takes no lock and allocates nothing. Workers join a run if they come in time and are not
// waited for if they do not, so a worker that the system has put aside delays nobody; and an idle pool
// sleeps.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#include <qwenlite/kernels/cpu_count.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// A reference to a callable `void(Index task, int worker)`; does not own it, never allocates. The callable
/// must outlive the reference and must not throw (an exception ends the program).
class TaskRef {
 public:
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, TaskRef> && std::is_object_v<std::remove_reference_t<F>> &&
           std::invocable<F&, Index, int>) TaskRef(F&& callable)
  noexcept  // NOLINT(google-explicit-constructor)
      : callable_(const_cast<void*>(static_cast<const volatile void*>(std::addressof(callable)))),
        call_([](void* object, Index task, int worker) {
          static_cast<void>((*static_cast<std::remove_reference_t<F>*>(object))(task, worker));
        }) {}

  void operator()(Index task, int worker) const noexcept { call_(callable_, task, worker); }

 private:
  void* callable_;
  void (*call_)(void* object, Index task, int worker);
};

/// Where the library runs its tasks. Derive from it to use a thread pool of your own.
class Executor {
 public:
  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  /// Number of workers, at least 1. Worker ids are below it.
  [[nodiscard]] virtual int concurrency() const noexcept = 0;

  /// Calls task(i, worker) exactly once for each i in [0, tasks) and returns when all calls have returned;
  /// what the calls wrote is then visible to the caller. Two calls of one run that overlap in time have
  /// different worker ids. A task may call run() again.
  virtual void run(Index tasks, TaskRef task) noexcept = 0;
};

/// How the calling thread rounds and whether it flushes denormal numbers (MXCSR on x86). Each thread has its
/// own, and a host may have changed it.
class FloatingPointMode {
 public:
#if defined(__x86_64__)
  [[nodiscard]] static FloatingPointMode of_this_thread() noexcept {
    return FloatingPointMode(__builtin_ia32_stmxcsr() & ~exception_flags);
  }
  void apply() const noexcept {
    __builtin_ia32_ldmxcsr(bits_);
  }

 private:
  static constexpr unsigned exception_flags = 0x3F;
  explicit FloatingPointMode(unsigned bits) noexcept : bits_(bits) {}
  unsigned bits_;
#else
  [[nodiscard]] static FloatingPointMode of_this_thread() noexcept {
    return {};
  }
  void apply() const noexcept {}
#endif
};

/// The built-in pool. Tasks run in the caller's floating-point mode, whoever takes them. The calling thread
/// is worker 0 of its run; the others are created here and joined by the destructor. A caller that finds the
/// pool busy, be it another thread or a task of the current run, runs all its tasks itself, as worker 0 of
/// its own run: per-worker scratch belongs to a caller, never to the pool.
class ThreadPool final : public Executor {
 public:
  static constexpr int max_threads = 4096;

  /// `threads` counts the caller; 0 or less means default_thread_count(). Throws bad_argument when the
  /// system does not give that many threads.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool() override;

  [[nodiscard]] int concurrency() const noexcept override { return concurrency_; }
  void run(Index tasks, TaskRef task) noexcept override;

 private:
  /// One worker's share of a run. All of it is reset by the caller while nobody is inside.
  struct alignas(64) Share {
    std::atomic<Index> next{0};            ///< first task not yet taken; thieves count here too
    Index end = 0;                         ///< one past the last task
    std::atomic<std::uint32_t> inside{0};  ///< 1 while this worker may touch the current run
  };

  static constexpr std::chrono::microseconds spin_time{20};

  template <class Condition>
  [[nodiscard]] bool spin(Condition&& holds) const noexcept;
  void start_threads();
  void stop_threads() noexcept;
  void worker_loop(int worker) noexcept;
  void wait_for_run(std::uint32_t last) noexcept;
  void take_tasks(int worker, const TaskRef& task) noexcept;
  void deal(Index tasks) noexcept;
  void wait_for_workers() noexcept;

  int concurrency_;
  bool may_spin_ = false;  ///< not with more threads than CPUs: that would keep workers from working
  std::unique_ptr<Share[]> shares_;  ///< [concurrency]
  std::vector<std::thread> threads_;
  const TaskRef* task_ = nullptr;                                 ///< of the current run
  FloatingPointMode mode_ = FloatingPointMode::of_this_thread();  ///< of the current run's caller

  /// Counts up at the beginning and at the end of a run, so it is odd while a run accepts workers.
  alignas(64) std::atomic<std::uint32_t> phase_{0};
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<bool> busy_{false};         ///< a caller owns the pool
  std::atomic<bool> caller_sleeps_{false};            ///< leaving workers must notify
  alignas(64) std::atomic<int> sleeping_workers_{0};  ///< a beginning run must notify
};

inline ThreadPool::ThreadPool(int threads) : concurrency_(threads > 0 ? threads : default_thread_count()) {
  if (concurrency_ > max_threads) {
    throw Error(ErrorCode::bad_argument, "threads", std::to_string(threads),
                "at most " + std::to_string(max_threads));
  }
  may_spin_ = concurrency_ <= usable_cpu_count();
  shares_ = std::make_unique<Share[]>(static_cast<std::size_t>(concurrency_));
  start_threads();
}

inline ThreadPool::~ThreadPool() {
  stop_threads();
}

inline void ThreadPool::start_threads() {
  threads_.reserve(static_cast<std::size_t>(concurrency_ - 1));
  try {
    for (int worker = 1; worker < concurrency_; ++worker) {
      threads_.emplace_back([this, worker] { worker_loop(worker); });
    }
  } catch (const std::system_error&) {
    const std::size_t started = threads_.size() + 1;
    stop_threads();
    throw Error(ErrorCode::bad_argument, "threads", std::to_string(concurrency_),
                "at most " + std::to_string(started) + ", as the system refuses to start more");
  } catch (...) {  // out of memory
    stop_threads();
    throw;
  }
}

inline void ThreadPool::stop_threads() noexcept {
  stopping_.store(true);
  phase_.fetch_add(2);  // the value must change for sleepers to look up; its parity must not
  phase_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

inline void ThreadPool::run(Index tasks, TaskRef task) noexcept {
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
inline void ThreadPool::deal(Index tasks) noexcept {
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
inline void ThreadPool::take_tasks(int worker, const TaskRef& task) noexcept {
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
inline void ThreadPool::worker_loop(int worker) noexcept {
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
inline void ThreadPool::wait_for_run(std::uint32_t last) noexcept {
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
inline void ThreadPool::wait_for_workers() noexcept {
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
