// SPDX-License-Identifier: Apache-2.0
//
// The thread pool: every task once, stealing, busy and nested callers, sleeping and waking, costs when idle.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include <qwenlite/kernels/threads.hpp>

#include "catch_any.hpp"

using qwenlite::Executor;
using qwenlite::Index;
using qwenlite::TaskRef;
using qwenlite::ThreadPool;

namespace {

/// Some hundred nanoseconds of work, different for each task, so that workers do arrive in time to take some.
void dawdle(Index task) {
  std::atomic<Index> count{0};
  for (Index i = 0; i < 40 + task % 5 * 20; ++i) count.fetch_add(1);
}

/// What one run did. Counters are plain on purpose: a pool that lets two calls of one task overlap, or that
/// returns before a task has, is a data race for the thread sanitizer.
struct Record {
  std::vector<int> calls;                      // [tasks]
  std::vector<std::thread::id> threads;        // [tasks]
  std::atomic<int> bad_workers{0};             // ids out of range, or used by two calls at a time
  std::array<std::atomic<bool>, 64> in_use{};  // [worker]

  explicit Record(Index tasks)
      : calls(static_cast<std::size_t>(tasks)), threads(static_cast<std::size_t>(tasks)) {}

  void call(Index task, int worker, int concurrency) {
    const bool in_range = worker >= 0 && worker < concurrency;
    const auto slot = static_cast<std::size_t>(in_range ? worker : 0);
    if (!in_range || in_use[slot].exchange(true)) ++bad_workers;
    dawdle(task);
    ++calls[static_cast<std::size_t>(task)];
    threads[static_cast<std::size_t>(task)] = std::this_thread::get_id();
    in_use[slot].store(false);
  }

  [[nodiscard]] bool each_once() const {
    return bad_workers == 0 && std::all_of(calls.begin(), calls.end(), [](int n) { return n == 1; });
  }
  [[nodiscard]] bool all_on(std::thread::id id) const {
    return std::all_of(threads.begin(), threads.end(), [id](std::thread::id t) { return t == id; });
  }
};

/// Waits for a condition that a correct pool makes true; gives up after a minute, so that a wrong one fails
/// rather than hangs.
template <class Condition>
bool eventually(Condition&& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

TEST_CASE("every task runs exactly once, whatever the counts") {
  for (const int threads : {1, 2, 5, 16}) {
    ThreadPool pool(threads);
    REQUIRE(pool.concurrency() == threads);
    for (const Index tasks : {0, 1, 2, 3, 4, 5, 6, 7, 15, 16, 17, 33, 64, 100, 1000}) {
      for (int again = 0; again < 5; ++again) {
        Record record(tasks);
        pool.run(tasks, [&](Index task, int worker) { record.call(task, worker, threads); });
        INFO(threads << " threads, " << tasks << " tasks");
        REQUIRE(record.each_once());
      }
    }
    int calls = 0;
    pool.run(-1, [&](Index, int) { ++calls; });
    CHECK(calls == 0);
  }
}

TEST_CASE("one task, and every task of a pool of one, runs on the caller") {
  for (const auto& [threads, tasks] : {std::pair<int, Index>{4, 1}, {1, 20}}) {
    ThreadPool pool(threads);
    Record record(tasks);
    pool.run(tasks, [&](Index task, int worker) { record.call(task, worker, 1); });
    CHECK(record.each_once());
    CHECK(record.all_on(std::this_thread::get_id()));
  }
}

TEST_CASE("what tasks wrote is visible afterwards, ten thousand times on one pool") {
  for (const int threads : {2, 5}) {
    ThreadPool pool(threads);
    std::vector<long> sums(7, 0);
    const auto add = [&](Index task, int) {
      dawdle(task);
      sums[static_cast<std::size_t>(task)] += task + 1;
    };
    bool right = true;
    for (long run = 1; run <= 10'000; ++run) {
      pool.run(7, add);
      for (long task = 0; task < 7; ++task)
        right = right && sums[static_cast<std::size_t>(task)] == run * (task + 1);
    }
    CHECK(right);
  }
}

TEST_CASE("every run ends, however the caller and the workers are delayed", "[slow]") {
  // Delays around the time for which threads spin before they sleep, so that each of the ways to miss each
  // other gets its chance; a wake-up that is lost would leave this test waiting.
  for (const int threads : {2, 3, 9}) {
    ThreadPool pool(threads);
    std::atomic<std::uint32_t> draws{static_cast<std::uint32_t>(threads)};
    const auto delay = [&draws] {
      const std::uint32_t drawn = draws.fetch_add(1) * 2654435761U >> 8U;
      if (drawn % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(drawn / 8 % 60));
      if (drawn % 8 == 1) std::this_thread::yield();
    };
    std::vector<int> calls(6, 0);
    int expected = 0;
    for (int round = 0; round < 5000; ++round) {
      const Index tasks = 2 + round % 5;
      pool.run(tasks, [&](Index task, int) {
        delay();
        ++calls[static_cast<std::size_t>(task)];
      });
      expected += static_cast<int>(tasks);
      delay();
    }
    CHECK(std::accumulate(calls.begin(), calls.end(), 0) == expected);
    CHECK(calls[1] == 5000);
  }
}

TEST_CASE("the range of a worker that is held up is taken over by another") {
  // The first task returns only when all others have: without stealing, the rest of its worker's range
  // would wait for it.
  for (const int threads : {2, 5, 16}) {
    ThreadPool pool(threads);
    constexpr int tasks = 64;
    for (const Index slow : {Index{0}, Index{tasks - 1}}) {
      std::atomic<int> finished{0};
      std::atomic<bool> taken_over{false};
      pool.run(tasks, [&](Index task, int) {
        if (task == slow) taken_over = eventually([&] { return finished == tasks - 1; });
        ++finished;
      });
      CHECK(taken_over);
      CHECK(finished == tasks);
    }
  }
}

TEST_CASE("workers that sleep are woken and take part") {
  for (const int threads : {2, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 20; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far longer than they spin
      std::atomic<int> arrived{0};
      std::atomic<int> met{0};
      pool.run(threads, [&](Index, int) {
        ++arrived;
        if (eventually([&] { return arrived == threads; })) ++met;
      });
      REQUIRE(met == threads);
    }
  }
}

#if defined(__x86_64__) || defined(__aarch64__)

namespace {

#if defined(__x86_64__)
constexpr std::uint64_t flush_to_zero = 0x8000;
std::uint64_t floating_point_mode() {
  return __builtin_ia32_stmxcsr();
}
void set_floating_point_mode(std::uint64_t bits) {
  __builtin_ia32_ldmxcsr(static_cast<unsigned>(bits));
}
#else
constexpr std::uint64_t flush_to_zero = 0x1000000;
std::uint64_t floating_point_mode() {
  std::uint64_t bits = 0;
  asm volatile("mrs %0, fpcr" : "=r"(bits));
  return bits;
}
void set_floating_point_mode(std::uint64_t bits) {
  asm volatile("msr fpcr, %0" : : "r"(bits));
}
#endif

}  // namespace

TEST_CASE("workers compute in the caller's floating-point mode") {
  ThreadPool pool(3);
  const std::uint64_t before = floating_point_mode();
  std::array<std::uint64_t, 3> seen{};  // [worker] mode of a task that worker ran
  std::array<std::atomic<bool>, 3> ran{};
  const auto task = [&](Index, int worker) {
    seen[static_cast<std::size_t>(worker)] = floating_point_mode();
    ran[static_cast<std::size_t>(worker)].store(true);
    // Nobody leaves before all three are here, so each runs one task.
    while (!ran[0].load() || !ran[1].load() || !ran[2].load()) std::this_thread::yield();
  };
  for (const std::uint64_t mode : {before | flush_to_zero, before & ~flush_to_zero}) {
    for (std::atomic<bool>& flag : ran) flag.store(false);
    set_floating_point_mode(mode);
    pool.run(3, task);
    set_floating_point_mode(before);
    for (const std::uint64_t found : seen) CHECK((found & flush_to_zero) == (mode & flush_to_zero));
  }
}
#endif

TEST_CASE("a caller that finds the pool busy runs its tasks itself") {
  ThreadPool pool(2);
  std::atomic<bool> release{false};
  std::atomic<bool> started{false};
  std::atomic<bool> in_time{true};
  std::thread first([&] {
    pool.run(2, [&](Index, int) {
      started = true;
      if (!eventually([&] { return release.load(); })) in_time = false;
    });
  });
  REQUIRE(eventually([&] { return started.load(); }));
  Record record(20);
  pool.run(20, [&](Index task, int worker) { record.call(task, worker, 1); });
  release = true;
  first.join();
  CHECK(in_time);
  CHECK(record.each_once());
  CHECK(record.all_on(std::this_thread::get_id()));
}

TEST_CASE("two callers at once each get all of their tasks done") {
  for (const int threads : {2, 5}) {
    ThreadPool pool(threads);
    std::array<int, 3> wrong{};  // [caller]
    const auto work = [&](std::size_t caller) {
      for (int round = 0; round < 2000; ++round) {
        const Index tasks = 1 + (round + static_cast<int>(caller)) % 23;
        Record record(tasks);
        pool.run(tasks, [&](Index task, int worker) { record.call(task, worker, threads); });
        if (!record.each_once()) ++wrong[caller];
      }
    };
    std::thread first(work, 0);
    std::thread second(work, 1);
    work(2);
    first.join();
    second.join();
    CHECK(wrong == std::array<int, 3>{});
  }
}

TEST_CASE("a run from inside a task runs on that task's thread") {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    constexpr int outer = 12;
    std::array<int, outer> good{};
    pool.run(outer, [&](Index task, int) {
      Record record(9);
      pool.run(9, [&](Index inner, int worker) { record.call(inner, worker, 1); });
      const bool all_here = record.each_once() && record.all_on(std::this_thread::get_id());
      good[static_cast<std::size_t>(task)] += all_here ? 1 : 0;
    });
    CHECK(std::all_of(good.begin(), good.end(), [](int n) { return n == 1; }));
  }
}

TEST_CASE("pools come and go") {
  for (int round = 0; round < 100; ++round) {
    ThreadPool pool(1 + round % 5);
    if (round % 3 == 0) continue;  // destroyed before its threads have looked around
    Record record(10);
    pool.run(10, [&](Index task, int worker) { record.call(task, worker, pool.concurrency()); });
    REQUIRE(record.each_once());
  }
}

TEST_CASE("two pools work side by side and inside each other") {
  ThreadPool one(2);
  ThreadPool two(3);
  std::vector<int> calls(8 * 8, 0);
  one.run(8, [&](Index i, int) {
    two.run(8, [&](Index j, int) { ++calls[static_cast<std::size_t>(i * 8 + j)]; });
  });
  CHECK(std::all_of(calls.begin(), calls.end(), [](int n) { return n == 1; }));
}

TEST_CASE("an idle pool uses no CPU time") {
  ThreadPool small(2);
  ThreadPool large(5);
  std::atomic<int> calls{0};
  small.run(100, [&](Index, int) { ++calls; });
  large.run(100, [&](Index, int) { ++calls; });
  REQUIRE(calls == 200);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  CHECK(cpu_seconds() - before < 0.020);
}

TEST_CASE("the default number of threads, and numbers that cannot be had") {
  CHECK(ThreadPool().concurrency() == qwenlite::default_thread_count());
  CHECK(ThreadPool(-3).concurrency() == qwenlite::default_thread_count());
  CHECK(qwenlite::default_thread_count() >= 1);
  CHECK(qwenlite::default_thread_count() <= qwenlite::usable_cpu_count());
  try {
    ThreadPool pool(1'000'000);
    FAIL("a million threads were accepted");
  } catch (const qwenlite::Error& error) {
    CHECK(error.code() == qwenlite::ErrorCode::bad_argument);
    CHECK(std::string(error.what()) == "threads: found 1000000, expected at most 4096");
  }
}

TEST_CASE("a user's executor runs library tasks") {
  /// Runs tasks one after another, last first: any order is allowed.
  class Backwards final : public Executor {
   public:
    [[nodiscard]] int concurrency() const noexcept override { return 1; }
    void run(Index tasks, TaskRef task) noexcept override {
      for (Index i = tasks - 1; i >= 0; --i) task(i, 0);
    }
  };
  Backwards mine;
  Executor& executor = mine;
  std::vector<Index> order;
  executor.run(4, [&](Index task, int worker) { order.push_back(task + worker); });
  CHECK(order == std::vector<Index>{3, 2, 1, 0});
}

TEST_CASE("a task reference refers") {
  int calls = 0;
  const auto constant = [&](Index task, int worker) { calls += static_cast<int>(task) + worker; };
  std::function<int(Index, int)> boxed = [&](Index, int) { return ++calls; };  // its result is dropped
  const TaskRef first = constant;
  TaskRef second = boxed;
  TaskRef copy = second;
  first(10, 5);
  copy(0, 0);
  CHECK(calls == 16);
  boxed = [&](Index, int) { return calls = 100; };
  copy(0, 0);
  CHECK(calls == 100);
}
