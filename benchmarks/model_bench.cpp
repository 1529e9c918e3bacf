// SPDX-License-Identifier: Apache-2.0
//
// Prefill and decode of a checkpoint, beside what the machine's memory delivers in the same run.
//
//   model_bench DIRECTORY [--threads N] [--repeats N] [--prompt N] [--decode N]
//
// Each repeat measures read bandwidth, prefill and decode one after the other, so that a busy neighbour
// slows all three; figures are medians over the repeats. QWENLITE_ISA chooses the kernels.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include <qwenlite/model.hpp>

#include "bandwidth.hpp"

namespace {

using qwenlite::Index;

struct Options {
  std::string directory;
  int threads = 0;
  int repeats = 7;
  Index prompt = 512;
  Index decode = 32;
};

[[nodiscard]] bool parse(int argc, char** argv, Options& options) {
  if (argc < 2 || argc % 2 != 0) return false;
  options.directory = argv[1];
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const int value = std::atoi(argv[i + 1]);
    if (value <= 0) return false;
    if (flag == "--threads")
      options.threads = value;
    else if (flag == "--repeats")
      options.repeats = value;
    else if (flag == "--prompt")
      options.prompt = value;
    else if (flag == "--decode")
      options.decode = value;
    else
      return false;
  }
  return true;
}

/// Bytes of weights and of keys and values that one decode step at `context` tokens reads.
[[nodiscard]] double decode_bytes(const qwenlite::ModelConfig& c, Index context) {
  const Index attention =
      c.hidden_size * c.head_dim * (2 * c.num_attention_heads + 2 * c.num_key_value_heads);
  const Index mlp = 3 * c.hidden_size * c.intermediate_size;
  const Index weights = c.num_hidden_layers * (attention + mlp) + c.vocab_size * c.hidden_size;
  const Index kv = context * c.num_hidden_layers * c.num_key_value_heads * c.head_dim * 2;
  return 2.0 * static_cast<double>(weights + kv);
}

/// Multiply-adds of the layers' matrix products for one token, times two.
[[nodiscard]] double prefill_flop(const qwenlite::ModelConfig& c) {
  const Index attention =
      c.hidden_size * c.head_dim * (2 * c.num_attention_heads + 2 * c.num_key_value_heads);
  return 2.0 *
         static_cast<double>(c.num_hidden_layers * (attention + 3 * c.hidden_size * c.intermediate_size));
}

void run(const Options& options) {
  const qwenlite::Checkpoint files(options.directory);
  const auto pool = std::make_shared<qwenlite::ThreadPool>(options.threads);
  const qwenlite::AnyModel model = qwenlite::open(files, {.executor = pool});
  auto session = model.new_session({.max_tokens = options.prompt + options.decode + 8});
  bench::ReadBandwidth bandwidth(*pool);

  std::mt19937 random(1);
  std::vector<int> prompt(static_cast<std::size_t>(options.prompt));
  for (int& id : prompt) id = static_cast<int>(random() % static_cast<unsigned>(model.vocab_size()));

  std::vector<double> read_gb_s;
  std::vector<double> prefill_s;
  std::vector<double> decode_s;
  std::vector<double> decode_of_read;
  const double bytes = decode_bytes(files.config(), options.prompt + options.decode / 2);
  for (int repeat = -1; repeat < options.repeats; ++repeat) {  // the first one warms up
    session.truncate(0);
    auto start = bench::Clock::now();
    model.prefill(session, prompt);
    const double prefill = bench::seconds_since(start) / static_cast<double>(options.prompt);
    const double before = bandwidth.measure();
    start = bench::Clock::now();
    for (Index i = 0; i < options.decode; ++i) {
      const int id = prompt[static_cast<std::size_t>(i % options.prompt)];
      (void)model.logits(session, std::span(&id, 1));
    }
    const double decode = bench::seconds_since(start) / static_cast<double>(options.decode);
    const double read = std::max(before, bandwidth.measure());
    if (repeat < 0) continue;
    prefill_s.push_back(prefill);
    decode_s.push_back(decode);
    read_gb_s.push_back(read);
    decode_of_read.push_back(bytes / decode / 1e9 / read);
  }
  const double prefill = bench::median(prefill_s);
  const double decode = bench::median(decode_s);
  std::printf("%s, %d threads, %s, medians of %d repeats\n", model.ops().table().name, pool->concurrency(),
              std::string(name_of(model.ops().precision())).c_str(), options.repeats);
  std::printf("prefill of %td: %.1f tokens/s, %.1f GFLOP/s in the layers' products\n", options.prompt,
              1 / prefill, prefill_flop(files.config()) / prefill / 1e9);
  std::printf("decode at %td: %.2f tokens/s, %.1f GB/s\n", options.prompt, 1 / decode, bytes / decode / 1e9);
  std::printf("read bandwidth (best of 1, 4, 16 streams): %.1f GB/s; decode reaches %.2f of it\n",
              bench::median(read_gb_s), bench::median(decode_of_read));
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: model_bench DIRECTORY [--threads N] [--repeats N] [--prompt N] [--decode N]\n");
    return 2;
  }
  run(options);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return 1;
}
