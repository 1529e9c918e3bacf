// SPDX-License-Identifier: Apache-2.0
//
// quantize, as a program: directories that other programs open, its options and errors, and what a signal
// leaves.

#include <cstdint>
#include <cstring>
#include <iterator>

#include "run_program.hpp"

using namespace example_tests;

namespace {

const std::string held_out = QWENLITE_TEST_DATA "/demo/held_out.txt";

double kl_of(const std::string& directory, const std::string& model) {
  return run_json("perplexity", {directory, "--text", held_out, "--conversations", "--max-tokens", "1500",
                                 "--reference", model})["kl"]
      .get<double>();
}

std::size_t entries_in(const fs::path& path) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("quantize writes directories that other programs open") {
  const TemporaryDirectory scratch;
  for (const std::string model : {"qwen3", "qwen3_5"}) {
    std::size_t number = 0;
    for (const Words& how :
         {Words{"--weights", "int8"}, Words{"--weights", "int4:32", "--method", "gptq"},
          Words{"--weights", "int4:64:zeros", "--method", "awq", "--search"}, Words{"--weights", "fp8"},
          Words{"--weights", "bf16", "--embedding-weights", "int4:32"}}) {
      const std::string out = (scratch.path() / (model + std::to_string(number++))).string();
      INFO(out << " " << how[1]);
      Words words = {model, out};
      words.insert(words.end(), how.begin(), how.end());
      if (how.size() > 2 && how[2] == "--method") words.insert(words.end(), {"--tokens", "3000"});
      const Json found = run_json("quantize", words);
      CHECK(found["matrices"].get<int>() >= 1);
      CHECK(found["bytes"].get<double>() < found["source_bytes"].get<double>());
      CHECK(found["seconds"].get<double>() > 0);
      CHECK((found["tokens"].get<int>() > 2000) == (how.size() > 2 && how[2] == "--method"));
      CHECK(fs::exists(fs::path(out) / "tokenizer.json"));
      const double kl = kl_of(out, model);
      CHECK(kl > 0);
      CHECK(kl < 1e-2);
    }
  }
}

TEST_CASE("quantize tells what it did") {
  const TemporaryDirectory scratch;
  const std::string out = (scratch.path() / "out").string();
  const Result result =
      run("quantize", {"qwen3", out, "--weights", "int4:32", "--method", "gptq", "--tokens", "2000"});
  INFO(result.err);
  CHECK(result.status == 0);
  CHECK(result.err.empty());
  for (const char* part : {"int4 in groups of 32", "int8 by rows", "GPTQ", "43\n", "of the layers' results",
                           "MB, ", " tokens\n"}) {
    CHECK_THAT(result.out, has_text(part));
  }
  const Result again = run("quantize", {"qwen3", out});
  CHECK(again.status == 1);
  CHECK_THAT(again.err, has_text("something that exists, expected a new name"));
  CHECK(run("quantize", {"qwen3", out, "--force", "--weights", "int8"}).status == 0);
  write_file(out + "/note", "not a checkpoint's");
  check_failure("quantize", {"qwen3", out, "--force"}, {"'note' is in it"});
  CHECK(fs::exists(out + "/note"));
  const Result inspected = run("inspect", {"config", out});
  CHECK(inspected.status == 0);
}

TEST_CASE("other groups than those of a packed directory are wrong usage") {
  const TemporaryDirectory scratch;
  const std::string out = (scratch.path() / "out").string();
  REQUIRE(run("quantize", {"qwen3", out, "--weights", "int4:64"}).status == 0);
  const auto logits = [&](const std::string& option, const std::string& word) {
    return Words{"logits", out, "--ids", "1,2", option, word};
  };
  for (const char* word : {"int4:32", "int4:128", "int4:64:zeros", "int8"}) {
    check_usage_error("inspect", logits("--weights", word),
                      "--weights: found " + std::string(word) +
                          ", expected int4:64, as these weights are packed in " + out);
  }
  check_usage_error("inspect", logits("--embedding-weights", "int8:128"),
                    "--embedding-weights: found int8:128, expected int8:row, as these weights are packed");
  check_usage_error("perplexity",
                    {"qwen3", "--text", held_out, "--reference", out, "--reference-weights", "int4:32"},
                    "--reference-weights: found int4:32, expected int4:64");
  for (const char* word : {"int4", "int4:64"}) CHECK(run("inspect", logits("--weights", word)).status == 0);
}

TEST_CASE("another format than that of a plain embedding beside packed layers is wrong usage") {
  const TemporaryDirectory scratch;
  const std::string out = (scratch.path() / "out").string();
  REQUIRE(run("quantize", {"qwen3", out, "--weights", "fp8"}).status == 0);  // as published checkpoints are
  const auto logits = [&](const std::string& word) {
    return Words{"logits", out, "--ids", "1,2", "--embedding-weights", word};
  };
  check_usage_error("inspect", logits("f32"), "--embedding-weights: found f32, expected bf16, as these");
  for (const char* word : {"bf16", "int8"}) CHECK(run("inspect", logits(word)).status == 0);
}

TEST_CASE("a tensor that is copied although it holds NaN is told") {
  const TemporaryDirectory scratch;
  const fs::path source = scratch.path() / "source";
  fs::copy(fs::path(QWENLITE_DEMO_MODELS) / "qwen3", source);
  const std::string norm = "model.layers.0.input_layernorm.weight";
  std::string content = read_file(source / "model.safetensors");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, content.data(), sizeof header_bytes);
  const Json place = Json::parse(content.substr(8, header_bytes))[norm]["data_offsets"];
  for (std::size_t at = place[0]; at < place[1]; ++at) content[8 + header_bytes + at] = '\xff';
  write_file(source / "model.safetensors", content);
  const fs::path out = scratch.path() / "out";
  const Result result = run("quantize", {source.string(), out.string(), "--weights", "int8"});
  CHECK(result.status == 0);
  CHECK(result.err == "warning: tensor '" + norm +
                          "': found NaN or infinity, expected finite numbers; it is copied as it is\n");
  CHECK(fs::exists(out / "model.safetensors"));
}

TEST_CASE("a limit on the size of files is an error that names the file") {
  const TemporaryDirectory scratch;
  const fs::path folder = scratch.path() / "folder";
  fs::create_directory(folder);
  const Result result = run_words(
      {"/bin/sh", "-c",
       "ulimit -f 200; exec '" + path_of("quantize") + "' qwen3 '" + (folder / "out").string() + "'"});
  CHECK(result.status == 1);
  CHECK(is_one_line(result.err));
  CHECK_THAT(result.err, has_text("model.safetensors': cannot write it: File too large"));
  CHECK(entries_in(folder) == 0);
}

TEST_CASE("quantize never replaces what it reads") {
  const TemporaryDirectory scratch;
  const fs::path own = scratch.path() / "own";
  fs::copy(fs::path(QWENLITE_DEMO_MODELS) / "qwen3", own);
  fs::create_directory_symlink(own, scratch.path() / "link");
  const auto bytes = fs::file_size(own / "model.safetensors");
  for (const char* name : {"own", "own/", "own/.", "link"}) {
    INFO(name);
    const std::string out = (scratch.path() / name).string();
    check_failure("quantize", {own.string(), out, "--force"}, {"the checkpoint that is read"});
    check_failure("quantize", {own.string(), out}, {"the checkpoint that is read"});
  }
  CHECK(fs::file_size(own / "model.safetensors") == bytes);
  CHECK(entries_in(scratch.path()) == 2);
}

TEST_CASE("quantize takes any text, in pieces of its own") {
  const TemporaryDirectory scratch;
  const std::string text = (scratch.path() / "text").string();
  write_file(text, "Hello!<|endoftext|>How are you?<|endoftext|>I am well.");
  const Json found = run_json(
      "quantize", {"qwen3", (scratch.path() / "out").string(), "--method", "awq", "--calibration", text});
  CHECK(found["tokens"].get<int>() > 5);
  CHECK(found["tokens"].get<int>() < 30);
}

TEST_CASE("quantize tells what is wrong with its arguments") {
  const TemporaryDirectory scratch;
  const std::string out = (scratch.path() / "out").string();
  check_usage_error("quantize", {}, "SOURCE");
  check_usage_error("quantize", {"qwen3"}, "OUT");
  check_usage_error("quantize", {"qwen3", out, "--weights", "int5"}, "found 'int5'");
  check_usage_error("quantize", {"qwen3", out, "--method", "best"}, "expected rtn, gptq or awq");
  check_usage_error("quantize", {"qwen3", out, "--weights", "bf16"}, "a quantised format");
  check_usage_error("quantize", {"qwen3", out, "--weights", "fp8", "--method", "gptq"},
                    "rtn with these weights");
  check_usage_error("quantize", {"qwen3", out, "--weights", "fp8", "--embedding-weights", "int8"},
                    "--embedding-weights");
  check_usage_error("quantize", {"qwen3", out, "--calibration", held_out}, "--method gptq or awq");
  for (const Words& method : {Words{}, Words{"--method", "rtn"}}) {  // which is the default
    Words words = {"qwen3", out, "--tokens", "100"};
    words.insert(words.end(), method.begin(), method.end());
    check_usage_error("quantize", words,
                      "--tokens: found 100 with --method rtn, expected --method gptq or awq");
  }
  check_usage_error("quantize", {"qwen3", out, "--tokens", "0"}, "found '0'");
  check_failure("quantize", {"qwen3", out, "--method", "gptq", "--calibration", "/no/such/file"},
                {"'/no/such/file': cannot be read"});
  check_failure("quantize", {"/no/such/directory", out}, {"/no/such/directory"});
  check_failure("quantize", {"qwen3", "/no/such/folder/out"}, {"could not create a directory beside it"});
  check_failure("quantize", {"qwen3", scratch.path().string(), "--force"}, {"not a checkpoint directory"});
  check_failure("quantize", {"qwen3", ""}, {"the directory to write", "an empty name"});
  CHECK(entries_in(scratch.path()) == 0);
}

TEST_CASE("quantize that is interrupted leaves nothing") {
  const TemporaryDirectory scratch;
  const fs::path folder = scratch.path() / "folder";
  fs::create_directory(folder);
  // A shell waits until the work has begun, and then interrupts it.
  const std::string script = "'" + path_of("quantize") + "' qwen3 '" + (folder / "out").string() +
                             "' --method gptq --search --threads 1 & child=$!; "
                             "for i in 1 2 3 4 5 6 7 8 9 10; do ls -A '" +
                             folder.string() +
                             "' | grep -q partial && break; sleep 0.05; done; kill -TERM $child; wait $child";
  const Result result = run_words({"/bin/sh", "-c", script});
  CHECK(result.status == 1);
  CHECK(is_one_line(result.err));
  CHECK_THAT(result.err, has_text("stopped; nothing was written"));
  CHECK(entries_in(folder) == 0);
}
