// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <functional>
#include <sys/stat.h>

#include <qwenlite/checkpoint/checkpoint.hpp>
#include <qwenlite/generate/sampling_options.hpp>

#include "checkpoint/fixtures.hpp"

using namespace fixtures;
using namespace qwenlite;

namespace {

/// The whole content of a file.
std::string text_of(const fs::path& path) {
  const MappedFile file(path, ReadMode::read);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::vector<int> stop_ids(const Checkpoint& files) {
  return {files.stop_ids().begin(), files.stop_ids().end()};
}

/// Takes everything a Qwen3 network of these sizes has, and nothing else may be left.
void take_all(const Checkpoint& files) {
  const ModelConfig& c = files.config();
  const Weights root = files.weights();
  const Weights model = root.scope("model.");
  const Index q = c.num_attention_heads * c.head_dim;
  const Index kv = c.num_key_value_heads * c.head_dim;
  (void)model.matrix("embed_tokens.weight", c.vocab_size, c.hidden_size);
  (void)model.vector("norm.weight", c.hidden_size);
  if (!c.tie_word_embeddings) (void)root.matrix("lm_head.weight", c.vocab_size, c.hidden_size);
  for (Index i = 0; i < c.num_hidden_layers; ++i) {
    const Weights layer = model.scope("layers." + std::to_string(i) + ".");
    (void)layer.vector("input_layernorm.weight", c.hidden_size);
    (void)layer.vector("post_attention_layernorm.weight", c.hidden_size);
    (void)layer.matrix("self_attn.q_proj.weight", q, c.hidden_size);
    (void)layer.matrix("self_attn.k_proj.weight", kv, c.hidden_size);
    (void)layer.matrix("self_attn.v_proj.weight", kv, c.hidden_size);
    (void)layer.matrix("self_attn.o_proj.weight", c.hidden_size, q);
    (void)layer.vector("self_attn.q_norm.weight", c.head_dim);
    (void)layer.vector("self_attn.k_norm.weight", c.head_dim);
    (void)layer.matrix("mlp.gate_proj.weight", c.intermediate_size, c.hidden_size);
    (void)layer.matrix("mlp.up_proj.weight", c.intermediate_size, c.hidden_size);
    (void)layer.matrix("mlp.down_proj.weight", c.hidden_size, c.intermediate_size);
  }
  if (c.tie_word_embeddings) {
    root.expect_all_used({"lm_head."});
  } else {
    root.expect_all_used();
  }
}

}  // namespace

TEST_CASE("the Qwen3 checkpoints of the test data open, and a Qwen3 network uses all of them") {
  for (const char* name : {"qwen3-tiny", "qwen3-tiny-untied-sharded", "qwen3-tiny-yarn"}) {
    INFO(name);
    for (const ReadMode mode : {ReadMode::map, ReadMode::read}) {
      const Checkpoint files(test_data(name), {.read_mode = mode});
      CHECK(files.directory() == test_data(name));
      CHECK(files.config().vocab_size == 512);
      CHECK(files.bytes_mapped() == (mode == ReadMode::map ? files.tensors().bytes() : 0));
      CHECK(stop_ids(files) == std::vector<int>{510, 509});
      CHECK(files.generation_defaults().top_k == 20);
      CHECK_FALSE(files.token_count().has_value());
      CHECK(files.warnings().empty());
      take_all(files);
    }
  }
  CHECK(Checkpoint(test_data("qwen3-tiny")).config().tie_word_embeddings);
  CHECK(Checkpoint(test_data("qwen3-tiny")).tensors().find("lm_head.weight") >= 0);  // stored though tied
  const Checkpoint untied(test_data("qwen3-tiny-untied-sharded"));
  CHECK(untied.config().rope.rope_theta == 5e6);
  CHECK(untied.config().hidden_size == 96);
  const Checkpoint yarn(test_data("qwen3-tiny-yarn"));
  CHECK(yarn.config().rope.rope_type == RopeType::yarn);
  CHECK(yarn.config().rope.original_max_position_embeddings == 256);
}

TEST_CASE("the Qwen3.5 checkpoints of the test data open, in both forms of their files") {
  for (const char* name : {"qwen3.5-tiny", "qwen3.5-tiny-gqa"}) {
    INFO(name);
    const Checkpoint files(test_data(name));
    CHECK(files.config().model_type == "qwen3_5");
    CHECK(files.config().layers_of(LayerType::linear_attention) == 6);
    CHECK(files.config().layer_types[3] == LayerType::full_attention);
    CHECK(files.config().linear_conv_kernel_dim == 4);
    CHECK(files.config().rope.partial_rotary_factor == 0.25);
    CHECK(stop_ids(files) == std::vector<int>{510});
    CHECK(files.warnings().empty());
  }
  CHECK(Checkpoint(test_data("qwen3.5-tiny")).config().mtp_num_hidden_layers == 1);
  CHECK(Checkpoint(test_data("qwen3.5-tiny-gqa")).config().linear_num_value_heads == 8);
}

TEST_CASE("another family is refused by its config, not by its tensors") {
  const TemporaryDirectory place;
  place.write("config.json", R"({"model_type": "qwen3_5_moe_text"})");
  expect_error(ErrorCode::unsupported, {"config.json", "model_type", "'qwen3_5_moe_text'", "'qwen3'"},
               [&] { Checkpoint{place.path()}; });
}

TEST_CASE("what is missing is named") {
  const TemporaryDirectory place;
  expect_error(ErrorCode::io, {place.path().string(), "config.json"}, [&] { Checkpoint{place.path()}; });
  expect_error(ErrorCode::io, {"nowhere", "directory"}, [&] { Checkpoint{place.path() / "nowhere"}; });
  place.write("config.json", text_of(test_data("qwen3-tiny") / "config.json"));
  expect_error(ErrorCode::io, {place.path().string(), "model.safetensors"},
               [&] { Checkpoint{place.path()}; });
  place.write("config.json", "");
  expect_error(ErrorCode::bad_file, {"config.json", "empty"}, [&] { Checkpoint{place.path()}; });
  place.write("config.json", std::string(16'000'001, ' '));
  expect_error(ErrorCode::bad_file, {"config.json", "16000001 bytes"}, [&] { Checkpoint{place.path()}; });
}

TEST_CASE("a Hugging Face cache snapshot opens through its links, and no file may leave it") {
  const TemporaryDirectory place;
  const fs::path repository = "models--Qwen--tiny";
  const fs::path snapshot = place.path() / repository / "snapshots" / "0123";
  fs::create_directories(snapshot);
  int blob = 0;
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
    const std::string hash = "blob" + std::to_string(blob++);
    place.write(repository / "blobs" / hash, text_of(test_data("qwen3-tiny") / name));
    fs::create_symlink(fs::path("../../blobs") / hash, snapshot / name);
  }
  take_all(Checkpoint(snapshot));
  const fs::path outside = place.write("elsewhere.json", "{}");
  fs::remove(snapshot / "generation_config.json");
  fs::create_symlink(outside, snapshot / "generation_config.json");
  expect_error(ErrorCode::bad_file, {"generation_config.json", "a link to", "elsewhere.json"},
               [&] { Checkpoint{snapshot}; });
}

TEST_CASE("a checkpoint in memory is the same as one on disk") {
  const fs::path directory = test_data("qwen3-tiny-untied-sharded");
  std::vector<Bytes> contents;
  for (const char* number : {"1", "2", "3"}) {
    const fs::path file = directory / (std::string("model-0000") + number + "-of-00003.safetensors");
    contents.push_back(copy(MappedFile(file, ReadMode::read).bytes()));
  }
  std::vector<NamedBytes> tensors;
  for (const Bytes& content : contents) tensors.push_back({"part", content});
  const std::string config = text_of(directory / "config.json");
  const std::string generation = text_of(directory / "generation_config.json");
  const Checkpoint memory(
      CheckpointMemory{.config = config, .generation_config = generation, .tensors = tensors});
  const Checkpoint disk(directory);
  take_all(memory);
  CHECK(memory.directory().empty());
  CHECK(memory.bytes_mapped() == 0);
  CHECK(stop_ids(memory) == stop_ids(disk));
  REQUIRE(memory.tensors().entries().size() == disk.tensors().entries().size());
  for (const auto& entry : disk.tensors().entries()) {
    const Index i = memory.tensors().find(entry.name);
    REQUIRE(i >= 0);
    CHECK(bytes_of(memory.tensors().entries()[static_cast<std::size_t>(i)].view) == bytes_of(entry.view));
  }
  expect_error(ErrorCode::bad_argument, {"memory"},
               [&] { Checkpoint{CheckpointMemory{.config = config, .tensors = {}}}; });
}

TEST_CASE("stop ids are the union of three files; ids beyond the vocabulary are left out with a warning") {
  const TemporaryDirectory place;
  std::string config = text_of(test_data("qwen3-tiny") / "config.json");
  fs::copy_file(test_data("qwen3-tiny") / "model.safetensors", place.path() / "model.safetensors");
  const auto set_eos = [&](const std::string& value) {
    std::string changed = config;
    const std::string field = "\"eos_token_id\": 510";
    const auto at = changed.find(field);
    REQUIRE(at != std::string::npos);
    changed.replace(at, field.size(), value.empty() ? "\"x\": 0" : "\"eos_token_id\": " + value);
    place.write("config.json", changed);
  };
  const std::string tokenizer =
      R"({"eos_token":"<|im_end|>","added_tokens_decoder":{"7":{"content":"<|im_end|>"},"9":{}}})";

  set_eos("");
  CHECK(stop_ids(Checkpoint(place.path())).empty());
  set_eos("5");
  CHECK(stop_ids(Checkpoint(place.path())) == std::vector<int>{5});
  place.write("generation_config.json", R"({"eos_token_id":[6,5]})");
  CHECK(stop_ids(Checkpoint(place.path())) == std::vector<int>{5, 6});
  place.write("tokenizer_config.json", tokenizer);
  const Checkpoint all(place.path());
  CHECK(stop_ids(all) == std::vector<int>{5, 6, 7});
  CHECK(all.token_count() == 10);
  set_eos("");
  place.write("generation_config.json", "{}");
  CHECK(stop_ids(Checkpoint(place.path())) == std::vector<int>{7});

  set_eos("[511, 512, 3]");
  const Checkpoint beyond(place.path());
  CHECK(stop_ids(beyond) == std::vector<int>{511, 3, 7});
  REQUIRE(beyond.warnings().size() == 2);
  CHECK_THAT(beyond.warnings()[0], has_text("512") && has_text("vocab_size"));
  CHECK_THAT(beyond.warnings()[1],
             has_text("end at id 9 of 512; no row of the embedding is taken for padding"));
  CHECK_FALSE(beyond.token_count().has_value());  // a reply could never end with 511
}

TEST_CASE("added tokens that come first in a vocabulary do not make the rest padding") {
  const auto count = [](Index vocab_size, int highest) {
    std::string config = text_of(test_data("qwen3-tiny") / "config.json");
    const std::string field = "\"vocab_size\": 512";
    const auto at = config.find(field);
    REQUIRE(at != std::string::npos);
    config.replace(at, field.size(), "\"vocab_size\": " + std::to_string(vocab_size));
    const std::string tokenizer =
        R"({"added_tokens_decoder":{")" + std::to_string(highest) + R"(":{"content":"<x>"}}})";
    const std::string weights = text_of(test_data("qwen3-tiny") / "model.safetensors");
    const std::vector<qwenlite::NamedBytes> tensors{{"memory", std::as_bytes(std::span(weights))}};
    const Checkpoint files({.config = config, .tokenizer_config = tokenizer, .tensors = tensors});
    CHECK(files.warnings().size() == (files.token_count() ? 0 : 1));
    return files.token_count();
  };
  CHECK(count(151936, 151668) == 151669);  // as in Qwen3
  CHECK(count(151936, 151935) == 151936);
  CHECK(count(151936, 151936 - 1025) == 151936 - 1024);
  CHECK(count(151936, 151936 - 1026) == std::nullopt);
  CHECK(count(151936, 1) == std::nullopt);
}

TEST_CASE("weights outlive the checkpoint they came from") {
  std::optional<Weights> weights;
  {
    const Checkpoint files(test_data("qwen3-tiny"));
    weights = files.weights();
  }
  CHECK(bytes_of(weights->tensor("model.norm.weight", Shape{64})).size() == 128);
}

TEST_CASE("generation_config.json: what is there, what is not, what cannot be") {
  const auto read = [](const std::string& text) {
    return parse_generation_config({text, "generation_config.json"});
  };
  const GenerationDefaults all =
      read(R"({"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0.0,
    "repetition_penalty":1.05,"presence_penalty":1.5,"eos_token_id":[151645,151643,151645],"pad_token_id":1})");
  CHECK(all.do_sample == true);
  CHECK(all.temperature == 0.6F);
  CHECK(all.top_k == 20);
  CHECK(all.top_p == 0.95F);
  CHECK(all.min_p == 0.0F);
  CHECK(all.repetition_penalty == 1.05F);
  CHECK(all.presence_penalty == 1.5F);
  CHECK(all.eos_token_ids == std::vector<int>{151645, 151643});
  const GenerationDefaults none = read(R"({"temperature":null})");
  CHECK_FALSE(none.do_sample.has_value());
  CHECK_FALSE(none.temperature.has_value());
  CHECK_FALSE(none.top_k.has_value());
  CHECK(none.eos_token_ids.empty());
  for (const char* field : {R"("temperature":-1)", R"("temperature":"hot")", R"("top_k":-1)",
                            R"("top_k":1.5)", R"("top_p":-0.1)", R"("top_p":1.01)", R"("min_p":-0.1)",
                            R"("min_p":1.5)", R"("repetition_penalty":0)", R"("presence_penalty":[])",
                            R"("do_sample":1)", R"("eos_token_id":"x")", R"("eos_token_id":[null])"}) {
    INFO(field);
    const std::string name = std::string(field).substr(1, std::string(field).find(':') - 2);
    expect_error(ErrorCode::bad_config, {"'generation_config.json'", "'" + name + "'"},
                 [&] { read(std::string("{") + field + "}"); });
  }
}

TEST_CASE("generation_config.json takes the values that SamplingOptions takes, and no others") {
  const auto read = [](const std::string& name, const std::string& value) {
    return parse_generation_config({"{\"" + name + "\":" + value + "}", "dir/generation_config.json"});
  };
  struct Field {
    const char* name;
    std::vector<std::string> ends;
    std::vector<std::string> beyond;
  };
  for (const Field& field :
       {Field{"temperature", {"0", "100"}, {"-0.001", "100.001", "200"}},
        Field{"top_p", {"0", "1"}, {"-0.001", "1.001"}}, Field{"min_p", {"0", "1"}, {"-0.001", "1.001"}},
        Field{"repetition_penalty", {"0.01", "100"}, {"0", "0.009", "100.001"}},
        Field{"presence_penalty", {"-100", "100"}, {"-100.001", "100.001"}}}) {
    for (const std::string& value : field.ends) {
      INFO(field.name << " " << value);
      CHECK_NOTHROW(SamplingOptions{}.or_else(read(field.name, value)).check());
    }
    for (const std::string& value : field.beyond) {
      INFO(field.name << " " << value);
      expect_error(ErrorCode::bad_config,
                   {"'dir/generation_config.json': field '" + std::string(field.name) + "': found " + value,
                    "expected a number"},
                   [&] { (void)read(field.name, value); });
    }
  }
}

TEST_CASE("tokenizer_config.json: the highest id and the id of eos_token") {
  std::vector<std::string> warnings;
  const auto read = [&](const std::string& text) {
    warnings.clear();
    return parse_tokenizer_config({text, "tokenizer_config.json"}, warnings);
  };
  const std::string added =
      R"("added_tokens_decoder":{"12":{"content":"<|im_end|>"},"20":{"content":"</think>"},"3":{"content":"a"}})";
  TokenizerFacts facts = read(R"({"eos_token":"<|im_end|>",)" + added + "}");
  CHECK(facts.eos_token_id == 12);
  CHECK(facts.token_count == 21);
  facts = read(R"({"eos_token":{"content":"</think>","lstrip":false},)" + added + "}");
  CHECK(facts.eos_token_id == 20);
  CHECK(warnings.empty());
  facts = read(R"({"eos_token":null,)" + added + "}");
  CHECK_FALSE(facts.eos_token_id.has_value());
  CHECK(warnings.empty());
  facts = read(R"({"eos_token":"</s>",)" + added + "}");
  CHECK_FALSE(facts.eos_token_id.has_value());
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], has_text("'eos_token'") && has_text("'</s>'"));
  facts = read(R"({"eos_token":"</s>"})");
  CHECK_FALSE(facts.token_count.has_value());
  CHECK_FALSE(read(R"({"added_tokens_decoder":{}})").token_count.has_value());
  for (const char* text :
       {R"({"eos_token":5})", R"({"eos_token":{"content":5}})", R"({"added_tokens_decoder":[]})",
        R"({"added_tokens_decoder":{"x":{}}})", R"({"added_tokens_decoder":{"-1":{}}})",
        R"({"added_tokens_decoder":{"1.5":{}}})", R"({"added_tokens_decoder":{"99999999999":{}}})",
        R"({"added_tokens_decoder":{"":{}}})", R"({"added_tokens_decoder":{"1":"a"}})"}) {
    INFO(text);
    expect_error(ErrorCode::bad_config, {"'tokenizer_config.json'", "field"}, [&] { read(text); });
  }
}

TEST_CASE("the real tokenizer's config: stop id and count of tokens") {
  const char* shared = std::getenv("QWENLITE_SHARED");
  const fs::path file = fs::path(shared == nullptr ? "" : shared) / "tokenizers/qwen3/tokenizer_config.json";
  if (shared == nullptr || !fs::exists(file)) {
    WARN("SKIPPED: QWENLITE_SHARED does not name a directory with tokenizers/qwen3");
    return;
  }
  std::vector<std::string> warnings;
  const TokenizerFacts facts = parse_tokenizer_config({text_of(file), "tokenizer_config.json"}, warnings);
  CHECK(facts.eos_token_id == 151645);
  CHECK(facts.token_count == 151669);
  CHECK(warnings.empty());
}

TEST_CASE("a file that is a link, a directory or a pipe is told by the name in the checkpoint's directory") {
  struct Case {
    const char* what;
    std::function<void(const fs::path&)> make;
    ErrorCode code;
    std::string found;
  };
  const TemporaryDirectory outside;
  outside.write("config.json", "{}");
  constexpr auto io = ErrorCode::io;
  const std::vector<Case> cases = {
      {"a link to nowhere", [](const fs::path& file) { fs::create_symlink("/no/such/place", file); }, io,
       "found a link to '/no/such/place' that cannot be followed (No such file or directory)"},
      {"a link to itself", [](const fs::path& file) { fs::create_symlink(file.filename(), file); }, io,
       "that cannot be followed (Too many levels of symbolic links)"},
      {"a link to a directory", [](const fs::path& file) { fs::create_symlink("/tmp", file); }, io,
       "found a link to '/tmp' (a directory), expected a regular file"},
      {"a link out", [&](const fs::path& file) { fs::create_symlink(outside.path() / "config.json", file); },
       ErrorCode::bad_file, "expected a file inside '"},
      {"a directory", [](const fs::path& file) { fs::create_directory(file); }, io,
       "found a directory, expected a regular file"},
      {"a pipe", [](const fs::path& file) { REQUIRE(::mkfifo(file.c_str(), 0600) == 0); }, io,
       "found a named pipe, expected a regular file"},
      {"a link to a device", [](const fs::path& file) { fs::create_symlink("/dev/zero", file); }, io,
       "found a link to '/dev/zero' (a device), expected a regular file"},
  };
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer_config.json", "model.safetensors"}) {
    for (const Case& c : cases) {
      INFO(name << " is " << c.what);
      const TemporaryDirectory place;
      fs::copy(test_data("qwen3-tiny"), place.path(), fs::copy_options::recursive);
      fs::remove(place.path() / name);
      c.make(place.path() / name);
      const std::string shown = "'" + (place.path() / name).string() + "': ";
      expect_error(c.code, {shown, c.found}, [&] { Checkpoint{place.path()}; });
    }
  }
}

TEST_CASE("a snapshot in a Hugging Face cache opens, all of its files being links") {
  const TemporaryDirectory place;
  const fs::path repository = place.path() / "models--Qwen--tiny";
  const fs::path snapshot = repository / "snapshots" / "c189";
  fs::create_directories(repository / "blobs");
  fs::create_directories(snapshot);
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
    fs::copy_file(test_data("qwen3-tiny") / name, repository / "blobs" / (std::string("blob-of-") + name));
    fs::create_symlink(std::string("../../blobs/blob-of-") + name, snapshot / name);
  }
  CHECK(Checkpoint(snapshot).config().vocab_size == 512);
  fs::create_directory_symlink(snapshot, place.path() / "alias");
  CHECK(Checkpoint(place.path() / "alias").config().vocab_size == 512);
}
