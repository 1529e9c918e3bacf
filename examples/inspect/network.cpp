// SPDX-License-Identifier: Apache-2.0
//
// inspect logits and inspect generate: what a network computes.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iomanip>
#include <iostream>
#include <sys/resource.h>

#include <qwenlite/generate/generate.hpp>
#include <qwenlite/models/mtp.hpp>
#include <qwenlite/text/tokenizer.hpp>

#include "inspect/commands.hpp"
#include "inspect/json_output.hpp"
#include "programs/open_model.hpp"
#include "programs/out_of_memory.hpp"

namespace ql = qwenlite;

namespace inspect {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::size_t at(Index i) {
  return static_cast<std::size_t>(i);
}

/// ln of the sum of exp(logit), in double.
double log_sum_exp(std::span<const float> row) {
  const double max = static_cast<double>(*std::max_element(row.begin(), row.end()));
  double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<double>(x) - max);
  return max + std::log(sum);
}

std::vector<ql::candidates::Candidate> best_of(std::span<const float> row, Index count) {
  const auto n = static_cast<Index>(row.size());
  const Index k = std::min(count, n);
  if (k < 1) return {};
  std::vector<ql::candidates::Candidate> best(at(ql::candidates::top_capacity(k, n)));
  ql::candidates::top(row, k, best.data());
  best.resize(at(k));
  std::sort(best.begin(), best.end(), ql::candidates::ranks_before);
  return best;
}

/// What is asked for, checked against the ids and the vocabulary.
struct LogitsRequest {
  std::vector<int> ids;
  std::vector<Index> positions;  // ascending
  std::vector<int> at;
};

LogitsRequest checked_request(const Options& options, Index vocab_size) {
  LogitsRequest request;
  request.ids = some_ids(options.ids, "--ids");
  const auto count = static_cast<Index>(request.ids.size());
  if (options.at) request.at = some_ids(*options.at, "--at");
  for (const int id : request.at) {
    if (id >= vocab_size) {
      throw CLI::ValidationError(
          "--at", "found " + std::to_string(id) + ", expected ids below " + std::to_string(vocab_size));
    }
  }
  if (options.all) {
    for (Index i = 0; i < count; ++i) request.positions.push_back(i);
  } else if (!options.positions) {
    request.positions = {count - 1};
  } else {
    for (const int position : some_ids(*options.positions, "--positions", "position")) {
      if (position >= count) {
        throw CLI::ValidationError("--positions", "found " + std::to_string(position) +
                                                      ", expected positions below " + std::to_string(count));
      }
      request.positions.push_back(position);
    }
    std::sort(request.positions.begin(), request.positions.end());
    request.positions.erase(std::unique(request.positions.begin(), request.positions.end()),
                            request.positions.end());
  }
  return request;
}

/// Prints one position at a time, as it is computed.
class LogitsPrinter {
 public:
  LogitsPrinter(const Options& options, const LogitsRequest& request) : options_(options), request_(request) {
    if (options.json) std::cout << "{\"positions\":[";
  }

  void print(Index position, std::span<const float> row, double log_sum) {
    if (!std::isfinite(log_sum)) {
      throw ql::Error(ql::ErrorCode::numeric, "logits after position " + std::to_string(position),
                      "NaN or infinity", "finite numbers (are the weights intact?)");
    }
    const auto best = best_of(row, options_.top);
    if (options_.json) {
      print_json(position, row, best, log_sum);
      return;
    }
    std::cout << "position " << position << ": logsumexp " << log_sum << '\n';
    for (const auto& c : best) {
      const double probability = std::exp(static_cast<double>(c.logit) - log_sum);
      std::cout << std::setw(9) << c.id << std::setw(14) << c.logit << std::setw(14) << probability << '\n';
    }
    for (const int id : request_.at) {
      std::cout << "at" << std::setw(7) << id << std::setw(14) << row[at(id)] << '\n';
    }
  }

  void print_mean_nll(double nll_sum) {
    const auto count = static_cast<Index>(request_.ids.size()) - 1;
    const double mean = nll_sum / static_cast<double>(count);
    if (options_.json) {
      std::cout << "],\"mean_nll\":" << (count > 0 ? json_value(mean) : "null");
    } else if (count > 0) {
      std::cout << "mean negative log likelihood of the ids: " << mean << '\n';
    }
  }

  /// What is printed from here on is by the multi-token-prediction head.
  void begin_predictions() {
    std::cout << (options_.json ? ",\"mtp\":[" : "multi-token prediction of the token after the next:\n");
    separator_ = "";
  }

  void end() {
    if (options_.json) std::cout << (options_.mtp ? "]}\n" : "}\n");
  }

 private:
  void print_json(Index position, std::span<const float> row,
                  const std::vector<ql::candidates::Candidate>& best, double log_sum) {
    std::cout << separator_ << "{\"position\":" << position << ",\"top\":";
    separator_ = ",";
    write_array(std::cout, best, [](const ql::candidates::Candidate& c) {
      std::cout << '[' << c.id << ',' << json_value(c.logit) << ']';
    });
    std::cout << ",\"at\":";
    write_array(std::cout, request_.at, [&](int id) { std::cout << json_value(row[at(id)]); });
    std::cout << ",\"logsumexp\":" << json_value(log_sum) << '}';
  }

  const Options& options_;
  const LogitsRequest& request_;
  const char* separator_ = "";
};

/// Runs a multi-token-prediction head over all ids; the last is followed by `next`.
template <class Network>
void predict(const Network& network, const ql::Mtp<Network>& head, const LogitsRequest& request, int next,
             LogitsPrinter& printer) {
  const auto count = static_cast<Index>(request.ids.size());
  std::vector<int> following(request.ids.begin() + 1, request.ids.end());
  following.push_back(next);
  auto session = network.new_session({.max_tokens = count});
  typename ql::Mtp<Network>::Session own(head, count);
  auto wanted = request.positions.begin();
  for (Index first = 0; first < count; first += network.chunk()) {
    const auto rows = at(std::min(network.chunk(), count - first));
    const auto hidden =
        network.hidden(session, std::span(request.ids).subspan(at(first), rows), ql::Logits::all);
    const auto results = head.forward(own, hidden, std::span(following).subspan(at(first), rows));
    for (; wanted != request.positions.end() && *wanted < first + hidden.rows(); ++wanted) {
      const float* logits = results.logits.data() + (*wanted - first) * results.logits.outerStride();
      const std::span<const float> row(logits, at(network.vocab_size()));
      printer.print(*wanted, row, log_sum_exp(row));
    }
  }
}

/// What does that for a network of any family. Throws `unsupported` or `bad_tensor` when there is no head.
template <class Network>
std::function<void(int next)> predictor(const Network& network, const ql::Checkpoint& files,
                                        const LogitsRequest& request, LogitsPrinter& printer) {
  if constexpr (std::is_base_of_v<ql::Qwen3_5Family, typename Network::Shape>) {
    return [network, head = ql::Mtp<Network>(network, files), &request, &printer](int next) {
      predict(network, head, request, next, printer);
    };
  } else {
    throw ql::Error(ql::ErrorCode::unsupported, "--mtp", network.config().model_type,
                    "a network with a head for multi-token prediction");
  }
}

Index peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<Index>(usage.ru_maxrss) * 1024;
}

/// Seconds to open the directory's tokenizer, if it has one.
std::optional<double> time_tokenizer(const std::string& directory) {
  if (!programs::has_tokenizer(directory)) return std::nullopt;
  const auto start = Clock::now();
  const ql::Tokenizer tokenizer(directory);
  return seconds_since(start);
}

struct GenerateReport {
  std::vector<int> ids;
  ql::GenerateStats stats;
  Index kv_capacity_bytes = 0;
  Index kv_used_bytes = 0;
  double open_seconds = 0;
  std::optional<double> tokenizer_seconds;
  const char* isa = "";
};

void print_report(const GenerateReport& report, bool json) {
  const auto& s = report.stats;
  if (!json) {
    for (std::size_t i = 0; i < report.ids.size(); ++i) std::cout << (i == 0 ? "" : " ") << report.ids[i];
    std::cout << "\nended by        " << ql::name_of(s.finish_reason) << "\nprefill         "
              << s.prefill_tokens_per_second() << " tokens/s\ndecode          " << s.tokens_per_second()
              << " tokens/s\npeak memory     " << peak_rss_bytes() << " bytes\nkeys and values "
              << report.kv_used_bytes << " of " << report.kv_capacity_bytes << " bytes\nopened in       "
              << report.open_seconds << " s\n";
    if (report.tokenizer_seconds) std::cout << "tokenizer in    " << *report.tokenizer_seconds << " s\n";
    std::cout << "kernels         " << report.isa << '\n';
    return;
  }
  std::cout << "{\"ids\":";
  write_values(std::cout, report.ids);
  std::cout << ",\"stats\":{\"prefill_tokens_per_s\":" << json_value(s.prefill_tokens_per_second())
            << ",\"decode_tokens_per_s\":" << json_value(s.tokens_per_second())
            << ",\"peak_rss_bytes\":" << peak_rss_bytes()
            << ",\"kv_capacity_bytes\":" << report.kv_capacity_bytes
            << ",\"kv_used_bytes\":" << report.kv_used_bytes
            << ",\"open_seconds\":" << json_value(report.open_seconds) << ",\"tokenizer_seconds\":"
            << (report.tokenizer_seconds ? json_value(*report.tokenizer_seconds) : "null")
            << ",\"isa\":" << json_value(std::string(report.isa)) << "}}\n";
}

}  // namespace

void show_logits(const Options& options) {
  Options bounded = options;
  if (!bounded.run.chunk) bounded.run.chunk = 64;  // so many rows of logits are in memory at once
  const ql::Checkpoint files(options.directory);
  const LogitsRequest request = checked_request(options, files.config().vocab_size);
  check_context(files, "--ids", std::ssize(request.ids));
  const programs::ProgramModel model = programs::open_model(files, bounded.run);
  const auto count = static_cast<Index>(request.ids.size());
  auto session = programs::new_session(model, count);
  LogitsPrinter printer(options, request);
  std::function<void(int next)> predictions;  // found out before anything is printed
  if (options.mtp) {
    predictions =
        model.visit([&](const auto& network) { return predictor(network, files, request, printer); });
  }
  auto wanted = request.positions.begin();
  double nll_sum = 0;
  int next = 0;  // greedy, after the last id
  for (Index first = 0; first < count; first += *bounded.run.chunk) {
    const Index rows = std::min(*bounded.run.chunk, count - first);
    const auto logits =
        model.logits(session, std::span(request.ids).subspan(at(first), at(rows)), ql::Logits::all);
    for (Index r = 0; r < rows; ++r) {
      const std::span<const float> row(logits.data() + r * logits.outerStride(), at(model.vocab_size()));
      const Index position = first + r;
      next = static_cast<int>(std::max_element(row.begin(), row.end()) - row.begin());
      const bool shown = wanted != request.positions.end() && *wanted == position;
      if (!shown && position + 1 == count) continue;
      const double log_sum = log_sum_exp(row);
      if (position + 1 < count)
        nll_sum += log_sum - static_cast<double>(row[at(request.ids[at(position + 1)])]);
      if (!shown) continue;
      printer.print(position, row, log_sum);
      ++wanted;
    }
  }
  printer.print_mean_nll(nll_sum);
  if (options.mtp) {
    printer.begin_predictions();
    predictions(next);
  }
  printer.end();
}

void generate(const Options& options) {
  const std::vector<int> ids = some_ids(options.ids, "--ids");
  GenerateReport report;
  const auto start = Clock::now();
  const ql::Checkpoint files(options.directory);
  check_context(files, "--ids and --n", std::ssize(ids) + options.n);
  const programs::ProgramModel model = programs::open_model(files, options.run);
  report.open_seconds = seconds_since(start);
  report.tokenizer_seconds = time_tokenizer(options.directory);
  auto session = programs::new_session(model, std::ssize(ids) + options.n);
  ql::GenerateOptions how;
  how.max_new_tokens = options.n;
  how.sampling.temperature = 0;
  how.sampling.repetition_penalty = 1;
  how.sampling.presence_penalty = 0;
  how.ignore_eos = options.ignore_eos;
  report.stats = ql::generate(model, session, ids, how, [&](int token) {
    report.ids.push_back(token);
    return true;
  });
  report.kv_capacity_bytes = session.kv_capacity_bytes();
  report.kv_used_bytes = session.kv_used_bytes();
  report.isa = model.ops().table().name;
  print_report(report, options.json);
}

}  // namespace inspect
