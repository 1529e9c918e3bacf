// SPDX-License-Identifier: Apache-2.0
//
// Files that are no byte-level BPE tokenizer, or broken ones: each gives one error that names the field.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/text/tokenizer.hpp>

#include "catch_any.hpp"
#include "small_tokenizer.hpp"

using qwenlite::Error;
using qwenlite::ErrorCode;
using qwenlite::Tokenizer;

namespace {

/// The small tokenizer.json with the first `from` replaced.
std::string with(std::string_view from, std::string_view to) {
  std::string json = small::json();
  const std::size_t at = json.find(from);
  REQUIRE(at != std::string::npos);
  return json.replace(at, from.size(), to);
}

struct Failure {
  ErrorCode code = ErrorCode::cancelled;
  std::string message = "(loaded)";
};

Failure failure_of(std::string_view json, std::string_view config = {}) {
  try {
    (void)Tokenizer::from_json(json, config);
  } catch (const Error& e) {
    return {e.code(), e.what()};
  }
  return {};
}

struct Case {
  const char* from;
  const char* to;
  const char* field;
  ErrorCode code;
};

}  // namespace

TEST_CASE("what byte-level BPE is not is refused as unsupported, by name") {
  const std::vector<Case> cases{
      {R"("normalizer": {"type": "NFC"})", R"("normalizer": {"type": "NFKC"})", "normalizer.type",
       ErrorCode::unsupported},
      {R"("normalizer": {"type": "NFC"})", R"("normalizer": null)",
       " normalizer: found null, expected an object", ErrorCode::unsupported},
      {R"("normalizer": {"type": "NFC"})", R"("normalizer": [])",
       " normalizer: found an array, expected an object", ErrorCode::unsupported},
      {R"("normalizer": {"type": "NFC"})", R"("normalizer": {})", "normalizer.type: found nothing",
       ErrorCode::unsupported},
      {R"(\\p{N}]?)", R"(\\p{N}]*)", "pretokenizers.0.pattern.Regex", ErrorCode::unsupported},
      {R"("type": "Split")", R"("type": "Whitespace")", "pretokenizers.0.type", ErrorCode::unsupported},
      {R"("Isolated")", R"("Removed")", "pretokenizers.0.behavior", ErrorCode::unsupported},
      {R"("invert": false)", R"("invert": true)", "pretokenizers.0.invert", ErrorCode::unsupported},
      {R"("add_prefix_space": false, "trim)", R"("add_prefix_space": true, "trim)", "add_prefix_space",
       ErrorCode::unsupported},
      {R"("use_regex": false)", R"("use_regex": true)", "use_regex", ErrorCode::unsupported},
      {R"("use_regex": false})", R"("use_regex": false}, {"type": "Digits"})", "more than two steps",
       ErrorCode::unsupported},
      {R"("decoder": {"type": "ByteLevel")", R"("decoder": {"type": "WordPiece")", "decoder.type",
       ErrorCode::unsupported},
      {R"("post_processor": null)", R"("post_processor": {"type": "TemplateProcessing"})",
       "post_processor.type", ErrorCode::unsupported},
      {R"("post_processor": null)", R"("post_processor": [])", "post_processor: found an array",
       ErrorCode::unsupported},
      {R"("model": {"type": "BPE")", R"("model": {"type": "Unigram")", "model.type", ErrorCode::unsupported},
      {R"("dropout": null)", R"("dropout": 0.1)", "model.dropout", ErrorCode::unsupported},
      {R"("byte_fallback": false)", R"("byte_fallback": true)", "model.byte_fallback",
       ErrorCode::unsupported},
      {R"("byte_fallback": false)", R"("byte_fallback": {})", "model.byte_fallback: found an object",
       ErrorCode::unsupported},
      {R"("ignore_merges": false)", R"("ignore_merges": true)", "model.ignore_merges",
       ErrorCode::unsupported},
      {R"("continuing_subword_prefix": "")", R"("continuing_subword_prefix": "##")",
       "continuing_subword_prefix", ErrorCode::unsupported},
      {R"("end_of_word_suffix": "")", R"("end_of_word_suffix": "</w>")", "end_of_word_suffix",
       ErrorCode::unsupported},
      {R"("single_word": false)", R"("single_word": true)", "single_word", ErrorCode::unsupported},
  };
  for (const Case& c : cases) {
    const Failure failure = failure_of(with(c.from, c.to));
    INFO(c.to);
    CHECK(failure.code == c.code);
    CHECK_THAT(failure.message, has_text(c.field));
    CHECK_THAT(failure.message, has_text("tokenizer.json"));
    CHECK(failure.message.find('\n') == std::string::npos);
  }
}

TEST_CASE("contradictions and wrong types name the place") {
  const std::vector<Case> cases{
      {R"("!": 0)", R"("!": 1)", "a second time", ErrorCode::bad_file},
      {R"("!": 0)", R"("!": 70000)", "70000", ErrorCode::bad_file},
      {R"("!": 0)", R"("!": -1)", "-1", ErrorCode::bad_file},
      {R"("!": 0)", R"("!": 4294967296)", "4294967296", ErrorCode::bad_file},
      {R"("!": 0)", R"("!": 18446744073709551616)", "model.vocab[\"!\"]", ErrorCode::bad_file},
      {R"("!": 0)", R"("!": "0")", "model.vocab[\"!\"]", ErrorCode::bad_file},
      {R"("!": 0)", R"("!": 0.5)", "0.5", ErrorCode::bad_file},
      {R"("!": 0)", R"("!": null)", "null", ErrorCode::bad_file},
      {R"("!": 0)", R"("!": [0])", "an array", ErrorCode::bad_file},
      {R"("!": 0)", R"("!": {"id": 0})", "an object", ErrorCode::bad_file},
      {R"("!": 0)", R"("! !": 0)", "! !", ErrorCode::bad_file},
      {R"("!": 0)", "\"\u4E2D\": 0", "byte alphabet", ErrorCode::bad_file},
      {R"("!": 0)", R"("": 0)", "byte alphabet", ErrorCode::bad_file},
      {R"("!": 0)", R"("!": 0, "!": 0)", "a second time", ErrorCode::bad_file},
      {R"("!": 0)", R"("!!!": 0)", "no token for byte 33", ErrorCode::bad_file},
      {R"("#": 2)", R"("!": 2)", "one id", ErrorCode::bad_file},
      {R"(["h", "e"])", R"(["h", "x"])", "merge 0", ErrorCode::bad_file},
      {R"(["h", "e"])", R"(["hx", "e"])", "merge 0", ErrorCode::bad_file},
      {R"(["h", "e"])", R"(["h", "e"], ["h", "e"])", "merge 1", ErrorCode::bad_file},
      {R"(["h", "e"])", R"(["h"])", "model.merges[0]", ErrorCode::bad_file},
      {R"(["h", "e"])", R"(["h", "e", "l"])", "model.merges", ErrorCode::bad_file},
      {R"(["h", "e"])", R"(["h", 1])", "model.merges", ErrorCode::bad_file},
      {R"(["h", "e"])", R"("he")", "model.merges[0]", ErrorCode::bad_file},
      {R"(["h", "e"])", R"("h e e")", "model.merges[0]", ErrorCode::bad_file},
      {R"(["h", "e"])", R"({"h": "e"})", "model.merges[0]", ErrorCode::bad_file},
      {R"(["h", "e"])", R"(7)", "model.merges[0]", ErrorCode::bad_file},
      {R"("content": "<|im_end|>")", R"("content": "<|im_start|>")", "<|im_start|>", ErrorCode::bad_file},
      {R"("content": "<|im_end|>")", R"("content": "")", "added_tokens[2]", ErrorCode::bad_file},
      {R"("content": "<|im_end|>")", R"("content": 5)", "added_tokens[2] content", ErrorCode::bad_file},
      {R"("content": "<|im_end|>", "special": true)", R"("content": "<|im_end|>", "special": "yes")",
       "added_tokens[2] special", ErrorCode::bad_file},
      {R"("id": 275)", R"("id": 274)", "id 274", ErrorCode::bad_file},
      {R"("id": 275)", R"("id": 5)", "5 a second time", ErrorCode::bad_file},
      {R"("id": 275)", R"("id": 2000000000)", "2000000000", ErrorCode::bad_file},
      {R"("id": 275)", R"("id": "275")", "added_tokens[1] id", ErrorCode::bad_file},
      {R"("added_tokens": [)", R"("added_tokens": [7, )", "added_tokens", ErrorCode::bad_file},
      {R"("added_tokens": [)", R"("added_tokens": [{}, )", " added_tokens[0] id: found nothing",
       ErrorCode::bad_file},
      {R"("added_tokens": [)", R"("added_tokens": 7, "more": [)", "added_tokens", ErrorCode::bad_file},
      {R"("added_tokens": [)", R"("added_tokens": {}, "more": [)", "added_tokens", ErrorCode::bad_file},
      {R"("vocab": {)", R"("words": {)", "model.vocab", ErrorCode::bad_file},
      {R"("merges": [)", R"("pairs": [)", "model.merges: found nothing", ErrorCode::bad_file},
      {R"("merges": [)", R"("merges": 5, "more": [)", "model.merges: found 5, expected an array of merges",
       ErrorCode::bad_file},
      {R"("merges": [)", R"("merges": {}, "more": [)", "model.merges: found an object", ErrorCode::bad_file},
      {R"("vocab": {)", R"("vocab": [], "more": {)",
       "model.vocab: found an array, expected an object of tokens", ErrorCode::bad_file},
      {R"("vocab": {)", R"("vocab": null, "more": {)", "model.vocab: found null", ErrorCode::bad_file},
      {R"("model": {)", R"("model": [{}], "more": {)", "model: found an array, expected an object",
       ErrorCode::bad_file},
  };
  for (const Case& c : cases) {
    const Failure failure = failure_of(with(c.from, c.to));
    INFO(c.to);
    CHECK(failure.code == c.code);
    CHECK_THAT(failure.message, has_text(c.field));
    CHECK_THAT(failure.message, has_text("tokenizer.json"));
    CHECK(failure.message.find('\n') == std::string::npos);
  }
}

TEST_CASE("a key of tokenizer.json that stands twice is refused by its place") {
  const std::vector<Case> cases{
      {R"("version": "1.0")", R"("version": "1.0", "version": "1.0")", "version", ErrorCode::bad_file},
      {R"({"type": "NFC"})", R"({"type": "NFD", "type": "NFC"})", "normalizer.type", ErrorCode::bad_file},
      {R"("merges": [)", R"("merges": [], "merges": [)", "model.merges", ErrorCode::bad_file},
      {R"("vocab": {)", R"("vocab": {}, "vocab": {)", "model.vocab", ErrorCode::bad_file},
      {R"("model": {)", R"("model": null, "model": {)", "model", ErrorCode::bad_file},
      {R"("id": 275)", R"("id": 7, "id": 275)", "added_tokens[1] id", ErrorCode::bad_file},
  };
  for (const Case& c : cases) {
    const std::string json = with(c.from, c.to);
    INFO(c.to);
    if (std::string_view(c.field) == "model") {  // the value is refused before the key stands again
      CHECK_THAT(failure_of(json).message, has_text("model: found null, expected an object"));
      continue;
    }
    const std::string expected =
        std::string("tokenizer.json ") + c.field + ": found this key a second time, expected it once";
    CHECK(failure_of(json).message == expected);
    CHECK(failure_of(json).code == c.code);
  }
  CHECK(failure_of(with(R"("version": "1.0")", R"("version": {"version": [{"a": 1}, {"a": 1}]})")).code ==
        ErrorCode::cancelled);  // the same key in other objects
}

TEST_CASE("a zero byte is no end of tokenizer.json") {
  const std::string json = small::json();
  const Failure failure = failure_of(json + std::string(1, '\0'));
  CHECK(failure.code == ErrorCode::bad_file);
  CHECK_THAT(failure.message,
             has_text("tokenizer.json: zero byte at position " + std::to_string(json.size())));
}

TEST_CASE("errors of a directory's files name the directory") {
  const auto failure_in = [](const TemporaryDirectory& directory) {
    try {
      (void)Tokenizer(directory.path());
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("(loaded)");
  };
  const TemporaryDirectory directory;
  const auto named = [&](const char* name) { return "'" + (directory.path() / name).string() + "'"; };
  const std::string config = named("tokenizer_config.json");
  directory.write("tokenizer.json", small::json());
  directory.write("tokenizer_config.json", R"({"chat_template": 7})");
  CHECK(failure_in(directory) ==
        config + " chat_template: found a number, expected a string or an object with content");
  directory.write("tokenizer_config.json", R"({"eos_token": "<none>"})");
  CHECK_THAT(failure_in(directory), has_text(config + " eos_token: found \"<none>\""));
  directory.write("tokenizer_config.json", "[]");
  CHECK(failure_in(directory) == config + ": found an array, expected an object");

  std::filesystem::remove(directory.path() / "tokenizer.json");
  directory.write("tokenizer_config.json", R"({"tokenizer_class": "Other"})");
  directory.write("vocab.json", "[]");
  directory.write("merges.txt", "lonely\n");
  const std::string vocabulary = named("vocab.json");
  CHECK(failure_in(directory) == vocabulary + " top level: found an array, expected an object of tokens");
  directory.write("vocab.json", small::vocabulary_json({}));
  CHECK_THAT(failure_in(directory), has_text(named("merges.txt") + " line 1"));
  directory.write("merges.txt", "");
  CHECK_THAT(failure_in(directory), has_text(config + " tokenizer_class: found \"Other\""));
}

TEST_CASE("files larger than any tokenizer's are not read") {
  const TemporaryDirectory directory;
  const auto refused = [&](const char* name, std::uintmax_t most) {
    directory.write(name, "{}");
    std::filesystem::resize_file(directory.path() / name, most + 1);  // holes, which take no room
    try {
      (void)Tokenizer(directory.path());
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::bad_file);
      CHECK_THAT(std::string(e.what()),
                 has_text((directory.path() / name).string() + "': found " + std::to_string(most + 1) +
                          " bytes, expected at most " + std::to_string(most)));
      return;
    }
    FAIL("nothing was thrown");
  };
  refused("tokenizer.json", 128'000'000);
  refused("chat_template.jinja", 16'000'000);
  refused("tokenizer_config.json", 16'000'000);
}

TEST_CASE("an added token that ordinary text would also give is refused") {
  const std::string json = with(R"("id": 274, "content": "<|endoftext|>")", R"("id": 256, "content": "he")");
  const Failure failure = failure_of(json);
  CHECK(failure.code == ErrorCode::bad_file);
  // With id 274 gone the ids have a gap: say so too when it is given to another token.
  CHECK(failure.message.find("tokenizer.json") != std::string::npos);
  small::Spec spec;
  spec.added = {{"he"}};
  std::string same = small::json(spec);
  const std::size_t at = same.find("\"id\": 274");
  REQUIRE(at != std::string::npos);
  CHECK_THAT(failure_of(same.replace(at, 9, "\"id\": 256")).message, has_text("ordinary text"));
}

TEST_CASE("broken JSON is told by its byte") {
  const std::string json = small::json();
  for (std::size_t cut = 0; cut < json.size(); cut += 97) {
    const Failure failure = failure_of(std::string_view(json).substr(0, cut));
    REQUIRE(failure.code == ErrorCode::bad_file);
    REQUIRE_THAT(failure.message, has_text("not valid JSON at byte"));
  }
  CHECK_THAT(failure_of(json + "x").message, has_text("not valid JSON"));
  CHECK_THAT(failure_of(with("\"!\": 0", "\"\xFF\": 0")).message, has_text("not valid JSON"));
  CHECK(failure_of("[]").code == ErrorCode::bad_file);
  CHECK(failure_of("17").code == ErrorCode::bad_file);
  CHECK_THAT(failure_of("{\"a\": " + std::string(100000, '[')).message, has_text("32 levels"));
}

TEST_CASE("a broken tokenizer_config.json names itself") {
  const std::vector<std::pair<const char*, const char*>> cases{
      {"{", "not valid JSON"},
      {"[]", "an array"},
      {R"({"eos_token": 5})", "eos_token"},
      {R"({"eos_token": "<none>"})", "<none>"},
      {R"({"added_tokens_decoder": []})", "added_tokens_decoder"},
      {R"({"added_tokens_decoder": {"x": {"content": "y"}}})", "added_tokens_decoder[\"x\"]"},
      {R"({"added_tokens_decoder": {"-3": {"content": "y"}}})", "added_tokens_decoder[\"-3\"]"},
      {R"({"added_tokens_decoder": {"283": {"content": 3}}})", "added_tokens_decoder[\"283\"]"},
      {R"({"added_tokens_decoder": {"283": {"content": "<x>", "special": 1}}})", "special"},
      {R"({"added_tokens_decoder": {"274": {"content": "<other>"}}})", "<other>"},
      {R"({"added_tokens_decoder": {"999": {"content": "<other>"}}})", "999"},
      {R"({"chat_template": 7})", "chat_template"},
      {R"({"eos_token": "a", "eos_token": "b"})", "'eos_token' stands twice"},
  };
  for (const auto& [config, part] : cases) {
    const Failure failure = failure_of(small::json(), config);
    INFO(config);
    CHECK(failure.code == ErrorCode::bad_file);
    CHECK_THAT(failure.message, has_text(part));
  }
  CHECK_THAT(failure_of(small::json(), R"({"a": )" + std::string(5000, '[')).message,
             has_text("nested more than 64 deep"));
}

TEST_CASE("a git-lfs pointer in place of a file is told apart") {
  const TemporaryDirectory directory;
  directory.write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
  try {
    const Tokenizer tokenizer(directory.path());
    FAIL("nothing was thrown");
  } catch (const Error& e) {
    CHECK_THAT(std::string(e.what()), has_text("tokenizer.json': found a git-lfs pointer"));
  }
}

TEST_CASE("a tokenizer may have tens of thousands of added tokens") {
  std::string tokens;
  for (int id = 283; id < 36000; ++id) {  // ids have no gaps
    tokens += R"({"id": )" + std::to_string(id) + R"(, "content": "<)" + std::to_string(id) + R"(>"}, )";
  }
  CHECK(failure_of(with(R"("added_tokens": [)", R"("added_tokens": [)" + tokens)).message == "(loaded)");
}

TEST_CASE("unknown parts of the file do no harm") {
  CHECK(failure_of(with(R"("version": "1.0")", R"("version": "2.0", "new": {"deep": [1, {"x": [true]}]})"))
            .code == ErrorCode::cancelled);
  CHECK(
      failure_of(with(R"("single_word": false)", R"("single_word": false, "note": "n", "level": 3)")).code ==
      ErrorCode::cancelled);
}
