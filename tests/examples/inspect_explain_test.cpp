// SPDX-License-Identifier: Apache-2.0
//
// inspect explain: what it says for people and as JSON, that it follows options and the environment, and that
// checked runs (QWENLITE_CHECK=1) give the results of others.
#include <cstdlib>

#include "environment_variable.hpp"
#include "run_program.hpp"

using namespace example_tests;

TEST_CASE("inspect explain says what was chosen and why") {
  const Result text = run("inspect", {"explain", tiny()});
  CHECK(text.status == 0);
  CHECK(text.err.empty());
  for (const char* part :
       {"kernels     ", "threads     ", "precision   ", "weights     ", "mapped",
        "kv          bf16 (the default of the cache)", "check       off", "session     "}) {
    CHECK_THAT(text.out, has_text(part));
  }

  const Json plain = run_json("inspect", {"explain", tiny()});
  CHECK(plain["kv"]["value"] == "bf16");
  CHECK(plain["check"]["value"] == false);
  CHECK(plain["weights"]["place"] == "mapped");
  CHECK(plain["weights"]["tensors"].get<int>() == 46);
  CHECK(plain["weights"]["ignored"].get<int>() == 1);
  CHECK(plain["session"]["tokens"] == 4096);

  CHECK(plain["weights"]["quantised"] == 0);
  CHECK(plain["weights"]["bytes_in_use"] == plain["weights"]["bytes"]);

  const Json quantised = run_json("inspect", {"explain", tiny(), "--weights", "int4:32"});
  CHECK(quantised["weights"]["quantised"] == 29);
  CHECK(quantised["weights"]["quantised_to"] == "int4 in groups of 32, embedding int8 by rows");
  CHECK(quantised["weights"]["bytes_in_use"] < plain["weights"]["bytes"]);

  const Json asked = run_json("inspect", {"explain", tiny(), "--threads", "3", "--kv", "f32", "--precision",
                                          "exact", "--tokens", "100", "--chunk", "9"});
  CHECK(asked["threads"]["value"] == 3);
  CHECK_THAT(asked["threads"]["reason"].get<std::string>(), has_text("asked for"));
  CHECK(asked["kv"]["value"] == "f32");
  CHECK(asked["precision"]["reason"] == "asked for");
  CHECK(asked["chunk"] == 9);
  CHECK(asked["session"]["tokens"] == 100);
  CHECK(asked["session"]["bytes"] < plain["session"]["bytes"]);
  CHECK(asked["session"]["kv_bytes"] ==
        2 * (4 * 2 + 1) * 2 * 64 * 32 * 4);  // 2 blocks, an odd number of k/v pairs
}

TEST_CASE("inspect explain and chat --stats say what the weights of a quantised directory are") {
  const TemporaryDirectory scratch;
  const std::string out = (scratch.path() / "out").string();
  REQUIRE(run("quantize", {demo(), out, "--weights", "int4:32"}).status == 0);
  // The embedding's rows are 128 long.
  const std::string forms = "1 int8 by rows (qwenlite), 42 int4 in groups of 32 (qwenlite)";
  CHECK_THAT(run("inspect", {"explain", out}).out,
             has_text("\nquantised   in the files: " + forms + "; while opening: nothing more\n"));
  const Result chat = run("chat", {"--prompt", "Hello", "--max-new-tokens", "2", "--stats", out});
  CHECK_THAT(chat.err, has_text("stats: weights " + forms + ", "));
}

TEST_CASE("inspect explain follows QWENLITE_ISA and QWENLITE_CHECK") {
  const Variable isa("QWENLITE_ISA", "scalar");
  const Variable check("QWENLITE_CHECK", "1");
  const Json r = run_json("inspect", {"explain", tiny()});
  CHECK(r["kernels"]["value"] == "scalar");
  CHECK(r["kernels"]["reason"] == "forced by QWENLITE_ISA");
  CHECK(r["check"]["value"] == true);
  CHECK(r["check"]["reason"] == "QWENLITE_CHECK=1");
  setenv("QWENLITE_CHECK", "2", 1);
  check_failure("inspect", {"explain", tiny()}, {"QWENLITE_CHECK", "'2'", "0 or 1"});
}

TEST_CASE("a checked run of a program gives the results of an unchecked one") {
  const Words words{"logits", tiny(), "--ids", "5,6,7,200,13", "--all"};
  const Json expected = run_json("inspect", words);
  const Variable check("QWENLITE_CHECK", "1");
  CHECK(run_json("inspect", words) == expected);
}

TEST_CASE("inspect explain refuses what makes no sense") {
  check_usage_error("inspect", {"explain", tiny(), "--tokens", "0"}, "from 1");
  check_usage_error("inspect", {"explain", tiny(), "--tokens", "5000"},
                    "--tokens: found 5000 tokens, expected at most the model's 4096");
  check_failure("inspect", {"explain", "/no/such/place"}, {"/no/such/place"});
}
