// SPDX-License-Identifier: Apache-2.0

#include "options.hpp"

#include <charconv>
#include <functional>

#include "../shapes.hpp"

namespace bench {

const char* const usage =
    "usage: model_bench (--shape NAME | DIRECTORY) [options]\n"
    "  --shape NAME          random weights: qwen3-0.6b, qwen3.5-0.8b, qwen3-tiny, qwen3.5-tiny\n"
    "  --prefill N,...       prompts of so many tokens (default 512; 0: none)\n"
    "  --decode-context N,.. decode after so many tokens (default 128; 0: none)\n"
    "  --batch N,...         sequences that decode together (default 1)\n"
    "  --weights F,...       bf16, f16, f32 (built-in shapes), or quantised while opening: int8, int8:128,\n"
    "                        int4, int4:32, int4:64:zeros, fp8; F/E: embedding and output matrix in E\n"
    "                        (default bf16)\n"
    "  --kv F,...            storage of keys and values: bf16, f32, int8, fp8, int4 (default bf16)\n"
    "  --precision P,...     inputs of products: exact, bf16, int8 (default: that of the kernels)\n"
    "  --threads N,...       (default: one for each core)\n"
    "  --isa NAME,...        kernels (default: the best that runs here, or QWENLITE_ISA)\n"
    "  --repeats N           measurements of each figure, interleaved (default 5)\n"
    "  --bandwidth-mb N      buffer that read bandwidth is measured on (default 1024)\n"
    "  --json                machine-readable output\n";

namespace {

[[nodiscard]] Index to_number(const std::string& flag, std::string_view text, Index least) {
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > 1'000'000'000) {
    throw UsageError(flag + ": found '" + std::string(text) + "', expected numbers from " +
                     std::to_string(least));
  }
  return value;
}

/// The parts of "a,b,c".
[[nodiscard]] std::vector<std::string> parts_of(const std::string& flag, std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (parts.back().empty()) throw UsageError(flag + ": an empty entry in the list");
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

[[nodiscard]] std::vector<Index> to_numbers(const std::string& flag, std::string_view text, Index least) {
  std::vector<Index> numbers;
  for (const std::string& part : parts_of(flag, text)) numbers.push_back(to_number(flag, part, least));
  return numbers;
}

/// The formats of a list, by name_of().
template <class F>
[[nodiscard]] std::vector<F> to_formats(const std::string& flag, std::string_view text,
                                        std::initializer_list<F> known) {
  std::vector<F> formats;
  for (const std::string& part : parts_of(flag, text)) {
    const std::size_t before = formats.size();
    std::string choices;
    for (const F format : known) {
      if (part == name_of(format)) formats.push_back(format);
      choices += (choices.empty() ? "" : ", ") + std::string(name_of(format));
    }
    if (formats.size() == before) {
      throw UsageError(flag + ": found '" + part + "', expected one of " + choices);
    }
  }
  return formats;
}

[[nodiscard]] std::vector<WeightChoice> to_weights(const std::string& flag, std::string_view text) {
  std::vector<WeightChoice> choices;
  for (const std::string& part : parts_of(flag, text)) {
    const auto choice = weight_choice_of(part);
    if (!choice) {
      throw UsageError(
          flag + ": found '" + part +
          "', expected bf16, f16, f32, int8, int4, fp8, or as in int4:32, int8:row or int4/int8");
    }
    choices.push_back(*choice);
  }
  return choices;
}

/// Flags that take a value, and what they do with it.
struct Flag {
  const char* name;
  std::function<void(Options&, const std::string& flag, const std::string& value)> take;
};

const Flag flags[] = {
    {"--shape",
     [](Options& o, const std::string& flag, const std::string& v) {
       if (built_in_shape(v) == nullptr) {
         std::string names;
         for (const BuiltInShape& s : built_in_shapes) {
           names += (names.empty() ? "" : ", ") + std::string(s.name);
         }
         throw UsageError(flag + ": found '" + v + "', expected one of " + names);
       }
       o.shape = v;
     }},
    {"--prefill", [](Options& o, const auto& flag, const auto& v) { o.prefill = to_numbers(flag, v, 0); }},
    {"--decode-context",
     [](Options& o, const auto& flag, const auto& v) { o.decode_context = to_numbers(flag, v, 0); }},
    {"--batch", [](Options& o, const auto& flag, const auto& v) { o.batch = to_numbers(flag, v, 1); }},
    {"--weights", [](Options& o, const auto& flag, const auto& v) { o.weights = to_weights(flag, v); }},
    {"--kv",
     [](Options& o, const auto& flag, const auto& v) {
       using enum qwenlite::KvFormat;
       o.kv = to_formats(flag, v, {bf16, f32, int8, fp8, int4});
     }},
    {"--precision",
     [](Options& o, const auto& flag, const auto& v) {
       using enum qwenlite::Precision;
       o.precision = to_formats(flag, v, {exact, bf16, int8});
     }},
    {"--threads",
     [](Options& o, const auto& flag, const auto& v) {
       o.threads.clear();
       for (const Index n : to_numbers(flag, v, 1)) {
         if (n > 4096) throw UsageError(flag + ": at most 4096");
         o.threads.push_back(static_cast<int>(n));
       }
     }},
    {"--isa", [](Options& o, const auto& flag, const auto& v) { o.isas = parts_of(flag, v); }},
    {"--repeats", [](Options& o, const auto& flag,
                     const auto& v) { o.repeats = static_cast<int>(to_number(flag, v, 1)); }},
    {"--bandwidth-mb",
     [](Options& o, const auto& flag, const auto& v) { o.bandwidth_mb = to_number(flag, v, 1); }},
    {"--probe", [](Options& o, const auto&, const auto& v) { o.probe = v; }},
    {"--started-at", [](Options& o, const auto&, const auto& v) { o.started_at = v; }},
};

void check(const Options& options) {
  if (options.shape.empty() == options.directory.empty()) {
    throw UsageError("give either --shape NAME or a checkpoint directory (--help lists the options)");
  }
  for (const WeightChoice& choice : options.weights) {
    if (options.shape.empty() && options.probe.empty() && !is_quantised(choice.layers.format)) {
      throw UsageError("--weights: a checkpoint directory has its own format, or is quantised");
    }
    if (choice.embedding && choice.embedding->format != choice.layers.format &&
        !is_quantised(choice.embedding->format)) {
      throw UsageError("--weights: an embedding is stored as the layers are, or quantised");
    }
  }
}

}  // namespace

std::optional<WeightChoice> weight_choice_of(std::string_view word) {
  const std::size_t slash = word.find('/');
  const auto layers = qwenlite::weight_format_of(word.substr(0, slash));
  if (!layers) return {};
  if (slash == std::string_view::npos) return WeightChoice{*layers, {}};
  const auto embedding = qwenlite::weight_format_of(word.substr(slash + 1));
  if (!embedding) return {};
  return WeightChoice{*layers, embedding};
}

Options parse_options(int argc, char** argv) {
  Options options;
  options.prefill = {512};
  options.decode_context = {128};
  options.threads = {0};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json" || word == "--help" || word == "--on-demand") {
      (word == "--json" ? options.json : word == "--help" ? options.help : options.on_demand) = true;
      continue;
    }
    const Flag* known = nullptr;
    for (const Flag& flag : flags) known = word == flag.name ? &flag : known;
    if (known != nullptr) {
      if (++i == argc) throw UsageError(word + ": a value is missing");
      known->take(options, word, argv[i]);
    } else if (word.rfind("-", 0) == 0 || !options.directory.empty()) {
      throw UsageError("unknown argument '" + word + "' (--help lists the options)");
    } else {
      options.directory = word;
    }
  }
  if (!options.help) check(options);
  if (options.weights.empty() && !options.shape.empty())
    options.weights = {{.layers = qwenlite::Format::bf16, .embedding = {}}};
  return options;
}

}  // namespace bench
