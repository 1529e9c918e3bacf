// SPDX-License-Identifier: Apache-2.0

#include "suite.hpp"

#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "../random_checkpoint.hpp"

namespace bench {

namespace {

using qwenlite::AnyModel;
using qwenlite::Format;
using qwenlite::WeightFormat;

/// Sequences and context are tried together up to so many positions in all: filling them takes minutes.
constexpr Index most_positions = 16384;

/// The files of the run; those of built-in shapes are written when asked for.
class Checkpoints {
 public:
  /// The directory whose weights are stored as `format`, of a built-in shape.
  [[nodiscard]] const std::string& written(const std::string& shape, Format format) {
    for (const Written& each : written_) {
      if (each.format == format) return each.directory;
    }
    auto files = std::make_unique<RandomCheckpoint>(*built_in_shape(shape), format);
    const std::string directory = files->directory().string();
    return written_.emplace_back(Written{format, directory, std::move(files)}).directory;
  }

 private:
  struct Written {
    Format format;
    std::string directory;
    std::unique_ptr<RandomCheckpoint> files;
  };
  std::vector<Written> written_;
};

/// The format of the embedding stands for all.
[[nodiscard]] Format stored_format(const std::string& directory) {
  const qwenlite::Checkpoint files(directory);
  for (const auto& entry : files.tensors().entries()) {
    if (!entry.name.ends_with("embed_tokens.weight")) continue;
    if (entry.view.dtype == DType::f32) return Format::f32;
    if (entry.view.dtype == DType::f16) return Format::f16;
  }
  return Format::bf16;
}

/// What a checkpoint whose weights are quantised in its files calls them; empty for others.
[[nodiscard]] std::string packed_name(const std::string& directory) {
  std::ifstream file(std::filesystem::path(directory) / "config.json");
  const auto config = nlohmann::ordered_json::parse(file, nullptr, false);
  if (!config.is_object() || !config.contains("quantization_config")) return {};
  const auto& quantised = config["quantization_config"];
  if (!quantised.is_object()) return "packed";
  return quantised.value("weights", quantised.value("quant_method", std::string("packed")));
}

/// What is computed with, and where it is stored. Nothing else is filled in.
[[nodiscard]] Configuration stored_as(const Options& options, const WeightChoice* choice,
                                      Checkpoints& checkpoints) {
  Configuration c;
  const bool quantises = choice != nullptr && is_quantised(choice->layers.format);
  if (options.shape.empty()) {
    c.directory = options.directory;
    c.stored_name = packed_name(c.directory);
    c.packed = !c.stored_name.empty();
    c.formats.kept = stored_format(c.directory);
  } else {
    c.formats.kept = quantises ? Format::bf16 : choice->layers.format;
    c.directory = checkpoints.written(options.shape, c.formats.kept.format);
  }
  if (!c.packed) c.stored_name = name_of(c.formats.kept.format);
  if (choice != nullptr) c.weights = *choice;
  c.formats.layers = quantises ? choice->layers : c.formats.kept;
  c.formats.head = quantises ? WeightFormat(Format::int8) : c.formats.kept;  // as the library chooses
  if (choice != nullptr && choice->embedding) c.formats.head = *choice->embedding;
  return c;
}

[[nodiscard]] std::vector<Configuration> configurations(const Options& options, Checkpoints& checkpoints) {
  std::vector<std::string> isas = options.isas;
  if (isas.empty()) isas.emplace_back(qwenlite::kernels::active().name);
  std::vector<Configuration> stored;
  for (const WeightChoice& choice : options.weights) {
    stored.push_back(stored_as(options, &choice, checkpoints));
  }
  if (stored.empty()) stored.push_back(stored_as(options, nullptr, checkpoints));
  std::vector<std::optional<qwenlite::Precision>> precisions(options.precision.begin(),
                                                             options.precision.end());
  if (precisions.empty()) precisions.emplace_back();
  std::vector<Configuration> all;
  const auto add_all = [&](Configuration c) {
    for (const std::string& isa : isas) {
      for (const int threads : options.threads) {
        c.isa = isa;
        c.threads = threads > 0 ? threads : qwenlite::default_thread_count();
        all.push_back(c);
      }
    }
  };
  for (Configuration c : stored) {
    for (const qwenlite::KvFormat kv : options.kv) {
      for (const auto& precision : precisions) {
        c.kv = kv;
        c.precision = precision;
        add_all(c);
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
  qwenlite::OpenOptions options = open_options(c);
  options.executor = std::move(pool);
  return qwenlite::open(qwenlite::Checkpoint(c.directory), options);
}

/// What the units that multiply can give: products of bytes, of numbers of bf16, or float32 multiply-adds.
/// Tiles multiply bf16 weights with float32 inputs too, in parts.
[[nodiscard]] double product_roof(const Roofline& r, const Configuration& c) {
  const auto& table = qwenlite::kernels::by_name(c.isa);
  const auto precision = c.precision.value_or(table.default_precision);
  const qwenlite::kernels::PackLayout layout = table.layout(c.formats.layers.format, precision);
  if (layout == qwenlite::kernels::PackLayout::rows_int8 && r.int8_gop_s) return *r.int8_gop_s;
  const bool products_of_bf16 =
      rounds_to_bf16(layout) || layout == qwenlite::kernels::PackLayout::tiles_bf16x3;
  return products_of_bf16 ? r.product_gflop_s() : r.fma_gflop_s.value_or(0);
}

/// Bytes of weights that a decode step reads. Of weights quantised in the files, all that the network has but
/// an embedding that is not the output matrix.
[[nodiscard]] double step_weight_bytes(const Configuration& c, const AnyModel& model, const Work& work) {
  if (!c.packed || c.weights) return work.weight_bytes();
  const auto all = static_cast<double>(model.explain().weights.bytes_in_use);
  return model.config().tie_word_embeddings
             ? all
             : all - static_cast<double>(c.formats.kept.bytes(1, 1)) * work.head_elements();
}

/// A figure under measurement.
struct Measurement {
  Figure figure;
  SpeedTest test;
  RooflineMeter* meter;

  Measurement(const Configuration& c, const AnyModel& model, const TestSpec& spec, RooflineMeter& m)
      : figure{.configuration = c, .spec = spec}, test(model, spec), meter(&m) {
    const Work work(model.config(), c.formats, c.kv);
    const auto batch = static_cast<double>(spec.batch);
    const double mean_position =
        spec.prefill ? static_cast<double>(spec.tokens + 1) / 2 : test.positions() / batch;
    figure.flop_in_products = work.layer_flop() + (spec.prefill ? 0 : work.head_flop());
    figure.flop_in_mixing = work.mixing_flop(mean_position);
    if (spec.prefill) return;
    figure.bytes_of_step =
        step_weight_bytes(c, model, work) + work.mixing_bytes(spec.batch, test.positions());
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
    const double gflop_s = product_roof(roof, figure.configuration);
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
  Checkpoints checkpoints;
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
  Checkpoints checkpoints;
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
