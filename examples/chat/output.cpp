// SPDX-License-Identifier: Apache-2.0
#include "chat/output.hpp"

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <span>
#include <string>

#include "chat/printable.hpp"

namespace ql = qwenlite;

namespace chat {
namespace {

double mean_milliseconds(std::span<const double> seconds) {
  return 1000 * std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

}  // namespace

void ReplyPrinter::show(const ql::ReplyDelta& delta) {
  if (!delta.reasoning.empty() && style_ != ReplyStyle::answer_only) {
    thinking_ ? go_on_thinking() : begin_thinking();
    write(delta.reasoning);
  }
  if (!delta.content.empty()) {
    if (thinking_) end_thinking();
    write(delta.content);
  }
  out_.flush();
}

void ReplyPrinter::end() {
  if (thinking_ && style_ == ReplyStyle::dimmed) write_control("\x1b[0m");
  if (!at_line_start_) out_ << '\n';
  out_.flush();
  thinking_ = false;
  at_line_start_ = true;
}

void ReplyPrinter::begin_thinking() {
  thinking_ = true;
  style_ == ReplyStyle::dimmed ? write_control("\x1b[2m") : write("<think>\n");
}

/// Dims again: the program may have been suspended, which leaves normal colours, and gone on.
void ReplyPrinter::go_on_thinking() {
  if (style_ == ReplyStyle::dimmed) write_control("\x1b[2m");
}

void ReplyPrinter::end_thinking() {
  thinking_ = false;
  if (style_ == ReplyStyle::dimmed) {
    write_control("\x1b[0m");
    write("\n\n");
  } else {
    write("\n</think>\n\n");
  }
}

void ReplyPrinter::write(std::string_view text) {
  on_terminal() ? out_ << printable(text) : out_ << text;
  at_line_start_ = text.back() == '\n';
}

/// These take no room on the line.
void ReplyPrinter::write_control(std::string_view sequence) {
  out_ << sequence;
}

void print_stats(std::ostream& out, const ql::ChatReply& reply, const StepTimes& times, const Chat& chat,
                 const programs::Storage& storage) {
  const ql::GenerateStats& g = reply.generate;
  out << std::fixed << std::setprecision(1) << "stats: prompt " << reply.prompt_tokens << " tokens, ";
  out << reply.reused_tokens << " reused, ";
  if (reply.replayed_tokens > 0) out << reply.replayed_tokens << " of them processed again, ";
  out << g.prompt_tokens << " computed at " << g.prefill_tokens_per_second() << " tokens/s ("
      << ql::name_of(reply.reuse) << ")\n";
  out << "stats: generated " << g.generated_tokens << " tokens at " << g.tokens_per_second()
      << " tokens/s, the first after " << 1000 * g.time_to_first_token << " ms, ended by "
      << ql::name_of(reply.end) << '\n';
  const std::span<const double> steps = times.seconds();
  if (!steps.empty()) {
    const std::size_t window = std::min<std::size_t>(16, steps.size());
    out << std::setprecision(3) << "stats: per token " << mean_milliseconds(steps.first(window))
        << " ms at the start, " << mean_milliseconds(steps.last(window)) << " ms at the end (means of "
        << window << ")\n";
  }
  const auto& session = chat.session();
  const ql::Ops& ops = chat.model().ops();
  out << "stats: isa " << ops.table().name << ", threads " << ops.executor().concurrency() << ", kv "
      << storage.kv << ": " << session.kv_used_bytes() << " bytes used of " << session.kv_capacity_bytes()
      << ", context " << session.length() << " of " << session.max_tokens() << " tokens\n"
      << "stats: weights " << storage.weights << ", " << storage.weight_bytes << " bytes\n"
      << std::defaultfloat;
  out.flush();
}

namespace {

const char* note_on_stop(bool single_question, bool remembered) {
  if (single_question) return "note: stopped\n";
  return remembered ? "note: stopped; what was written stays in the conversation\n"
                    : "note: stopped; the question is taken back, since it has no answer yet\n";
}

/// How far a reply without an answer came; empty for others.
const char* without_answer(const ql::ChatReply& reply) {
  if (reply.answered()) return "";
  return reply.inside_think ? " while the model was still thinking, without an answer" : " before any answer";
}

/// What ended a reply, where that is worth a word: a cut, or that there is no answer.
std::string end_in_words(const ql::ChatReply& reply, bool larger_context) {
  const std::string when = without_answer(reply);
  switch (reply.end) {
    case ql::ReplyEnd::stop:
      if (when.empty()) return {};
      return reply.inside_think ? "the model ended while it was still thinking, without an answer"
                                : "the model gave no answer";
    case ql::ReplyEnd::stop_string:
      return when.empty() ? std::string() : "the reply ended at a --stop text" + when;
    case ql::ReplyEnd::length: return "the reply was cut off at --max-new-tokens" + when;
    case ql::ReplyEnd::context:
      return "the reply was cut off" + when + (reply.inside_think ? ":" : ", because") +
             " the context is full" + (larger_context ? " (--context makes it larger)" : "");
    case ql::ReplyEnd::callback:
    case ql::ReplyEnd::cancelled: break;
  }
  return {};
}

}  // namespace

void print_notes(std::ostream& out, const ql::ChatReply& reply, const NoteOptions& options) {
  const std::string end = end_in_words(reply, options.larger_context);
  const bool budget = reply.thinking_closed_by_budget && options.thinking_allowed;
  if (budget || !end.empty()) {
    out << "note: " << (budget ? "the thinking was ended at --thinking-budget" : "")
        << (budget && !end.empty() ? "; then " : "") << end << '\n';
  }
  if (reply.end == ql::ReplyEnd::cancelled) out << note_on_stop(options.single_question, reply.remembered);
  out.flush();
}

}  // namespace chat
