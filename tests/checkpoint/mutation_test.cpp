// SPDX-License-Identifier: Apache-2.0
//
// Thousands of damaged files: each opens, or throws one qwenlite::Error, and nothing else happens. With
// a sanitizer this also shows that what opens lies inside its memory. The seeds are fixed.
#include <qwenlite/checkpoint/checkpoint.hpp>

#include "checkpoint/fixtures.hpp"
#include "checkpoint/mutator.hpp"

using namespace fixtures;
using namespace qwenlite;

namespace {

/// Reads every byte of every tensor.
unsigned sum_of(std::span<const NamedTensor> tensors) {
  unsigned sum = 0;
  for (const NamedTensor& tensor : tensors) {
    Index count = 0;
    REQUIRE(tensor.view.shape.elements(count));
    for (Index i = 0; i < count * size_of(tensor.view.dtype); ++i)
      sum += std::to_integer<unsigned>(tensor.view.data[i]);
  }
  return sum;
}

}  // namespace

TEST_CASE("damaged safetensors files") {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a.weight":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
      R"("b":{"dtype":"F32","shape":[],"data_offsets":[12,16]},"none":{"dtype":"I64","shape":[0,5],"data_offsets":[16,16]},)"
      R"("c.bias":{"dtype":"U8","shape":[3,1,1],"data_offsets":[16,19]}}  )";
  unsigned sum = 0;
  const auto open = [&](std::string_view file) {
    const Bytes exact = to_bytes(file);
    sum += sum_of(SafetensorsFile(std::span(exact), "damaged").tensors());
  };
  SECTION("the header, with its length kept true") {
    const Outcome outcome = damage(header, header.size(), 6000, [&](const std::string& damaged) {
      const Bytes file = safetensors(damaged, 19);
      sum += sum_of(SafetensorsFile(std::span(file), "damaged").tensors());
    });
    CHECK(outcome.opened > 50);
    CHECK(outcome.refused > 3000);
  }
  SECTION("the whole file, length included") {
    const Bytes whole = safetensors(header, 19);
    const std::string text(reinterpret_cast<const char*>(whole.data()), whole.size());
    CHECK(damage(text, text.size(), 3000, open).refused > 1500);
    CHECK(damage(text, 8, 500, open).refused > 400);
  }
  SECTION("every length of a cut file") {
    const Bytes whole = safetensors(header, 19);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
      CHECK_THROWS_AS(open_bytes(cut), Error);
    }
  }
  CHECK(sum < ~0U);
}

TEST_CASE("damaged config files") {
  std::vector<std::string> warnings;
  const auto text_of = [](const fs::path& path) {
    const MappedFile file(path, ReadMode::read);
    return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  };
  const std::string config = text_of(test_data("qwen3-tiny-yarn") / "config.json");
  const Outcome configs = damage(config, config.size(), 5000, [&](const std::string& text) {
    const ModelConfig parsed = parse_model_config({text, "config.json"}, warnings);
    CHECK(parsed.num_attention_heads % parsed.num_key_value_heads == 0);
    CHECK(parsed.context_limit() >= parsed.max_position_embeddings);
  });
  CHECK(configs.opened > 100);
  CHECK(configs.refused > 2000);

  const std::string generation = text_of(test_data("qwen3-tiny") / "generation_config.json");
  const Outcome generations = damage(generation, generation.size(), 2000, [](const std::string& text) {
    (void)parse_generation_config({text, "generation_config.json"});
  });
  CHECK(generations.opened > 50);

  const std::string tokenizer =
      R"({"added_tokens_decoder":{"7":{"content":"<|im_end|>","special":true},"12":{"content":"x"}},"eos_token":"<|im_end|>"})";
  const Outcome tokenizers = damage(tokenizer, tokenizer.size(), 2000, [&](const std::string& text) {
    (void)parse_tokenizer_config({text, "tokenizer_config.json"}, warnings);
  });
  CHECK(tokenizers.opened > 50);
}

TEST_CASE("damaged index files") {
  const TemporaryDirectory place;
  for (const char* name : {"s1.safetensors", "s2.safetensors"}) {
    const std::string tensor = std::string(name).substr(0, 2);
    place.write(name,
                safetensors("{\"" + tensor + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  }
  const std::string index =
      R"({"metadata":{"total_size":2,"x":[1,{"y":null}]},"weight_map":{"s1":"s1.safetensors","s2":"s2.safetensors"}})";
  const ModelDirectory directory(place.path());
  const Outcome outcome = damage(index, index.size(), 2000, [&](const std::string& text) {
    place.write("model.safetensors.index.json", text);
    const TensorFiles files(directory);
    CHECK(files.file_count() <= 2);
  });
  CHECK(outcome.opened > 50);
  CHECK(outcome.refused > 1000);
}
