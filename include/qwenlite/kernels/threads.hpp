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

/// How the calling thread rounds and whether it flushes denormal numbers (MXCSR on x86, FPCR on Arm). Each
/// thread has its own, and a host may have changed it.
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
#elif defined(__aarch64__)
  [[nodiscard]] static FloatingPointMode of_this_thread() noexcept {
    std::uint64_t bits = 0;
    asm volatile("mrs %0, fpcr" : "=r"(bits));
    return FloatingPointMode(bits);
  }
  void apply() const noexcept {
    asm volatile("msr fpcr, %0" : : "r"(bits_) : "memory");
  }

 private:
  explicit FloatingPointMode(std::uint64_t bits) noexcept : bits_(bits) {}
  std::uint64_t bits_;
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

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/kernels/threads-inl.hpp>
#endif
