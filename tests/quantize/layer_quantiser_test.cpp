// SPDX-License-Identifier: Apache-2.0
//
// Layers by GPTQ and AWQ: scales that are folded leave a network as it was, and outputs are nearer to the
// right ones than with rounding to nearest.
#include <random>

#include <qwenlite/checkpoint/safetensors.hpp>
#include <qwenlite/model.hpp>
#include <qwenlite/quantize/layer_quantiser.hpp>

#include "checkpoint/fixtures.hpp"
#include "models/tiny_models.hpp"

namespace ql = qwenlite;
namespace fs = std::filesystem;
using namespace models_test;
using ql::Format;
using ql::QuantisationMethod;
using ql::WeightFormat;

namespace {

/// Ignores everything.
struct NoSink final : ql::QuantisedSink {
  void matrix(const std::string& /*name*/, const ql::WeightView& /*rounded*/) override {}
  void elements(const std::string& /*name*/, std::span<const float> /*changed*/) override {}
};

std::vector<float> floats_of(const ql::TensorView& view) {
  const Format format = ql::stored_format(view.dtype).value();
  Index count = 0;
  (void)view.shape.elements(count);
  std::vector<float> values;
  for (Index i = 0; i < count; ++i) values.push_back(ql::decode(format, view.data, i));
  return values;
}

/// All tensors of a checkpoint, in float32.
std::map<std::string, std::vector<float>> tensors_of(const ql::Checkpoint& files) {
  std::map<std::string, std::vector<float>> all;
  for (const auto& entry : files.tensors().entries()) all[entry.name] = floats_of(entry.view);
  return all;
}

/// Folds random scales everywhere into the layers of a network.
template <class Shape>
void fold_at_random(const ql::Decoder<Shape>& network, std::map<std::string, std::vector<float>>& tensors) {
  constexpr float offset = std::is_same_v<typename Shape::Norm, ql::OnePlusRmsNorm> ? 1 : 0;
  std::mt19937 bits(9);
  std::uniform_real_distribution<float> between(0.25F, 4.0F);
  const ql::Weights text = ql::text_scope(network.files.weights());
  for (Index i = 0; i < network.files.config().num_hidden_layers; ++i) {
    const std::string prefix = ql::layer_prefix(text, i);
    ql::LayerTensors layer;
    for (const ql::SourceMatrix& m : ql::product_matrices(network)) {
      if (m.name.starts_with(prefix)) layer.matrices.emplace_back(m, network.ops);
    }
    const bool attention = layer.find("self_attn.o_proj.weight") != nullptr;
    for (const ql::AwqFold& fold : ql::awq_folds(network.shape, attention, offset)) {
      if (fold.is_norm) layer.others[fold.source] = tensors.at(prefix + fold.source);
      for (const std::string& name : fold.others) layer.others[name] = tensors.at(prefix + name);
      std::vector<float> of_place;
      for (Index p = 0; p < fold.size; ++p) of_place.push_back(between(bits));
      std::vector<float> scales;
      for (const Index place : fold.places) scales.push_back(of_place[static_cast<std::size_t>(place)]);
      ql::fold_scales(fold, scales, layer);
    }
    for (ql::LayerMatrix& m : layer.matrices) tensors.at(m.name) = std::move(m.elements);
    for (auto& [name, elements] : layer.others) tensors.at(prefix + name) = std::move(elements);
  }
}

/// The logits of a text, by the checkpoint's configuration and other tensors.
Rows logits_with(const ql::Checkpoint& files, const std::map<std::string, std::vector<float>>& tensors) {
  const TemporaryDirectory place;
  std::vector<ql::NamedTensor> named;
  for (const auto& entry : files.tensors().entries()) {
    const std::vector<float>& values = tensors.at(entry.name);
    named.push_back(
        {entry.name, {reinterpret_cast<const std::byte*>(values.data()), ql::DType::f32, entry.view.shape}});
  }
  ql::write_safetensors(place.path() / "model.safetensors", named);
  fs::copy_file(files.directory() / "config.json", place.path() / "config.json");
  const ql::AnyModel model =
      ql::open(place.path(), {.threads = 1, .precision = ql::Precision::exact, .kv = ql::KvFormat::f32});
  auto session = model.new_session({.max_tokens = 64});
  return copied(model.logits(session, random_tokens(40, 3), ql::Logits::all));
}

template <class Shape>
void check_folding(const std::string& name) {
  INFO(name);
  const ql::Checkpoint files(checkpoint_path(name));
  const ql::Decoder<Shape> network(files, ql::OpenOptions{.threads = 1});
  auto tensors = tensors_of(files);
  const Rows expected = logits_with(files, tensors);
  const auto before = tensors;
  fold_at_random(network, tensors);
  Index changed = 0;
  for (const auto& [tensor, values] : tensors) changed += values != before.at(tensor) ? 1 : 0;
  CHECK(changed >= 9 * files.config().num_hidden_layers);  // at least seven matrices and two norms
  const Rows folded = logits_with(files, tensors);
  const double off = largest_difference(folded, expected);
  CHECK(off > 0);  // it is another network in its bits
  const Rows zeros(expected.size(), std::vector<float>(expected[0].size()));
  CHECK(off < 2e-5 * largest_difference(expected, zeros));
}

template <class Shape>
double error_of(const std::string& name, QuantisationMethod method, const WeightFormat& format,
                int threads = 1) {
  const ql::Checkpoint files(checkpoint_path(name));
  const ql::Decoder<Shape> network(files, ql::OpenOptions{.threads = threads});
  std::vector<std::vector<int>> texts;
  for (unsigned i = 0; i < 20; ++i) texts.push_back(random_tokens(40 + 5 * Index{i}, i));
  ql::LayerQuantiser<Shape> layers(network, texts, {.method = method, .format = format});
  NoSink sink;
  Index matrices = 0;
  for (Index i = 0; i < files.config().num_hidden_layers; ++i) {
    layers.quantise(i, sink, [&](const ql::WeightView&) { ++matrices; });
  }
  CHECK(matrices >= 6 * files.config().num_hidden_layers);
  return std::sqrt(layers.error().error / layers.error().whole);
}

template <class Shape>
void check_errors(const std::string& name) {
  for (const WeightFormat& format : {WeightFormat(Format::int4, 32), WeightFormat(Format::int4, 64, false)}) {
    INFO(name << ", " << to_string(format));
    const double rtn = error_of<Shape>(name, QuantisationMethod::rtn, format);
    CHECK(rtn > 0.01);
    CHECK(rtn < 0.3);
    CHECK(error_of<Shape>(name, QuantisationMethod::gptq, format) < 0.9 * rtn);
    CHECK(error_of<Shape>(name, QuantisationMethod::awq, format) < 0.99 * rtn);
  }
}

}  // namespace

TEST_CASE("scales that are folded leave a network as it was") {
  check_folding<ql::Qwen3>("qwen3-tiny");
  check_folding<ql::Qwen3>("qwen3-tiny-untied-sharded");
  check_folding<ql::Qwen3_5>("qwen3.5-tiny");
  check_folding<ql::Qwen3_5>("qwen3.5-tiny-gqa");
}

TEST_CASE("GPTQ and AWQ make smaller errors than rounding to nearest", "[thorough]") {
  check_errors<ql::Qwen3>("qwen3-tiny");
  check_errors<ql::Qwen3_5>("qwen3.5-tiny-gqa");
}

TEST_CASE("quantising layers does not depend on the number of threads", "[bits][threads]") {
  for (const QuantisationMethod method : {QuantisationMethod::gptq, QuantisationMethod::awq}) {
    CHECK(error_of<ql::Qwen3>("qwen3-tiny", method, Format::int4, 1) ==
          error_of<ql::Qwen3>("qwen3-tiny", method, Format::int4, 3));
  }
}
