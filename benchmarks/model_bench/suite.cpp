// SPDX-License-Identifier: Apache-2.0

#include "suite.hpp"

#include <cstdio>
#include <iostream>
#include <memory>

#include "../random_checkpoint.hpp"

namespace bench {

namespace {

using qwenlite::AnyModel;
using qwenlite::Format;

/// Sequences and context are tried together up to so many positions in all: filling them takes minutes.
constexpr Index most_positions = 16384;

/// The checkpoints of the run, by format; built-in shapes are written when asked for.
class Checkpoints {
 public:
  explicit Checkpoints(const Options& options) {
    if (options.shape.empty()) {
      const qwenlite::Checkpoint files(options.directory);
      directories_.emplace_back(stored_format(files), options.directory);
      return;
    }
    for (const Format format : options.weights) {
      written_.push_back(std::make_unique<RandomCheckpoint>(*built_in_shape(options.shape), format));
      directories_.emplace_back(format, written_.back()->directory().string());
    }
  }
  [[nodiscard]] const std::vector<std::pair<Format, std::string>>& directories() const {
    return directories_;
  }

 private:
  /// The format of the embedding stands for all.
  [[nodiscard]] static Format stored_format(const qwenlite::Checkpoint& files) {
    for (const auto& entry : files.tensors().entries()) {
      if (!entry.name.ends_with("embed_tokens.weight")) continue;
      if (entry.view.dtype == DType::f32) return Format::f32;
      if (entry.view.dtype == DType::f16) return Format::f16;
    }
    return Format::bf16;
  }

  std::vector<std::unique_ptr<RandomCheckpoint>> written_;
  std::vector<std::pair<Format, std::string>> directories_;
};

[[nodiscard]] std::vector<Configuration> configurations(const Options& options,
                                                        const Checkpoints& checkpoints) {
  std::vector<std::string> isas = options.isas;
  if (isas.empty()) isas.emplace_back(qwenlite::kernels::active().name);
  std::vector<Configuration> all;
  for (const auto& [format, directory] : checkpoints.directories()) {
    for (const qwenlite::KvFormat kv : options.kv) {
      for (const std::string& isa : isas) {
        for (const int threads : options.threads) {
          all.push_back({.directory = directory,
                         .isa = isa,
                         .threads = threads > 0 ? threads : qwenlite::default_thread_count(),
                         .weights = format,
                         .kv = kv});
        }
      }
    }
  }
  return all;
}

[[nodiscard]] std::vector<TestSpec> tests(const Options& options) {
  std::vector<TestSpec> all;
  for (const Index n : options.prefill) {
    if (n > 0) all.push_back(prefill_of(n));
  }
  for (const Index context : options.decode_context) {
    for (const Index batch : options.batch) {
      if (context == 0) continue;
      if (batch > 1 && batch * context > most_positions) {
        std::fprintf(stderr, "model_bench: left out: %td sequences after %td tokens\n", batch, context);
        continue;
      }
      all.push_back(decode_at(context, batch));
    }
  }
  return all;
}

[[nodiscard]] AnyModel open_model(const Configuration& c, std::shared_ptr<qwenlite::Executor> pool) {
  return qwenlite::open(
      qwenlite::Checkpoint(c.directory),
      {.executor = std::move(pool), .kernels = qwenlite::kernels::choose(c.isa.c_str()).table, .kv = c.kv});
}

/// Tiles multiply bf16 weights only.
[[nodiscard]] double product_roof(const Roofline& r, Format weights) {
  return weights == Format::bf16 ? r.product_gflop_s() : r.fma_gflop_s.value_or(0);
}

/// A figure under measurement.
struct Measurement {
  Figure figure;
  SpeedTest test;
  RooflineMeter* meter;

  Measurement(const Configuration& c, const AnyModel& model, const TestSpec& spec, RooflineMeter& m)
      : figure{.configuration = c, .spec = spec}, test(model, spec), meter(&m) {
    const Work work(model.config(), c.weights, c.kv);
    const auto batch = static_cast<double>(spec.batch);
    const double mean_position =
        spec.prefill ? static_cast<double>(spec.tokens + 1) / 2 : test.positions() / batch;
    figure.flop_in_products = work.layer_flop() + (spec.prefill ? 0 : work.head_flop());
    figure.flop_in_mixing = work.mixing_flop(mean_position);
    if (!spec.prefill) figure.bytes_of_step = work.step_bytes(spec.batch, test.positions());
  }

  void repeat(std::map<RooflineKey, std::vector<Roofline>>& rooflines) {
    const Roofline roof = meter->measure();
    const double seconds = test.run();
    figure.tokens_per_s.push_back(static_cast<double>(test.tokens()) / seconds);
    if (const auto ratio = ratio_to(roof, seconds)) figure.roofline_ratio.push_back(*ratio);
    figure.roofline.push_back(roof);
    rooflines[{roof.threads, figure.configuration.isa}].push_back(roof);
  }

 private:
  /// Of a prefill: its products to what the arithmetic units give. Of a decode step: the time that the bytes
  /// or, with many sequences, the operations need at least, to the time it took.
  [[nodiscard]] std::optional<double> ratio_to(const Roofline& roof, double seconds) const {
    const double gflop_s = product_roof(roof, figure.configuration.weights);
    const double flop = figure.flop_in_products * static_cast<double>(test.tokens());
    const double compute = gflop_s > 0 ? flop / gflop_s / 1e9 : 0;
    if (figure.spec.prefill) return compute > 0 ? std::optional<double>(compute / seconds) : std::nullopt;
    const double bytes = figure.bytes_of_step * static_cast<double>(figure.spec.tokens);
    return std::max(bytes / roof.read_gb_s / 1e9, compute) / seconds;
  }
};

[[nodiscard]] std::string name_of_model(const Options& options) {
  if (!options.shape.empty()) return options.shape;
  const std::filesystem::path path(options.directory);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

/// Pools and meters, shared by all configurations with as many threads.
class Meters {
 public:
  explicit Meters(Index bandwidth_mb) : memory_(bandwidth_mb << 20U) {}

  [[nodiscard]] std::shared_ptr<qwenlite::ThreadPool> pool(int threads) {
    auto& pool = pools_[threads];
    if (pool == nullptr) pool = std::make_shared<qwenlite::ThreadPool>(threads);
    return pool;
  }
  [[nodiscard]] RooflineMeter& meter(int threads, const std::string& isa) {
    auto& meter = meters_[{threads, isa}];
    if (meter == nullptr) meter = std::make_unique<RooflineMeter>(*pool(threads), isa, memory_);
    return *meter;
  }

 private:
  ReadMemory memory_;
  std::map<int, std::shared_ptr<qwenlite::ThreadPool>> pools_;
  std::map<RooflineKey, std::unique_ptr<RooflineMeter>> meters_;
};

void probe_first_token(const Configuration& configuration, int repeats, Report& report) {
  std::vector<double> open;
  std::vector<double> first;
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    const Probe found = run_probe(configuration, "first");
    if (repeat == 0) continue;  // it may have read the weights from the disk
    open.push_back(found.open_seconds);
    first.push_back(found.first_token_seconds);
  }
  report.open_seconds = median(open);
  report.first_token_seconds = median(first);
}

}  // namespace

Report measure(const Options& options) {
  Report report;
  report.model = name_of_model(options);
  const Checkpoints checkpoints(options);
  const std::vector<Configuration> all = configurations(options, checkpoints);
  const std::vector<TestSpec> specs = tests(options);
  probe_first_token(all.front(), options.repeats, report);

  Meters meters(options.bandwidth_mb);
  std::vector<std::unique_ptr<Measurement>> measurements;
  for (const Configuration& c : all) {
    const AnyModel model = open_model(c, meters.pool(c.threads));
    for (const TestSpec& spec : specs) {
      const Index peak = run_probe(c, probe_of(spec)).peak_rss_bytes;
      measurements.push_back(std::make_unique<Measurement>(c, model, spec, meters.meter(c.threads, c.isa)));
      measurements.back()->figure.peak_rss_bytes = peak;
    }
  }
  if (measurements.empty())
    report.rooflines[{all[0].threads, all[0].isa}] = {meters.meter(all[0].threads, all[0].isa).measure()};
  for (auto& m : measurements) (void)m->test.run();  // warm up, and fill the caches of sequences
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    for (auto& m : measurements) m->repeat(report.rooflines);
  }
  for (auto& m : measurements) report.figures.push_back(std::move(m->figure));
  return report;
}

void serve_measurements(const Options& options) {
  const Checkpoints checkpoints(options);
  const Configuration c = configurations(options, checkpoints).front();
  const AnyModel model = open_model(c, std::make_shared<qwenlite::ThreadPool>(c.threads));
  std::map<std::string, std::unique_ptr<SpeedTest>> tests;
  for (std::string line; std::getline(std::cin, line);) {
    long long n = 0;
    const bool prefill = std::sscanf(line.c_str(), "prefill %lld", &n) == 1;
    if (!prefill && std::sscanf(line.c_str(), "decode %lld", &n) != 1) {
      throw UsageError("found '" + line + "', expected 'prefill N' or 'decode CONTEXT'");
    }
    const auto tokens = static_cast<Index>(n);
    auto& test = tests[line];
    if (test == nullptr) {
      test = std::make_unique<SpeedTest>(model, prefill ? prefill_of(tokens) : decode_at(tokens, 1));
      (void)test->run();
    }
    const double seconds = test->run();
    std::printf("%.9f %td\n", seconds, test->tokens());
    std::fflush(stdout);
  }
}

}  // namespace bench
