// SPDX-License-Identifier: Apache-2.0

#include "speed_test.hpp"

#include <random>

#include "../statistics.hpp"

namespace bench {

using qwenlite::Logits;

SpeedTest::SpeedTest(const qwenlite::AnyModel& model, const TestSpec& spec) : model_(model), spec_(spec) {
  std::mt19937 random(1);
  ids_.resize(static_cast<std::size_t>(std::max(spec.tokens, spec.context) + spec.tokens));
  for (int& id : ids_) id = static_cast<int>(random() % static_cast<unsigned>(model.vocab_size()));
  const bool single = spec.batch == 1;
  for (Index i = 0; i < spec.batch; ++i) {
    lengths_.push_back(spec.prefill ? 0 : std::max<Index>(1, spec.context - i % 8));
    sessions_.push_back(model.new_session({.max_tokens = spec.tokens + spec.context, .own_scratch = single}));
  }
  if (!single) {
    batch_ = std::make_unique<qwenlite::AnyModel::Batch>(
        model, qwenlite::BatchOptions{.sequences = spec.batch, .max_tokens = spec.tokens + spec.context});
  }
}

double SpeedTest::positions() const {
  double sum = 0;
  for (const Index length : lengths_) {
    sum += static_cast<double>(length) + static_cast<double>(spec_.tokens + 1) / 2;
  }
  return sum;
}

double SpeedTest::run() {
  if (spec_.prefill) return run_prefill();
  if (sessions_[0].length() == 0) fill();
  return run_decode();
}

double SpeedTest::run_prefill() {
  qwenlite::AnyModel::Session& session = sessions_[0];
  session.truncate(0);
  const auto start = Clock::now();
  model_.prefill(session, std::span(ids_).first(static_cast<std::size_t>(spec_.tokens)));
  return seconds_since(start);
}

/// Every sequence gets its own part of the random tokens.
void SpeedTest::fill() {
  for (std::size_t i = 0; i < sessions_.size(); ++i) {
    std::vector<int> prompt(static_cast<std::size_t>(lengths_[i]));
    for (std::size_t t = 0; t < prompt.size(); ++t) prompt[t] = ids_[(t + i * 37) % ids_.size()];
    if (batch_ == nullptr) {
      model_.prefill(sessions_[i], prompt);
      continue;
    }
    batch_->clear();
    batch_->add(sessions_[i], prompt, Logits::none);
    model_.forward(*batch_);
  }
}

double SpeedTest::run_decode() {
  const auto start = Clock::now();
  for (Index step = 0; step < spec_.tokens; ++step) {
    const auto at = static_cast<std::size_t>(step);
    if (batch_ == nullptr) {
      (void)model_.logits(sessions_[0], std::span(&ids_[at], 1));
      continue;
    }
    batch_->clear();
    for (std::size_t i = 0; i < sessions_.size(); ++i) {
      batch_->add(sessions_[i], std::span(&ids_[(at + i) % ids_.size()], 1));
    }
    model_.forward(*batch_);
  }
  const double seconds = seconds_since(start);
  for (std::size_t i = 0; i < sessions_.size(); ++i) sessions_[i].truncate(lengths_[i]);
  return seconds;
}

}  // namespace bench
