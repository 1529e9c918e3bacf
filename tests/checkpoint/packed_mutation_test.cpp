// SPDX-License-Identifier: Apache-2.0
//
// Damaged quantised checkpoints: each unpacks to something, or throws one qwenlite::Error. With a sanitizer
// this also shows that unpacking stays inside the files' memory and its own. The seeds are fixed.
#include <fstream>
#include <iterator>
#include <sstream>

#include "checkpoint/mutator.hpp"
#include "checkpoint/packed_fixtures.hpp"

using namespace fixtures;
using namespace qwenlite;

namespace {

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A matrix of a fixture.
struct Named {
  std::string name;
  Index rows;
  Index cols;
};

std::vector<Named> matrices_of(const std::string& fixture) {
  std::vector<Named> list;
  const SafetensorsFile expected(packed_fixture(fixture) / "expected.safetensors");
  for (const NamedTensor& tensor : expected.tensors()) {
    list.push_back({tensor.name, tensor.view.shape[0], tensor.view.shape[1]});
  }
  return list;
}

/// Opens a checkpoint and unpacks each matrix; its numbers are summed up so that they are read.
float open(const std::string& config, const std::string& tensors, const std::vector<Named>& matrices) {
  const Bytes exact = to_bytes(tensors);
  const std::vector<NamedBytes> files = {{"model.safetensors", exact}};
  const Checkpoint checkpoint({.config = config, .tensors = files});
  const PackedTensors packed = packed_of(checkpoint);
  float sum = 0;
  for (const Named& each : matrices) {
    if (!packed.has(each.name)) continue;
    const UnpackedMatrix made = unpack(packed.matrix(each.name, each.rows, each.cols));
    for (Index r = 0; r < each.rows; ++r) sum += decode(made.view, r, each.cols - 1);
  }
  return sum;
}

const std::vector<const char*> damaged_fixtures{"gptq-int4-act-order", "gptq-int8-zeros",       "awq",
                                                "fp8-blocks",          "compressed-int4-zeros", "own"};

}  // namespace

TEST_CASE("damaged headers of quantised checkpoints") {
  for (const char* name : damaged_fixtures) {
    const std::string config = text_of(packed_fixture(name) / "config.json");
    const std::string file = text_of(packed_fixture(name) / "model.safetensors");
    const std::vector<Named> matrices = matrices_of(name);
    std::size_t length = 0;
    std::memcpy(&length, file.data(), 8);
    const std::string data = file.substr(8 + length);
    INFO(name);
    const Outcome outcome = damage(file.substr(8, length), length, 400, [&](const std::string& header) {
      std::string whole(8, '\0');
      const std::size_t size = header.size();
      std::memcpy(whole.data(), &size, 8);
      (void)open(config, whole + header + data, matrices);
    });
    CHECK(outcome.refused > 200);
  }
}

TEST_CASE("damaged data of quantised checkpoints") {
  for (const char* name : damaged_fixtures) {
    const std::string config = text_of(packed_fixture(name) / "config.json");
    std::string file = text_of(packed_fixture(name) / "model.safetensors");
    const std::vector<Named> matrices = matrices_of(name);
    std::size_t length = 0;
    std::memcpy(&length, file.data(), 8);
    INFO(name);
    std::mt19937 random(11);
    int opened = 0;
    for (int i = 0; i < 200; ++i) {
      std::string given = file;
      for (int change = 0; change < 40; ++change) {
        given[8 + length + random() % (file.size() - 8 - length)] = static_cast<char>(random() % 256);
      }
      try {
        (void)open(config, given, matrices);
        ++opened;
      } catch (const Error& e) {
        if (std::string_view(e.what()).find('\n') != std::string_view::npos) FAIL("two lines: " << e.what());
      }
    }
    CHECK(opened >= 0);
  }
}

TEST_CASE("damaged configurations of quantised checkpoints") {
  for (const char* name : damaged_fixtures) {
    const std::string config = text_of(packed_fixture(name) / "config.json");
    const std::string file = text_of(packed_fixture(name) / "model.safetensors");
    const std::vector<Named> matrices = matrices_of(name);
    INFO(name);
    const Outcome outcome = damage(config, config.size(), 400,
                                   [&](const std::string& text) { (void)open(text, file, matrices); });
    CHECK(outcome.opened > 5);
    CHECK(outcome.refused > 100);
  }
}
