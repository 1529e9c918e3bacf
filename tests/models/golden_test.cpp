// SPDX-License-Identifier: Apache-2.0
//
// The tiny checkpoints against results of a double-precision implementation: logits, hidden states, layer
// outputs, likelihoods and greedy continuations, for every instruction set, precision and kind of cache.
#include <algorithm>
#include <cmath>

#include <qwenlite/models/mtp.hpp>

#include "models/ways.hpp"

namespace ql = qwenlite;
using namespace models_test;

namespace {

using Networks = ql::AnyOf<ql::Model<ql::Qwen3>, ql::Model<ql::Qwen3, ql::NoCache>, ql::Model<ql::Qwen3_5>,
                           ql::Model<ql::Qwen3_5, ql::NoCache>>;

enum class Cache { f32, none, bf16 };

/// Whether all arithmetic keeps float32's accuracy.
bool is_float32(const ql::kernels::KernelTable& table, ql::Precision precision, Cache cache) {
  const bool rounds = rounds_to_bf16(table.layout(ql::Format::bf16, precision));
  return !rounds && cache != Cache::bf16;
}

Networks open_network(const std::string& name, const ql::kernels::KernelTable& table, ql::Precision precision,
                      Cache cache) {
  const ql::OpenOptions options{.threads = 1,
                                .precision = precision,
                                .kernels = &table,
                                .kv = cache == Cache::bf16 ? ql::KvFormat::bf16 : ql::KvFormat::f32};
  return ql::open_as<Networks>(ql::Checkpoint(checkpoint_path(name)), options,
                               [&]<class Network>(std::type_identity<Network>) {
                                 return Network::Kv::retains == (cache != Cache::none);
                               });
}

/// Deviations of everything stored for a checkpoint, in the words of golden.json.
struct Deviations {
  double logit_max_abs = 0;
  double logit_row_relative_rms = 0;
  double hidden_max_abs = 0;
  double mean_nll_abs = 0;
  double squared_error = 0;
  double squared = 0;
  int argmax_different = 0;

  [[nodiscard]] double logit_relative_rms() const { return std::sqrt(squared_error / squared); }
};

double log_sum_exp(const std::vector<float>& row) {
  const auto top = static_cast<double>(*std::max_element(row.begin(), row.end()));
  double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<double>(x) - top);
  return top + std::log(sum);
}

int argmax(const std::vector<float>& row) {
  return static_cast<int>(std::max_element(row.begin(), row.end()) - row.begin());
}

void compare_row(const std::vector<float>& row, const std::vector<int>& sample, const Json& expected,
                 Deviations& worst) {
  double error = 0;
  double power = 0;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const auto want = expected[i].get<double>();
    const double off = static_cast<double>(row[static_cast<std::size_t>(sample[i])]) - want;
    worst.logit_max_abs = std::max(worst.logit_max_abs, std::abs(off));
    error += off * off;
    power += want * want;
  }
  worst.logit_row_relative_rms = std::max(worst.logit_row_relative_rms, std::sqrt(error / power));
  worst.squared_error += error;
  worst.squared += power;
}

void compare_logits(const Rows& logits, const Json& golden, const Json& prompt, Deviations& worst) {
  const auto sample = golden["vocab_sample"].get<std::vector<int>>();
  for (std::size_t i = 0; i < prompt["positions"].size(); ++i) {
    const std::vector<float>& row = logits.at(prompt["positions"][i].get<std::size_t>());
    compare_row(row, sample, prompt["logits"][i], worst);
    worst.argmax_different += argmax(row) != prompt["argmax"][i].get<int>() ? 1 : 0;
    const double off = log_sum_exp(row) - prompt["logsumexp"][i].get<double>();
    worst.logit_max_abs = std::max(worst.logit_max_abs, std::abs(off));
  }
  if (logits.size() < 2) return;
  double nll = 0;
  for (std::size_t t = 0; t + 1 < logits.size(); ++t) {
    const auto next = prompt["ids"][t + 1].get<std::size_t>();
    nll += log_sum_exp(logits[t]) - static_cast<double>(logits[t][next]);
  }
  nll /= static_cast<double>(logits.size() - 1);
  worst.mean_nll_abs = std::max(worst.mean_nll_abs, std::abs(nll - prompt["mean_nll"].get<double>()));
}

void compare_hidden(const float* found, const Json& golden, const Json& expected, Deviations& worst) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const float value = found[golden["hidden_sample"][i].get<std::size_t>()];
    worst.hidden_max_abs =
        std::max(worst.hidden_max_abs, std::abs(static_cast<double>(value) - expected[i].get<double>()));
  }
}

/// Greedy steps that leave the stored path, which is followed in any case.
int greedy_mistakes(const Networks& network, Networks::Session& session, const Json& prompt) {
  int mistakes = 0;
  auto step = prompt["ids"].get<std::vector<int>>();
  for (const Json& want : prompt["greedy_ids"]) {
    const std::span<const float> row = network.logits(session, step);
    mistakes += argmax({row.begin(), row.end()}) != want.get<int>() ? 1 : 0;
    step = {want.get<int>()};
  }
  return mistakes;
}

void check_against(const Json& limit, const Deviations& worst) {
  CHECK(worst.logit_max_abs <= limit["logit_max_abs"].get<double>());
  CHECK(worst.logit_row_relative_rms <= limit["logit_row_relative_rms"].get<double>());
  CHECK(worst.logit_relative_rms() <= limit["logit_relative_rms"].get<double>());
  CHECK(worst.hidden_max_abs <= limit["hidden_max_abs"].get<double>());
  CHECK(worst.mean_nll_abs <= limit["mean_nll_abs"].get<double>());
}

/// The longest prompt to run, unless asked to be thorough: emulated instructions are slow (a CPU without AVX
/// is most likely an emulated one), and tables that do not round do the same in both precisions.
Index longest_prompt(const ql::kernels::KernelTable& table, ql::Precision precision, Cache cache) {
  if (kernel_tests::emulated_isa() != nullptr) return 5;
  if (ql::kernels::supported().size() == 1) return precision == ql::Precision::exact ? 5 : 1;
  const bool amx = std::string(table.name) == "amx";
  if (amx && &table != ql::kernels::supported().back()) return cache == Cache::none ? 5 : 65;
  const bool rounds = rounds_to_bf16(table.layout(ql::Format::bf16, precision));
  return rounds || precision == ql::Precision::exact ? 300 : 17;
}

void run_prompts(const Networks& network, const Json& golden, Cache cache, bool float32, Index longest) {
  Deviations worst;
  int mistakes = 0;
  for (const Json& prompt : golden["prompts"]) {
    if (prompt["length"].get<Index>() > longest) continue;
    auto session = network.new_session({.max_tokens = 320});
    const auto ids = prompt["ids"].get<std::vector<int>>();
    compare_logits(copied(network.logits(session, ids, ql::Logits::all)), golden, prompt, worst);
    session.truncate(0);
    compare_hidden(network.hidden(session, ids).data(), golden, prompt["last_hidden"], worst);
    if (cache == Cache::none && std::ssize(ids) > 65) continue;  // would compute everything 16 times
    session.truncate(0);
    mistakes += greedy_mistakes(network, session, prompt);
  }
  check_against(golden["tolerance"][float32 ? "float32" : "bf16_activations"]["limit"], worst);
  if (!float32) return;
  CHECK(mistakes == 0);
  CHECK(worst.argmax_different == 0);
}

}  // namespace

TEST_CASE("tiny checkpoints give the stored results", "[golden]") {
  const std::string name = GENERATE(from_range(all_checkpoints));
  const Cache cache = GENERATE(Cache::f32, Cache::none, Cache::bf16);
  const Json golden = golden_of(name);
  for (const ql::kernels::KernelTable* table : compared_tables()) {
    for (const ql::Precision precision : {ql::Precision::exact, ql::Precision::bf16}) {
      INFO(name << ", " << table->name << ", " << ql::name_of(precision) << ", cache "
                << static_cast<int>(cache));
      run_prompts(open_network(name, *table, precision, cache), golden, cache,
                  is_float32(*table, precision, cache), longest_prompt(*table, precision, cache));
    }
  }
}

TEST_CASE("tiny checkpoints give the stored results, all prompts on emulated AMX too", "[.][thorough]") {
  const std::string name = GENERATE(from_range(all_checkpoints));
  const Cache cache = GENERATE(Cache::f32, Cache::none, Cache::bf16);
  const ql::Precision precision = GENERATE(ql::Precision::exact, ql::Precision::bf16);
  const Json golden = golden_of(name);
  const ql::kernels::KernelTable* table = kernel_tests::runnable_tables().back();
  INFO(name << ", " << table->name << ", " << ql::name_of(precision) << ", cache "
            << static_cast<int>(cache));
  run_prompts(open_network(name, *table, precision, cache), golden, cache,
              is_float32(*table, precision, cache), 300);
}

TEST_CASE("a trace shows the stored layer outputs, under their names", "[golden]") {
  const std::string name = GENERATE(from_range(all_checkpoints));
  const Cache cache = GENERATE(Cache::f32, Cache::none);
  const Json golden = golden_of(name);
  for (const ql::kernels::KernelTable* table : compared_tables()) {
    INFO(name << ", " << table->name);
    const Networks network = open_network(name, *table, ql::Precision::exact, cache);
    for (const Json& prompt : golden["prompts"]) {
      if (!prompt.contains("last_layer_outputs")) continue;
      std::vector<std::string> names;
      Deviations worst;
      Rows traced_logits;
      auto session = network.new_session({.max_tokens = 64});
      const auto ids = prompt["ids"].get<std::vector<int>>();
      network.trace(session, ids, [&](std::string_view seen, const ql::ConstMatrix<float>& rows) {
        names.emplace_back(seen);
        REQUIRE(rows.rows() == static_cast<Index>(ids.size()));
        const float* last = rows.data() + (rows.rows() - 1) * rows.outerStride();
        if (seen.ends_with(".output")) {
          const std::string_view number = seen.substr(seen.find(".layers.") + 8);
          const std::size_t layer = static_cast<std::size_t>(std::stoi(std::string(number)));
          compare_hidden(last, golden, prompt["last_layer_outputs"].at(layer), worst);
        }
        if (seen == "final_norm") compare_hidden(last, golden, prompt["last_hidden"], worst);
        if (seen == "logits") traced_logits = copied(rows);
      });
      CHECK(worst.hidden_max_abs <= golden["tolerance"]["float32"]["limit"]["hidden_max_abs"].get<double>());
      // As in the checkpoint, and in the reference program.
      const std::string scope = name == "qwen3.5-tiny" ? "model.language_model.layers." : "model.layers.";
      std::vector<std::string> expected{"embedding"};
      for (std::size_t i = 0; i < prompt["last_layer_outputs"].size(); ++i) {
        for (const char* leaf : {"mixer", "mlp", "output"}) {
          expected.push_back(scope + std::to_string(i) + "." + leaf);
        }
      }
      expected.insert(expected.end(), {"logits", "final_norm"});
      REQUIRE(names == expected);

      session.truncate(0);
      const Rows plain = copied(network.logits(session, ids, ql::Logits::all));
      REQUIRE(first_difference(plain, traced_logits) == -1);
    }
  }
}

TEST_CASE("the multi-token-prediction head gives the stored logits", "[golden]") {
  const Json golden = golden_of("qwen3.5-tiny");
  const auto sample = golden["vocab_sample"].get<std::vector<int>>();
  const ql::Checkpoint files(checkpoint_path("qwen3.5-tiny"));
  using Network = ql::Model<ql::Qwen3_5>;
  for (const ql::kernels::KernelTable* table : compared_tables()) {
    for (const ql::Precision precision : {ql::Precision::exact, ql::Precision::bf16}) {
      INFO(table->name << ", " << ql::name_of(precision));
      const Network network(
          files,
          {.threads = 1, .precision = precision, .kernels = table, .kv = ql::KvFormat::f32, .chunk = 64});
      const ql::Mtp<Network> head(network, files);
      Deviations worst;
      int mistakes = 0;
      for (const Json& prompt : golden["prompts"]) {
        if (prompt["length"].get<Index>() > longest_prompt(*table, precision, Cache::f32)) continue;
        const auto ids = prompt["ids"].get<std::vector<int>>();
        auto next = ids;
        next.push_back(prompt["mtp"]["next_id"].get<int>());
        auto session = network.new_session({.max_tokens = 320});
        const Rows hidden = copied(network.hidden(session, ids, ql::Logits::all));
        ql::Mtp<Network>::Session own(head, 320);
        Rows logits;
        for (Index at = 0; at < std::ssize(ids); at += 50) {  // in pieces
          const Index rows = std::min<Index>(50, std::ssize(ids) - at);
          std::vector<float> states;
          for (Index r = 0; r < rows; ++r) {
            const auto& row = hidden[static_cast<std::size_t>(at + r)];
            states.insert(states.end(), row.begin(), row.end());
          }
          const ql::ConstMatrix<float> block(states.data(), rows, 64, Eigen::OuterStride<>(64));
          const auto results = head.forward(own, block, part_of(next, at + 1, rows));
          CHECK(results.hidden.cols() == 64);
          for (auto& row : copied(results.logits)) logits.push_back(std::move(row));
        }
        const Json& stored = prompt["mtp"];
        for (std::size_t i = 0; i < stored["positions"].size(); ++i) {
          const auto& row = logits.at(stored["positions"][i].get<std::size_t>());
          compare_row(row, sample, stored["logits"][i], worst);
          mistakes += argmax(row) != stored["argmax"][i].get<int>() ? 1 : 0;
        }
      }
      const bool float32 = is_float32(*table, precision, Cache::f32);
      const Json& limit = golden["tolerance"][float32 ? "float32" : "bf16_activations"]["limit"];
      CHECK(worst.logit_max_abs <= limit["mtp_logit_max_abs"].get<double>());
      CHECK(worst.logit_row_relative_rms <= limit["mtp_logit_row_relative_rms"].get<double>());
      if (float32) CHECK(mistakes == 0);
    }
  }
}

TEST_CASE("a checkpoint without a head for multi-token prediction says so") {
  const ql::Checkpoint files(checkpoint_path("qwen3.5-tiny-gqa"));
  const ql::Model<ql::Qwen3_5> network(files, {.threads = 1});
  CHECK_THROWS_WITH((ql::Mtp<ql::Model<ql::Qwen3_5>>(network, files)), has_text("mtp_num_hidden_layers"));
}
