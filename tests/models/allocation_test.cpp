// SPDX-License-Identifier: Apache-2.0
//
// A decode step allocates nothing: this program counts every use of operator new.
#include <atomic>
#include <cstdlib>
#include <new>

#include "models/tiny_models.hpp"

namespace ql = qwenlite;
using namespace models_test;

namespace {

std::atomic<long> allocations{0};

// Out of line, so that compilers do not see an operator paired with a function of the C library.
[[gnu::noinline]] void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* memory = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

[[gnu::noinline]] void released(void* memory) {
  std::free(memory);
}

constexpr std::size_t plain = alignof(std::max_align_t);

}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes, plain);
}
void* operator new[](std::size_t bytes) {
  return counted(bytes, plain);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return counted(bytes, plain);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  released(memory);
}
void operator delete(void* memory) noexcept {
  released(memory);
}
void operator delete[](void* memory) noexcept {
  released(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  released(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  released(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  released(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  released(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  released(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  released(memory);
}

TEMPLATE_TEST_CASE("decode steps after the first allocate nothing", "", ql::Qwen3, ql::Qwen3_5) {
  const std::string name = std::is_same_v<TestType, ql::Qwen3> ? "qwen3-tiny" : "qwen3.5-tiny";
  const long at_start = allocations;
  for (const ql::kernels::KernelTable* table : kernel_tests::runnable_tables()) {
    INFO(table->name);
    const ql::Model<TestType> model(ql::Checkpoint(checkpoint_path(name)),
                                    {.threads = 2, .kernels = table, .chunk = 32});
    auto session = model.new_session({.max_tokens = 256});
    model.prefill(session, random_tokens(60, 1));
    const std::vector<int> tokens = random_tokens(100, 2);
    (void)model.logits(session, part_of(tokens, 0, 1));
    const long before = allocations;
    for (Index t = 1; t < 100; ++t) (void)model.logits(session, part_of(tokens, t, 1));
    CHECK(allocations == before);
  }
  CHECK(allocations > at_start);  // the counter counts
}

TEMPLATE_TEST_CASE("a batch of decode steps allocates nothing once it has run", "", ql::Qwen3, ql::Qwen3_5) {
  const std::string name = std::is_same_v<TestType, ql::Qwen3> ? "qwen3-tiny" : "qwen3.5-tiny";
  const ql::Model<TestType> model(ql::Checkpoint(checkpoint_path(name)), {.threads = 2});
  std::vector<typename ql::Model<TestType>::Session> sessions;
  for (int i = 0; i < 4; ++i)
    sessions.push_back(model.new_session({.max_tokens = 128, .own_scratch = false}));
  typename ql::Model<TestType>::Batch batch(model, {.sequences = 4, .max_tokens = 128});
  const std::vector<int> tokens = random_tokens(80, 2);
  long before = 0;
  for (Index t = 0; t < 70; ++t) {
    if (t == 1) before = allocations;
    batch.clear();
    for (auto& session : sessions) batch.add(session, part_of(tokens, t, 1));
    model.forward(batch);
  }
  CHECK(allocations == before);
}
