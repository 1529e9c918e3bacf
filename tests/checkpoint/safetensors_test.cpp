// SPDX-License-Identifier: Apache-2.0
#include <qwenlite/checkpoint/safetensors.hpp>
#include <qwenlite/kernels/formats.hpp>

#include "checkpoint/fixtures.hpp"

using namespace fixtures;
using namespace qwenlite;

namespace {

/// A well-formed entry.
std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, Index begin,
                  Index end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

}  // namespace

TEST_CASE("a small file gives its tensors, sorted by name, and its metadata") {
  const Bytes file =
      safetensors("{\"__metadata__\":{\"format\":\"pt\",\"k\":\"v\"}," + entry("b", "F32", "[2]", 4, 12) +
                      "," + entry("a", "BF16", "[1,2]", 0, 4) + "}",
                  12);
  const SafetensorsFile opened = open_bytes(file);
  REQUIRE(opened.tensors().size() == 2);
  CHECK(opened.tensors()[0].name == "a");
  CHECK(opened.tensors()[0].view.dtype == DType::bf16);
  CHECK(opened.tensors()[0].view.shape == Shape{1, 2});
  CHECK(opened.tensors()[1].view.data == opened.tensors()[0].view.data + 4);
  CHECK(bytes_of(opened.tensors()[1].view) == copy(std::span(file).last(8)));
  CHECK(opened.metadata() == Metadata{{"format", "pt"}, {"k", "v"}});
  REQUIRE(opened.find("b") != nullptr);
  CHECK(opened.find("b")->shape == Shape{2});
  CHECK(opened.find("") == nullptr);
  CHECK(opened.find("c") == nullptr);
  CHECK(opened.bytes() == static_cast<Index>(file.size()));
  CHECK(opened.bytes_mapped() == 0);
}

TEST_CASE("legal but unusual files open") {
  SECTION("no tensors") {
    CHECK(open_bytes(safetensors("{}", 0)).tensors().empty());
  }
  SECTION("trailing spaces") {
    CHECK(open_bytes(safetensors("{" + entry("a", "U8", "[3]", 0, 3) + "}   \n ", 3)).tensors().size() == 1);
  }
  SECTION("a scalar of rank 0") {
    const auto file = safetensors("{" + entry("s", "F32", "[]", 0, 4) + "}", 4);
    CHECK(open_bytes(file).tensors()[0].view.shape.rank() == 0);
  }
  SECTION("tensors without elements, between others and alone") {
    const auto file =
        safetensors("{" + entry("z", "F32", "[0,7]", 2, 2) + "," + entry("a", "U8", "[2]", 0, 2) + "," +
                        entry("b", "I64", "[1]", 2, 10) + "," + entry("e", "U8", "[0]", 10, 10) + "}",
                    10);
    CHECK(open_bytes(file).tensors().size() == 4);
    CHECK(open_bytes(safetensors("{" + entry("z", "F64", "[0]", 0, 0) + "}", 0)).tensors().size() == 1);
  }
  SECTION("eight dimensions") {
    const auto file = safetensors("{" + entry("a", "U8", "[1,1,1,2,1,1,1,1]", 0, 2) + "}", 2);
    CHECK(open_bytes(file).tensors()[0].view.shape.rank() == 8);
  }
  SECTION("every dtype of the format") {
    for (const char* dtype : {"BF16", "F16", "F32", "F64", "F8_E4M3", "F8_E5M2", "I8", "U8", "I16", "U16",
                              "I32", "U32", "I64", "U64", "BOOL"}) {
      const auto file = safetensors("{" + entry("a", dtype, "[0]", 0, 0) + "}", 0);
      CHECK(name_of(open_bytes(file).tensors()[0].view.dtype) == dtype);
    }
  }
  SECTION("names with escapes, quotes and other scripts") {
    const auto file = safetensors("{" + entry("a\\\"\\u00e9\\n\xE4\xB8\xAD", "U8", "[1]", 0, 1) + "}", 1);
    CHECK(open_bytes(file).tensors()[0].name == "a\"\xC3\xA9\n\xE4\xB8\xAD");
  }
  SECTION("metadata without entries") {
    CHECK(open_bytes(safetensors("{\"__metadata__\":{}}", 0)).metadata().empty());
  }
}

TEST_CASE("headers of about 100,000 bytes open") {
  for (std::size_t length = 99'994; length <= 100'000; ++length) {
    std::string header = "{" + entry("a", "U8", "[5]", 0, 5) + "}";
    header.append(length - header.size(), ' ');
    CHECK(open_bytes(safetensors(header, 5)).tensors().size() == 1);
  }
}

TEST_CASE("a malformed header is one error that names file and tensor") {
  struct Case {
    const char* name;
    std::string header;
    std::size_t data_bytes;
    ErrorCode code;
    std::string first;
    std::string second;
  };
  constexpr auto bad = ErrorCode::bad_file;
  constexpr auto unsupported = ErrorCode::unsupported;
  const std::string deep_list(10'000, '[');
  std::string deep_objects;
  for (int i = 0; i < 10'000; ++i) deep_objects += "{\"a\":";
  const std::vector<Case> cases = {
      {"not JSON", "{\"a\":}", 0, bad, "not valid JSON at byte 6", ""},
      {"cut JSON", "{\"a\":{\"dtype\":\"U8\"", 0, bad, "not valid JSON", ""},
      {"text behind the header", "{} {}", 0, bad, "not valid JSON", ""},
      {"starts with a space", " {}", 0, bad, "does not start with '{'", ""},
      {"a list", "[]", 0, bad, "does not start with '{'", ""},
      {"zero byte behind the header", std::string("{}\0\xFF", 4), 0, bad, "zero byte at position 2", ""},
      {"zero byte inside a name", std::string("{\"a\0b\":{}}", 10), 0, bad, "zero byte", ""},
      {"invalid UTF-8", "{\"\xC3\x28\":{}}", 0, bad, "not valid JSON", ""},
      {"10,000 lists deep", "{\"a\":" + deep_list, 0, bad, "'a'", "found an array"},
      {"10,000 objects deep", deep_objects, 0, bad, "'a'", "the field 'a'"},
      {"entry is a number", "{\"a\":5}", 0, bad, "tensor 'a'", "found 5"},
      {"entry is null", "{\"a\":null}", 0, bad, "tensor 'a'", "found null"},
      {"no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, bad, "tensor 'a'", "no 'dtype'"},
      {"no shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, bad, "tensor 'a'", "no 'shape'"},
      {"no data_offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, bad, "tensor 'a'",
       "no 'data_offsets'"},
      {"an empty entry", "{\"a\":{}}", 0, bad, "tensor 'a'", "no 'dtype'"},
      {"a field too many", "{\"a\":{\"dtype\":\"U8\",\"order\":1}}", 0, bad, "tensor 'a'",
       "the field 'order'"},
      {"shape twice", "{\"a\":{\"shape\":[1],\"shape\":[2]}}", 0, bad, "tensor 'a'", "'shape' twice"},
      {"dtype is a number", "{\"a\":{\"dtype\":8}}", 0, bad, "tensor 'a': dtype", "found 8"},
      {"unknown dtype", "{" + entry("a", "Q4", "[1]", 0, 1) + "}", 1, unsupported, "tensor 'a': dtype",
       "'Q4'"},
      {"lower-case dtype", "{" + entry("a", "bf16", "[1]", 0, 2) + "}", 2, unsupported, "tensor 'a'",
       "'bf16'"},
      {"shape is text", "{\"a\":{\"shape\":\"[1]\"}}", 0, bad, "tensor 'a': shape", "the string '[1]'"},
      {"a negative size", "{" + entry("a", "U8", "[-1]", 0, 1) + "}", 1, bad, "tensor 'a': shape",
       "found -1, expected a list of at most 8 sizes, whole numbers from 0 on"},
      {"a fractional size", "{" + entry("a", "U8", "[1.0]", 0, 1) + "}", 1, bad, "tensor 'a': shape",
       "'1.0'"},
      {"a nested size", "{" + entry("a", "U8", "[[1]]", 0, 1) + "}", 1, bad, "tensor 'a': shape", "an array"},
      {"a size of 2^63", "{" + entry("a", "U8", "[9223372036854775808]", 0, 1) + "}", 1, bad,
       "tensor 'a': shape", "9223372036854775808"},
      {"a size of 2^64", "{" + entry("a", "U8", "[18446744073709551616]", 0, 1) + "}", 1, bad,
       "tensor 'a': shape", "18446744073709551616"},
      {"a size out of range", "{" + entry("a", "U8", "[1e999]", 0, 1) + "}", 1, bad,
       "JSON with a number out of range", ""},
      {"nine dimensions", "{" + entry("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) + "}", 1, bad,
       "tensor 'a': shape", "more than 8"},
      {"a product beyond 64 bit", "{" + entry("a", "U8", "[4294967296,4294967296]", 0, 0) + "}", 0, bad,
       "tensor 'a': shape", "[4294967296, 4294967296]"},
      {"bytes beyond 64 bit", "{" + entry("a", "F64", "[2305843009213693952]", 0, 0) + "}", 0, bad,
       "tensor 'a': shape", "2305843009213693952"},
      {"more elements than bytes", "{" + entry("a", "F32", "[1000,1000]", 0, 4) + "}", 4, bad,
       "tensor 'a': data_offsets", "4000000 bytes for F32 [1000, 1000]"},
      {"fewer elements than bytes", "{" + entry("a", "F32", "[1]", 0, 8) + "}", 8, bad,
       "tensor 'a': data_offsets", "4 bytes for F32 [1]"},
      {"begin above end", "{" + entry("a", "U8", "[1]", 5, 4) + "}", 8, bad, "tensor 'a': data_offsets",
       "[5, 4]"},
      {"a negative begin", "{" + entry("a", "U8", "[1]", -1, 0) + "}", 8, bad, "tensor 'a': data_offsets",
       "found -1"},
      {"one offset", "{\"a\":{\"data_offsets\":[0]}}", 0, bad, "tensor 'a': data_offsets", "found 1 numbers"},
      {"three offsets", "{\"a\":{\"data_offsets\":[0,1,2]}}", 0, bad, "tensor 'a': data_offsets",
       "more than 2"},
      {"offsets are text", "{\"a\":{\"data_offsets\":[\"0\",1]}}", 0, bad, "tensor 'a': data_offsets",
       "string '0'"},
      {"end behind the file", "{" + entry("a", "U8", "[9]", 0, 9) + "}", 8, bad, "tensor 'a'",
       "header needs"},
      {"end near 2^63", "{" + entry("a", "U8", "[0]", PTRDIFF_MAX, PTRDIFF_MAX) + "}", 8, bad, "tensor 'a'",
       "beyond any file"},
      {"overlap", "{" + entry("a", "U8", "[4]", 0, 4) + "," + entry("b", "U8", "[4]", 2, 6) + "}", 6, bad,
       "tensor 'b'", "overlap"},
      {"the same range twice",
       "{" + entry("a", "U8", "[4]", 0, 4) + "," + entry("b", "U8", "[4]", 0, 4) + "}", 4, bad,
       "data_offsets", "overlap"},
      {"a hole", "{" + entry("a", "U8", "[2]", 0, 2) + "," + entry("b", "U8", "[2]", 3, 5) + "}", 5, bad,
       "tensor 'b'", "hole"},
      {"a hole in front", "{" + entry("a", "U8", "[2]", 1, 3) + "}", 3, bad, "tensor 'a'", "hole"},
      {"bytes nobody owns", "{" + entry("a", "U8", "[2]", 0, 2) + "}", 3, bad, "data: found 3 bytes",
       "expected 2"},
      {"a name twice", "{" + entry("a", "U8", "[1]", 0, 1) + "," + entry("a", "U8", "[1]", 1, 2) + "}", 2,
       bad, "tensor 'a'", "twice"},
      {"metadata is a list", "{\"__metadata__\":[]}", 0, bad, "'__metadata__'", "an array"},
      {"metadata holds a number", "{\"__metadata__\":{\"a\":1}}", 0, bad, "'__metadata__'", "found 1"},
      {"metadata is nested", "{\"__metadata__\":{\"a\":{}}}", 0, bad, "'__metadata__'", "an object"},
      {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, bad, "'__metadata__'", "twice"},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    const Bytes file = safetensors(c.header, c.data_bytes);
    expect_error(c.code, {"given.safetensors", c.first, c.second}, [&] { open_bytes(file); });
  }
}

TEST_CASE("header lengths that cannot be are refused before anything else is read") {
  struct Case {
    std::uint64_t length;
    const char* part;
  };
  for (const Case& c :
       {Case{0, "found 0 bytes"}, Case{1, "found 1 bytes"}, Case{3, "file is 10 bytes, header needs 11"},
        Case{100'000'000, "header needs 100000008"}, Case{100'000'001, "found 100000001 bytes"},
        Case{std::uint64_t{1} << 63U, "found 9223372036854775808 bytes"},
        Case{0x206E6F6973726576, "found a git-lfs pointer"},
        Case{~std::uint64_t{0}, "found 18446744073709551615 bytes"}}) {
    Bytes file = length_prefix(c.length);
    file.push_back(std::byte{'{'});
    file.push_back(std::byte{'}'});
    expect_error(ErrorCode::bad_file, {"given.safetensors", c.part}, [&] { open_bytes(file); });
  }
  for (std::size_t size = 0; size < 8; ++size) {
    const Bytes file(size);
    expect_error(ErrorCode::bad_file, {"file is " + std::to_string(size) + " bytes, header needs at least 8"},
                 [&] { open_bytes(file); });
  }
}

TEST_CASE("a cut file says how long it is and how long it should be") {
  const TemporaryDirectory place;
  const Bytes whole = safetensors("{" + entry("a.weight", "BF16", "[64,8]", 0, 1024) + "}", 1024);
  for (const ReadMode mode : {ReadMode::map, ReadMode::read}) {
    for (const std::size_t cut : {std::size_t{1}, whole.size() / 2, std::size_t{1024}}) {
      const std::size_t left = whole.size() - cut;
      const fs::path file = place.write("cut.safetensors", std::span(whole).first(left));
      expect_error(ErrorCode::bad_file,
                   {file.string(), "file is " + std::to_string(left) + " bytes, header needs " +
                                       std::to_string(whole.size()) + " for tensor 'a.weight'"},
                   [&] { SafetensorsFile(file, mode); });
    }
  }
}

TEST_CASE("a hostile name makes a short message of one line") {
  const std::string name(5'000'000, 'n');
  const Bytes file = safetensors("{\"" + name + "\":{}}", 0);
  expect_error(ErrorCode::bad_file, {"'nnnn", "..."}, [&] { open_bytes(file); });
  expect_error(ErrorCode::bad_file, {"'x?y'"}, [&] { open_bytes(safetensors("{\"x\\ny\":{}}", 0)); });
}

TEST_CASE("mapped, read and in memory are the same bytes") {
  const fs::path path = test_data("qwen3-tiny") / "model.safetensors";
  const SafetensorsFile mapped(path, ReadMode::map);
  const SafetensorsFile read(path, ReadMode::read);
  const MappedFile content(path, ReadMode::read);
  const SafetensorsFile memory(content.bytes(), "memory");
  CHECK(mapped.bytes_mapped() == mapped.bytes());
  CHECK(read.bytes_mapped() == 0);
  REQUIRE(mapped.tensors().size() == 47);
  REQUIRE(read.tensors().size() == 47);
  REQUIRE(memory.tensors().size() == 47);
  for (std::size_t i = 0; i < 47; ++i) {
    const NamedTensor& a = mapped.tensors()[i];
    CHECK(a.name == read.tensors()[i].name);
    CHECK(a.view.shape == memory.tensors()[i].view.shape);
    const Bytes bytes = bytes_of(a.view);
    CHECK(bytes == bytes_of(read.tensors()[i].view));
    CHECK(bytes == bytes_of(memory.tensors()[i].view));
  }
}

TEST_CASE("views outlive a move of the file") {
  const Bytes file = safetensors("{" + entry("a", "U8", "[3]", 0, 3) + "}", 3);
  SafetensorsFile first = open_bytes(file);
  const TensorView view = *first.find("a");
  const SafetensorsFile second = std::move(first);
  CHECK(second.find("a")->data == view.data);
  const fs::path path = test_data("qwen3-tiny") / "model.safetensors";
  SafetensorsFile mapped(path);
  const TensorView norm = *mapped.find("model.norm.weight");
  const Bytes before = bytes_of(norm);
  const SafetensorsFile moved = std::move(mapped);
  CHECK(bytes_of(norm) == before);
}

TEST_CASE("tensors at any address decode to the same numbers") {
  for (std::size_t shift = 0; shift < 8; ++shift) {
    std::string header = "{" + entry("f", "F32", "[3]", 1, 13) + "," + entry("odd", "U8", "[1]", 0, 1) + "," +
                         entry("b", "BF16", "[2]", 13, 17) + "," + entry("h", "F16", "[2]", 17, 21) + "}";
    header.append(shift, ' ');
    Bytes file = safetensors(header, 21);
    std::byte* data = file.data() + file.size() - 21;
    const float values[3] = {1.5F, -2.25F, 1e-20F};
    std::memcpy(data + 1, values, 12);
    const std::uint16_t bf16[2] = {Bf16(0.5F).bits, Bf16(-3.0F).bits};
    std::memcpy(data + 13, bf16, 4);
    const std::uint16_t f16[2] = {F16(0.25F).bits, F16(-7.0F).bits};
    std::memcpy(data + 17, f16, 4);
    const SafetensorsFile opened = open_bytes(file);
    for (Index i = 0; i < 3; ++i) CHECK(decode(Format::f32, opened.find("f")->data, i) == values[i]);
    CHECK(decode(Format::bf16, opened.find("b")->data, 0) == 0.5F);
    CHECK(decode(Format::bf16, opened.find("b")->data, 1) == -3.0F);
    CHECK(decode(Format::f16, opened.find("h")->data, 0) == 0.25F);
    CHECK(decode(Format::f16, opened.find("h")->data, 1) == -7.0F);
  }
}
