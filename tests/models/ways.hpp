// SPDX-License-Identifier: Apache-2.0
//
// Ways to compute the logits of a sequence that must all give the same bits: at once, in steps, beside other
// sequences; on every instruction set in both precisions.
#pragma once

#include "models/tiny_models.hpp"
#include "sanitized.hpp"

namespace models_test {

struct Way {
  const qwenlite::kernels::KernelTable* table;
  qwenlite::Precision precision;
};

/// Whether the instructions of a table are emulated here.
inline bool is_emulated(const qwenlite::kernels::KernelTable& table) {
  if (kernel_tests::emulated_isa() != nullptr) return true;
  return &table != qwenlite::kernels::supported().back() && std::string(table.name) == "amx";
}

/// Whether the tests of a table go through fewer cases here, because each is slow: its instructions are
/// emulated, or a sanitizer watches the program.
inline bool is_slow(const qwenlite::kernels::KernelTable& table) {
  return is_emulated(table) || is_sanitized;
}

/// The tables whose networks are compared: under a sanitizer without the emulated ones, which the tests of
/// kernels run there.
inline std::vector<const qwenlite::kernels::KernelTable*> compared_tables() {
  std::vector<const qwenlite::kernels::KernelTable*> tables = kernel_tests::runnable_tables();
  if (is_sanitized) std::erase_if(tables, [](const auto* table) { return is_emulated(*table); });
  return tables;
}

/// Calls f for every instruction set in both precisions.
template <class F>
inline void for_each_way(const F& f) {
  for (const qwenlite::kernels::KernelTable* table : compared_tables()) {
    for (const qwenlite::Precision precision : {qwenlite::Precision::exact, qwenlite::Precision::bf16}) {
      INFO(table->name << ", " << qwenlite::name_of(precision));
      f(Way{table, precision});
    }
  }
}

/// Logits of all tokens, fed in one call.
template <class Network>
Rows at_once(const Network& network, const std::vector<int>& tokens) {
  auto session = network.new_session({.max_tokens = 2048});
  return copied(network.logits(session, tokens, qwenlite::Logits::all));
}

/// Logits of all tokens, fed in calls of `step` tokens.
template <class Network>
Rows in_steps(const Network& network, const std::vector<int>& tokens, Index step) {
  auto session = network.new_session({.max_tokens = 2048});
  Rows rows;
  for (Index at = 0; at < std::ssize(tokens); at += step) {
    const Index count = std::min(step, std::ssize(tokens) - at);
    for (auto& row : copied(network.logits(session, part_of(tokens, at, count), qwenlite::Logits::all))) {
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

/// Logits of `tokens` as one of eight sequences of one forward; the others differ in length and history.
template <class Network>
Rows in_company(const Network& network, const std::vector<int>& tokens, Index place) {
  std::vector<typename Network::Session> sessions;
  for (int i = 0; i < 8; ++i)
    sessions.push_back(network.new_session({.max_tokens = 512, .own_scratch = false}));
  typename Network::Batch batch(network);
  for (Index i = 0; i < 8; ++i) {
    auto& session = sessions[static_cast<std::size_t>(i)];
    if (i == place) {
      batch.add(session, tokens, qwenlite::Logits::all);
      continue;
    }
    const auto seed = static_cast<unsigned>(100 + i);
    if (i % 2 == 0) network.prefill(session, random_tokens(7 * i + 60, seed));
    batch.add(session, random_tokens(i % 3 == 0 ? 1 : 11 * i, seed + 50), qwenlite::Logits::last);
  }
  network.forward(batch);
  return copied(batch.logits(place));
}

}  // namespace models_test
