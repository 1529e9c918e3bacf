// SPDX-License-Identifier: Apache-2.0
//
// What was moved from: a model is still one; sessions, batches and chats say so.
#include <qwenlite/chat.hpp>
#include <qwenlite/models/mtp.hpp>

#include "models/tiny_models.hpp"
#include "text/small_tokenizer.hpp"

namespace ql = qwenlite;
using namespace models_test;

TEST_CASE("a model that was moved from is still one") {
  ql::AnyModel model = ql::open(checkpoint_path("qwen3.5-tiny"), {.threads = 1});
  const ql::AnyModel other = std::move(model);
  auto session = model.new_session({.max_tokens = 16});  // NOLINT(bugprone-use-after-move)
  CHECK(other.logits(session, random_tokens(3, 1)).size() == 512);
  CHECK(model.config().model_type == "qwen3_5");
}

TEST_CASE("a session that was moved from says so") {
  const std::string name = GENERATE("qwen3-tiny", "qwen3.5-tiny");
  const ql::AnyModel model = ql::open(checkpoint_path(name), {.threads = 1});
  auto session = model.new_session({.max_tokens = 100});
  model.prefill(session, random_tokens(80, 1));
  auto moved = std::move(session);
  const auto says_so = has_text("the session was moved from");
  // NOLINTBEGIN(bugprone-use-after-move)
  CHECK(session.length() == 0);
  CHECK_THROWS_WITH(model.logits(session, random_tokens(1, 1)), says_so);
  CHECK_THROWS_WITH(model.prefill(session, random_tokens(1, 1)), says_so);
  CHECK_THROWS_WITH(session.truncate(0), says_so);
  CHECK_THROWS_WITH(session.remember(50), says_so);
  ql::AnyModel::Batch batch(model);
  CHECK_THROWS_WITH(batch.add(session, random_tokens(1, 1)), says_so);
  // NOLINTEND(bugprone-use-after-move)
  CHECK(moved.length() == 80);
  CHECK(model.logits(moved, random_tokens(1, 1)).size() == 512);
  session = std::move(moved);
  CHECK(model.logits(session, random_tokens(1, 1)).size() == 512);
  CHECK_THROWS_WITH(moved.truncate(0), says_so);  // NOLINT(bugprone-use-after-move)
}

TEST_CASE("a batch, and sessions moved while in one, say so") {
  const ql::Model<ql::Qwen3_5> model(ql::Checkpoint(checkpoint_path("qwen3.5-tiny")), {.threads = 1});
  auto session = model.new_session({.max_tokens = 16});
  ql::Model<ql::Qwen3_5>::Batch batch(model);
  batch.add(session, random_tokens(2, 1));
  auto moved = std::move(session);
  CHECK_THROWS_WITH(model.forward(batch), has_text("a session of the batch was moved from"));
  batch.clear();
  auto other = std::move(batch);
  CHECK_THROWS_WITH(batch.add(moved, random_tokens(1, 1)),  // NOLINT(bugprone-use-after-move)
                    has_text("the batch was moved from"));
  CHECK_THROWS_WITH(model.forward(batch), has_text("the batch was moved from"));
  other.add(moved, random_tokens(1, 1));
  model.forward(other);
  CHECK(other.logits(0).rows() == 1);
}

TEST_CASE("a session of a prediction head and a chat that were moved from say so") {
  const ql::Checkpoint files(checkpoint_path("qwen3.5-tiny"));
  using Network = ql::Model<ql::Qwen3_5>;
  const Network network(files, {.threads = 1});
  const ql::Mtp<Network> head(network, files);
  ql::Mtp<Network>::Session session(head, 16);
  const auto moved = std::move(session);
  const std::vector<float> state(64, 0.5F);
  const ql::ConstMatrix<float> hidden(state.data(), 1, 64, Eigen::OuterStride<>(64));
  const std::vector<int> next{1};
  CHECK_THROWS_WITH(head.forward(session, hidden, next),  // NOLINT(bugprone-use-after-move)
                    has_text("was moved from"));
  const Network larger(files, {.threads = 1, .chunk = 1024});
  const ql::Mtp<Network> other_head(larger, files);
  ql::Mtp<Network>::Session own(other_head, 16);
  CHECK_THROWS_WITH(head.forward(own, hidden, next), has_text("belongs to the head of another model"));
  CHECK(other_head.forward(own, hidden, next).logits.rows() == 1);

  const ql::Tokenizer tokenizer = ql::Tokenizer::from_json(small::json(), {}, {});
  ql::ChatSession chat(network, tokenizer);
  const auto other = std::move(chat);
  CHECK_THROWS_WITH(chat.send("Hello"), has_text("the chat session was moved from"));  // NOLINT
}
