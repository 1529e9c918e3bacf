// SPDX-License-Identifier: Apache-2.0
//
// Tokenizer throughput with a full-size tokenizer: encoding of English and of mixed Chinese text,
// decoding, chat prompts, opening. Needs the directory of a Qwen3 tokenizer in QWENLITE_TOKENIZER, or
// QWENLITE_SHARED with tokenizers/qwen3 in it.
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <qwenlite/text/text_stream.hpp>
#include <qwenlite/text/tokenizer.hpp>

namespace {

std::optional<std::filesystem::path> directory() {
  if (const char* value = std::getenv("QWENLITE_TOKENIZER")) return std::filesystem::path(value);
  if (const char* value = std::getenv("QWENLITE_SHARED")) {
    return std::filesystem::path(value) / "tokenizers/qwen3";
  }
  return std::nullopt;
}

const qwenlite::Tokenizer* tokenizer(benchmark::State& state) {
  const auto path = directory();
  if (!path || !std::filesystem::exists(*path / "tokenizer.json")) {
    state.SkipWithError("no tokenizer: set QWENLITE_TOKENIZER to a directory with tokenizer.json");
    return nullptr;
  }
  static const qwenlite::Tokenizer loaded(*path);
  return &loaded;
}

/// One MiB of text from sentences whose words vary, so that no text is just repeated.
std::string text_of(const std::vector<std::string>& words, const char* join, const char* stop) {
  std::string text;
  unsigned state = 1;
  const auto draw = [&state](std::size_t n) {
    state = state * 1664525U + 1013904223U;
    return (state >> 16U) % n;
  };
  while (text.size() < (1U << 20U)) {
    const std::size_t length = 4 + draw(16);
    for (std::size_t i = 0; i < length; ++i) {
      if (i != 0) text += join;
      text += words[draw(words.size())];
      if (draw(40) == 0) text += std::to_string(draw(3000));
    }
    text += stop;
    if (draw(6) == 0) text += "\n\n";
  }
  return text;
}

const std::string& english() {
  static const std::string text = text_of(
      {"the",        "language",      "model",      "reads",     "of",        "a",         "cache",
       "and",        "writes",        "every",      "token",     "it's",      "attention", "remembers",
       "because",    "processor",     "small",      "quickly",   "thousand",  "yesterday", "they'll",
       "understand", "weather",       "important",  "in",        "London",    "to",        "question",
       "answers",    "with",          "memory",     "bandwidth", "(perhaps",  "slowly)",   "that",
       "is",         "was",           "for",        "however,",  "different", "world's",   "people",
       "through",    "between",       "government", "children",  "I",         "not",       "on",
       "as",         "international", "photograph", "x",         "he"},
      " ", ". ");
  return text;
}

const std::string& mixed_chinese() {
  static const std::string text = text_of(
      {"我们",   "今天", "讨论",       "语言模型", "的",   "缓存", "机制", "因为",  "处理器", "速度",
       "很快",   "所以", "可以",       "同时",     "服务", "许多", "人",   "Qwen3", "北京",   "天气",
       "如何",   "内存", "带宽",       "是",       "一个", "重要", "问题", "，",    "、",     "token",
       "计算机", "科学", "technology", "发展",     "与",   "中国", "了解", "更多",  "信息",   "cafe\u0301"},
      "", "。");
  return text;
}

void encode(benchmark::State& state, const std::string& text) {
  const qwenlite::Tokenizer* loaded = tokenizer(state);
  if (loaded == nullptr) return;
  std::size_t tokens = 0;
  for (auto _ : state) {
    const std::vector<int> ids = loaded->encode(text);
    tokens = ids.size();
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) *
                          static_cast<std::int64_t>(state.iterations()));
  state.counters["bytes_per_token"] = static_cast<double>(text.size()) / static_cast<double>(tokens);
}

void encode_english(benchmark::State& state) {
  encode(state, english());
}
void encode_mixed_chinese(benchmark::State& state) {
  encode(state, mixed_chinese());
}
void encode_one_long_word(benchmark::State& state) {
  encode(state, std::string(1U << 20U, 'A'));
}

/// The file named by QWENLITE_BENCH_TEXT, for real text.
void encode_file(benchmark::State& state) {
  const char* path = std::getenv("QWENLITE_BENCH_TEXT");
  if (path == nullptr) return state.SkipWithError("set QWENLITE_BENCH_TEXT to a text file");
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  encode(state, text.str());
}

void decode_english(benchmark::State& state) {
  const qwenlite::Tokenizer* loaded = tokenizer(state);
  if (loaded == nullptr) return;
  const std::vector<int> ids = loaded->encode(english());
  for (auto _ : state) benchmark::DoNotOptimize(loaded->decode(ids));
  state.SetBytesProcessed(static_cast<std::int64_t>(english().size()) *
                          static_cast<std::int64_t>(state.iterations()));
}

void stream_english(benchmark::State& state) {
  const qwenlite::Tokenizer* loaded = tokenizer(state);
  if (loaded == nullptr) return;
  const std::vector<int> ids = loaded->encode(english());
  for (auto _ : state) {
    qwenlite::TextStreamOptions options;
    options.stop_strings = {"\n\nUser:"};
    qwenlite::TextStream stream(*loaded, options);
    for (const int id : ids) benchmark::DoNotOptimize(stream.push(id).text().size());
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(ids.size()) *
                          static_cast<std::int64_t>(state.iterations()));
}

void encode_chat(benchmark::State& state) {
  const qwenlite::Tokenizer* loaded = tokenizer(state);
  if (loaded == nullptr) return;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        loaded->encode_chat({{"system", "Be brief."}, {"user", "What is the capital of France?"}}));
  }
}

void open_tokenizer(benchmark::State& state) {
  if (tokenizer(state) == nullptr) return;
  for (auto _ : state) benchmark::DoNotOptimize(qwenlite::Tokenizer(*directory()).vocab_size());
}

BENCHMARK(encode_english)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_mixed_chinese)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_one_long_word)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_file)->Unit(benchmark::kMillisecond);
BENCHMARK(decode_english)->Unit(benchmark::kMillisecond);
BENCHMARK(stream_english)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_chat)->Unit(benchmark::kMicrosecond);
BENCHMARK(open_tokenizer)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
