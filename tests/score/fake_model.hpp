// SPDX-License-Identifier: Apache-2.0
//
// A model of a handful of tokens whose logits are a table: after token t come those of row t. It notes how
// it was called.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include <qwenlite/score.hpp>

namespace score_test {

namespace ql = qwenlite;
using ql::Index;
using Ids = std::vector<int>;
using Row = std::vector<float>;

struct FakeSession {
  Index limit = 100;
  Ids seen = {};
  std::vector<float> results = {};
  [[nodiscard]] Index max_tokens() const { return limit; }
  Index truncate(Index n) {
    seen.resize(static_cast<std::size_t>(n));
    return 0;
  }
};

/// What the model was asked for: tokens before, and after which of the new ones logits were wanted.
struct Call {
  Index before = 0;
  Ids tokens = {};
  std::vector<Index> which = {};
  bool operator==(const Call&) const = default;
};

struct TableModel {
  std::vector<Row> after;
  mutable std::vector<Call> calls = {};

  [[nodiscard]] Index vocab_size() const { return static_cast<Index>(after.front().size()); }

  ql::ConstMatrix<float> logits(FakeSession& session, std::span<const int> tokens,
                                std::span<const Index> which) const {
    calls.push_back({static_cast<Index>(session.seen.size()),
                     {tokens.begin(), tokens.end()},
                     {which.begin(), which.end()}});
    session.seen.insert(session.seen.end(), tokens.begin(), tokens.end());
    if (static_cast<Index>(session.seen.size()) > session.limit)
      throw ql::Error(ql::ErrorCode::context_full, "full");
    session.results.clear();
    for (const Index i : which) {
      const Row& row = after.at(static_cast<std::size_t>(tokens[static_cast<std::size_t>(i)]));
      session.results.insert(session.results.end(), row.begin(), row.end());
      session.results.push_back(1e30F);  // rows may lie apart: this belongs to none
    }
    return {session.results.data(), static_cast<Index>(which.size()), vocab_size(),
            Eigen::OuterStride<>(vocab_size() + 1)};
  }
  void prefill(FakeSession& session, std::span<const int> tokens) const { (void)logits(session, tokens, {}); }
};
static_assert(ql::ScorableModel<TableModel, FakeSession>);
static_assert(!ql::ScorableModel<TableModel, Ids>);

/// All tokens are equally likely.
inline TableModel uniform(std::size_t vocab, float logit = 0) {
  return {std::vector<Row>(vocab, Row(vocab, logit))};
}

/// Tokens 0, 1, .., vocab - 1, 0, 1, ..
inline Ids counting(int count, int vocab) {
  Ids ids;
  for (int i = 0; i < count; ++i) ids.push_back(i % vocab);
  return ids;
}

}  // namespace score_test
