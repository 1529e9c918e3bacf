// SPDX-License-Identifier: Apache-2.0
//
// SamplingOptions: what a caller may say about how tokens are drawn, and the check of it.
//
// Every field is optional: what is not set comes from the model's defaults, or else has no effect. An option
// out of range is one error that names it, what was found and what is expected.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/sampling_ranges.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// An addition to the logit of one token.
struct TokenBias {
  int token = 0;    ///< its id: 0 to token_count - 1
  double bias = 0;  ///< -10000 to 10000; -infinity bans the token
};

/// How to choose the next token. A field that is not set is taken from the model's defaults, or else has
/// no effect (temperature: 1).
///
/// The three penalties count the GENERATED tokens only, not the prompt. Hugging Face's repetition_penalty
/// counts the prompt as well; here it does not, because the answer to a long question has to repeat its
/// words, and because a reply would otherwise depend on how much of the conversation still fits the context.
/// presence_penalty and frequency_penalty are those of OpenAI's and vLLM's interfaces.
struct SamplingOptions {
  std::optional<double> temperature = {};  ///< 0 to 100; 0 (or under 1e-5) always takes the largest logit
  std::optional<Index> top_k = {};         ///< keep the k most likely; 0 keeps all
  std::optional<double> top_p = {};        ///< 0 to 1: keep the most likely until they sum to p; 0 keeps one
  std::optional<double> min_p = {};        ///< 0 to 1: drop what is less likely than min_p x the most likely
  /// 0.01 to 100; 1 is neutral. A generated token's logit is divided by it where positive, else multiplied.
  std::optional<double> repetition_penalty = {};
  std::optional<double> presence_penalty = {};   ///< -100 to 100; 0 is neutral. Taken off once per token
  std::optional<double> frequency_penalty = {};  ///< -100 to 100; 0 is neutral. Taken off per occurrence
  std::optional<std::uint64_t> seed = {};        ///< not set: a new random one each time
  std::vector<TokenBias> logit_bias = {};        ///< added to the logits; several for one token add up

  /// These options, with the fields that are not set taken from `defaults`: any struct with optional numbers
  /// temperature, top_k, top_p and min_p, and penalties if it has them. If it has a do_sample that is set
  /// and false, the default temperature is 0. Seed and bias are never taken over.
  template <class Defaults>
  [[nodiscard]] SamplingOptions or_else(const Defaults& defaults) const {
    SamplingOptions merged = *this;
    const auto fill = [](auto& field, const auto& from) {
      using Value = typename std::remove_reference_t<decltype(field)>::value_type;
      if (!field && from) field = static_cast<Value>(*from);
    };
    if constexpr (requires { defaults.do_sample; }) {
      if (!merged.temperature && defaults.do_sample && !*defaults.do_sample) merged.temperature = 0;
    }
    fill(merged.temperature, defaults.temperature);
    fill(merged.top_k, defaults.top_k);
    fill(merged.top_p, defaults.top_p);
    fill(merged.min_p, defaults.min_p);
    if constexpr (requires { defaults.repetition_penalty; }) {
      fill(merged.repetition_penalty, defaults.repetition_penalty);
    }
    if constexpr (requires { defaults.presence_penalty; }) {
      fill(merged.presence_penalty, defaults.presence_penalty);
    }
    if constexpr (requires { defaults.frequency_penalty; }) {
      fill(merged.frequency_penalty, defaults.frequency_penalty);
    }
    return merged;
  }

  /// Throws bad_argument naming the first field that is out of range; token ids must be below token_count.
  void check(Index token_count = std::numeric_limits<std::int32_t>::max()) const {
    namespace ranges = sampling_ranges;
    check_range("temperature", temperature, ranges::temperature);
    if (top_k && *top_k < 0) reject("top_k", *top_k, "0 (off) or a positive number");
    check_range("top_p", top_p, ranges::top_p);
    check_range("min_p", min_p, ranges::min_p);
    check_range("repetition_penalty", repetition_penalty, ranges::repetition_penalty);
    check_range("presence_penalty", presence_penalty, ranges::presence_penalty);
    check_range("frequency_penalty", frequency_penalty, ranges::frequency_penalty);
    for (const TokenBias& entry : logit_bias) check_bias(entry, token_count);
  }

 private:
  [[noreturn]] static void reject(const MessageText& name, const MessageText& found,
                                  const MessageText& expected) {
    throw Error(ErrorCode::bad_argument, name, found, expected);
  }

  [[nodiscard]] static std::string text_of(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.10g", value);
    return text;
  }

  static void check_range(const char* name, const std::optional<double>& value, SamplingRange range) {
    if (!value || (*value >= range.least && *value <= range.most)) return;  // also false for NaN
    reject(name, text_of(*value), {"a number from ", text_of(range.least), " to ", text_of(range.most)});
  }

  static void check_bias(const TokenBias& entry, Index token_count) {
    if (entry.token < 0 || entry.token >= token_count) {
      reject("logit_bias", {"token id ", entry.token}, {"a token id from 0 to ", token_count - 1});
    }
    if (std::abs(entry.bias) <= 10000 || entry.bias == -std::numeric_limits<double>::infinity()) return;
    reject({"logit_bias of token ", entry.token}, text_of(entry.bias),
           "a number from -10000 to 10000, or -infinity to ban the token");
  }
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
