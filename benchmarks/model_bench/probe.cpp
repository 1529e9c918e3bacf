// SPDX-License-Identifier: Apache-2.0

#include "probe.hpp"

#include <cstdio>
#include <filesystem>
#include <spawn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#include "../machine.hpp"
#include "../statistics.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace bench {

namespace {

/// Runs a program and returns what it wrote to standard output.
[[nodiscard]] std::string output_of(const std::vector<std::string>& command) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("probe: no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t n = 0; failed == 0 && (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  if (failed != 0 || waitpid(child, &status, 0) != child || status != 0) {
    throw std::runtime_error("a probe in a process of its own failed");
  }
  return text;
}

[[nodiscard]] long long now_in_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

/// The test that probe_of() named; throws UsageError for any other word.
[[nodiscard]] TestSpec test_of(const std::string& probe) {
  long long first = 0;
  long long second = 0;
  if (std::sscanf(probe.c_str(), "prefill:%lld", &first) == 1 && first > 0) {
    return prefill_of(static_cast<Index>(first));
  }
  if (std::sscanf(probe.c_str(), "decode:%lld:%lld", &first, &second) == 2 && first > 0 && second > 0) {
    return decode_at(static_cast<Index>(first), static_cast<Index>(second));
  }
  throw UsageError("--probe: found '" + probe + "', expected first, prefill:N or decode:CONTEXT:BATCH");
}

}  // namespace

std::string probe_of(const TestSpec& spec) {
  if (spec.prefill) return "prefill:" + std::to_string(spec.tokens);
  return "decode:" + std::to_string(spec.context) + ":" + std::to_string(spec.batch);
}

qwenlite::OpenOptions open_options(const Configuration& configuration) {
  const std::optional<WeightChoice>& weights = configuration.weights;
  qwenlite::OpenOptions options{.precision = configuration.precision, .kv = configuration.kv};
  if (!configuration.isa.empty()) {
    options.kernels = qwenlite::kernels::choose(configuration.isa.c_str()).table;
  }
  if (!weights) return options;
  if (is_quantised(weights->layers.format)) options.weights = weights->layers;
  if (weights->embedding && is_quantised(weights->embedding->format))
    options.embedding_weights = weights->embedding;
  return options;
}

Probe run_probe(const Configuration& configuration, const std::string& probe) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> command{self,           configuration.directory,
                                   "--isa",        configuration.isa,
                                   "--threads",    std::to_string(configuration.threads),
                                   "--kv",         std::string(name_of(configuration.kv)),
                                   "--probe",      probe,
                                   "--started-at", std::to_string(now_in_nanoseconds())};
  if (configuration.weights) {
    command.insert(command.end(), {"--weights", configuration.weights->word()});
  }
  if (configuration.precision) {
    command.insert(command.end(), {"--precision", std::string(name_of(*configuration.precision))});
  }
  const std::string text = output_of(command);
  Probe found;
  if (std::sscanf(text.c_str(), "%td %lf %lf", &found.peak_rss_bytes, &found.open_seconds,
                  &found.first_token_seconds) != 3) {
    throw std::runtime_error("a probe in a process of its own gave no answer");
  }
  return found;
}

void answer_probe(const Options& options) {
  Probe found;
  const auto start = Clock::now();
  const qwenlite::Checkpoint files(options.directory);
  Configuration configuration;
  configuration.kv = options.kv.front();
  if (!options.weights.empty()) configuration.weights = options.weights.front();
  if (!options.isas.empty()) configuration.isa = options.isas.front();
  if (!options.precision.empty()) configuration.precision = options.precision.front();
  qwenlite::OpenOptions open = open_options(configuration);
  open.threads = options.threads.front();
  const qwenlite::AnyModel model = qwenlite::open(files, open);
  found.open_seconds = seconds_since(start);
  if (options.probe == "first") {
    const std::vector<int> prompt{1, 2, 3, 4, 5};
    auto session = model.new_session({.max_tokens = 64});
    const auto logits = model.logits(session, prompt);
    const auto best = std::max_element(logits.begin(), logits.end());
    const bool real = best != logits.end();
    const long long started = options.started_at.empty() ? 0 : std::stoll(options.started_at);
    found.first_token_seconds = real ? static_cast<double>(now_in_nanoseconds() - started) / 1e9 : 0;
  } else {
    SpeedTest test(model, test_of(options.probe));
    (void)test.run();
  }
  found.peak_rss_bytes = peak_rss_bytes();
  std::printf("%td %.9f %.9f\n", found.peak_rss_bytes, found.open_seconds, found.first_token_seconds);
}

}  // namespace bench
