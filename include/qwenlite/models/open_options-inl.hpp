// SPDX-License-Identifier: Apache-2.0
//
// Implementation of open_options.hpp: each decision with its reason in words.
#pragma once

#include <cstdlib>

#include <qwenlite/in_quotes.hpp>
#include <qwenlite/models/open_options.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace opening {

inline void choose_kernels(const OpenOptions& options, Choices& choices) {
  choices.kernels = options.kernels != nullptr ? options.kernels : &kernels::active();
  choices.kernels_reason = options.kernels != nullptr ? "asked for" : kernels::active_choice().reason;
}

inline void choose_threads(const OpenOptions& options, Choices& choices) {
  if (options.threads < 0) {
    throw Error(ErrorCode::bad_argument, "threads", options.threads, "0 (automatic) or a positive number");
  }
  require(options.threads == 0 || options.executor == nullptr, "threads and executor exclude each other");
  if (options.executor != nullptr) {
    choices.executor = options.executor;
    choices.threads_reason = "those of the executor that was passed";
    return;
  }
  if (options.threads > 0) {
    choices.executor = std::make_shared<ThreadPool>(options.threads);
    const int usable = usable_cpu_count();
    choices.threads_reason = "asked for";
    if (options.threads > usable) {
      choices.threads_reason = joined({"asked for, though this process can use ", usable, " CPUs at once"});
    }
    return;
  }
  const DefaultThreads found = default_threads();
  choices.executor = std::make_shared<ThreadPool>(found.threads);
  choices.threads_reason =
      joined({"one for each physical core among the ", found.cpus, " CPUs it may run on"});
  if (found.threads < found.cores) {
    choices.threads_reason =
        joined({"the CPU quota of the control group, though the process may run on ", found.cores, " cores"});
  }
}

inline void choose_precision(const OpenOptions& options, Choices& choices) {
  const kernels::KernelTable& table = *choices.kernels;
  choices.precision = options.precision.value_or(table.default_precision);
  choices.precision_reason = options.precision ? "asked for" : "the default of these kernels";
  const bool same =
      table.layout(Format::bf16, Precision::bf16) == table.layout(Format::bf16, Precision::exact);
  if (same && choices.precision == Precision::bf16) {
    choices.precision_used = false;
    choices.precision_reason += ", without effect: they take inputs of products in float32";
  }
}

/// The ways in which weights of a format can be stored, for a message about another one.
[[nodiscard]] inline const char* possible_groups(Format format) noexcept {
  switch (format) {
    case Format::int8: return "int8 in groups of 32, 64 or 128, or by rows (a group of 0)";
    case Format::int4: return "int4 in groups of 32, 64 or 128";
    case Format::fp8: return "fp8 in blocks of 128, without zero points";
    case Format::bf16:
    case Format::f16:
    case Format::f32: break;
  }
  return "this format without groups or zero points";
}

inline void choose_weights(const OpenOptions& options, Choices& choices) {
  require_format("weights", options.weights);
  require_format("embedding_weights", options.embedding_weights);
  choices.weights = options.weights;
  choices.embedding_weights = options.embedding_weights;
  if (!choices.embedding_weights && choices.weights) {
    choices.embedding_weights =
        is_quantised(choices.weights->format) ? WeightFormat(Format::int8) : *choices.weights;
  }
}

inline void choose_check(const OpenOptions& options, Choices& choices) {
  const char* value = std::getenv("QWENLITE_CHECK");
  const std::string_view text = value != nullptr ? value : "";
  if (!text.empty() && text != "0" && text != "1") {
    throw Error(ErrorCode::bad_argument, "QWENLITE_CHECK", in_quotes(text), "0 or 1");
  }
  choices.check = options.check || text == "1";
  choices.check_reason = options.check ? "asked for" : choices.check ? "QWENLITE_CHECK=1" : "";
}

}  // namespace opening

QWENLITE_INLINE void require_format(const char* option, const std::optional<WeightFormat>& format) {
  if (!format || format->is_valid()) return;
  const bool quantised = is_quantised(format->format);
  throw Error(ErrorCode::bad_argument, option,
              quantised ? to_string(*format)
                        : joined({name_of(format->format), " in groups of ", format->group,
                                  format->symmetric ? "" : " with zero points"}),
              opening::possible_groups(format->format));
}

QWENLITE_INLINE Choices choices_of(const OpenOptions& options) {
  Choices choices;
  if (options.chunk < 1 || options.chunk > size_limits::max_position_embeddings) {
    throw Error(ErrorCode::bad_argument, "chunk", {options.chunk}, "a positive number of tokens");
  }
  choices.chunk = options.chunk;
  choices.kv = options.kv;
  opening::choose_weights(options, choices);
  opening::choose_check(options, choices);
  opening::choose_kernels(options, choices);
  opening::choose_precision(options, choices);
  opening::choose_threads(options, choices);
  return choices;
}

QWENLITE_INLINE void explain_precision(Choices& choices, FormatSet layers) {
  if (choices.precision != Precision::int8) return;
  if (layers.contains(Format::int8) || layers.contains(Format::int4)) return;
  choices.precision_used = false;
  choices.precision_reason += ", without effect: no weights are int8 or int4, others get inputs in float32";
}

QWENLITE_INLINE Weights text_scope(const Weights& all) {
  for (const char* prefix : {"model.", "model.language_model.", ""}) {
    Weights text = all.scope(prefix);
    if (text.contains("embed_tokens.weight")) return text;
  }
  return all.scope("model.");  // taking the embedding from it then says what is missing
}

QWENLITE_INLINE GenerationDefaults with_card_values(GenerationDefaults file, const GenerationDefaults& card) {
  const auto fill = [](auto& field, const auto& value) {
    if (!field) field = value;
  };
  // A file that states a temperature states a whole set of values: what it does not penalise is not.
  if (!file.temperature && file.do_sample != false) fill(file.presence_penalty, card.presence_penalty);
  if (file.do_sample == false) file.temperature = 0.0F;  // greedy, whatever else the file says
  fill(file.do_sample, card.do_sample);
  fill(file.temperature, card.temperature);
  fill(file.top_k, card.top_k);
  fill(file.top_p, card.top_p);
  fill(file.min_p, card.min_p);
  return file;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
