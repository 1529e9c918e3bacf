// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <new>
#include <vector>

#include <qwenlite/quantize/throwing_tasks.hpp>

#include "catch_any.hpp"

using qwenlite::Index;
using qwenlite::run_throwing;
using qwenlite::ThreadPool;

TEST_CASE("tasks that may throw: all run once, or the first exception goes on and the pool works",
          "[threads]") {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    std::vector<std::atomic<int>> calls(300);
    const auto count = [&](Index i, int /*worker*/) { ++calls[static_cast<std::size_t>(i)]; };
    run_throwing(pool, 300, count);
    for (const auto& c : calls) CHECK(c == 1);

    std::atomic<int> thrown{0};
    const auto fail = [&](Index i, int /*worker*/) {
      if (i % 7 != 3) return;
      ++thrown;
      throw std::bad_alloc();
    };
    CHECK_THROWS_AS(run_throwing(pool, 300, fail), std::bad_alloc);
    CHECK(thrown >= 1);
    CHECK(thrown <= threads);  // whoever was under way; nobody begins after that
    run_throwing(pool, 300, count);
    for (const auto& c : calls) CHECK(c == 2);
  }
}
