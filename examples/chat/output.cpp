// SPDX-License-Identifier: Apache-2.0
#include "chat/output.hpp"

#include <algorithm>
#include <iomanip>
#include <numeric>

namespace ql = qwenlite;

namespace chat {
namespace {

double mean_milliseconds(std::span<const double> seconds) {
  return 1000 * std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

}  // namespace

void print_stats(std::ostream& out, const AnswerStats& stats, const programs::ProgramModel& model,
                 const Conversation& conversation, const std::string& kv) {
  const ql::GenerateStats& g = stats.generate;
  out << std::fixed << std::setprecision(1) << "stats: prompt " << stats.prompt_tokens << " tokens, "
      << stats.reused_tokens << " reused, " << g.prompt_tokens << " computed at "
      << g.prefill_tokens_per_second() << " tokens/s\n"
      << "stats: generated " << g.generated_tokens << " tokens at " << g.tokens_per_second()
      << " tokens/s, the first after " << 1000 * g.time_to_first_token << " ms, ended by "
      << ql::name_of(g.finish_reason) << '\n';
  const std::span<const double> steps = stats.step_seconds;
  if (!steps.empty()) {
    const std::size_t window = std::min<std::size_t>(16, steps.size());
    out << std::setprecision(3) << "stats: per token " << mean_milliseconds(steps.first(window))
        << " ms at the start, " << mean_milliseconds(steps.last(window)) << " ms at the end (means of "
        << window << ")\n";
  }
  const auto& session = conversation.session();
  out << "stats: isa " << model.ops().table().name << ", threads " << model.ops().executor().concurrency()
      << ", kv " << kv << ": " << session.kv_used_bytes() << " bytes used of " << session.kv_capacity_bytes()
      << ", context " << session.length() << " of " << session.max_tokens() << " tokens\n"
      << std::defaultfloat;
  out.flush();
}

void print_notes(std::ostream& out, const AnswerStats& stats) {
  using Reason = ql::FinishReason;
  const Reason reason = stats.generate.finish_reason;
  if (reason == Reason::length) out << "note: the reply was cut off at --max-new-tokens\n";
  if (reason == Reason::context)
    out << "note: the reply was cut off, because the context is full (--context)\n";
  if (!stats.answered) out << "note: the model ended while it was still thinking, without an answer\n";
  out.flush();
}

}  // namespace chat
