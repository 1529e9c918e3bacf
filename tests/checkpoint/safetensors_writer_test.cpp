// SPDX-License-Identifier: Apache-2.0
#include <qwenlite/checkpoint/safetensors.hpp>

#include "checkpoint/fixtures.hpp"

using namespace fixtures;
using namespace qwenlite;

TEST_CASE("what is written is read back, whatever the dtypes and names") {
  const TemporaryDirectory place;
  Bytes pool;
  for (int i = 0; i < 64; ++i) pool.push_back(static_cast<std::byte>(i * 37 + 5));
  const std::vector<NamedTensor> tensors = {
      {"z", {pool.data(), DType::u8, Shape{3}}},
      {"plain.weight", {pool.data() + 3, DType::bf16, Shape{2, 3}}},
      {"quote\" slash\\ line\n \xE4\xB8\xAD", {pool.data() + 9, DType::f32, Shape{5}}},
      {"scalar", {pool.data() + 29, DType::f64, Shape{}}},
      {"none", {nullptr, DType::f16, Shape{0, 4}}},
      {"flag", {pool.data() + 40, DType::boolean, Shape{1}}},
  };
  const Metadata metadata = {{"format", "pt"}, {"tab\there", "\"x\""}};
  const fs::path path = place.path() / "out.safetensors";
  write_safetensors(path, tensors, metadata);

  const SafetensorsFile opened(path);
  CHECK(opened.metadata() == metadata);
  CHECK(opened.tensors().size() == tensors.size());
  for (const NamedTensor& tensor : tensors) {
    INFO(tensor.name);
    const TensorView* found = opened.find(tensor.name);
    REQUIRE(found != nullptr);
    CHECK(found->dtype == tensor.view.dtype);
    CHECK(found->shape == tensor.view.shape);
    CHECK(bytes_of(*found) == bytes_of(tensor.view));
    // Mappings start at pages, so this is the offset in the file.
    CHECK(reinterpret_cast<std::uintptr_t>(found->data) %
              static_cast<std::uintptr_t>(size_of(found->dtype)) ==
          0);
  }
  CHECK(reinterpret_cast<std::uintptr_t>(opened.find("scalar")->data) % 64 == 0);
}

TEST_CASE("a real checkpoint survives being copied through the writer, replacing the file it came from") {
  const TemporaryDirectory place;
  const fs::path path = place.path() / "model.safetensors";
  fs::copy_file(test_data("qwen3-tiny") / "model.safetensors", path);
  const SafetensorsFile original(path);
  write_safetensors(path, original.tensors(), original.metadata());  // the mapping keeps the old file
  const SafetensorsFile again(path);
  REQUIRE(again.tensors().size() == original.tensors().size());
  for (std::size_t i = 0; i < again.tensors().size(); ++i) {
    CHECK(again.tensors()[i].name == original.tensors()[i].name);
    CHECK(bytes_of(again.tensors()[i].view) == bytes_of(original.tensors()[i].view));
  }
}

TEST_CASE("nothing is written that could not be read") {
  const TemporaryDirectory place;
  const fs::path path = place.path() / "out.safetensors";
  const std::byte one{1};
  const TensorView byte{&one, DType::u8, Shape{1}};
  const auto write = [&](const std::vector<NamedTensor>& tensors) { write_safetensors(path, tensors); };
  expect_error(ErrorCode::bad_argument, {"tensor 'a'", "twice"}, [&] { write({{"a", byte}, {"a", byte}}); });
  expect_error(ErrorCode::bad_argument, {"not valid JSON"}, [&] { write({{"\xFF", byte}}); });
  expect_error(ErrorCode::bad_argument, {"__metadata__"}, [&] { write({{"__metadata__", byte}}); });
  expect_error(ErrorCode::bad_argument, {"tensor 'big'"}, [&] {
    write({{"big", {&one, DType::f64, Shape{PTRDIFF_MAX}}}});
  });
  expect_error(ErrorCode::bad_argument, {"tensor 'neg'"}, [&] {
    write({{"neg", {&one, DType::u8, Shape{-1}}}});
  });
  CHECK(fs::is_empty(place.path()));
}

TEST_CASE("only a regular file is replaced") {
  const TemporaryDirectory place;
  const Bytes pool(4, std::byte{1});
  const std::vector<NamedTensor> tensors = {{"a", {pool.data(), DType::u8, Shape{4}}}};
  const fs::path path = place.path() / "out.safetensors";
  write_safetensors(path, tensors);
  write_safetensors(path, tensors);
  fs::create_symlink(path, place.path() / "link");
  fs::create_directory(place.path() / "directory");
  CHECK_THROWS_AS(write_safetensors(place.path() / "link", tensors), Error);
  CHECK_THROWS_AS(write_safetensors(place.path() / "directory", tensors), Error);
  CHECK(fs::is_symlink(place.path() / "link"));
}
