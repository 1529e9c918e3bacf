// SPDX-License-Identifier: Apache-2.0
#include <qwenlite/checkpoint/tensor_files.hpp>

#include "checkpoint/fixtures.hpp"

using namespace fixtures;
using namespace qwenlite;

namespace {

constexpr const char* index_name = "model.safetensors.index.json";

/// A shard with one byte tensor of that name and value.
Bytes shard(const std::string& tensor, int value) {
  Bytes file = safetensors("{\"" + tensor + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
  file.back() = static_cast<std::byte>(value);
  return file;
}

/// A directory with shards s1 (tensor "a") and s2 (tensor "b") and an index of that weight_map.
void write_shards(const TemporaryDirectory& place, const std::string& weight_map) {
  place.write("s1.safetensors", shard("a", 1));
  place.write("s2.safetensors", shard("b", 2));
  place.write(index_name, "{\"metadata\":{\"total_size\":2,\"more\":[1,{\"x\":null}]},\"weight_map\":" +
                              weight_map + "}");
}

TensorFiles open(const fs::path& directory) {
  return TensorFiles(ModelDirectory(directory));
}

int value_of(const TensorFiles& files, const std::string& name) {
  const Index i = files.find(name);
  REQUIRE(i >= 0);
  return std::to_integer<int>(*files.entries()[static_cast<std::size_t>(i)].view.data);
}

}  // namespace

TEST_CASE("one file, or the shards an index names") {
  const TemporaryDirectory place;
  SECTION("one file") {
    place.write("model.safetensors", shard("a", 7));
    const TensorFiles files = open(place.path());
    CHECK(files.file_count() == 1);
    CHECK(value_of(files, "a") == 7);
    CHECK(files.find("b") == -1);
  }
  SECTION("shards") {
    write_shards(place, R"({"a":"s1.safetensors","b":"s2.safetensors"})");
    const TensorFiles files = open(place.path());
    CHECK(files.file_count() == 2);
    CHECK(value_of(files, "a") == 1);
    CHECK(value_of(files, "b") == 2);
    CHECK(files.bytes() == files.bytes_mapped());
    CHECK(files.bytes() == files.file(0).bytes() + files.file(1).bytes());
  }
  SECTION("the index decides names, also when there is one shard of an unusual one") {
    place.write("model.safetensors-00001-of-00001.safetensors", shard("a", 9));
    place.write(index_name, R"({"weight_map":{"a":"model.safetensors-00001-of-00001.safetensors"}})");
    CHECK(value_of(open(place.path()), "a") == 9);
  }
  SECTION("a tensor that the index forgot still counts") {
    write_shards(place, R"({"a":"s1.safetensors"})");
    place.write("s1.safetensors", safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                              R"("extra":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                              2));
    CHECK(open(place.path()).find("extra") >= 0);
  }
  SECTION("the whole set can be moved") {
    write_shards(place, R"({"a":"s1.safetensors","b":"s2.safetensors"})");
    TensorFiles files = open(place.path());
    const TensorFiles moved = std::move(files);
    CHECK(value_of(moved, "b") == 2);
  }
}

TEST_CASE("the sharded checkpoint of the test data opens through its index") {
  const TensorFiles files = open(test_data("qwen3-tiny-untied-sharded"));
  CHECK(files.file_count() == 3);
  CHECK(files.entries().size() == 36);
  CHECK(files.find("lm_head.weight") >= 0);
}

TEST_CASE("no weights: the error names the directory and what was looked for") {
  const TemporaryDirectory place;
  place.write("pytorch_model.bin", "x");
  expect_error(ErrorCode::io, {place.path().string(), "model.safetensors", index_name},
               [&] { open(place.path()); });
  expect_error(ErrorCode::io, {"nowhere", "cannot open"}, [&] { open(place.path() / "nowhere"); });
  expect_error(ErrorCode::io, {"pytorch_model.bin", "directory"},
               [&] { open(place.path() / "pytorch_model.bin"); });
}

TEST_CASE("an index entry may only be a plain name") {
  const TemporaryDirectory place;
  const fs::path outside = place.write("outside.safetensors", shard("a", 1));
  for (const std::string name : {"../outside.safetensors", "..", ".", "", "a/../../outside.safetensors",
                                 "sub/s1.safetensors", "./s1.safetensors", "C:\\\\x.safetensors", "C:x",
                                 "..\\\\outside.safetensors", "s1.safetensors\\u0000", "s1\\n"}) {
    INFO(name);
    place.write(fs::path("m") / index_name, "{\"weight_map\":{\"a.weight\":\"" + name + "\"}}");
    expect_error(ErrorCode::bad_file, {index_name, "weight_map entry 'a.weight'", "same directory"},
                 [&] { open(place.path() / "m"); });
  }
  place.write(fs::path("m") / index_name, "{\"weight_map\":{\"a.weight\":\"" + outside.string() + "\"}}");
  expect_error(ErrorCode::bad_file, {"'a.weight'", "outside.safetensors"}, [&] { open(place.path() / "m"); });
}

TEST_CASE("a malformed index is one error that names it and the entry") {
  struct Case {
    const char* name;
    std::string text;
    ErrorCode code;
    std::string part;
  };
  std::string deep = "{\"metadata\":";
  for (int i = 0; i < 10'000; ++i) deep += "{\"a\":[";
  constexpr auto bad = ErrorCode::bad_file;
  const std::vector<Case> cases = {
      {"empty file", "", bad, "empty"},
      {"cut", R"({"weight_map":{"a":"s1)", bad, "not valid JSON"},
      {"a list", "[]", bad, "found an array"},
      {"a number", "5", bad, "found 5"},
      {"no weight_map", R"({"metadata":{}})", bad, "no 'weight_map'"},
      {"a nested weight_map", R"({"metadata":{"weight_map":{"a":"s1.safetensors"}}})", bad,
       "no 'weight_map'"},
      {"weight_map is a list", R"({"weight_map":["s1.safetensors"]})", bad, "'weight_map': found an array"},
      {"weight_map is text", R"({"weight_map":"s1.safetensors"})", bad,
       "'weight_map': found 's1.safetensors'"},
      {"weight_map is null", R"({"weight_map":null})", bad, "'weight_map': found null"},
      {"weight_map twice", R"({"weight_map":{},"weight_map":{}})", bad, "'weight_map' stands twice"},
      {"name is a number", R"({"weight_map":{"a":1}})", bad, "weight_map entry 'a': found 1"},
      {"name is null", R"({"weight_map":{"a":null}})", bad, "weight_map entry 'a': found null"},
      {"name is a list", R"({"weight_map":{"a":["s1.safetensors"]}})", bad, "weight_map entry 'a'"},
      {"name is an object", R"({"weight_map":{"a":{"file":"s1.safetensors"}}})", bad, "weight_map entry 'a'"},
      {"missing shard", R"({"weight_map":{"a":"s3.safetensors"}})", ErrorCode::io,
       "'a': found no file 's3.safetensors'"},
      {"tensor absent from its shard", R"({"weight_map":{"b":"s1.safetensors"}})", bad,
       "'b': found no such tensor in 's1.safetensors'"},
      {"tensor listed twice", R"({"weight_map":{"a":"s1.safetensors","a":"s1.safetensors"}})", bad,
       "'a' stands twice"},
      {"invalid UTF-8", "{\"weight_map\":{\"\xFF\":\"s1.safetensors\"}}", bad, "not valid JSON"},
      {"zero byte", std::string("{\"weight_map\":{}}\0x", 18), bad, "zero byte"},
      {"10,000 deep", deep, bad, "nested more than 8 deep"},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    const TemporaryDirectory place;
    write_shards(place, "{}");
    place.write(index_name, c.text);
    expect_error(c.code, {index_name, c.part}, [&] { open(place.path()); });
  }
}

TEST_CASE("a tensor in two shards is an error that names both") {
  const TemporaryDirectory place;
  write_shards(place, R"({"a":"s1.safetensors","b":"s2.safetensors"})");
  place.write("s2.safetensors", safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                            R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                            2));
  expect_error(ErrorCode::bad_file, {"tensor 'a'", "s1.safetensors", "s2.safetensors"},
               [&] { open(place.path()); });
  const Bytes one = shard("a", 1);
  const std::vector<NamedBytes> twice = {{"first", one}, {"second", one}};
  expect_error(ErrorCode::bad_file, {"tensor 'a'", "first", "second"},
               [&] { TensorFiles{std::span(twice)}; });
}

TEST_CASE("links stay inside the directory, or inside the repository of a Hugging Face cache") {
  const TemporaryDirectory place;
  const fs::path outside = place.write("outside.safetensors", shard("a", 3));
  SECTION("a link out of the directory is refused") {
    fs::create_directories(place.path() / "m");
    fs::create_symlink(outside, place.path() / "m" / "model.safetensors");
    expect_error(ErrorCode::bad_file, {"model.safetensors", "a link to", "outside.safetensors"},
                 [&] { open(place.path() / "m"); });
  }
  SECTION("a shard that is a link out is refused") {
    fs::create_directories(place.path() / "m");
    fs::create_symlink("../outside.safetensors", place.path() / "m" / "s1.safetensors");
    place.write(fs::path("m") / index_name, R"({"weight_map":{"a":"s1.safetensors"}})");
    expect_error(ErrorCode::bad_file, {"s1.safetensors", "a link to"}, [&] { open(place.path() / "m"); });
  }
  SECTION("a broken link says so") {
    fs::create_symlink("gone", place.path() / "model.safetensors");
    expect_error(ErrorCode::io,
                 {"model.safetensors': found a link to 'gone' that cannot be followed (No such file",
                  "expected a regular file"},
                 [&] { open(place.path()); });
  }
  SECTION("links within the directory work") {
    place.write("weights/real.safetensors", shard("a", 4));
    fs::create_symlink("weights/real.safetensors", place.path() / "model.safetensors");
    CHECK(value_of(open(place.path()), "a") == 4);
  }
  SECTION("the directory itself may be a link") {
    place.write("m/model.safetensors", shard("a", 5));
    fs::create_directory_symlink("m", place.path() / "alias");
    CHECK(value_of(open(place.path() / "alias"), "a") == 5);
  }
  SECTION("the cache layout works, but not into another repository") {
    const fs::path snapshot = "models--Qwen--Qwen3-0.6B/snapshots/c189";
    place.write("models--Qwen--Qwen3-0.6B/blobs/f47f", shard("a", 6));
    place.write("models--Other--Thing/blobs/f47f", shard("a", 8));
    fs::create_directories(place.path() / snapshot);
    fs::create_symlink("../../blobs/f47f", place.path() / snapshot / "model.safetensors");
    CHECK(value_of(open(place.path() / snapshot), "a") == 6);
    fs::remove(place.path() / snapshot / "model.safetensors");
    fs::create_symlink("../../../models--Other--Thing/blobs/f47f",
                       place.path() / snapshot / "model.safetensors");
    expect_error(ErrorCode::bad_file, {"a link to", "models--Other--Thing"},
                 [&] { open(place.path() / snapshot); });
  }
  SECTION("a folder that only looks a little like a cache gets no more room") {
    place.write("repo/blobs/f47f", shard("a", 6));
    fs::create_directories(place.path() / "repo/snapshots/c189");
    fs::create_symlink("../../blobs/f47f", place.path() / "repo/snapshots/c189/model.safetensors");
    expect_error(ErrorCode::bad_file, {"a link to"}, [&] { open(place.path() / "repo/snapshots/c189"); });
  }
}

TEST_CASE("ten thousand tensors open and are found") {
  std::string header = "{";
  for (int i = 0; i < 10'000; ++i) {
    const std::string at = std::to_string(i);
    header += (i == 0 ? "" : ",") + ("\"layers." + at) + R"(.w":{"dtype":"U8","shape":[1],"data_offsets":[)" +
              at + "," + std::to_string(i + 1) + "]}";
  }
  const Bytes file = safetensors(header + "}", 10'000);
  const std::vector<NamedBytes> named = {{"big", file}};
  const TensorFiles files{std::span(named)};
  REQUIRE(files.entries().size() == 10'000);
  for (int i = 0; i < 10'000; i += 7)
    CHECK(value_of(files, "layers." + std::to_string(i) + ".w") == (i * 7 + 1) % 256);
}
