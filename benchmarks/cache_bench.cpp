// SPDX-License-Identifier: Apache-2.0
//
// What remembering is worth: the same tokens generated with everything kept in a cache and with nothing kept,
// so that each token computes the whole sequence anew. Every token is really computed; nothing is estimated.
//
//   cache_bench (--shape NAME | DIRECTORY) [--tokens N] [--prompt N] [--threads N] [--kv FORMAT] [--json]
#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <qwenlite/model.hpp>

#include "machine.hpp"
#include "random_checkpoint.hpp"
#include "statistics.hpp"

namespace {

namespace ql = qwenlite;
using bench::Index;

using Remembering = ql::AnyModel;
using Forgetting = ql::AnyOf<ql::Model<ql::Qwen3, ql::NoCache>, ql::Model<ql::Qwen3_5, ql::NoCache>>;

struct Options {
  std::string shape;
  std::string directory;
  Index tokens = 128;
  Index prompt = 16;
  int threads = 0;
  ql::KvFormat kv = ql::KvFormat::bf16;
  bool json = false;
};

[[nodiscard]] std::optional<ql::KvFormat> kv_format(std::string_view word) {
  for (const ql::KvFormat format : ql::kv_formats) {
    if (word == name_of(format)) return format;
  }
  return {};
}

[[nodiscard]] std::optional<Index> number(const char* text) {
  const std::string_view view = text;
  Index value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value < 1 || value > 4096) return {};
  return value;
}

[[nodiscard]] bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json") {
      options.json = true;
    } else if (word.rfind("--", 0) != 0) {
      if (!options.directory.empty()) return false;
      options.directory = word;
    } else if (++i == argc) {
      return false;
    } else if (word == "--shape" && bench::built_in_shape(argv[i]) != nullptr) {
      options.shape = argv[i];
    } else if (const auto kv = kv_format(argv[i]); kv && word == "--kv") {
      options.kv = *kv;
    } else if (const auto n = number(argv[i]); n && word == "--tokens") {
      options.tokens = *n;
    } else if (n && word == "--prompt") {
      options.prompt = *n;
    } else if (n && word == "--threads") {
      options.threads = static_cast<int>(*n);
    } else {
      return false;
    }
  }
  return options.shape.empty() != options.directory.empty();
}

/// One way of generating.
struct Series {
  const char* name;
  double prompt_seconds = 0;            ///< to the first token
  std::vector<double> token_seconds{};  ///< of each token after it
  Index peak_rss_bytes = 0;

  [[nodiscard]] double total(std::size_t tokens) const {
    double sum = 0;
    for (std::size_t i = 0; i < tokens; ++i) sum += token_seconds[i];
    return sum;
  }
};

/// Generates greedily after random ids.
template <class Any>
[[nodiscard]] Series generate(const char* name, const ql::Checkpoint& files, const Options& options) {
  Series series{.name = name};
  bench::reset_peak_rss();
  const Any model = ql::open_as<Any>(files, ql::OpenOptions{.threads = options.threads, .kv = options.kv});
  auto session = model.new_session({.max_tokens = options.prompt + options.tokens + 1});
  std::mt19937 random(1);
  std::vector<int> next(static_cast<std::size_t>(options.prompt));
  for (int& id : next) id = static_cast<int>(random() % static_cast<unsigned>(model.vocab_size()));
  for (Index i = 0; i <= options.tokens; ++i) {
    const auto start = bench::Clock::now();
    const auto logits = model.logits(session, next);
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    const double seconds = bench::seconds_since(start);
    if (i == 0)
      series.prompt_seconds = seconds;
    else
      series.token_seconds.push_back(seconds);
    next.assign(1, static_cast<int>(best));
  }
  series.peak_rss_bytes = bench::peak_rss_bytes();
  return series;
}

/// 16, 32, 64, ... and the last: how many new tokens the table has lines for.
[[nodiscard]] std::vector<std::size_t> milestones(Index tokens) {
  std::vector<std::size_t> all;
  for (std::size_t n = 16; n < static_cast<std::size_t>(tokens); n *= 2) all.push_back(n);
  all.push_back(static_cast<std::size_t>(tokens));
  return all;
}

void print_table(const Options& options, const std::vector<Series>& series) {
  std::printf("%s, prompt of %td ids, greedy, %s keys and values\n\n",
              (options.shape.empty() ? options.directory : options.shape).c_str(), options.prompt,
              std::string(name_of(options.kv)).c_str());
  std::printf("new tokens            decode total   per token   tokens/s   peak memory\n");
  for (const std::size_t n : milestones(options.tokens)) {
    for (const Series& s : series) {
      const double total = s.total(n);
      const double each = total / static_cast<double>(n);
      std::printf("%10zu %-14s %8.2f s %8.1f ms %10.2f", n, s.name, total, 1e3 * each, 1 / each);
      if (n == static_cast<std::size_t>(options.tokens)) {
        std::printf(" %10.0f MB", static_cast<double>(s.peak_rss_bytes) / 1e6);
      }
      std::printf("\n");
    }
    std::printf("%10s %-14s %8.1f x\n", "", "ratio", series[0].total(n) / series[1].total(n));
  }
}

void print_json(const Options& options, const std::vector<Series>& series) {
  using Json = nlohmann::ordered_json;
  const bench::Machine machine = bench::this_machine();
  Json json = {{"machine", {{"cpu", machine.cpu}, {"cores", machine.threads.cores}}},
               {"model", options.shape.empty() ? options.directory : options.shape},
               {"isa", ql::kernels::active().name},
               {"kv", name_of(options.kv)},
               {"prompt", options.prompt},
               {"series", Json::array()}};
  for (const Series& s : series) {
    const double total = s.total(s.token_seconds.size());
    json["series"].push_back({{"name", s.name},
                              {"decode_seconds", total},
                              {"seconds_per_token", total / static_cast<double>(s.token_seconds.size())},
                              {"tokens_per_s", static_cast<double>(s.token_seconds.size()) / total},
                              {"peak_rss_bytes", s.peak_rss_bytes},
                              {"prompt_seconds", s.prompt_seconds},
                              {"token_seconds", s.token_seconds}});
  }
  std::printf("%s\n", json.dump(1).c_str());
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: cache_bench (--shape NAME | DIRECTORY) [--tokens N] [--prompt N] [--threads N] "
                 "[--kv bf16|f32|int8|fp8|int4] [--json]\n");
    return 2;
  }
  std::optional<bench::RandomCheckpoint> random;
  if (!options.shape.empty()) {
    random.emplace(*bench::built_in_shape(options.shape), ql::Format::bf16);
    options.directory = random->directory().string();
  }
  const ql::Checkpoint files(options.directory);
  std::vector<Series> series;
  series.push_back(generate<Forgetting>("without cache", files, options));
  series.push_back(generate<Remembering>("with cache", files, options));
  if (options.json)
    print_json(options, series);
  else
    print_table(options, series);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "cache_bench: %s\n", e.what());
  return 1;
}
