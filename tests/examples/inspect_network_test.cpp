// SPDX-License-Identifier: Apache-2.0
//
// inspect logits, generate and trace: the shape of their JSON, and their numbers against the stored results
// of the reference implementation.
#include <cmath>
#include <map>

#include <qwenlite/checkpoint/safetensors.hpp>

#include "run_program.hpp"

using namespace example_tests;

namespace {

Json golden() {
  return Json::parse(read_file(tiny() + "/golden.json"));
}

/// Float32 arithmetic throughout, whatever instruction set runs.
Words exact(Words words) {
  for (const char* word : {"--precision", "exact", "--kv", "f32"}) words.emplace_back(word);
  return words;
}

double limit(const Json& g, const char* what) {
  return g["tolerance"]["float32"]["limit"][what].get<double>();
}

}  // namespace

TEST_CASE("inspect logits agrees with the reference") {
  const Json g = golden();
  const auto sample = g["vocab_sample"].get<std::vector<int>>();
  for (const Json& prompt : g["prompts"]) {
    const auto ids = prompt["ids"].get<std::vector<int>>();
    const auto positions = prompt["positions"].get<std::vector<int>>();
    INFO("prompt of " << ids.size() << " ids");
    const Json r = run_json("inspect", exact({"logits", tiny(), "--ids", joined(ids), "--positions",
                                              joined(positions), "--at", joined(sample), "--chunk", "50"}));
    REQUIRE(r["positions"].size() == positions.size());
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const Json& p = r["positions"][i];
      CHECK(p["position"] == positions[i]);
      CHECK(p["top"].size() == 5);
      CHECK(p["top"][0][0] == prompt["argmax"][i]);
      CHECK(std::abs(p["logsumexp"].get<double>() - prompt["logsumexp"][i].get<double>()) < 1e-4);
      double worst = 0;
      for (std::size_t j = 0; j < sample.size(); ++j) {
        worst = std::max(worst, std::abs(p["at"][j].get<double>() - prompt["logits"][i][j].get<double>()));
      }
      CHECK(worst <= limit(g, "logit_max_abs"));
    }
    if (prompt["mean_nll"].is_null()) {
      CHECK(r["mean_nll"].is_null());
    } else {
      CHECK(std::abs(r["mean_nll"].get<double>() - prompt["mean_nll"].get<double>()) <=
            limit(g, "mean_nll_abs"));
    }
  }
}

TEST_CASE("inspect logits shows what is asked for") {
  const Json last = run_json("inspect", {"logits", tiny(), "--ids", "5,6,7"});
  REQUIRE(last["positions"].size() == 1);
  const Json& p = last["positions"][0];
  CHECK(p["position"] == 2);
  CHECK(p["top"].size() == 5);
  CHECK(p["at"].empty());
  for (std::size_t i = 1; i < 5; ++i) CHECK(p["top"][i - 1][1] >= p["top"][i][1]);

  const Json all = run_json("inspect", {"logits", tiny(), "--ids", "5,6,7", "--all", "--top", "2"});
  REQUIRE(all["positions"].size() == 3);
  CHECK(all["positions"][2]["top"][0] == p["top"][0]);
  CHECK(all["positions"][2]["top"].size() == 2);
  CHECK(all["mean_nll"] == last["mean_nll"]);
  for (const char* chunk : {"1", "2"}) {  // the same bits in pieces
    CHECK(run_json("inspect",
                   {"logits", tiny(), "--ids", "5,6,7", "--all", "--top", "2", "--chunk", chunk}) == all);
  }
  CHECK(run_json("inspect", {"logits", tiny(), "--ids", "5", "--top", "0"})["positions"][0]["top"].empty());
  const Json wide = run_json("inspect", {"logits", tiny(), "--ids", "5", "--top", "100000"});
  CHECK(wide["positions"][0]["top"].size() == 512);

  const TemporaryDirectory scratch;
  const std::string file = (scratch.path() / "ids.json").string();
  write_file(file, " [5, 6,\n7] ");
  CHECK(run_json("inspect", {"logits", tiny(), "--ids", "@" + file}) == last);
  for (const char* bad : {"{}", "[1,-2]", "[1.5]", "[99999999999]", "[1,2", "", "[\"1\"]"}) {
    write_file(file, bad);
    check_failure("inspect", {"logits", tiny(), "--ids", "@" + file}, {file, "JSON array"});
  }
  write_file(file, std::string(100000, '[') + std::string(100000, ']'));
  check_failure("inspect", {"logits", tiny(), "--ids", "@" + file}, {file, "nested more than 8 deep"});
  write_file(file, std::string("[1]\0[", 5));
  check_failure("inspect", {"logits", tiny(), "--ids", "@" + file}, {file, "zero byte at position 3"});

  const Result text = run("inspect", {"logits", tiny(), "--ids", "5,6,7"});
  CHECK(text.status == 0);
  CHECK_THAT(text.out, has_text("position 2"));
}

TEST_CASE("inspect generate continues as the reference does") {
  const Json g = golden();
  for (const char* kv : {"f32", "none"}) {
    for (const Json& prompt : g["prompts"]) {
      const auto ids = prompt["ids"].get<std::vector<int>>();
      const Json r =
          run_json("inspect", {"generate", tiny(), "--ids", joined(ids), "--n", "16", "--ignore-eos",
                               "--precision", "exact", "--kv", kv, "--threads", "2"});
      INFO(kv << ", prompt of " << ids.size());
      CHECK(r["ids"] == prompt["greedy_ids"]);
      const Json& stats = r["stats"];
      for (const char* field : {"prefill_tokens_per_s", "decode_tokens_per_s", "peak_rss_bytes",
                                "kv_capacity_bytes", "open_seconds"}) {
        INFO(field);
        CHECK(stats.at(field).get<double>() > 0);
      }
      CHECK(stats["tokenizer_seconds"].is_null());
      CHECK(stats["isa"].is_string());
      CHECK((stats["kv_used_bytes"] > 0) == (std::string(kv) == "f32"));
    }
  }
  CHECK(run_json("inspect", {"generate", demo(), "--ids", "5", "--n", "1"})["stats"]["tokenizer_seconds"] >
        0);
  CHECK(run_json("inspect", {"generate", tiny(), "--ids", "5", "--n", "3", "--ignore-eos"})["ids"].size() ==
        3);
}

TEST_CASE("inspect trace gives the reference's intermediate results") {
  const Json g = golden();
  const auto sample = g["hidden_sample"].get<std::vector<std::size_t>>();
  Json prompt;
  for (const Json& candidate : g["prompts"]) {
    if (candidate.contains("last_layer_outputs")) prompt = candidate;
  }
  const auto ids = prompt["ids"].get<std::vector<int>>();
  const Json r = run_json("inspect", exact({"trace", tiny(), "--ids", joined(ids)}));
  const auto near = [&](const Json& values, const Json& expected) {
    double worst = 0;
    for (std::size_t i = 0; i < sample.size(); ++i) {
      worst = std::max(worst, std::abs(values[sample[i]].get<double>() - expected[i].get<double>()));
    }
    return worst <= limit(g, "hidden_max_abs");
  };
  for (std::size_t layer = 0; layer < prompt["last_layer_outputs"].size(); ++layer) {
    const std::string name = "model.layers." + std::to_string(layer) + ".";
    CHECK(near(r[name + "output"]["values"], prompt["last_layer_outputs"][layer]));
    for (const char* part : {"mixer", "mlp", "output"}) CHECK(r[name + part]["shape"] == Json({1, 64}));
  }
  CHECK(near(r["final_norm"]["values"], prompt["last_hidden"]));
  CHECK(r["embedding"]["shape"] == Json({1, 64}));
  CHECK(r["logits"]["shape"] == Json({1, 512}));
  CHECK(r.size() == 4 * 3 + 3);

  const TemporaryDirectory scratch;
  const std::string file = (scratch.path() / "trace.safetensors").string();
  const Json all =
      run_json("inspect", exact({"trace", tiny(), "--ids", joined(ids), "--all", "--chunk", "7"}));
  REQUIRE(run("inspect", exact({"trace", tiny(), "--ids", joined(ids), "--all", "--out", file})).status == 0);
  const qwenlite::SafetensorsFile written{fs::path(file)};
  CHECK(written.tensors().size() == all.size());
  for (const auto& [name, result] : all.items()) {
    const qwenlite::TensorView* tensor = written.find(name);
    REQUIRE(tensor != nullptr);
    CHECK(tensor->shape == qwenlite::Shape{17, result["shape"][1].get<qwenlite::Index>()});
    const auto values = result["values"].get<std::vector<float>>();
    CHECK(result["shape"][0] == 17);
    REQUIRE(values.size() == static_cast<std::size_t>(tensor->shape[0] * tensor->shape[1]));
    CHECK(std::memcmp(values.data(), tensor->data, values.size() * sizeof(float)) == 0);
    const auto last = r[name]["values"].get<std::vector<float>>();  // alone or among all: the same bits
    CHECK(std::equal(last.begin(), last.end(), values.end() - static_cast<std::ptrdiff_t>(last.size())));
  }
  const Result text = run("inspect", {"trace", tiny(), "--ids", "1,2"});
  CHECK(text.status == 0);
  CHECK_THAT(text.out, has_text("model.layers.3.output"));
}

TEST_CASE("inspect says what is wrong with ids") {
  check_usage_error("inspect", {"logits", tiny()}, "--ids");
  check_usage_error("inspect", {"logits", tiny(), "--ids", ""}, "--ids");
  for (const char* bad : {"1,x", "1,,2", "1,", ",", "-1", "1 2", "99999999999", "@"}) {
    INFO(bad);
    check_usage_error("inspect", {"logits", tiny(), "--ids", bad},
                      "--ids: found '" + std::string(bad) + "', expected numbers like 1,2,3 or @FILE.json");
  }
  check_usage_error("inspect", {"logits", tiny(), "--ids", "1", "--positions", "1"}, "positions below 1");
  check_usage_error("inspect", {"logits", tiny(), "--ids", "1", "--at", "512"}, "ids below 512");
  check_usage_error("inspect", {"logits", tiny(), "--ids", "1", "--positions", ""},
                    "--positions: found none, expected at least one position");
  check_usage_error("inspect", {"logits", tiny(), "--ids", "1", "--at", ""},
                    "--at: found none, expected at least one token id");
  check_usage_error("inspect", {"logits", tiny(), "--ids", "1", "--all", "--positions", "0"}, "excludes");
  check_failure("inspect", {"logits", tiny(), "--ids", "512"}, {"512", "0 to 511"});
  check_failure("inspect", {"logits", tiny(), "--ids", "@/no/such/file.json"}, {"/no/such/file.json"});
  check_usage_error("inspect", {"generate", tiny(), "--ids", "1", "--n", "4096"},
                    "--ids and --n: found 4097 tokens, expected at most the model's 4096");
  const TemporaryDirectory scratch;
  const std::string many = "@" + scratch.write("ids", Json(std::vector<int>(4097, 1)).dump()).string();
  for (const char* command : {"logits", "trace"}) {
    check_usage_error("inspect", {command, tiny(), "--ids", many},
                      "--ids: found 4097 tokens, expected at most the model's 4096");
  }
}

TEST_CASE("inspect: every command takes a Qwen3.5 directory, and logits its prediction head") {
  const std::string directory = std::string(QWENLITE_TEST_DATA) + "/checkpoints/qwen3.5-tiny";
  const Json g = Json::parse(read_file(directory + "/golden.json"));
  const auto sample = g["vocab_sample"].get<std::vector<int>>();
  for (const char* kv : {"f32", "none"}) {
    for (const Json& prompt : g["prompts"]) {
      if (prompt["length"].get<int>() > 65) continue;
      const auto ids = prompt["ids"].get<std::vector<int>>();
      const auto positions = prompt["mtp"]["positions"].get<std::vector<int>>();
      INFO("prompt of " << ids.size() << " ids, " << kv);
      const Json r = run_json(
          "inspect", {"logits", directory, "--ids", joined(ids), "--positions", joined(positions), "--at",
                      joined(sample), "--mtp", "--precision", "exact", "--kv", kv, "--chunk", "40"});
      REQUIRE(r["mtp"].size() == positions.size());
      for (const char* which : {"positions", "mtp"}) {
        const bool head = std::string(which) == "mtp";
        const Json& expected = head ? prompt["mtp"] : prompt;
        double worst = 0;
        for (std::size_t i = 0; i < positions.size(); ++i) {
          if (!head && prompt["positions"] != prompt["mtp"]["positions"]) break;
          const Json& p = r[which][i];
          CHECK(p["position"] == positions[i]);
          CHECK(p["top"][0][0] == expected["argmax"][i]);
          for (std::size_t j = 0; j < sample.size(); ++j) {
            worst =
                std::max(worst, std::abs(p["at"][j].get<double>() - expected["logits"][i][j].get<double>()));
          }
        }
        CHECK(worst <= limit(g, head ? "mtp_logit_max_abs" : "logit_max_abs"));
      }
      CHECK(run_json("inspect", {"generate", directory, "--ids", joined(ids), "--n", "16", "--ignore-eos",
                                 "--precision", "exact", "--kv", kv})["ids"] == prompt["greedy_ids"]);
    }
  }
  CHECK(run_json("inspect", {"config", directory})["model_type"] == "qwen3_5");
  CHECK(run_json("inspect", {"trace", directory, "--ids", "1,2,3"}).contains("final_norm"));
  CHECK(run_json("inspect", {"explain", directory})["network"].get<std::string>().find("Gated DeltaNet") !=
        std::string::npos);
  const Result headless = run("inspect", {"logits", tiny(), "--ids", "1", "--mtp"});
  CHECK(headless.status == 1);
  CHECK(headless.out.empty());
}
