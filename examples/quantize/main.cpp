// SPDX-License-Identifier: Apache-2.0
//
// quantize: writes a checkpoint directory whose matrices are int8, int4 or fp8. It opens by mapping, in the
// milliseconds that any other takes, where quantising while opening takes seconds.
#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>

#include <qwenlite/quantize/quantise_checkpoint.hpp>
#include <qwenlite/text/tokenizer.hpp>

#include "programs/chat_family.hpp"
#include "programs/command_line.hpp"
#include "programs/demo_models.hpp"
#include "programs/out_of_memory.hpp"
#include "programs/progress_bar.hpp"
#include "programs/text_file.hpp"
#include "programs/weight_format.hpp"
#include "quantize/report.hpp"

namespace ql = qwenlite;
namespace fs = std::filesystem;
using ql::Index;

namespace {

constexpr Index default_tokens = 16384;

struct Options {
  std::string source;
  std::string out;
  std::string weights = "int4";
  std::string embedding_weights;
  std::string method = "rtn";
  bool search = false;
  std::string calibration;
  std::optional<Index> tokens;
  int threads = 0;
  bool force = false;
  bool json = false;
};

void add_options(CLI::App& app, Options& o) {
  app.add_option("SOURCE", o.source, programs::checkpoint_help)->required();
  app.add_option("OUT", o.out, "directory to write, which must not exist")->required();
  app.add_option("--weights", o.weights,
                 "what layers become: int8 (or int8:row, the same: a scale for each row), int4 (default), "
                 "fp8, or with a group of 32, 64 or 128: int4:32, int4:64:zeros, int8:128; the format that "
                 "they are stored in (bf16, f16, f32) leaves them so")
      ->check(programs::a_weight_format());
  app.add_option("--embedding-weights", o.embedding_weights,
                 "the same for embedding and output matrix (default: int8; with fp8 as stored)")
      ->check(programs::a_weight_format());
  app.add_option("--method", o.method,
                 "rtn rounds to nearest (default); gptq and awq look at the inputs of a calibration text")
      ->check(programs::one_of({"rtn", "gptq", "awq"}));
  app.add_flag("--search", o.search,
               "search for the best clipping of each group (in layers awq always does)");
  app.add_option("--calibration", o.calibration,
                 "text for gptq and awq; <|endoftext|> parts what is read on its own (default: conversations "
                 "of the demo models)")
      ->option_text("FILE")
      ->check(programs::a_name_of("a file"));
  app.add_option("--tokens", o.tokens, "read about this many tokens of it (default: 16384); for gptq and awq")
      ->check(programs::number_in<Index>(1, Index{1} << 30));
  app.add_option("--threads", o.threads,
                 "threads to compute with; 0 (default): one for each core of the process")
      ->check(programs::number_in(0, 4096));
  app.add_flag("--force", o.force, "replace OUT if it is a checkpoint directory without other files");
  app.add_flag("--json", o.json, "print one JSON object");
}

volatile std::sig_atomic_t stopped = 0;

/// The first of these signals ends the work in good order, another one at once.
void mind_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stopped = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

void stop_if_asked() {
  if (stopped != 0) throw ql::Error(ql::ErrorCode::cancelled, "stopped; nothing was written");
}

/// The corpus that comes with the demo models.
std::string demo_corpus() {
  return (fs::path(programs::demo_directory(programs::demo_models.front())).parent_path() / "calibration.txt")
      .string();
}

std::vector<std::vector<int>> texts_of(const Options& o, const ql::Checkpoint& files) {
  const std::string name = o.calibration.empty() ? demo_corpus() : o.calibration;
  const std::string content = programs::read_text(name);
  const ql::Tokenizer tokenizer = programs::open_tokenizer(o.source, "");
  const std::vector<int> ids = tokenizer.encode(content, {.control_tokens = true});
  const std::vector<int> end = tokenizer.encode("<|endoftext|>", {.control_tokens = true});
  const Index longest = std::min<Index>(512, files.config().context_limit());
  auto texts = ql::calibration_texts(ids, end.size() == 1 ? end.front() : -1, longest,
                                     o.tokens.value_or(default_tokens));
  if (texts.empty()) throw ql::Error(ql::ErrorCode::bad_text, ql::in_quotes(name), "an empty file", "a text");
  return texts;
}

void check_together(const Options& o) {
  const bool calibrated = o.method != "rtn";
  const auto fail = [](const char* option, const std::string& found, const char* expected) {
    throw CLI::ValidationError(option, "found " + found + ", expected " + expected);
  };
  const auto weights = *programs::weight_format(o.weights);
  const bool fp8 = weights.format == ql::Format::fp8;
  const bool quantised = ql::is_quantised(weights.format);
  if (calibrated && (fp8 || !quantised)) fail("--method", o.method, "rtn with these weights");
  if (o.search && fp8) fail("--search", "it", "none with fp8");
  const auto with_method = [&](const std::string& value) { return value + " with --method " + o.method; };
  const char* const calibrating = "--method gptq or awq, which look at a text";
  if (!calibrated && !o.calibration.empty()) fail("--calibration", with_method(o.calibration), calibrating);
  if (!calibrated && o.tokens) fail("--tokens", with_method(std::to_string(*o.tokens)), calibrating);
  if (o.embedding_weights.empty()) {
    if (!quantised) fail("--weights", o.weights, "a quantised format, or --embedding-weights");
    return;
  }
  const auto embedding = *programs::weight_format(o.embedding_weights);
  const bool other = ql::is_quantised(embedding.format);
  if (embedding.format == ql::Format::fp8 || (fp8 && other)) {
    fail("--embedding-weights", o.embedding_weights, fp8 ? "a format as stored" : "int8 or int4");
  }
  if (!quantised && !other) fail("--embedding-weights", o.embedding_weights, "a quantised format");
}

ql::QuantiseOptions quantising(const Options& o) {
  ql::QuantiseOptions options{.weights = *programs::weight_format(o.weights),
                              .search = o.search,
                              .threads = o.threads,
                              .replace = o.force};
  if (!o.embedding_weights.empty()) options.embedding_weights = programs::weight_format(o.embedding_weights);
  if (o.method == "gptq") options.method = ql::QuantisationMethod::gptq;
  if (o.method == "awq") options.method = ql::QuantisationMethod::awq;
  return options;
}

void run(Options& o) {
  check_together(o);
  o.source = programs::model_directory(o.source, "SOURCE");
  const auto started = std::chrono::steady_clock::now();
  mind_signals();
  const ql::Checkpoint files(o.source);
  programs::check_stored(files, programs::Matrices::layers, "--weights", o.weights);
  programs::check_stored(files, programs::Matrices::embedding, "--embedding-weights", o.embedding_weights);
  ql::QuantiseOptions options = quantising(o);
  if (options.method != ql::QuantisationMethod::rtn) options.texts = texts_of(o, files);
  programs::ProgressBar bar(std::cerr);
  options.progress = [&](Index done, Index all) {
    stop_if_asked();
    bar.show(done, all, " quantised " + quantize::megabytes(done) + " of " + quantize::megabytes(all));
  };
  quantize::Result result;
  result.report =
      programs::with_memory_for("quantising", [&] { return ql::quantise_checkpoint(files, o.out, options); });
  bar.erase();
  for (const std::string& name : result.report.not_finite) {
    std::cerr << "warning: tensor " << ql::in_quotes(name)
              << ": found NaN or infinity, expected finite numbers; it is copied as it is\n";
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (o.json) return quantize::write_json(std::cout, result);
  quantize::write_table(std::cout, result, options, o.out);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes a Qwen3 or Qwen3.5 checkpoint with quantised weights.", "quantize");
  Options options;
  add_options(app, options);
  const auto usage = [](const CLI::App&) { return "SOURCE OUT [OPTIONS]"; };
  return programs::run_program(app, argc, argv, usage, [&] { run(options); });
}
