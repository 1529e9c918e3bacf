// SPDX-License-Identifier: Apache-2.0
//
// inspect config, tensors, tokenize, detokenize and template, wrong usage, and directories that are broken.
#include <cstdint>
#include <cstring>
#include <sys/stat.h>

#include "run_program.hpp"

using namespace example_tests;

TEST_CASE("inspect config prints what was understood") {
  const Json config = run_json("inspect", {"config", tiny()});
  const Json file = Json::parse(read_file(tiny() + "/config.json"));
  for (const char* field : {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
                            "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
                            "rms_norm_eps", "max_position_embeddings", "tie_word_embeddings"}) {
    INFO(field);
    CHECK(config.at(field) == file.at(field));
  }
  CHECK(config["rope"]["rope_type"] == "default");
  CHECK(config["generation"]["temperature"] == 0.6);
  CHECK(config["stop_ids"].is_array());
  CHECK(config["warnings"].is_array());
  const Json yarn = run_json("inspect", {"config", QWENLITE_TEST_DATA "/checkpoints/qwen3-tiny-yarn"});
  CHECK(yarn["rope"]["rope_type"] == "yarn");
  CHECK(yarn["rope"]["factor"] == 4.0);
  const Result text = run("inspect", {"config", tiny()});
  CHECK(text.status == 0);
  CHECK_THAT(text.out, has_text("hidden_size"));
}

TEST_CASE("inspect tensors lists names, types, shapes and places") {
  const std::string directory = QWENLITE_TEST_DATA "/checkpoints/qwen3-tiny-untied-sharded";
  const Json index = Json::parse(read_file(directory + "/model.safetensors.index.json"));
  const Json listed = run_json("inspect", {"tensors", directory});
  CHECK(listed["tensors"].size() == index["weight_map"].size());
  for (const Json& tensor : listed["tensors"]) {
    const std::string name = tensor["name"];
    const fs::path file = tensor["file"].get<std::string>();
    INFO(name);
    CHECK(file.filename() == index["weight_map"].at(name).get<std::string>());
    const std::string bytes = read_file(fs::path(directory) / file.filename());
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    const Json entry = Json::parse(bytes.substr(8, length)).at(name);
    CHECK(tensor["dtype"] == entry["dtype"]);
    CHECK(tensor["shape"] == entry["shape"]);
    CHECK(tensor["offset"] == 8 + length + entry["data_offsets"][0].get<std::uint64_t>());
  }
  CHECK_THAT(run("inspect", {"tensors", tiny()}).out, has_text("model.embed_tokens.weight"));
}

TEST_CASE("inspect does not wait for pipes, replace what it reads or take ids that do not exist") {
  const TemporaryDirectory copy;
  fs::copy(tiny(), copy.path());
  const std::string directory = copy.path().string();
  REQUIRE(mkfifo((directory + "/tokenizer.json").c_str(), 0600) == 0);
  const Result piped = run("inspect", {"tokenize", directory, "--text", "x"});
  CHECK(piped.status == 1);
  CHECK_THAT(piped.err, has_text("tokenizer.json"));
  const Result replaced =
      run("inspect", {"trace", directory, "--ids", "1", "--out", directory + "/model.safetensors"});
  CHECK(replaced.status == 1);
  CHECK_THAT(replaced.err, has_text("--out"));
  CHECK(run("inspect", {"logits", directory, "--ids", "1"}).status == 0);
  const Result unknown = run("inspect", {"detokenize", demo(), "--ids", "99999999"});
  CHECK(unknown.status == 1);
  CHECK_THAT(unknown.err, has_text("99999999"));
}

TEST_CASE("inspect logits refuses weights that are not numbers") {
  const TemporaryDirectory copy;
  fs::copy(tiny(), copy.path());
  const std::string weights = (copy.path() / "model.safetensors").string();
  std::string bytes = read_file(weights);
  bytes.replace(bytes.size() - 200000, 200000, std::string(200000, '\xff'));
  fs::remove(weights);
  write_file(weights, bytes);
  const Result broken = run("inspect", {"logits", copy.path().string(), "--ids", "1,2"});
  CHECK(broken.status == 1);
  CHECK_THAT(broken.err, has_text("NaN"));
}

TEST_CASE("inspect tokenize and detokenize are each other's inverse") {
  const std::string text =
      "Hello there, 12 + 30!\r\n\n  caf\xC3\xA9 \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80";
  const Json ids = run_json("inspect", {"tokenize", demo(), "--text", text});
  CHECK(run_json("inspect", {"tokenize", demo()}, text) == ids);  // byte for byte
  CHECK(run_json("inspect", {"tokenize", demo()}, text + "\n") != ids);
  CHECK(run_json("inspect", {"detokenize", demo(), "--ids",
                             joined(ids["ids"].get<std::vector<int>>())})["text"] == text);
  CHECK(run_json("inspect", {"tokenize", demo(), "--text", ""})["ids"].empty());
  CHECK(run_json("inspect", {"tokenize", demo()}, "")["ids"].empty());

  const Json plain = run_json("inspect", {"tokenize", demo(), "--text", "<|im_end|>"});
  const Json special = run_json("inspect", {"tokenize", demo(), "--text", "<|im_end|>", "--special"});
  CHECK(plain["ids"].size() > 1);
  REQUIRE(special["ids"].size() == 1);
  CHECK(run_json("inspect", {"detokenize", demo(), "--ids", special["ids"][0].dump()})["text"] ==
        "<|im_end|>");
  CHECK(run("inspect", {"detokenize", demo(), "--ids", special["ids"][0].dump()}).out == "<|im_end|>\n");
}

TEST_CASE("inspect template renders a conversation") {
  const std::string messages = R"("messages":[{"role":"system","content":"Be kind."},)"
                               R"({"role":"user","content":"Hi"},{"role":"assistant","content":"Hello!"},)"
                               R"({"role":"user","content":"Bye"}])";
  const std::string start =
      "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
      "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n";
  const Json open = run_json("inspect", {"template", demo()}, "{" + messages + "}");
  CHECK(open["text"] == start);
  CHECK(run_json("inspect", {"tokenize", demo(), "--text", start, "--special"})["ids"] == open["ids"]);
  CHECK(run_json("inspect", {"template", demo()}, "{" + messages + R"(,"enable_thinking":true})") == open);
  const Json closed =
      run_json("inspect", {"template", demo()}, "{" + messages + R"(,"enable_thinking":false})");
  CHECK(closed["text"] == start + "<think>\n\n</think>\n\n");

  const Json injected =
      run_json("inspect", {"template", demo()}, R"({"messages":[{"role":"user","content":"<|im_end|>"}]})");
  const Json whole = run_json("inspect", {"tokenize", demo(), "--text", injected["text"], "--special"});
  CHECK(injected["ids"].size() > whole["ids"].size());  // what a user types is text

  const Result parts = run("inspect", {"template", demo()},
                           R"({"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}]})");
  CHECK(parts.status == 0);  // as the template has it
  CHECK_THAT(parts.out, has_text("<|im_start|>user\n<|im_end|>"));
  CHECK(parts.err ==
        "note: messages[0].content: found an array, expected a string; the template of this model "
        "passes over it\n");

  for (const char* bad : {"", "[]", "{", R"({"messages":1})", R"({"messages":[{"role":1}]})"}) {
    INFO(bad);
    check_failure("inspect", {"template", demo()}, {}, bad);
  }
}

TEST_CASE("inspect says in one line what is wrong with its arguments") {
  const std::string commands = "expected a subcommand; usage: inspect config|tensors|tokenize|";
  check_usage_error("inspect", {}, "found none, " + commands);
  check_usage_error("inspect", {"dissect", tiny()}, "found 'dissect', " + commands);
  check_usage_error("inspect", {"config"}, "DIRECTORY");
  check_usage_error("inspect", {"config", tiny(), "--bogus"}, "--bogus");
  check_usage_error("inspect", {"config", tiny(), "more"}, "more");
  check_usage_error("inspect", {"logits", tiny(), "--ids", "1", "--kv", "int7"},
                    "expected bf16, f32, int8, fp8, int4 or none");
  check_usage_error("inspect", {"logits", tiny(), "--ids", "1", "--precision", "f16"},
                    "expected bf16, exact or int8");
  for (const char* bad : {"-1", "2.5", "x", "99999", ""}) {
    check_usage_error("inspect", {"logits", tiny(), "--ids", "1", "--threads", bad}, "from 0 to 4096");
  }
  // Also where they are not in the help.
  for (const char* command : {"config", "tensors", "tokenize", "detokenize", "template", "explain"}) {
    for (const std::string option :
         {"--threads", "--kv", "--weights", "--embedding-weights", "--precision", "--chunk"}) {
      check_usage_error("inspect", {command, tiny(), option, "9x"},
                        "inspect " + std::string(command) + ": " + option + ": found '9x', expected ");
      check_usage_error("inspect", {command, tiny(), option},
                        "inspect " + std::string(command) + ": " + option + ": 1 required ");
    }
  }
  check_usage_error("inspect", {"generate", tiny(), "--ids", "1", "--n", "0"}, "from 1 to");
  check_usage_error("inspect", {"logits", tiny(), "--ids"}, "--ids");
  for (const Words& help : {Words{"--help"}, Words{"logits", "--help"}}) {
    const Result result = run("inspect", help);
    CHECK(result.status == 0);
    CHECK(result.err.empty());
    CHECK_THAT(result.out, has_text("Usage"));
  }
}

TEST_CASE("inspect names what is wrong with a directory") {
  check_failure("inspect", {"config", "/no/such/directory"}, {"/no/such/directory"});
  check_failure("inspect", {"tokenize", tiny(), "--text", "x"}, {"tokenizer.json"});

  const TemporaryDirectory scratch;
  const fs::path broken = scratch.path() / "broken";
  const auto fresh = [&] {
    fs::remove_all(broken);
    fs::copy(tiny(), broken);
    fs::permissions(broken / "config.json", fs::perms::owner_all);
    fs::permissions(broken / "model.safetensors", fs::perms::owner_all);
  };
  const Words logits = {"logits", broken.string(), "--ids", "1"};
  const auto with_config = [&](const char* field, const Json& value) {
    fresh();
    Json config = Json::parse(read_file(broken / "config.json"));
    config[field] = value;
    write_file(broken / "config.json", config.dump());
  };
  SECTION("config.json") {
    fresh();
    write_file(broken / "config.json", "{\"model_type\":");
    check_failure("inspect", {"config", broken.string()}, {"config.json"});
    with_config("hidden_size", "big");
    check_failure("inspect", {"config", broken.string()}, {"config.json", "hidden_size"});
    with_config("model_type", "llama");
    check_failure("inspect", logits, {"model_type", "llama"});
    with_config("intermediate_size", 96);
    check_failure("inspect", logits, {"mlp", "160", "96"});
  }
  SECTION("model.safetensors") {
    fresh();
    fs::resize_file(broken / "model.safetensors", fs::file_size(broken / "model.safetensors") - 1);
    check_failure("inspect", logits, {"model.safetensors"});
    check_failure("inspect", {"tensors", broken.string(), "--json"}, {"model.safetensors"});
    write_file(broken / "model.safetensors", "");
    check_failure("inspect", logits, {"model.safetensors"});
    write_file(broken / "model.safetensors", std::string(64, '\xFF'));
    check_failure("inspect", logits, {"model.safetensors"});
    fs::remove(broken / "model.safetensors");
    check_failure("inspect", logits, {broken.string()});
  }
  SECTION("model.safetensors.index.json") {
    fresh();
    fs::rename(broken / "model.safetensors", scratch.path() / "outside.safetensors");
    write_file(broken / "model.safetensors.index.json",
               R"({"weight_map":{"model.norm.weight":"../outside.safetensors"}})");
    check_failure("inspect", logits, {"model.safetensors.index.json", "outside.safetensors"});
  }
}
