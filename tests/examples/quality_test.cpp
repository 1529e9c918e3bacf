// SPDX-License-Identifier: Apache-2.0
//
// What formats cost on text that the demo models have not seen: limits for each, and that looking at
// activations pays.
#include "run_program.hpp"

using namespace example_tests;

namespace {

const std::string held_out = QWENLITE_TEST_DATA "/demo/held_out.txt";

std::string stored(const std::string& model) {
  return std::string(QWENLITE_DEMO_MODELS) + "/" + model;
}

/// Perplexity, KL and top-1 of a checkpoint against the model as stored.
Json score(const std::string& directory, const std::string& model, const Words& more = {}) {
  Words words = {directory, "--text",      held_out,      "--conversations",       "--precision",
                 "exact",   "--reference", stored(model), "--reference-precision", "exact"};
  words.insert(words.end(), more.begin(), more.end());
  return run_json("perplexity", words);
}

Json quantised(const std::string& model, const std::string& weights, const std::string& method) {
  const TemporaryDirectory scratch;
  const std::string out = (scratch.path() / "out").string();
  INFO(model << " " << weights << " " << method);
  (void)run_json("quantize", {stored(model), out, "--weights", weights, "--method", method});
  return score(out, model);
}

/// Rise of the perplexity in percent.
double rise(const Json& found, const Json& reference) {
  return 100 * (found["perplexity"].get<double>() / reference["perplexity"].get<double>() - 1);
}

}  // namespace

TEST_CASE("int4 by GPTQ and AWQ is nearer to the model than rounded to nearest", "[slow]") {
  for (const std::string model : {"qwen3", "qwen3_5"}) {
    const Json reference = score(stored(model), model);
    for (const std::string weights : {"int4:32", "int4:64", "int4:128"}) {
      const Json rtn = quantised(model, weights, "rtn");
      const Json gptq = quantised(model, weights, "gptq");
      const Json awq = quantised(model, weights, "awq");
      INFO(model << " " << weights << ": " << rtn << gptq << awq);
      CHECK(gptq["kl"].get<double>() < rtn["kl"].get<double>());
      CHECK(awq["kl"].get<double>() < rtn["kl"].get<double>());
      CHECK(rise(gptq, reference) < 5);
      CHECK(gptq["top1"].get<double>() > 0.98);
    }
  }
}

TEST_CASE("int8 weights, and compressed keys and values, cost next to nothing", "[slow]") {
  for (const std::string model : {"qwen3", "qwen3_5"}) {
    const Json reference = score(stored(model), model);
    for (const std::string weights : {"int8:row", "int8:128"}) {
      INFO(model << " " << weights);
      const Json found = quantised(model, weights, "rtn");
      CHECK(rise(found, reference) < 0.5);
      CHECK(found["kl"].get<double>() < 1e-4);
    }
    CHECK(rise(score(stored(model), model, {"--kv", "int8"}), reference) < 0.3);
    CHECK(rise(score(stored(model), model, {"--kv", "fp8"}), reference) < 1);
  }
}
