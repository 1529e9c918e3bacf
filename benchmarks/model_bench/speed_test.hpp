// SPDX-License-Identifier: Apache-2.0
//
// One figure to measure: the prefill of a prompt, or decode steps of one sequence or several after a context.
// Sessions are made and filled once; each measurement ends where it began.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <qwenlite/model.hpp>

namespace bench {

using qwenlite::Index;

/// What is measured.
struct TestSpec {
  bool prefill = true;
  Index tokens = 0;   ///< of the prompt; decode steps of each sequence
  Index context = 0;  ///< tokens before the first decode step (of the longest sequence)
  Index batch = 1;    ///< sequences

  [[nodiscard]] const char* name() const { return prefill ? "prefill" : "decode"; }
};

/// Decode steps of one measurement: few enough to go back afterwards on a recurrent state.
inline constexpr Index decode_steps = 16;

[[nodiscard]] inline TestSpec prefill_of(Index tokens) {
  return {.prefill = true, .tokens = tokens};
}
[[nodiscard]] inline TestSpec decode_at(Index context, Index batch) {
  return {.prefill = false, .tokens = decode_steps, .context = context, .batch = batch};
}

class SpeedTest {
 public:
  SpeedTest(const qwenlite::AnyModel& model, const TestSpec& spec);

  [[nodiscard]] const TestSpec& spec() const { return spec_; }
  /// Tokens processed by one measurement.
  [[nodiscard]] Index tokens() const { return spec_.tokens * spec_.batch; }
  /// Positions in all sequences together that a decode step reads, in the middle of a measurement.
  [[nodiscard]] double positions() const;

  /// Measures once; seconds. The first call also fills the sequences, untimed.
  double run();

 private:
  [[nodiscard]] double run_prefill();
  [[nodiscard]] double run_decode();
  void fill();

  qwenlite::AnyModel model_;
  TestSpec spec_;
  std::vector<int> ids_;        // random tokens that everything is taken from
  std::vector<Index> lengths_;  // of the sequences before the first step, not all the same
  std::vector<qwenlite::AnyModel::Session> sessions_;
  std::unique_ptr<qwenlite::AnyModel::Batch> batch_;  // null for a single sequence
};

}  // namespace bench
