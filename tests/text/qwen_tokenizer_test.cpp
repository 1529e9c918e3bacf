// SPDX-License-Identifier: Apache-2.0
//
// The published tokenizers against stored results of the reference tokenizer. Needs QWENLITE_SHARED.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include <qwenlite/text/tokenizer.hpp>

#include "catch_any.hpp"
#include "small_tokenizer.hpp"

using qwenlite::Tokenizer;

namespace {

constexpr qwenlite::EncodeOptions with_control{.control_tokens = true, .stats = nullptr};
using Ids = std::vector<int>;

Ids parse_ids(const std::string& line) {
  Ids ids;
  std::stringstream stream(line);
  for (std::string item; std::getline(stream, item, ',');) ids.push_back(std::stoi(item));
  return ids;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// The vector files write line breaks as \n and spaces at the ends as \s.
std::string unescaped(const std::string& line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool escape = line[i] == '\\' && i + 1 < line.size() && (line[i + 1] == 'n' || line[i + 1] == 's');
    text += !escape ? line[i] : line[i + 1] == 'n' ? '\n' : ' ';
    if (escape) ++i;
  }
  return text;
}

/// Id ranges of the rebuilt Qwen3.5 tokenizer.json whose numbering is not certain.
struct Uncertain {
  explicit Uncertain(const std::filesystem::path& file) {
    const auto json = nlohmann::ordered_json::parse(file_text(file));
    for (const auto& range : json["ranges"]) ranges.emplace_back(range["first"], range["last"]);
  }
  [[nodiscard]] bool holds(int id) const {
    for (const auto& [first, last] : ranges) {
      if (id >= first && id <= last) return true;
    }
    return false;
  }
  std::vector<std::pair<int, int>> ranges;
};

struct Compared {
  std::size_t same = 0, uncertain = 0, different = 0;
};

Compared compare(const Ids& found, const Ids& expected, const Uncertain& uncertain) {
  Compared result;
  if (found.size() != expected.size()) {
    result.different = 1;
    return result;
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) {
      ++result.same;
    } else if (uncertain.holds(expected[i])) {
      ++result.uncertain;
    } else {
      ++result.different;
    }
  }
  return result;
}

}  // namespace

TEST_CASE("every stored text encodes to the reference ids and decodes back") {
  const auto shared = shared_directory("reference/tokenizer_goldens.json");
  if (!shared) return;
  const Tokenizer tokenizer(*shared / "tokenizers/qwen3");
  const auto goldens = nlohmann::ordered_json::parse(file_text(*shared / "reference/tokenizer_goldens.json"));
  std::size_t count = 0;
  for (const auto& item : goldens["cases"]) {
    const std::string text = item["text"];
    const Ids ids = item["ids"];
    INFO(text);
    CHECK(tokenizer.encode(text, with_control) == ids);
    CHECK(tokenizer.decode(ids) == (item.contains("decoded") ? std::string(item["decoded"]) : text));
    ++count;
  }
  CHECK(count == 362);
}

TEST_CASE("texts with marks younger than Unicode 9 encode as the reference library does") {
  const auto shared = shared_directory("reference/tokenizer_disagreements.json");
  if (!shared) return;
  const Tokenizer tokenizer(*shared / "tokenizers/qwen3");
  const auto cases =
      nlohmann::ordered_json::parse(file_text(*shared / "reference/tokenizer_disagreements.json"));
  for (const auto& item : cases["cases"]) {
    CHECK(tokenizer.encode(std::string(item["text"]), with_control) == Ids(item["ids"]));
  }
}

TEST_CASE("both full-size tokenizers give the known encodings") {
  const auto shared = shared_directory("tokenizers");
  if (!shared) return;
  const Tokenizer qwen3(*shared / "tokenizers/qwen3"), qwen3_5(*shared / "tokenizers/qwen3.5");
  struct Known {
    const char* text;
    Ids qwen3, qwen3_5;
  };
  const std::vector<Known> known{
      {"Hello, world!", {9707, 11, 1879, 0}, {9419, 11, 1814, 0}},
      {"The year 2024 had 366 days.\n\n  x = 3.14159; // it's",
       {785, 1042, 220, 17, 15, 17, 19, 1030, 220, 18, 21, 21,  2849, 382, 220,
        856, 284,  220, 18, 13, 16, 19, 16,   20,  24, 26, 442, 432,  594},
       {760, 1007, 220, 17,  15, 17, 19, 995, 220, 18, 21, 21, 2756, 13,  271,
        220, 830,  283, 220, 18, 13, 16, 19,  16,  20, 24, 26, 434,  424, 579}},
      {"don't WE'LL I'm", {15007, 944, 19677, 6, 4086, 358, 2776}, {14572, 914, 19076, 6, 3950, 353, 2688}},
      {"cafe\u0301 na\u00EFve", {924, 58858, 94880, 586}, {895, 56868, 91603, 571}},
      {"a\r\n\r\n\tb   c \n d", {64, 871, 2233, 256, 272, 715, 294}, {64, 845, 2161, 256, 272, 695, 293}},
      {" \n \n", {31906}, {30858}},
  };
  for (const Known& item : known) {
    INFO(item.text);
    CHECK(qwen3.encode(item.text) == item.qwen3);
    CHECK(qwen3_5.encode(item.text) == item.qwen3_5);
  }
  CHECK(qwen3.encode("->") == Ids{405});
  CHECK(qwen3.encode("(x):\n") == Ids{2075, 982});
  CHECK(qwen3.encode("1234567").size() == 7);
}

TEST_CASE("both full-size tokenizers know their tokens") {
  const auto shared = shared_directory("tokenizers");
  if (!shared) return;
  const Tokenizer qwen3(*shared / "tokenizers/qwen3"), qwen3_5(*shared / "tokenizers/qwen3.5");
  CHECK(qwen3.vocab_size() == 151669);
  CHECK(qwen3_5.vocab_size() == 248077);
  CHECK(qwen3.eos_ids() == Ids{151645});
  CHECK(qwen3_5.eos_ids() == Ids{248046});
  CHECK(qwen3.chat_template().family() == qwenlite::ChatFamily::qwen3);
  CHECK(qwen3_5.chat_template().family() == qwenlite::ChatFamily::qwen3_5);
  CHECK(qwen3_5.token_to_id("<tts_text_eod>") == 248074);
  CHECK(qwen3.decode(Ids{151800}).empty());
  CHECK(qwen3_5.decode(Ids{248257}).empty());
  CHECK(qwen3.decode(Ids{151668, 151657}, {.skip_special = true}) == "</think><tool_call>");
  CHECK(qwen3.decode(Ids{151645}, {.skip_special = true}).empty());
  for (const auto* tokenizer : {&qwen3, &qwen3_5}) {
    const int first = small::id_of(*tokenizer, "<|endoftext|>");
    for (int id = first; id < tokenizer->vocab_size(); ++id) {
      const std::string text(tokenizer->token_bytes(id));
      CHECK(tokenizer->encode(text, with_control) == Ids{id});
      for (const int ordinary : tokenizer->encode(text)) CHECK(ordinary < first);
      CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
    }
  }
}

TEST_CASE("tokens that no merge makes are decoded but never encoded") {
  const auto shared = shared_directory("tokenizers");
  if (!shared) return;
  const Tokenizer tokenizer(*shared / "tokenizers/qwen3.5");
  const std::string text = "\u5168\u5FC3\u5168\u610F\u4E3A";
  const auto id = tokenizer.token_to_id(text);
  REQUIRE(id.has_value());
  CHECK(tokenizer.decode(Ids{*id}) == text);
  CHECK(tokenizer.encode(text).size() > 1);
}

TEST_CASE("the true Qwen3.5 tokenizer's test vectors") {
  const auto shared = shared_directory("tokenizers/qwen3.5/vectors");
  if (!shared) return;
  const auto directory = *shared / "tokenizers/qwen3.5";
  const Tokenizer tokenizer(directory);
  const Uncertain uncertain(directory / "uncertain_ids.json");
  Compared total;
  const auto add = [&](const std::string& text, const std::string& ids) {
    INFO(text);
    const Compared result = compare(tokenizer.encode(text, with_control), parse_ids(ids), uncertain);
    CHECK(result.different == 0);
    total.same += result.same;
    total.uncertain += result.uncertain;
  };
  for (const std::string name : {"small", "mixed"}) {
    const auto inputs = lines_of(file_text(directory / "vectors" / (name + "_input.txt")));
    const auto outputs = lines_of(file_text(directory / "vectors" / (name + "_tokens_qwen35.txt")));
    REQUIRE(inputs.size() == outputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) add(unescaped(inputs[i]), outputs[i]);
  }
  add(file_text(directory / "vectors/utf8_input.txt"),
      file_text(directory / "vectors/utf8_tokens_qwen35.txt"));
  CHECK(total.same + total.uncertain == 32463);
  CHECK(total.same > 30000);
}
