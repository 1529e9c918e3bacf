// SPDX-License-Identifier: Apache-2.0
//
// explain() and the log: what they say about kernels, threads, precision, weights and memory, in numbers that
// can be checked.
#include <cstdlib>

#include "models/tiny_models.hpp"

namespace ql = qwenlite;
using namespace models_test;

namespace {

using Dense = ql::Model<ql::Qwen3>;

ql::Checkpoint tiny(const std::string& name = "qwen3-tiny", ql::ReadMode mode = ql::ReadMode::map) {
  return ql::Checkpoint(checkpoint_path(name), {.read_mode = mode});
}

}  // namespace

TEST_CASE("explain tells what was asked for from what was found") {
  const Dense plain(tiny());
  const ql::Explanation e = plain.explain();
  const ql::DefaultThreads found = ql::default_threads();
  CHECK(e.kernels == ql::kernels::active().name);
  CHECK(e.kernels_reason == ql::kernels::active_choice().reason);
  CHECK(e.threads == found.threads);
  const bool by_quota = found.threads < found.cores;
  CHECK_THAT(e.threads_reason, has_text(by_quota ? "quota" : "physical core"));
  CHECK(e.precision == name_of(ql::kernels::active().default_precision));
  CHECK_THAT(e.precision_reason, has_text("default"));
  CHECK(e.kv == "bf16");
  CHECK_THAT(e.kv_reason, has_text("default"));
  CHECK(e.chunk == 512);

  const ql::kernels::KernelTable& scalar = *ql::kernels::supported().front();
  const Dense asked(tiny(), {.threads = 3,
                             .precision = ql::Precision::bf16,
                             .kernels = &scalar,
                             .kv = ql::KvFormat::f32,
                             .chunk = 7});
  const ql::Explanation a = asked.explain();
  CHECK(a.kernels == "scalar");
  CHECK(a.kernels_reason == "asked for");
  CHECK(a.threads == 3);
  CHECK_THAT(a.threads_reason, has_text("asked for"));
  CHECK((a.threads_reason == "asked for") == (ql::usable_cpu_count() >= 3));
  CHECK(a.precision == "bf16");
  CHECK_THAT(a.precision_reason, has_text("asked for") && has_text("without effect"));
  CHECK(a.kv == "f32");
  CHECK(a.kv_reason == "asked for");
  CHECK(a.chunk == 7);

  const Dense shared(tiny(), {.executor = std::make_shared<ql::ThreadPool>(2)});
  CHECK(shared.explain().threads == 2);
  CHECK_THAT(shared.explain().threads_reason, has_text("executor"));
}

TEST_CASE("explain counts weights where they lie") {
  for (const std::string& name : dense_checkpoints) {
    INFO(name);
    const ql::Checkpoint files = tiny(name);
    const ql::WeightFacts w = Dense(files, {.threads = 1}).explain().weights;
    Index bytes = 0;
    Index off_line = 0;
    Index taken = 0;
    for (const auto& entry : files.tensors().entries()) {
      const bool copy = files.config().tie_word_embeddings && entry.name == "lm_head.weight";
      if (copy) continue;
      Index elements = 0;
      REQUIRE(entry.view.shape.elements(elements));
      bytes += elements * ql::size_of(entry.view.dtype);
      off_line += reinterpret_cast<std::uintptr_t>(entry.view.data) % 64 != 0 ? 1 : 0;
      ++taken;
    }
    CHECK(w.tensors == taken);
    CHECK(w.bytes == bytes);
    CHECK(w.off_line == off_line);
    CHECK(w.ignored == static_cast<Index>(files.tensors().entries().size()) - taken);
    CHECK(w.files == files.tensors().file_count());
    CHECK(w.place == "mapped");
  }
  CHECK(Dense(tiny(), {.threads = 1}).explain().weights.dtypes.starts_with("BF16 "));
  CHECK(Dense(tiny("qwen3-tiny", ql::ReadMode::read), {.threads = 1}).explain().weights.place ==
        "read into memory");
}

TEST_CASE("explain knows the memory of a session beforehand") {
  const Dense model(tiny(), {.threads = 1});
  const ql::Explanation e = model.explain({.max_tokens = 700});
  auto session = model.new_session({.max_tokens = 700});
  CHECK(e.session_tokens == 700);
  CHECK(e.session_bytes == session.bytes());
  CHECK(e.session_kv_bytes == session.kv_capacity_bytes());
  model.prefill(session, random_tokens(600, 1));
  CHECK(session.bytes() == e.session_bytes);
  CHECK_THROWS_AS(model.explain({.max_tokens = -1}), ql::Error);
}

TEST_CASE("explain as text has a line for each choice") {
  const ql::AnyModel model = ql::open(tiny(), {.threads = 1});
  const std::string text = model.explain({.max_tokens = 100}).to_string();
  for (const char* part :
       {"network     qwen3, 4 layers, hidden_size 64", "kernels     ", "threads     1 (asked for",
        "precision   ", "weights     ", "mapped", "none copied", "quantised   none", "kv          bf16 (",
        "chunk       512 tokens", "check       off\n", "session     ", " for 100 tokens ("}) {
    CHECK_THAT(text, has_text(part));
  }
  CHECK(text.back() == '\n');
}

TEST_CASE("explain tells when the embedding alone was quantised") {
  const ql::AnyModel model = ql::open(tiny(), {.threads = 1, .embedding_weights = ql::Format::int8});
  const ql::Explanation e = model.explain();
  CHECK(e.weights.quantised == 1);
  CHECK(e.weights.quantised_to == "embedding int8 by rows, layers as stored");
  CHECK_THAT(e.to_string(), has_text("\nquantised   1 tensor, ") &&
                                has_text(" in memory: embedding int8 by rows, layers as stored\n"));
}

TEST_CASE("the log gets the lines of explain while the model opens, and nothing afterwards") {
  std::vector<std::string> lines;
  const auto log = [&](std::string_view line) { lines.emplace_back(line); };
  const Dense model(tiny(), {.threads = 1, .log = log});
  REQUIRE(lines.size() == 9);
  std::string joined;
  for (const std::string& line : lines) {
    CHECK(line.find('\n') == std::string::npos);
    joined += line + "\n";
  }
  CHECK(model.explain().to_string().starts_with(joined));
  CHECK(joined.find("\nsession ") == std::string::npos);
  auto session = model.new_session({.max_tokens = 16});
  model.prefill(session, random_tokens(5, 1));
  CHECK(lines.size() == 9);
}
