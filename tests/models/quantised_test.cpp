// SPDX-License-Identifier: Apache-2.0
//
// Networks whose weights are quantised while they are opened: the logits are those of the network that has
// the dequantised weights in its files, in any way of computing them with the same bits; and what explain(),
// progress and memory say.
#include <cmath>
#include <filesystem>

#include <qwenlite/models/mtp.hpp>

#include "models/ways.hpp"

namespace ql = qwenlite;
using namespace models_test;
using ql::Format;
using ql::WeightFormat;

namespace {

const std::vector<WeightFormat>& formats() {
  static const std::vector<WeightFormat> list{{Format::int8},
                                              {Format::int8, 64, false},
                                              {Format::int4, 32},
                                              {Format::int4, 64, false},
                                              {Format::fp8}};
  return list;
}

/// Whether opening a network quantises the tensor, and to what.
std::optional<WeightFormat> format_for(const std::string& name, const WeightFormat& layers) {
  if (name.find("embed_tokens") != std::string::npos || name == "lm_head.weight")
    return WeightFormat(Format::int8);
  for (const char* kept : {"norm", "conv1d", "in_proj_a", "in_proj_b", "A_log", "dt_bias"}) {
    if (name.find(kept) != std::string::npos) return {};
  }
  return layers;
}

/// A copy of a checkpoint whose matrices are float32: what quantising and decoding leaves of them.
class DequantisedCopy {
 public:
  DequantisedCopy(const std::string& name, const WeightFormat& layers)
      : path_(std::filesystem::temp_directory_path() /
              ("qwenlite_quantised_" + std::to_string(getpid()) + name)) {
    std::filesystem::create_directory(path_);
    for (const char* file : {"config.json", "generation_config.json", "tokenizer_config.json"}) {
      const std::filesystem::path from = std::filesystem::path(checkpoint_path(name)) / file;
      if (std::filesystem::exists(from)) std::filesystem::copy_file(from, path_ / file);
    }
    const ql::Checkpoint source(checkpoint_path(name));
    std::vector<ql::NamedTensor> tensors;
    std::vector<std::vector<float>> memory;
    ql::ThreadPool pool(1);
    for (const auto& entry : source.tensors().entries()) {
      const auto format = format_for(entry.name, layers);
      if (!format || entry.view.shape.rank() != 2) {
        tensors.push_back({entry.name, entry.view});
        continue;
      }
      const Format stored = ql::stored_format(entry.view.dtype).value();
      const ql::WeightView from{entry.view.data, entry.view.shape[0], entry.view.shape[1], stored};
      const ql::QuantisedMatrix m =
          ql::round_to_nearest(from, *format, *ql::kernels::supported().front(), pool);
      std::vector<float>& values = memory.emplace_back();
      for (ql::Index r = 0; r < from.rows; ++r) {
        for (ql::Index i = 0; i < from.cols; ++i) values.push_back(decode(m.view(), r, i));
      }
      tensors.push_back(
          {entry.name,
           {reinterpret_cast<const std::byte*>(values.data()), ql::DType::f32, entry.view.shape}});
    }
    ql::write_safetensors(path_ / "model.safetensors", tensors);
  }
  ~DequantisedCopy() { std::filesystem::remove_all(path_); }
  DequantisedCopy(const DequantisedCopy&) = delete;
  DequantisedCopy& operator=(const DequantisedCopy&) = delete;

  [[nodiscard]] ql::Checkpoint open() const { return ql::Checkpoint(path_); }

 private:
  std::filesystem::path path_;
};

template <class Network>
Network open_network(const std::string& name, const Way& way, const WeightFormat& weights, Index chunk = 512,
                     int threads = 1) {
  return Network(ql::Checkpoint(checkpoint_path(name)), {.threads = threads,
                                                         .precision = way.precision,
                                                         .kernels = way.table,
                                                         .kv = ql::KvFormat::f32,
                                                         .weights = weights,
                                                         .chunk = chunk});
}

template <class Network>
void check_bits(const std::string& name) {
  const std::vector<int> tokens = random_tokens(80, 1);
  for (const ql::kernels::KernelTable* table : compared_tables()) {
    for (const WeightFormat& weights : formats()) {
      INFO(name << ", " << table->name << ", " << to_string(weights));
      const Way way{table, ql::Precision::exact};
      const auto whole = open_network<Network>(name, way, weights);
      const Rows expected = at_once(whole, tokens);
      REQUIRE(expected.size() == tokens.size());
      CHECK(first_difference(at_once(open_network<Network>(name, way, weights, 7), tokens), expected) == -1);
      CHECK(first_difference(at_once(open_network<Network>(name, way, weights, 512, 3), tokens), expected) ==
            -1);
      for (const Index step : {1, 5, 33}) {
        if (is_slow(*table) && step != 33) continue;
        INFO("step " << step);
        CHECK(first_difference(in_steps(whole, tokens, step), expected) == -1);
      }
      CHECK(first_difference(in_company(whole, tokens, 3), expected) == -1);
    }
  }
}

}  // namespace

TEST_CASE("quantised networks compute with the numbers that were rounded to") {
  const std::vector<int> tokens = random_tokens(40, 5);
  for (const std::string& name : all_checkpoints) {
    for (const WeightFormat& weights : formats()) {
      const DequantisedCopy copy(name, weights);
      for (const ql::kernels::KernelTable* table : compared_tables()) {
        INFO(name << ", " << table->name << ", " << to_string(weights));
        const auto rows = [&](const ql::AnyModel& model) {
          auto session = model.new_session({.max_tokens = 64});
          return copied(model.logits(session, tokens, ql::Logits::all));
        };
        ql::OpenOptions options{
            .threads = 1, .precision = ql::Precision::exact, .kernels = table, .kv = ql::KvFormat::f32};
        const Rows expected = rows(ql::open(copy.open(), options));
        const Rows stored = rows(ql::open(checkpoint_path(name), options));
        options.weights = weights;
        const Rows found = rows(ql::open(checkpoint_path(name), options));
        // Float32 products of the same numbers, in other shapes of the same chains; sums differ where the
        // other network's products run on tiles.
        CHECK(largest_difference(found, expected) < 2e-5 * largest(expected));
        CHECK(largest_difference(found, stored) > 1e-4 * largest(expected));  // and it is another network
      }
    }
  }
}

TEST_CASE("quantised networks give the same bits in any chunks, steps, threads and company",
          "[bits][threads]") {
  check_bits<ql::Model<ql::Qwen3>>("qwen3-tiny");
  check_bits<ql::Model<ql::Qwen3_5>>("qwen3.5-tiny-gqa");
}

TEST_CASE("quantised networks pass the check against the scalar kernels") {
  for (const char* name : {"qwen3-tiny", "qwen3.5-tiny"}) {
    for (const WeightFormat& weights : formats()) {
      const ql::AnyModel model =
          ql::open(checkpoint_path(name), {.threads = 1, .weights = weights, .check = true});
      auto session = model.new_session({.max_tokens = 32});
      CHECK_NOTHROW(model.logits(session, random_tokens(20, 6)));
      CHECK_NOTHROW(model.logits(session, random_tokens(1, 7)));
    }
  }
}

TEST_CASE("int8 networks stay near the stored results") {
  for (const std::string& name : all_checkpoints) {
    INFO(name);
    const std::vector<int> tokens = random_tokens(40, 8);
    const auto rows = [&](const ql::OpenOptions& options) {
      const ql::AnyModel model = ql::open(checkpoint_path(name), options);
      auto session = model.new_session({.max_tokens = 64});
      return copied(model.logits(session, tokens, ql::Logits::all));
    };
    const Rows stored = rows({.threads = 1, .precision = ql::Precision::exact});
    const Rows eight = rows({.threads = 1, .precision = ql::Precision::exact, .weights = Format::int8});
    const Rows four = rows({.threads = 1, .precision = ql::Precision::exact, .weights = Format::int4});
    // The weights of these networks are random, so that errors do not cancel as in a trained one.
    INFO("int8 " << mean_error(eight, stored) << ", int4 " << mean_error(four, stored));
    CHECK(mean_error(eight, stored) < 0.1);
    CHECK(mean_error(eight, stored) < 0.3 * mean_error(four, stored));
  }
}

TEST_CASE("the head for multi-token prediction is quantised with its model") {
  using Network = ql::Model<ql::Qwen3_5>;
  const ql::Checkpoint files(checkpoint_path("qwen3.5-tiny"));
  const auto logits = [&](const Network& network) {
    const ql::Mtp<Network> head(network, files);
    ql::Mtp<Network>::Session session(head, 16);
    std::vector<float> hidden(static_cast<std::size_t>(3 * network.config().hidden_size), 0.25F);
    const std::vector<int> next{1, 2, 3};
    const ql::ConstMatrix<float> rows(hidden.data(), 3, network.config().hidden_size,
                                      Eigen::OuterStride<>(network.config().hidden_size));
    return copied(head.forward(session, rows, next).logits);
  };
  const Rows stored = logits(Network(files, {.threads = 1, .precision = ql::Precision::exact}));
  const Rows eight =
      logits(Network(files, {.threads = 1, .precision = ql::Precision::exact, .weights = Format::int8}));
  const double error = largest_difference(eight, stored) / largest(stored);
  CHECK(error > 0);
  CHECK(error < 0.1);
}

TEST_CASE("opening reports what is quantised, as it goes and afterwards") {
  const ql::Checkpoint files(checkpoint_path("qwen3-tiny"));
  std::vector<std::pair<Index, Index>> reports;
  const auto progress = [&](Index done, Index all) { reports.emplace_back(done, all); };
  const ql::AnyModel model =
      ql::open(files, {.threads = 1, .weights = WeightFormat(Format::int4, 32), .progress = progress});
  REQUIRE(reports.size() == 4 * 7 + 1);
  for (std::size_t i = 1; i < reports.size(); ++i) CHECK(reports[i].first > reports[i - 1].first);
  CHECK(reports.back().first == reports.back().second);
  CHECK(reports.front().second == reports.back().second);

  const ql::WeightFacts w = model.explain().weights;
  const ql::ModelConfig& c = files.config();
  const Index attention = c.num_attention_heads * c.head_dim;
  const Index kv = c.num_key_value_heads * c.head_dim;
  const WeightFormat four(Format::int4, 32);
  const Index layer = four.bytes(attention, c.hidden_size) + 2 * four.bytes(kv, c.hidden_size) +
                      four.bytes(c.hidden_size, attention) +
                      2 * four.bytes(c.intermediate_size, c.hidden_size) +
                      four.bytes(c.hidden_size, c.intermediate_size);
  CHECK(w.quantised == 4 * 7 + 1);
  CHECK(w.quantised_bytes == 4 * layer + WeightFormat(Format::int8).bytes(c.vocab_size, c.hidden_size));
  CHECK(w.quantised_to == "int4 in groups of 32, embedding int8 by rows");
  CHECK(w.bytes_in_use < w.bytes);
  CHECK_THAT(model.explain().to_string(),
             has_text("quantised   29 tensors, ") && has_text(" in memory: int4 in groups of 32, embedding"));

  CHECK(ql::open(files, {.threads = 1}).explain().weights.quantised == 0);
  CHECK(ql::open(files, {.threads = 1, .weights = Format::int8}).explain().weights.quantised_to ==
        "int8 by rows");
  CHECK(ql::open(files, {.threads = 1, .embedding_weights = Format::int8}).explain().weights.quantised == 1);
}

TEST_CASE("weights in formats that there are not, or not here, are refused") {
  const ql::Checkpoint files(checkpoint_path("qwen3-tiny"));
  const auto message = [&](const ql::OpenOptions& options) -> std::string {
    try {
      (void)ql::open(files, options);
    } catch (const ql::Error& e) {
      return e.what();
    }
    return "no error";
  };
  CHECK(message({.weights = WeightFormat(Format::int8, 7)}) ==
        "weights: found int8 in groups of 7, expected int8 in groups of 32, 64 or 128, or by rows (a group "
        "of 0)");
  CHECK(message({.weights = WeightFormat{Format::int4, 7}}) ==
        "weights: found int4 in groups of 7, expected int4 in groups of 32, 64 or 128");
  CHECK_THAT(message({.weights = WeightFormat(Format::int4, 0)}),
             has_text("weights: found int4 by rows, expected int4 in groups of 32, 64 or 128"));
  CHECK(message({.embedding_weights = WeightFormat(Format::fp8, 64)}) ==
        "embedding_weights: found fp8 in blocks of 64, expected fp8 in blocks of 128, without zero points");
  CHECK_THAT(message({.weights = WeightFormat(Format::bf16, 32)}),
             has_text("weights: found bf16 in groups of 32, expected this format without groups"));
  CHECK_THAT(message({.weights = Format::f16}), has_text("embed_tokens.weight") && has_text("expected f16"));
  CHECK(message({.weights = Format::bf16}) == "no error");
  CHECK(message({.weights = Format::int8, .progress = [](Index, Index) {
                   throw ql::Error(ql::ErrorCode::cancelled, "enough");
                 }}) == "enough");
}
