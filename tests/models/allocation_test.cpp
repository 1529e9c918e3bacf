// SPDX-License-Identifier: Apache-2.0
//
// A decode step allocates nothing: this program counts every use of operator new.
#include "counting_allocator.hpp"
#include "models/tiny_models.hpp"

namespace ql = qwenlite;
using namespace models_test;

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
