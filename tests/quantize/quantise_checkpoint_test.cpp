// SPDX-License-Identifier: Apache-2.0
//
// Directories with quantised weights: what is in them, that they open and compute as the source does when it
// is quantised while it is opened, and that nothing is left when something goes wrong.
#include <fstream>
#include <iterator>

#include <qwenlite/model.hpp>
#include <qwenlite/quantize/quantise_checkpoint.hpp>

#include "checkpoint/fixtures.hpp"
#include "models/tiny_models.hpp"

namespace ql = qwenlite;
namespace fs = std::filesystem;
using namespace models_test;
using ql::Format;
using ql::QuantisationMethod;
using ql::WeightFormat;

namespace {

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Rows logits_of(const ql::AnyModel& model) {
  auto session = model.new_session({.max_tokens = 64});
  return copied(model.logits(session, random_tokens(40, 3), ql::Logits::all));
}

/// Of the embedding.
Format stored_format(const ql::Checkpoint& files) {
  const std::string name = ql::text_scope(files.weights()).prefix() + "embed_tokens.weight";
  const auto& entry = files.tensors().entries()[static_cast<std::size_t>(files.tensors().find(name))];
  return ql::stored_format(entry.view.dtype).value();
}

std::vector<std::vector<int>> texts() {
  std::vector<std::vector<int>> all;
  for (unsigned i = 0; i < 8; ++i) all.push_back(random_tokens(60, i));
  return all;
}

/// What a call throws; empty if nothing.
template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const ql::Error& e) {
    return e.what();
  }
  return {};
}

Index entries_in(const fs::path& path) {
  return std::distance(fs::directory_iterator(path), fs::directory_iterator());
}

}  // namespace

TEST_CASE("a quantised directory opens, and gives the bits of quantising while opening", "[bits]") {
  const std::vector<WeightFormat> formats{
      {Format::int8}, {Format::int8, 0}, {Format::int4, 32}, {Format::int4, 64, false}, {Format::fp8}};
  for (const char* name : {"qwen3-tiny", "qwen3-tiny-untied-sharded", "qwen3.5-tiny", "qwen3.5-tiny-gqa"}) {
    const ql::Checkpoint source(checkpoint_path(name));
    for (const WeightFormat& format : formats) {
      INFO(name << ", " << to_string(format));
      const TemporaryDirectory place;
      const fs::path path = place.path() / "out";
      const auto report = ql::quantise_checkpoint(source, path, {.weights = format, .threads = 2});
      CHECK(report.matrices >= 6 * source.config().num_hidden_layers);
      CHECK(report.source_bytes == source.tensors().bytes());
      CHECK(report.bytes == static_cast<Index>(fs::file_size(path / "model.safetensors")));
      CHECK(report.bytes < report.source_bytes);
      CHECK(report.error > (format.format == Format::int8 ? 1e-3 : 1e-2));
      CHECK(report.error < (format.format == Format::int8 ? 2e-2 : 2e-1));
      CHECK(entries_in(place.path()) == 1);  // nothing else is left

      ql::OpenOptions options{.threads = 1};
      const Rows found = logits_of(ql::open(path, options));
      options.weights = format;
      if (format.format == Format::fp8) options.embedding_weights = stored_format(source);
      CHECK(first_difference(found, logits_of(ql::open(source, options))) == -1);
    }
  }
}

TEST_CASE("a quantised directory has the files of its source, and says what it is") {
  const TemporaryDirectory place;
  const fs::path source_path = place.path() / "source";
  fs::copy(checkpoint_path("qwen3.5-tiny"), source_path);
  std::ofstream(source_path / "chat_template.jinja") << "template";
  std::ofstream(source_path / "pytorch_model.bin") << "other weights";
  fs::create_directory(source_path / "folder");
  const ql::Checkpoint source(source_path);
  const fs::path path = place.path() / "out";
  (void)ql::quantise_checkpoint(source, path,
                                {.weights = WeightFormat(Format::int4, 64, false),
                                 .embedding_weights = WeightFormat(Format::int8, 0),
                                 .method = QuantisationMethod::gptq,
                                 .texts = texts()});
  CHECK(content_of(path / "chat_template.jinja") == "template");
  CHECK(content_of(path / "generation_config.json") == content_of(source_path / "generation_config.json"));
  CHECK_FALSE(fs::exists(path / "pytorch_model.bin"));
  CHECK_FALSE(fs::exists(path / "folder"));
  Json config = Json::parse(content_of(path / "config.json"));
  CHECK(config["quantization_config"] == Json{{"quant_method", "qwenlite"},
                                              {"version", 1},
                                              {"method", "gptq"},
                                              {"weights", "int4:64:zeros"},
                                              {"embedding", "int8:row"}});
  config.erase("quantization_config");
  CHECK(config == Json::parse(content_of(source_path / "config.json")));

  const ql::Checkpoint opened(path);
  const auto has = [&](const std::string& name) { return opened.tensors().find(name) >= 0; };
  const std::string up = ql::layer_prefix(ql::text_scope(source.weights()), 0) + "mlp.up_proj.weight";
  CHECK(has(up + ".values"));
  CHECK(has(up + ".scales"));
  CHECK(has(up + ".zeros"));
  CHECK_FALSE(has(up));
  CHECK(has("mtp.fc.weight.values"));
  CHECK(has("mtp.norm.weight"));
  // Whole cache lines begin at one: kernels then read no line twice.
  for (const auto& entry : opened.tensors().entries()) {
    if (entry.name.ends_with(".values")) {
      CHECK(reinterpret_cast<std::uintptr_t>(entry.view.data) % 64 == 0);
    }
  }
}

TEST_CASE("a source whose quantization_config is null becomes a directory that opens") {
  const TemporaryDirectory place;
  const fs::path source_path = place.path() / "source";
  fs::copy(checkpoint_path("qwen3-tiny"), source_path);
  Json config = Json::parse(content_of(source_path / "config.json"));
  config["quantization_config"] = nullptr;
  std::ofstream(source_path / "config.json") << config.dump(2);
  (void)ql::quantise_checkpoint(ql::Checkpoint(source_path), place.path() / "out", {.weights = Format::int8});
  CHECK_NOTHROW(ql::open(place.path() / "out", {.threads = 1}));
  Json written = Json::parse(content_of(place.path() / "out" / "config.json"));
  CHECK(written["quantization_config"]["weights"] == "int8:row");
  written["quantization_config"] = nullptr;
  CHECK(written == config);
}

TEST_CASE("fp8 is written in the published form") {
  const TemporaryDirectory place;
  const ql::Checkpoint source(checkpoint_path("qwen3.5-tiny"));
  (void)ql::quantise_checkpoint(source, place.path() / "out", {.weights = Format::fp8});
  const Json config = Json::parse(content_of(place.path() / "out/config.json"))["quantization_config"];
  CHECK(config["quant_method"] == "fp8");
  CHECK(config["weight_block_size"] == Json{128, 128});
  CHECK(config["activation_scheme"] == "dynamic");  // other engines do not open it without
  const std::string embedding = ql::text_scope(source.weights()).prefix() + "embed_tokens";
  const Json& plain = config["modules_to_not_convert"];
  CHECK(std::find(plain.begin(), plain.end(), Json(embedding)) != plain.end());
  const ql::Checkpoint opened(place.path() / "out");
  CHECK(opened.warnings().empty());
  const ql::TensorFiles& files = opened.tensors();
  const std::string up = ql::layer_prefix(ql::text_scope(source.weights()), 0) + "mlp.up_proj.weight";
  REQUIRE(files.find(up) >= 0);
  REQUIRE(files.find(up + "_scale_inv") >= 0);
  const auto shape = [&](const std::string& name) {
    return files.entries()[static_cast<std::size_t>(files.find(name))].view.shape;
  };
  const ql::TensorView& was =
      source.tensors().entries()[static_cast<std::size_t>(source.tensors().find(up))].view;
  CHECK(shape(up) == was.shape);
  CHECK(shape(up + "_scale_inv") ==
        ql::Shape{ql::ceil_div(was.shape[0], 128), ql::ceil_div(was.shape[1], 128)});
}

TEST_CASE("networks by GPTQ and AWQ open, and are near to their source", "[thorough]") {
  for (const char* name : {"qwen3-tiny", "qwen3.5-tiny-gqa"}) {
    const ql::Checkpoint source(checkpoint_path(name));
    const Rows expected = logits_of(ql::open(source, {.threads = 1, .precision = ql::Precision::exact}));
    const auto error = [&](const fs::path& path) {
      const Rows found = logits_of(ql::open(path, {.threads = 1, .precision = ql::Precision::exact}));
      double off = 0;
      double whole = 0;
      for (std::size_t t = 0; t < found.size(); ++t) {
        for (std::size_t i = 0; i < found[t].size(); ++i) {
          off += std::pow(static_cast<double>(found[t][i] - expected[t][i]), 2);
          whole += std::pow(static_cast<double>(expected[t][i]), 2);
        }
      }
      return std::sqrt(off / whole);
    };
    for (const QuantisationMethod method : {QuantisationMethod::gptq, QuantisationMethod::awq}) {
      INFO(name << ", " << name_of(method));
      const TemporaryDirectory place;
      const auto report = ql::quantise_checkpoint(
          source, place.path() / "out",
          {.weights = WeightFormat(Format::int8, 32), .method = method, .texts = texts()});
      CHECK(report.tokens == 480);
      CHECK(error(place.path() / "out") < 0.2);
    }
  }
}

TEST_CASE("what is in the way is not overwritten, unless it is a checkpoint and it is asked for") {
  const TemporaryDirectory place;
  const ql::Checkpoint source(checkpoint_path("qwen3-tiny"));
  const fs::path path = place.path() / "out";
  const auto quantise = [&](const ql::QuantiseOptions& options) {
    return message_of([&] { (void)ql::quantise_checkpoint(source, path, options); });
  };
  CHECK(quantise({.weights = Format::int8}).empty());
  const std::string first = content_of(path / "config.json");
  CHECK_THAT(quantise({.weights = Format::int4}), has_text("something that exists"));
  CHECK(content_of(path / "config.json") == first);
  CHECK(quantise({.weights = Format::int4, .replace = true}).empty());
  CHECK(content_of(path / "config.json") != first);
  CHECK(entries_in(place.path()) == 1);

  // What an earlier run was not allowed to remove.
  const fs::path left = place.path() / ".out.0.old";
  fs::create_directory(left);
  std::ofstream(left / "model.safetensors") << "old";
  CHECK(quantise({.weights = Format::int8, .replace = true}).empty());
  CHECK(content_of(path / "config.json") == first);
  CHECK(content_of(left / "model.safetensors") == "old");
  CHECK(entries_in(place.path()) == 2);
  fs::remove_all(left);

  fs::create_directory(path / "folder");
  CHECK_THAT(quantise({.replace = true}), has_text("not a checkpoint directory"));
  fs::remove_all(path);
  std::ofstream(path) << "a file";
  CHECK_THAT(quantise({.replace = true}), has_text("not a checkpoint directory"));
  CHECK(content_of(path) == "a file");
  CHECK(entries_in(place.path()) == 1);
}

TEST_CASE("quantising that is stopped leaves nothing") {
  const TemporaryDirectory place;
  const ql::Checkpoint source(checkpoint_path("qwen3-tiny"));
  for (const QuantisationMethod method : {QuantisationMethod::rtn, QuantisationMethod::gptq}) {
    ql::QuantiseOptions options{.method = method, .texts = texts()};
    Index calls = 0;
    options.progress = [&](Index done, Index all) {
      CHECK(done <= all);
      if (++calls == 5) throw ql::Error(ql::ErrorCode::cancelled, "enough");
    };
    CHECK(message_of([&] { (void)ql::quantise_checkpoint(source, place.path() / "out", options); }) ==
          "enough");
    CHECK(entries_in(place.path()) == 0);
  }
  CHECK_THAT(message_of([&] { (void)ql::quantise_checkpoint(source, place.path() / "no/such/out", {}); }),
             has_text("could not"));
}

TEST_CASE("what cannot be quantised is named") {
  const ql::Checkpoint source(checkpoint_path("qwen3-tiny"));
  const std::string layer = "model.layers.1.";
  const std::string query = layer + "self_attn.q_proj.weight";
  const std::string down = layer + "mlp.down_proj.weight";
  const std::string norm = layer + "input_layernorm.weight";
  // The message for a copy in which all bytes of one tensor are the same.
  const auto message = [&](const std::string& tensor, char byte, const ql::QuantiseOptions& options) {
    const TemporaryDirectory place;
    const fs::path copy = place.path() / "source";
    fs::copy(source.directory(), copy);
    const auto at = static_cast<std::size_t>(source.tensors().find(tensor));
    const ql::TensorView& view = source.tensors().entries()[at].view;
    const fs::path file = copy / "model.safetensors";
    std::string content = content_of(file);
    const fixtures::Bytes was = fixtures::bytes_of(view);
    const std::string before(reinterpret_cast<const char*>(was.data()), was.size());
    content.replace(content.find(before), before.size(), std::string(before.size(), byte));
    fs::remove(file);
    std::ofstream(file, std::ios::binary) << content;
    std::vector<std::string> copied;
    const std::string told = message_of([&] {
      copied = ql::quantise_checkpoint(ql::Checkpoint(copy), place.path() / "out", options).not_finite;
    });
    CHECK(entries_in(place.path()) == (told.empty() ? 2 : 1));
    return copied.empty() ? told : "copied " + copied.front();
  };
  constexpr char huge = '\xf8';  // of bfloat16 -4e34, of float32 the like
  constexpr char nan = '\xff';
  for (const Format format : {Format::fp8, Format::int8, Format::int4}) {
    CHECK_THAT(message(query, huge, {.weights = format}),
               has_text("tensor '" + query + "': quantising to ") && has_text("found elements"));
  }
  for (const QuantisationMethod method : {QuantisationMethod::gptq, QuantisationMethod::awq}) {
    const ql::QuantiseOptions options{.method = method, .texts = texts()};
    for (const std::string& weight : {query, layer + "self_attn.k_proj.weight", down}) {
      CHECK_THAT(message(weight, nan, options),
                 has_text("tensor '" + weight + "': quantising to int4: found elements that are not finite"));
    }
    CHECK_THAT(message(norm, nan, options),
               has_text("tensor '" + query + "': found inputs that are not finite"));
  }
  CHECK(message(norm, nan, {}) == "copied " + norm);
  for (const char finite : {huge, '\x7f'}) CHECK(message(norm, finite, {}).empty());
  CHECK_THAT(message(norm, 0, {.method = QuantisationMethod::gptq, .texts = texts()}),
             has_text("tensor '" + query + "': gptq: found inputs that are all zero"));
}

TEST_CASE("options that do not go together are refused") {
  const TemporaryDirectory place;
  const ql::Checkpoint source(checkpoint_path("qwen3-tiny"));
  const auto quantise = [&](const ql::QuantiseOptions& options) {
    return message_of([&] { (void)ql::quantise_checkpoint(source, place.path() / "out", options); });
  };

  CHECK_THAT(quantise({.weights = WeightFormat(Format::int8, 7)}),
             has_text("weights: found int8 in groups of 7, expected int8 in groups of 32, 64 or 128"));
  CHECK_THAT(quantise({.weights = Format::bf16}), has_text("no quantised format"));
  CHECK_THAT(quantise({.weights = Format::f16, .embedding_weights = Format::int8}), has_text("expected f16"));
  CHECK_THAT(quantise({.weights = Format::fp8, .embedding_weights = Format::int8}), has_text("fp8"));
  CHECK_THAT(quantise({.weights = Format::fp8, .method = QuantisationMethod::gptq, .texts = texts()}),
             has_text("int8 and int4"));
  CHECK_THAT(quantise({.method = QuantisationMethod::awq}), has_text("calibration texts"));
  CHECK(entries_in(place.path()) == 0);

  CHECK(quantise({.weights = Format::int8}).empty());
  const ql::Checkpoint done(place.path() / "out");
  CHECK_THAT(message_of([&] { (void)ql::quantise_checkpoint(done, place.path() / "again", {}); }),
             has_text("quantised already"));
}
