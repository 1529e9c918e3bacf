// SPDX-License-Identifier: Apache-2.0
//
// perplexity, as a program: its figures against `inspect logits`, what it reads and scores, and its errors.
#include <cmath>

#include "run_program.hpp"

using namespace example_tests;

namespace {

const std::string held_out = QWENLITE_TEST_DATA "/demo/held_out.txt";

/// The table's row of this name, without the name; the last one.
std::string row_of(const std::string& table, const std::string& name) {
  const std::size_t at = table.rfind("\n" + name);
  REQUIRE(at != std::string::npos);
  const std::size_t begin = table.find_first_not_of(' ', at + 1 + name.size());
  return table.substr(begin, table.find('\n', begin) - begin);
}

Json score(Words words) {
  words.insert(words.begin(), demo());
  return run_json("perplexity", words);
}

std::vector<int> ids_of(const std::string& text) {
  return run_json("inspect", {"tokenize", demo(), "--special", "--text", text})["ids"]
      .get<std::vector<int>>();
}

/// Mean of -ln p over the tokens from `first` on, by inspect.
double mean_nll(const std::vector<int>& ids, std::size_t first) {
  const Json found =
      run_json("inspect", {"logits", demo(), "--all", "--ids", joined(ids), "--at", joined(ids)});
  double sum = 0;
  for (std::size_t i = first; i < ids.size(); ++i) {
    const Json& before = found["positions"][i - 1];
    sum += before["logsumexp"].get<double>() - before["at"][i].get<double>();
  }
  return sum / static_cast<double>(ids.size() - first);
}

}  // namespace

TEST_CASE("perplexity of a text is that of its logits") {
  const TemporaryDirectory scratch;
  const std::string text = "<|im_start|>user\nHello!<|im_end|>\n";
  write_file(scratch.path() / "text", text);
  const std::vector<int> ids = ids_of(text);
  const Json found = score({"--text", (scratch.path() / "text").string()});
  CHECK(found["tokens"] == ids.size() - 1);
  CHECK(found["perplexity"].get<double>() == Approx(std::exp(mean_nll(ids, 1))).epsilon(1e-5));
  CHECK(found["kl"].is_null());
  CHECK(found["top1"].is_null());
  CHECK(found["reference"].is_null());
  CHECK(found["model"]["name"] == "qwen3");
  CHECK(found["model"]["perplexity"] == found["perplexity"]);
  CHECK(found["model"]["kv"] == "bf16");
  CHECK(found["model"]["weights"] == run_json("inspect", {"explain", demo()})["weights"]["dtypes"]);
  CHECK(found.size() == 6);
}

TEST_CASE("perplexity scores the answers of conversations") {
  const TemporaryDirectory scratch;
  const std::string file = (scratch.path() / "text").string();
  const std::string asked = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n";
  const std::string bare = asked + "Hello!<|im_end|>\n";  // context only
  const std::string empty_block = "<think>\n\n</think>\n\n";
  const std::string answer = "Hello! How can I help?<|im_end|>";
  write_file(file, bare + asked + empty_block + answer + "\n");
  const std::vector<int> without = ids_of(bare + asked + empty_block + answer);
  const std::size_t first = ids_of(bare + asked + empty_block).size();
  const Json found = score({"--text", file, "--conversations"});
  CHECK(found["tokens"] == without.size() - first);
  CHECK(found["perplexity"].get<double>() == Approx(std::exp(mean_nll(without, first))).epsilon(1e-5));

  // With something in the block, it is written by the model too. The second is read as if it stood alone.
  const std::string block = "<think>\nA greeting.\n</think>\n\n";
  write_file(file, asked + empty_block + answer + "\n<|endoftext|>\n" + asked + block + answer +
                       "\n<|endoftext|>\n" + bare);
  const Json two = score({"--text", file, "--conversations"});
  const std::vector<int> thinking = ids_of(asked + block + answer);
  const std::size_t from = ids_of(asked).size();
  const std::vector<int> plain = ids_of(asked + empty_block + answer);
  const std::size_t plain_from = ids_of(asked + empty_block).size();
  const auto plain_count = static_cast<double>(plain.size() - plain_from);
  const auto thinking_count = static_cast<double>(thinking.size() - from);
  CHECK(two["tokens"].get<double>() == plain_count + thinking_count);
  const double mean =
      (mean_nll(plain, plain_from) * plain_count + mean_nll(thinking, from) * thinking_count) /
      (plain_count + thinking_count);
  CHECK(two["perplexity"].get<double>() == Approx(std::exp(mean)).epsilon(1e-5));
}

TEST_CASE("perplexity compares with a reference") {
  const Words text = {"--text", held_out, "--conversations", "--max-tokens", "1500"};
  const auto with = [&](Words more) {
    more.insert(more.end(), text.begin(), text.end());
    return score(more);
  };
  const Json same = with({"--reference-weights", "bf16"});
  CHECK(same["kl"] == 0);
  CHECK(same["top1"] == 1);
  CHECK(same["perplexity"] == with({})["perplexity"]);
  const Json exact = with({"--kv", "f32", "--reference-kv", "bf16"});
  CHECK(exact["kl"].get<double>() > 0);
  CHECK(exact["kl"].get<double>() < 1e-3);
  CHECK(exact["top1"].get<double>() > 0.99);
  // Recomputed keys and values have the bits of the same storage format.
  const Json none = with({"--kv", "none", "--reference-kv", "f32"});
  CHECK(none["kl"] == 0);
  CHECK(none["perplexity"] == exact["perplexity"]);
  const Json rounded = with({"--weights", "int8", "--reference-weights", "bf16"});
  CHECK(rounded["kl"].get<double>() > 0);
  CHECK(rounded["kl"].get<double>() < 1e-2);
  const Json coarse = with({"--weights", "int4", "--reference-weights", "bf16"});
  CHECK(coarse["kl"].get<double>() > rounded["kl"].get<double>());
  CHECK(coarse["model"]["weights"] == "int4 in groups of 64, embedding int8 by rows");
  CHECK(coarse["reference"]["weights"] == same["model"]["weights"]);
  CHECK(coarse["reference"]["perplexity"] == same["perplexity"]);
  CHECK(none["model"]["kv"] == "none");
  CHECK(none["reference"]["kv"] == "f32");
  const Json small = with({"--reference", QWENLITE_TEST_DATA "/demo/two_layers"});
  CHECK(small["reference"]["name"] == "two_layers");
  CHECK(small["reference"]["perplexity"] > small["perplexity"]);
  CHECK(small["kl"].get<double>() > 0.1);
  CHECK(small["top1"].get<double>() < 0.99);
}

TEST_CASE("perplexity reads windows") {
  const Words text = {"--text", held_out, "--max-tokens", "400"};
  const auto with = [&](Words more) {
    more.insert(more.end(), text.begin(), text.end());
    return score(more);
  };
  const Json whole = with({});
  CHECK(whole["tokens"] == 399);
  const Json windows = with({"--window", "64", "--stride", "16"});
  CHECK(windows["tokens"] == 399);
  CHECK(windows["perplexity"] != whole["perplexity"]);
  CHECK(with({"--window", "400"})["perplexity"] == whole["perplexity"]);
  CHECK(with({"--window", "64"})["perplexity"] == with({"--window", "64", "--stride", "32"})["perplexity"]);
  CHECK(with({"--threads", "1", "--chunk", "7"})["perplexity"] == whole["perplexity"]);
}

TEST_CASE("perplexity prints a table, and no bar where there is no terminal") {
  const Words words = {"qwen3", "--text", held_out, "--conversations", "--max-tokens", "800"};
  const Result alone = run("perplexity", words);
  CHECK(alone.status == 0);
  CHECK(alone.err.empty());
  CHECK_THAT(alone.out, has_text(" tokens scored of 800 in ") && has_text("\nkeys and values   bf16\n"));
  CHECK(alone.out.find("KL") == std::string::npos);
  CHECK(alone.out.find("reference") == std::string::npos);
  Words json = words;
  json[0] = demo();
  const Json found = run_json("perplexity", json);
  CHECK(std::stod(row_of(alone.out, "perplexity")) == Approx(found["perplexity"].get<double>()).margin(1e-5));
  CHECK(alone.out.rfind(std::to_string(found["tokens"].get<int>()) + " tokens scored", 0) == 0);

  Words compared = words;
  compared.insert(compared.end(), {"--reference-kv", "f32"});
  const Result both = run("perplexity", compared);
  CHECK(both.err.empty());
  CHECK_THAT(both.out, has_text("model") && has_text("reference") && has_text("KL divergence") &&
                           has_text("top-1 agreement"));
  CHECK_THAT(row_of(both.out, "keys and values"), has_text("bf16") && has_text("f32"));
  CHECK(row_of(both.out, "perplexity rise").back() == '%');

  Words quantised = words;
  quantised.insert(quantised.end(), {"--weights", "int4:64:zeros", "--reference-weights", "int8"});
  const std::string table = run("perplexity", quantised).out;
  const auto column = [&](const std::string& row, const std::string& value) {
    const std::size_t at = table.rfind("\n" + row);
    return table.find(value, at + 1 + row.size()) - at;
  };
  INFO(table);
  const std::size_t second = column("weights", "int8 by rows\n");
  REQUIRE(second < 200);
  CHECK(table.find("reference\n") - table.find("\n\n") - 1 == second);
  CHECK(column("checkpoint", "qwen3\n") == second);
  CHECK(column("keys and values", "bf16\n") == second);
}

TEST_CASE("perplexity refuses a reference with other tokens") {
  const TemporaryDirectory scratch;
  const std::string text = scratch.write("text", "Hello! Who are you?").string();
  const Json same = run_json("perplexity", {"qwen3", "--text", text, "--reference", "qwen3_5"});
  CHECK(same["kl"].get<double>() > 0);  // another model, of the same tokens

  const fs::path other = scratch.path() / "other";
  fs::copy(demo(), other, fs::copy_options::recursive);
  const Json whole = Json::parse(read_file(other / "tokenizer.json"));
  const Words words = {"qwen3", "--text", text, "--reference", other.string()};
  const auto refused = [&](const Json& tokenizer, const std::string& found) {
    write_file(other / "tokenizer.json", tokenizer.dump());
    check_failure(
        "perplexity", words,
        {"tokenizer of '" + other.string() + "': found " + found + ", expected that of '" + demo() + "'"});
  };
  CHECK(run_json("perplexity", words)["kl"] == 0);
  Json changed = whole;
  Json& vocab = changed["model"]["vocab"];
  std::swap(vocab["A"], vocab["B"]);
  const int least = std::min(vocab["A"].get<int>(), vocab["B"].get<int>());
  refused(changed, "another token " + std::to_string(least));
  changed = whole;
  changed["model"]["merges"] = Json::array();
  refused(changed, "other ids for '" + text + "'");
  changed = whole;
  Json more = changed["added_tokens"].back();
  more["id"] = more["id"].get<int>() + 1;
  more["content"] = "<|one_more|>";
  changed["added_tokens"].push_back(more);
  const int count = more["id"].get<int>() + 1;
  refused(changed, std::to_string(count) + " tokens, not " + std::to_string(count - 1));
}

TEST_CASE("perplexity tells what is wrong with its arguments") {
  const TemporaryDirectory scratch;
  const std::string text = (scratch.path() / "text").string();
  write_file(text, "Hello!");
  check_usage_error("perplexity", {}, "DIRECTORY");
  check_usage_error("perplexity", {demo()}, "--text");
  check_usage_error("perplexity", {demo(), "--text", text, "--weights", "int3"},
                    "found 'int3', expected int8, int4 or fp8");
  check_usage_error("perplexity", {demo(), "--text", text, "--kv", "f8"}, "found 'f8'");
  check_usage_error("perplexity", {demo(), "--text", text, "--reference-kv", "f8"}, "found 'f8'");
  check_usage_error("perplexity", {demo(), "--text", text, "--window", "1"}, "found '1'");
  check_usage_error("perplexity", {demo(), "--text", text, "--max-tokens", "1"}, "found '1'");
  check_usage_error("perplexity", {demo(), "--text", text, "--window", "4096"}, "at most the model's 2048");
  check_usage_error("perplexity", {demo(), "--text", text, "--window", "8", "--stride", "8"},
                    "--stride: found 8, expected less than the window's 8");
  check_usage_error("perplexity", {demo(), "--text", text, "--reference-weights", "int4:7"},
                    "found 'int4:7'");
  check_usage_error("perplexity", {demo(), "--text", text, "--weights", "int4:99999999999999999999"},
                    "found 'int4:9999");
}

TEST_CASE("perplexity tells what is wrong with its files") {
  const TemporaryDirectory scratch;
  const std::string text = (scratch.path() / "text").string();
  const auto fails = [&](const std::string& content, const Words& parts, const Words& more = {}) {
    write_file(text, content);
    Words words = {demo(), "--text", text};
    words.insert(words.end(), more.begin(), more.end());
    check_failure("perplexity", words, parts);
  };
  fails("", {text, "found an empty file, expected a text of at least 2 tokens"});
  fails("7", {text, "found 1 token, expected at least 2"});
  fails("Hello! Who are you?", {text, "no answer that begins with a think block"}, {"--conversations"});
  check_failure("perplexity", {demo(), "--text", held_out, "--conversations", "--max-tokens", "3"},
                {"--max-tokens: found 3 tokens without any of an answer, expected more"});
  check_failure("perplexity", {demo(), "--text", "/no/such/file"}, {"'/no/such/file': cannot be read"});
  check_failure("perplexity", {demo(), "--text", scratch.path().string()}, {"cannot be read"});
  check_failure("perplexity", {"/no/such/directory", "--text", held_out}, {"/no/such/directory"});
  check_failure("perplexity", {demo(), "--text", held_out, "--reference", tiny()},
                {"vocabulary of the reference model: found 512 tokens, expected 2688"});
}

TEST_CASE("perplexity finds the demo model better than one of two layers") {
  const Json found = score({"--text", held_out, "--conversations", "--reference",
                            QWENLITE_TEST_DATA "/demo/two_layers", "--window", "1024"});
  CHECK(found["tokens"].get<int>() > 2000);
  CHECK(found["perplexity"].get<double>() < 1.5);
  const Result both = run("perplexity", {QWENLITE_TEST_DATA "/demo/two_layers", "--text", held_out});
  CHECK(both.status == 1);  // it comes without a tokenizer
}
