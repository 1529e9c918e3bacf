// SPDX-License-Identifier: Apache-2.0
//
// Who owns threads and memory: pools of a model's own, shared or a user's; callers that meet; sessions that
// come and go; a model that is dropped; a callback that throws.
#include <atomic>
#include <fstream>
#include <malloc.h>
#include <stdexcept>
#include <thread>
#include <unistd.h>

#include <qwenlite/generate/generate.hpp>

#include "models/tiny_models.hpp"
#include "sanitized.hpp"

namespace ql = qwenlite;
using namespace models_test;

namespace {

using Dense = ql::Model<ql::Qwen3>;

ql::Checkpoint tiny(const std::string& name = "qwen3-tiny") {
  return ql::Checkpoint(checkpoint_path(name));
}

std::string demo() {
  return QWENLITE_DEMO_MODELS "/qwen3";
}

/// Bytes of this process that are in memory, without what the C library keeps of freed memory for later.
Index resident_bytes() {
  malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  Index total = 0;
  Index resident = 0;
  file >> total >> resident;
  REQUIRE(resident > 0);
  return resident * static_cast<Index>(sysconf(_SC_PAGESIZE));
}

/// Lines of a file under /proc/self that contain `word`.
Index lines_with(const char* file_name, const std::string& word) {
  std::ifstream file(file_name);
  Index count = 0;
  for (std::string line; std::getline(file, line);) count += line.find(word) != std::string::npos ? 1 : 0;
  return count;
}

/// The number that follows "Threads:" in /proc/self/status.
Index thread_count() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("Threads:", 0) == 0) return std::stol(line.substr(8));
  }
  return 0;
}

Rows run(const Dense& model, const std::vector<int>& tokens) {
  auto session = model.new_session({.max_tokens = 64});
  return copied(model.logits(session, tokens, ql::Logits::all));
}

/// Runs every task on a thread of its own, the last first.
class ThreadEach final : public ql::Executor {
 public:
  [[nodiscard]] int concurrency() const noexcept override { return 3; }
  void run(Index tasks, ql::TaskRef task) noexcept override {
    ++runs;
    for (Index end = tasks; end > 0; end -= std::min<Index>(end, 3)) {
      std::vector<std::thread> threads;
      for (int worker = 0; worker < std::min<Index>(end, 3); ++worker) {
        threads.emplace_back([=] { task(end - 1 - worker, worker); });
      }
      for (std::thread& thread : threads) thread.join();
    }
  }
  std::atomic<long> runs{0};
};

/// A pool that notes whether a task ran on another thread than its caller's.
class Watched final : public ql::Executor {
 public:
  explicit Watched(std::shared_ptr<ql::ThreadPool> pool) : pool_(std::move(pool)) {}
  [[nodiscard]] int concurrency() const noexcept override { return pool_->concurrency(); }
  void run(Index tasks, ql::TaskRef task) noexcept override {
    const std::thread::id caller = std::this_thread::get_id();
    auto watched = [&](Index i, int worker) {
      if (std::this_thread::get_id() != caller) elsewhere = true;
      task(i, worker);
    };
    pool_->run(tasks, ql::TaskRef(watched));
  }
  std::atomic<bool> elsewhere{false};

 private:
  std::shared_ptr<ql::ThreadPool> pool_;
};

/// Holds all threads of a pool until released.
class Occupied {
 public:
  explicit Occupied(ql::ThreadPool& pool)
      : thread_([this, &pool] {
          auto wait = [this](Index, int) {
            ++inside_;
            inside_.notify_all();
            released_.wait(false);
          };
          pool.run(pool.concurrency(), ql::TaskRef(wait));
        }) {
    for (int n = inside_; n < pool.concurrency(); n = inside_) inside_.wait(n);
  }
  ~Occupied() {
    released_ = true;
    released_.notify_all();
    thread_.join();
  }
  Occupied(const Occupied&) = delete;
  Occupied& operator=(const Occupied&) = delete;

 private:
  std::atomic<int> inside_{0};
  std::atomic<bool> released_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("an own pool, a shared pool and a user's executor give the same bits", "[threads][process]") {
  const std::vector<int> tokens = random_tokens(33, 1);
  const Rows expected = run(Dense(tiny(), {.threads = 1}), tokens);
  std::thread([] {}).join();  // a sanitizer starts a thread of its own with the first
  const Index threads_before = thread_count();
  {
    const Dense own(tiny(), {.threads = 3});
    CHECK(thread_count() == threads_before + 2);  // the caller is the third
    CHECK(first_difference(run(own, tokens), expected) == -1);
  }
  CHECK(thread_count() == threads_before);

  const auto pool = std::make_shared<ql::ThreadPool>(2);
  const auto user = std::make_shared<ThreadEach>();
  {
    const Dense first(tiny(), {.executor = pool});
    const Dense second(tiny(), {.executor = pool});
    const Dense third(tiny(), {.executor = user});
    CHECK(thread_count() == threads_before + 1);
    for (const Dense* model : {&first, &second, &third}) {
      CHECK(first_difference(run(*model, tokens), expected) == -1);
    }
    CHECK(user->runs > 0);
    CHECK(user.use_count() > 1);
  }
  CHECK(pool.use_count() == 1);  // models give their share of it back
  CHECK(user.use_count() == 1);
}

TEST_CASE("a caller that finds the pool busy computes alone, with the same bits", "[threads]") {
  const std::vector<int> tokens = random_tokens(33, 1);
  const auto pool = std::make_shared<ql::ThreadPool>(2);
  const auto watched = std::make_shared<Watched>(pool);
  const Dense model(tiny(), {.executor = watched});
  const Rows expected = run(Dense(tiny(), {.threads = 1}), tokens);
  {
    const Occupied busy(*pool);
    CHECK(first_difference(run(model, tokens), expected) == -1);
    CHECK_FALSE(watched->elsewhere);
  }
  CHECK(first_difference(run(model, tokens), expected) == -1);
}

TEST_CASE("two models in two threads, many sessions opened and closed", "[threads][process]") {
  constexpr int sessions = is_sanitized ? 60 : 500;  // of each model
  std::array<std::atomic<int>, 2> wrong{};
  const auto work = [&](std::size_t which, const Dense& model, int count) {
    const std::vector<int> tokens = random_tokens(9, static_cast<unsigned>(which));
    Rows expected;
    for (int i = 0; i < count; ++i) {
      auto session = model.new_session({.max_tokens = 200});
      model.prefill(session, part_of(tokens, 0, 6));
      Rows rows = copied(model.logits(session, part_of(tokens, 6, 3), ql::Logits::all));
      if (i == 0) expected = rows;
      if (first_difference(rows, expected) != -1) ++wrong[which];
    }
  };
  const auto both = [&](const Dense& first, const Dense& second, int count) {
    std::thread other([&] { work(1, second, count); });
    work(0, first, count);
    other.join();
  };
  const Dense first(tiny(), {.threads = 2});
  const Dense second(tiny("qwen3-tiny-yarn"), {.threads = 2});
  both(first, second, 50);
  const Index threads = thread_count();
  const Index before = resident_bytes();
  both(first, second, sessions);
  const Index after = resident_bytes();
  CHECK(wrong[0] == 0);
  CHECK(wrong[1] == 0);
  CHECK(thread_count() == threads);
  // A session of these takes about a megabyte, so if one in a hundred were kept, growth would be 10 MiB.
  INFO("grew by " << after - before << " bytes");
  if (is_sanitized) return;  // sanitizers keep freed memory back
  CHECK(after - before < Index{1} << 20);
}

TEST_CASE("models opened and dropped in two threads at once", "[threads]") {
  const auto work = [](const std::string& name) {
    Rows expected;
    int wrong = 0;
    for (int i = 0; i < 5; ++i) {
      const Dense model(tiny(name), {.threads = 2});
      const Rows rows = run(model, random_tokens(7, 1));
      if (i == 0) expected = rows;
      if (first_difference(rows, expected) != -1) ++wrong;
    }
    return wrong;
  };
  int wrong_there = 0;
  std::thread other([&] { wrong_there = work("qwen3-tiny-untied-sharded"); });
  CHECK(work("qwen3-tiny") == 0);
  other.join();
  CHECK(wrong_there == 0);
}

TEST_CASE("dropping a model gives its memory back", "[process]") {
  const std::vector<int> tokens = random_tokens(400, 1);
  const auto use = [&](Index& loaded) {
    const ql::Checkpoint files(demo());
    CHECK(files.bytes_mapped() > 2'000'000);
    CHECK(lines_with("/proc/self/maps", "/demo_models/qwen3/model.safetensors") == 1);
    const Dense model(files, {.threads = 2});
    auto session = model.new_session({.max_tokens = 1000});
    (void)model.logits(session, tokens);
    loaded = resident_bytes();
  };
  Index loaded = 0;
  use(loaded);  // threads, locale and the like are there from now on
  const Index threads = thread_count();
  const Index before = resident_bytes();
  use(loaded);
  const Index after = resident_bytes();
  CHECK(thread_count() == threads);
  CHECK(lines_with("/proc/self/maps", "/demo_models/qwen3/model.safetensors") == 0);
  INFO(before << " bytes before, " << loaded << " with the model, " << after << " after");
  if (is_sanitized) return;            // sanitizers keep freed memory back
  CHECK(loaded - before > 3'000'000);  // weights, keys and values, scratch
  CHECK(after - before < Index{1} << 20);
}

TEST_CASE("a callback that throws leaves prompt and all drawn tokens but the last in the session") {
  const ql::AnyModel model = ql::open(tiny(), {.threads = 2});
  const std::vector<int> prompt = random_tokens(12, 1);
  ql::GenerateOptions options{.max_new_tokens = 20, .ignore_eos = true};
  options.sampling.seed = 7;
  std::vector<int> expected;
  auto whole = model.new_session({.max_tokens = 64});
  ql::generate(model, whole, prompt, options, [&](int token) {
    expected.push_back(token);
    return true;
  });
  REQUIRE(expected.size() == 20);

  auto session = model.new_session({.max_tokens = 64});
  std::vector<int> found;
  const auto throwing = [&](int token) {
    found.push_back(token);
    if (found.size() == 8) throw std::runtime_error("enough");
    return true;
  };
  CHECK_THROWS_WITH(ql::generate(model, session, prompt, options, throwing), "enough");
  CHECK(session.length() == 12 + 7);
  std::vector<int> held = prompt;
  held.insert(held.end(), found.begin(), found.end() - 1);
  CHECK(std::vector<int>(session.tokens().begin(), session.tokens().end()) == held);

  options.max_new_tokens = 12;  // the last token goes on where the exception came, with equal draws
  const std::vector<int> last{found.back()};
  ql::generate(model, session, last, options, [&](int token) {
    found.push_back(token);
    return true;
  });
  CHECK(found == expected);
}

TEST_CASE("a progress report that throws leaves what was processed in the session") {
  const ql::AnyModel model = ql::open(tiny(), {.threads = 2});
  const std::vector<int> prompt = random_tokens(40, 1);
  auto session = model.new_session({.max_tokens = 64});
  ql::GenerateOptions options{.max_new_tokens = 3};
  options.prefill_piece = 16;
  options.progress = [](Index done, Index) {
    if (done == 32) throw std::runtime_error("enough");
  };
  CHECK_THROWS_WITH(ql::generate(model, session, prompt, options, [](int) { return true; }), "enough");
  CHECK(std::vector<int>(session.tokens().begin(), session.tokens().end()) ==
        std::vector<int>(prompt.begin(), prompt.begin() + 32));
  auto cold = model.new_session({.max_tokens = 64});
  const std::vector<int> rest(prompt.begin() + 32, prompt.end());
  model.prefill(cold, std::span(prompt).first(32));
  CHECK(first_difference(copied(model.logits(session, rest, ql::Logits::all)),
                         copied(model.logits(cold, rest, ql::Logits::all))) == -1);
}
