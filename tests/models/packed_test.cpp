// SPDX-License-Identifier: Apache-2.0
//
// Networks whose files hold their matrices packed: the logits are those of the network that has the unpacked
// matrices as float32 in its files, on every instruction set; what explain() says about them; and files that
// were quantised beforehand compute the bits of those quantised while they are opened.
#include <cmath>
#include <filesystem>
#include <fstream>

#include <qwenlite/kernels/weight_words.hpp>
#include <qwenlite/models/mtp.hpp>

#include "models/ways.hpp"

namespace ql = qwenlite;
namespace fs = std::filesystem;
using namespace models_test;
using ql::Format;
using ql::WeightFormat;

namespace {

const std::vector<std::string>& fixtures() {
  static const std::vector<std::string> list{"gptq-int4",
                                             "gptq-int4-v1-zeros",
                                             "gptq-int4-v2-zeros",
                                             "gptq-int4-mislabelled",
                                             "gptq-int4-junk-zeros",
                                             "gptq-int4-act-order",
                                             "gptq-int8-zeros",
                                             "gptq-hybrid",
                                             "awq",
                                             "fp8",
                                             "fp8-blocks",
                                             "compressed-int4",
                                             "compressed-int4-zeros",
                                             "compressed-int8",
                                             "compressed-bytes",
                                             "own"};
  return list;
}

fs::path fixture(const std::string& name) {
  return fs::path(QWENLITE_TEST_DATA) / "quantised" / name;
}

/// A directory that is removed at the end.
class Directory {
 public:
  explicit Directory(const std::string& name)
      : path_(fs::temp_directory_path() / ("qwenlite_packed_" + std::to_string(getpid()) + name)) {
    fs::create_directory(path_);
  }
  ~Directory() { fs::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

  void write_config(const fs::path& source, const Json* quantisation) const {
    std::ifstream in(source / "config.json");
    Json config = Json::parse(in);
    config.erase("quantization_config");
    if (quantisation != nullptr) config["quantization_config"] = *quantisation;
    std::ofstream(path_ / "config.json") << config.dump(1);
  }

 private:
  fs::path path_;
};

/// The network of a fixture with the expected matrices in place of the packed ones.
void write_plain(const Directory& to, const std::string& name) {
  to.write_config(fixture(name), nullptr);
  const ql::SafetensorsFile packed(fixture(name) / "model.safetensors");
  const ql::SafetensorsFile expected(fixture(name) / "expected.safetensors");
  std::vector<ql::NamedTensor> tensors(expected.tensors().begin(), expected.tensors().end());
  for (const ql::NamedTensor& tensor : packed.tensors()) {
    const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
    const bool part = expected.find(module + ".weight") != nullptr || expected.find(module) != nullptr;
    if (!part) tensors.push_back(tensor);
  }
  ql::write_safetensors(to.path() / "model.safetensors", tensors);
}

std::vector<int> some_tokens(Index count) {
  std::vector<int> tokens = random_tokens(count, 7);
  for (int& token : tokens) token %= 32;
  return tokens;
}

/// The largest difference by the largest magnitude.
double distance(const Rows& a, const Rows& b) {
  double most = 0;
  double scale = 0;
  for (std::size_t t = 0; t < a.size(); ++t) {
    for (std::size_t i = 0; i < a[t].size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(a[t][i]) - static_cast<double>(b[t][i])));
      scale = std::max(scale, std::abs(static_cast<double>(b[t][i])));
    }
  }
  return most / scale;
}

/// A copy of a checkpoint in this library's own packed form, prediction head included.
void write_own(const Directory& to, const fs::path& source, const WeightFormat& layers) {
  const Json quantisation = {{"quant_method", "qwenlite"},
                             {"version", 1},
                             {"weights", ql::word_of(layers)},
                             {"embedding", ql::word_of(Format::int8)}};
  to.write_config(source, &quantisation);
  const ql::Checkpoint files(source);
  std::vector<ql::NamedTensor> tensors;
  std::vector<ql::QuantisedMatrix> made;
  ql::ThreadPool pool(1);
  for (const auto& entry : files.tensors().entries()) {
    const bool embedding =
        entry.name.find("embed_tokens") != std::string::npos || entry.name == "lm_head.weight";
    const bool small = entry.name.find("in_proj_a") != std::string::npos ||
                       entry.name.find("in_proj_b") != std::string::npos ||
                       entry.name.starts_with("model.visual.");
    if (entry.view.shape.rank() != 2 || small) {
      tensors.push_back({entry.name, entry.view});
      continue;
    }
    const Index rows = entry.view.shape[0];
    const Index cols = entry.view.shape[1];
    const WeightFormat format = embedding ? WeightFormat(Format::int8) : layers;
    const Format from = ql::stored_format(entry.view.dtype).value();
    const ql::WeightView stored{entry.view.data, rows, cols, from};
    made.push_back(ql::round_to_nearest(stored, format, *ql::kernels::supported().front(), pool));
    const ql::WeightView& view = made.back().view();
    const Index groups = ql::ceil_div(cols, view.planes.group);
    tensors.push_back({entry.name + ".values", {view.data, ql::DType::u8, {rows, view.row_bytes()}}});
    tensors.push_back({entry.name + ".scales", {view.planes.scales, ql::DType::f16, {rows, groups}}});
    if (view.planes.zeros == nullptr) continue;
    tensors.push_back({entry.name + ".zeros", {view.planes.zeros, ql::DType::u8, {rows, groups}}});
  }
  ql::write_safetensors(to.path() / "model.safetensors", tensors);
}

}  // namespace

TEST_CASE("a packed network computes what its unpacked matrices do") {
  for (const std::string& name : fixtures()) {
    const Directory plain(name);
    write_plain(plain, name);
    const ql::Checkpoint packed_files(fixture(name));
    const ql::Checkpoint plain_files(plain.path());
    const std::vector<int> tokens = some_tokens(40);
    for_each_way([&](const Way& way) {
      INFO(name);
      const ql::OpenOptions options{.threads = 2, .precision = way.precision, .kernels = way.table};
      const Rows packed = at_once(ql::open(packed_files, options), tokens);
      const Rows expected = at_once(ql::open(plain_files, options), tokens);
      CHECK(distance(packed, expected) < (way.precision == ql::Precision::exact ? 1e-5 : 3e-2));
      CHECK(first_difference(packed, in_steps(ql::open(packed_files, options), tokens, 1)) == -1);
    });
  }
}

TEST_CASE("explain tells how matrices are packed and what became of them") {
  const auto facts_of = [](const std::string& name) {
    return ql::open(ql::Checkpoint(fixture(name)), {.threads = 1}).explain();
  };
  const ql::Explanation gptq = facts_of("gptq-int4");
  CHECK(gptq.weights.packed.matrices == 7);
  CHECK(gptq.weights.packed.mapped == 0);
  CHECK(gptq.weights.packed.forms == "int4 in groups of 32 (GPTQ)");
  CHECK(gptq.weights.packed.warnings.empty());
  CHECK_THAT(gptq.to_string(), has_text("\npacked      7 matrices, int4 in groups of 32 (GPTQ), unpacked, "));
  CHECK_THAT(gptq.weights.dtypes, has_text("I32 21"));
  const ql::Explanation own = facts_of("own");
  CHECK(own.weights.packed.mapped == 8);
  CHECK(own.weights.packed.bytes == 0);
  CHECK(own.weights.bytes_in_use == own.weights.bytes);
  CHECK_THAT(own.to_string(), has_text("\npacked      8 matrices, ") && has_text("computed on as mapped\n") &&
                                  has_text("int4 in groups of 32 with zero points (qwenlite)") &&
                                  has_text("\nquantised   in the files: " + own.weights.packed.forms +
                                           "; while opening: nothing more\n"));
  const ql::Explanation order = facts_of("gptq-int4-act-order");
  CHECK(order.weights.packed.forms == "6 float32 (GPTQ), 1 int4 in groups of 32 (GPTQ)");
  REQUIRE(order.weights.packed.warnings.size() == 1);
  CHECK_THAT(order.weights.packed.warnings[0], has_text(" and 5 more: unpacked to float32: groups"));
  std::vector<std::string> lines;
  const auto log = [&](std::string_view line) { lines.emplace_back(line); };
  (void)ql::open(ql::Checkpoint(fixture("gptq-int4-mislabelled")), {.threads = 1, .log = log});
  CHECK_THAT(lines.at(0), has_text("warning: ") && has_text("zero points of the other version"));
}

TEST_CASE("a scale for each row is told as such, in rows of any length") {
  for (const Index group : {0, 128}) {
    const WeightFormat format(Format::int8, group);
    const Directory own("rows");
    write_own(own, checkpoint_path("qwen3-tiny"), format);
    const ql::PackedFacts packed =
        ql::open(ql::Checkpoint(own.path()), {.threads = 1}).explain().weights.packed;
    INFO(packed.forms);
    const bool embedding_too = packed.forms == "int8 by rows (qwenlite)";
    CHECK(embedding_too == (group == 0));
    CHECK_THAT(packed.forms, has_text(ql::to_string(format)));
  }
}

TEST_CASE("asking for the format that packed matrices have is fine, for another is an error") {
  const auto open = [](const std::string& name, const WeightFormat& format) {
    return ql::open(ql::Checkpoint(fixture(name)), {.threads = 1, .weights = format}).explain();
  };
  const ql::Explanation same = open("gptq-int4", Format::int4);
  CHECK(same.weights.quantised == 1);  // the embedding
  CHECK(same.weights.packed.matrices == 7);
  CHECK_THAT(same.to_string(),
             has_text("\nquantised   in the files: int4 in groups of 32 (GPTQ); while opening: "
                      "1 tensor, ") &&
                 has_text(" in memory: int4 in groups of 64, embedding int8 by rows\n"));
  CHECK(open("own", Format::int4).weights.quantised == 0);
  for (const WeightFormat& format : {WeightFormat(Format::int8), WeightFormat(Format::bf16)}) {
    try {
      (void)open("gptq-int4", format);
      FAIL("no error");
    } catch (const ql::Error& e) {
      CHECK(static_cast<int>(e.code()) == static_cast<int>(ql::ErrorCode::unsupported));
      CHECK_THAT(std::string(e.what()), has_text("int4 (GPTQ)") && has_text("as asked for"));
    }
  }
}

TEST_CASE("asking for other groups or zero points than packed matrices have is an error") {
  const auto message = [](const std::string& name, const ql::OpenOptions& options) -> std::string {
    try {
      (void)ql::open(ql::Checkpoint(fixture(name)), options);
    } catch (const ql::Error& e) {
      CHECK(static_cast<int>(e.code()) == static_cast<int>(ql::ErrorCode::unsupported));
      return e.what();
    }
    return "no error";
  };
  const auto layers = [&](const std::string& name, const WeightFormat& format) {
    return message(name, {.threads = 1, .weights = format});
  };
  CHECK_THAT(layers("gptq-int4", {Format::int4, 128}),
             has_text("q_proj.weight': found int4 in groups of 32 (GPTQ), expected int4 in groups of 128 as "
                      "asked for by 'weights': packed matrices stay what they are"));
  CHECK_THAT(layers("own", {Format::int4, 32}),
             has_text("found int4 in groups of 32 with zero points (qwenlite), "
                      "expected int4 in groups of 32 as asked for"));
  CHECK_THAT(layers("own", {Format::int4, 128, false}), has_text("expected int4 in groups of 128 with zero"));
  CHECK_THAT(message("own", {.threads = 1, .embedding_weights = WeightFormat(Format::int8, 32)}),
             has_text("embed_tokens.weight': found int8 ") &&
                 has_text("expected int8 in groups of 32 as asked for by 'embedding_weights'"));
  CHECK(layers("own", {Format::int4, 32, false}) == "no error");
  CHECK(layers("gptq-int4", {Format::int4, 32}) == "no error");
  CHECK(layers("compressed-int8", Format::int8) == "no error");
}

TEST_CASE("unpacking is told to progress") {
  std::vector<std::pair<Index, Index>> calls;
  const auto progress = [&](Index done, Index all) { calls.emplace_back(done, all); };
  (void)ql::open(ql::Checkpoint(fixture("awq")), {.threads = 1, .progress = progress});
  REQUIRE(calls.size() >= 7);
  CHECK(calls.back().first == calls.back().second);
  for (std::size_t i = 1; i < calls.size(); ++i) CHECK(calls[i].first > calls[i - 1].first);
  calls.clear();
  (void)ql::open(ql::Checkpoint(fixture("own")), {.threads = 1, .progress = progress});
  CHECK(calls.empty());
}

TEST_CASE("files quantised beforehand compute the bits of those quantised while opening") {
  const std::vector<WeightFormat> formats{
      {Format::int8}, {Format::int8, 0}, {Format::int4, 32}, {Format::int4, 64, false}};
  for (const char* name : {"qwen3-tiny-untied-sharded", "qwen3.5-tiny"}) {
    for (const WeightFormat& format : formats) {
      INFO(name << ", " << ql::to_string(format));
      const Directory own(name);
      write_own(own, checkpoint_path(name), format);
      const std::vector<int> tokens = random_tokens(70, 3);
      const ql::AnyModel ready = ql::open(ql::Checkpoint(own.path()), {.threads = 1});
      const ql::AnyModel made =
          ql::open(ql::Checkpoint(checkpoint_path(name)), {.threads = 1, .weights = format});
      CHECK(first_difference(at_once(ready, tokens), at_once(made, tokens)) == -1);
      CHECK(ready.explain().weights.packed.mapped == ready.explain().weights.packed.matrices);
      CHECK(ready.explain().weights.packed.matrices == made.explain().weights.quantised);
      CHECK(ready.explain().weights.bytes_in_use == made.explain().weights.bytes_in_use);
    }
  }
}

TEST_CASE("a packed prediction head predicts what one quantised while opening does") {
  const Directory own("mtp");
  const std::string source = checkpoint_path("qwen3.5-tiny");
  write_own(own, source, {Format::int4, 32});
  const ql::Checkpoint ready_files(own.path());
  const ql::Checkpoint made_files(source);
  using Network = ql::Model<ql::Qwen3_5>;
  const std::vector<int> tokens = random_tokens(20, 5);
  const auto predicted = [&](const ql::Checkpoint& files, const ql::OpenOptions& options) {
    const Network network(files, options);
    const ql::Mtp<Network> head(network, files);
    auto session = network.new_session({.max_tokens = 64});
    const ql::ConstMatrix<float> hidden = network.hidden(session, tokens, ql::Logits::all);
    typename ql::Mtp<Network>::Session own_session(head, 64);
    return copied(head.forward(own_session, hidden, tokens).logits);
  };
  const Rows ready = predicted(ready_files, {.threads = 1});
  const Rows made = predicted(made_files, {.threads = 1, .weights = WeightFormat(Format::int4, 32)});
  CHECK(first_difference(ready, made) == -1);
}
