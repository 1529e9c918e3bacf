// SPDX-License-Identifier: Apache-2.0
//
// The sampling values that the model cards recommend, by name.
//
// Cards: Qwen3 (all sizes) and Qwen3.5-0.8B. Their values for images are left out, as only text is run. All
// fields but seed and bias are set, neutral ones too, so that a preset overrides a model's defaults.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <qwenlite/error.hpp>
#include <qwenlite/generate/sampling_options.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

enum class SamplingPreset : std::uint8_t {
  qwen3_thinking,        ///< "qwen3-thinking": temperature 0.6, top_p 0.95, top_k 20, min_p 0
  qwen3_non_thinking,    ///< "qwen3-non-thinking": temperature 0.7, top_p 0.8, top_k 20, min_p 0
  qwen3_5_thinking,      ///< "qwen3.5-thinking": 1.0, 0.95, 20, 0, presence_penalty 1.5
  qwen3_5_non_thinking,  ///< "qwen3.5-non-thinking": 1.0, 1.0, 20, 0, presence_penalty 2.0
  qwen3_5_coding,        ///< "qwen3.5-coding", thinking for precise code: 0.6, 0.95, 20, 0, no penalty
};

inline constexpr std::array<SamplingPreset, 5> sampling_presets = {
    SamplingPreset::qwen3_thinking, SamplingPreset::qwen3_non_thinking, SamplingPreset::qwen3_5_thinking,
    SamplingPreset::qwen3_5_non_thinking, SamplingPreset::qwen3_5_coding};

[[nodiscard]] constexpr std::string_view name_of(SamplingPreset preset) noexcept {
  switch (preset) {
    case SamplingPreset::qwen3_thinking: return "qwen3-thinking";
    case SamplingPreset::qwen3_non_thinking: return "qwen3-non-thinking";
    case SamplingPreset::qwen3_5_thinking: return "qwen3.5-thinking";
    case SamplingPreset::qwen3_5_non_thinking: return "qwen3.5-non-thinking";
    case SamplingPreset::qwen3_5_coding: return "qwen3.5-coding";
  }
  return "?";
}

/// The preset of that name. Throws bad_argument, listing the names, when there is none.
[[nodiscard]] inline SamplingPreset preset_named(std::string_view name) {
  std::string names;
  for (const SamplingPreset preset : sampling_presets) {
    if (name_of(preset) == name) return preset;
    names.append(names.empty() ? "" : ", ").append(name_of(preset));
  }
  throw Error(ErrorCode::bad_argument, "sampling preset", "\"" + std::string(name) + "\"", "one of " + names);
}

/// The preset's values. To change some of them: SamplingOptions{.seed = 1}.or_else(options_of(preset)).
[[nodiscard]] inline SamplingOptions options_of(SamplingPreset preset) {
  SamplingOptions card{.temperature = 1.0,
                       .top_k = 20,
                       .top_p = 0.95,
                       .min_p = 0.0,
                       .repetition_penalty = 1.0,
                       .presence_penalty = 0.0,
                       .frequency_penalty = 0.0};
  switch (preset) {
    case SamplingPreset::qwen3_thinking:
    case SamplingPreset::qwen3_5_coding: card.temperature = 0.6; break;
    case SamplingPreset::qwen3_non_thinking:
      card.temperature = 0.7;
      card.top_p = 0.8;
      break;
    case SamplingPreset::qwen3_5_thinking: card.presence_penalty = 1.5; break;
    case SamplingPreset::qwen3_5_non_thinking:
      card.top_p = 1.0;
      card.presence_penalty = 2.0;
      break;
  }
  return card;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
