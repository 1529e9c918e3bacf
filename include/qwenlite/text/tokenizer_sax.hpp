// SPDX-License-Identifier: Apache-2.0
//
// The streaming reader of tokenizer.json (and vocab.json): a handler of parser events that keeps the
// three big parts (vocabulary, merges, added tokens) in flat vectors and every other value as a line
// "path = value", which `take()` checks against what this library runs.
//
// No key stands twice in an object: of two models or two normalizers one would be passed over in silence. In
// the vocabulary the ids tell that, when the tokens are put in their order.
// Only tokenizer_file-inl.hpp includes this. Depth is bounded and nothing recurses.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/json_text.hpp>
#include <qwenlite/text/byte_alphabet.hpp>
#include <qwenlite/text/raw_added_token.hpp>
#include <qwenlite/text/tokenizer_content.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace tokenizer_file {

// ---------------------------------------------------------------------------------------- settings

/// A value outside the three big parts.
struct Setting {
  std::string path;   // "pre_tokenizer.pretokenizers.0.type", longer ones cut
  std::string value;  // a string with its quotes, a number or word as JSON writes it, "an object", "an array"
};

// ------------------------------------------------------------------------------------------ reader

/// Handler of parser events, which return true; whatever is wrong throws. It is used through the virtual
/// interface, so that the parser is compiled once for all handlers of the library.
class SaxReader final : public json_text::Handler {
 public:
  enum class Document : std::uint8_t { tokenizer_json, vocab_json };

  SaxReader(std::string name, Document document) : document_(document) { file_.name = std::move(name); }

  /// Reads all of `text`.
  void read(std::string_view text) {
    if (const auto zero = json_text::zero_byte(text)) {
      throw Error(ErrorCode::bad_file, joined({file_.name, ": ", *zero}));
    }
    const std::size_t guess = text.size() / 64 + 16;
    file_.tokens.reserve(guess, text.size() / 8);
    file_.ids.reserve(guess);
    if (document_ == Document::tokenizer_json) file_.merges.reserve(2 * guess, text.size() / 6);
    json_text::read_events(text, *this);
  }

  /// What was read, once the settings are found to be ones this library runs.
  [[nodiscard]] TokenizerFile take() {
    if (document_ == Document::vocab_json) return std::move(file_);
    require_part(seen_vocabulary_, "model.vocab", expected_as(Part::vocabulary));
    require_part(seen_merges_, "model.merges", expected_as(Part::merges));
    check_model();
    check_pre_tokenizer();
    check_byte_level("decoder", false);
    check_byte_level("post_processor", true);
    return std::move(file_);
  }

  // Names and types of the events below are the parser's.
  bool null() override { return scalar("null"); }
  bool boolean(bool value) override {
    if (place() != Place::added_token) return scalar(value ? "true" : "false");
    bool* flag = token_.flag(key_);
    if (flag != nullptr) *flag = value;
    return flag != nullptr || scalar(value ? "true" : "false");
  }
  bool number_integer(number_integer_t value) override {
    return value < 0 ? scalar(joined({value})) : number_unsigned(static_cast<std::uint64_t>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    const bool is_id = place() == Place::vocabulary || (place() == Place::added_token && key_ == "id");
    if (!is_id) return scalar(joined({value}));
    if (value > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) {
      fail(where(), {value}, "a token id");
    }
    if (place() == Place::vocabulary) {
      file_.ids.push_back(static_cast<int>(value));
    } else {
      token_.id = static_cast<int>(value);
    }
    return true;
  }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return scalar(text); }
  bool string(string_t& value) override {
    switch (place()) {
      case Place::merges: add_merge(value); return true;
      case Place::merge_pair: add_merge_part(value); return true;
      case Place::added_token:
        if (key_ != "content") return scalar("a string");
        token_.content = value;
        return true;
      case Place::vocabulary:
      case Place::added_tokens:
      case Place::other: break;
    }
    return scalar(joined({"\"", value, "\""}));
  }
  bool binary(binary_t& /*unused*/) override { return true; }  // JSON text has none

  bool key(string_t& name) override {
    Level& level = levels_.back();
    if (level.place == Place::vocabulary) {
      if (!append_token(file_.tokens, name)) {
        fail("model.vocab", {"the token \"", shown(name), "\""}, "tokens in the byte alphabet");
      }
      return true;
    }
    key_ = name;
    if (level.place == Place::other) {
      path_.resize(level.path_length);
      if (!path_.empty()) path_ += '.';
      path_ += name;
    }
    if (!level.keys.insert(name).second) fail(where(), "this key a second time", "it once");
    const bool counts = level.place == Place::other;  // not those of added tokens
    if (counts && ++key_count_ > most_settings) fail(where(), too_many_settings(), "a tokenizer");
    return true;
  }

  bool start_object(std::size_t /*unused*/) override {
    const Place outer = begin_value();
    if (outer == Place::added_tokens) {
      token_ = RawAddedToken{};
      key_.clear();
      return push(Place::added_token, false);
    }
    if (outer != Place::other) fail(where(), "an object", expected_in(outer));
    const Part part = part_met();
    if (part == Part::merges || part == Part::added_tokens) fail(where(), "an object", expected_as(part));
    if (part != Part::vocabulary) return push(Place::other, false);
    seen_vocabulary_ = true;
    return push(Place::vocabulary, false);
  }
  bool end_object() override {
    if (levels_.back().place == Place::added_token) {
      file_.added.push_back(token_.checked(joined({file_.name, " added_tokens[", file_.added.size(), "]"})));
    }
    levels_.pop_back();
    return true;
  }
  bool start_array(std::size_t /*unused*/) override {
    const Place outer = begin_value();
    if (outer == Place::merges) {
      pair_parts_ = 0;
      return push(Place::merge_pair, true);
    }
    if (outer != Place::other) fail(where(), "an array", expected_in(outer));
    switch (part_met()) {
      case Part::merges: seen_merges_ = true; return push(Place::merges, true);
      case Part::added_tokens: return push(Place::added_tokens, true);
      case Part::none: return push(Place::other, true);
      case Part::root:
      case Part::model:
      case Part::vocabulary: break;
    }
    fail(where(), "an array", expected_as(part_met()));
  }
  bool end_array() override {
    if (levels_.back().place == Place::merge_pair && pair_parts_ != 2) {
      fail(where(), {pair_parts_, " parts"}, "two");
    }
    levels_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*unused*/,
                   const json_text::Json::exception& reason) override {
    throw Error(ErrorCode::bad_file, file_.name, json_text::broken_text(position, reason),
                "one complete JSON object");
  }

 private:
  enum class Place : std::uint8_t { other, vocabulary, merges, merge_pair, added_tokens, added_token };
  struct Level {
    Place place = Place::other;
    bool is_array = false;
    std::size_t path_length = 0;
    std::size_t index = 0;
    std::set<std::string, std::less<>> keys{};  // met in an object; not of the vocabulary
  };
  /// Values that the file must have in one form.
  enum class Part : std::uint8_t { none, root, model, vocabulary, merges, added_tokens };
  static constexpr std::size_t most_settings = 100000;  // keys and values outside the three big parts
  /// Bytes of a setting's path that are kept: more than any has that is looked up. A file may have a key of
  /// a megabyte around thousands of values.
  static constexpr std::size_t most_path = 200;

  [[nodiscard]] Place place() const noexcept { return levels_.empty() ? Place::other : levels_.back().place; }

  [[noreturn]] void fail(std::string_view field, const MessageText& found, std::string_view expected,
                         ErrorCode code = ErrorCode::bad_file) const {
    throw Error(code, {file_.name, " ", field}, found, expected);
  }
  void require_part(bool seen, const char* field, const char* expected) const {
    if (!seen) fail(field, "nothing", expected);
  }

  [[nodiscard]] std::string where() const {
    switch (place()) {
      case Place::vocabulary: {
        const std::size_t count = file_.tokens.size();  // the value of the latest key is the one met
        return joined({"model.vocab[\"", count == 0 ? "" : shown(file_.tokens[count - 1]), "\"]"});
      }
      case Place::merges:
      case Place::merge_pair: return joined({"model.merges[", file_.merges.size() / 2, "]"});
      case Place::added_tokens: return "added_tokens";
      case Place::added_token: return joined({"added_tokens[", file_.added.size(), "] ", key_});
      case Place::other: break;
    }
    return path_.empty() ? "top level" : shown(path_);
  }
  [[nodiscard]] static std::string_view expected_in(Place place) noexcept {
    switch (place) {
      case Place::vocabulary: return "a token id";
      case Place::merges: return "\"left right\" or [\"left\", \"right\"]";
      case Place::merge_pair: return "two strings";
      case Place::added_tokens: return "objects";
      case Place::added_token:
      case Place::other: break;
    }
    return "id, content and flags of an added token";
  }

  /// Which part the value met is.
  [[nodiscard]] Part part_met() const noexcept {
    if (document_ == Document::vocab_json) return levels_.empty() ? Part::vocabulary : Part::none;
    if (levels_.empty()) return Part::root;
    if (levels_.back().is_array) return Part::none;
    if (levels_.size() == 1 && path_ == "added_tokens") return Part::added_tokens;
    if (levels_.size() == 1 && path_ == "model") return Part::model;
    if (levels_.size() == 2 && path_ == "model.vocab") return Part::vocabulary;
    return levels_.size() == 2 && path_ == "model.merges" ? Part::merges : Part::none;
  }
  [[nodiscard]] static const char* expected_as(Part part) noexcept {
    switch (part) {
      case Part::vocabulary: return "an object of tokens";
      case Part::merges: return "an array of merges";
      case Part::added_tokens: return "an array of objects";
      case Part::root:
      case Part::model:
      case Part::none: break;
    }
    return "an object";
  }
  [[nodiscard]] static std::string too_many_settings() {
    return joined({"more than ", most_settings, " settings"});
  }

  /// Notes that a value begins; in an array outside the big parts its index joins the path.
  Place begin_value() {
    if (levels_.empty()) return Place::other;
    Level& level = levels_.back();
    if (level.place == Place::other && level.is_array) {
      path_.resize(level.path_length);
      path_ += joined({".", level.index++});
    }
    return level.place;
  }
  bool push(Place place, bool is_array) {
    if (levels_.size() >= 32) fail(where(), "values nested deeper than 32 levels", "a tokenizer");
    levels_.push_back({.place = place, .is_array = is_array, .path_length = path_.size()});
    if (place == Place::other) add_setting(is_array ? "an array" : "an object");
    return true;
  }
  void add_setting(std::string value) {
    if (settings_.size() >= most_settings) fail(where(), too_many_settings(), "a tokenizer");
    settings_.push_back({path_.substr(0, most_path), std::move(value)});
  }

  bool scalar(std::string value) {
    const Place outer = begin_value();
    if (outer == Place::other) {
      if (const Part part = part_met(); part != Part::none) fail(where(), shown(value), expected_as(part));
      add_setting(std::move(value));
      return true;
    }
    const bool known_key = key_ == "id" || key_ == "content" || token_.flag(key_) != nullptr;
    if (outer == Place::added_token && !known_key) return true;
    fail(where(), shown(value), expected_in(outer));
  }

  void add_merge(std::string_view text) {
    const std::size_t rank = file_.merges.size() / 2;
    if (!append_merge(file_.merges, text)) {
      fail(joined({"model.merges[", rank, "]"}), {"\"", shown(text), "\""},
           "two parts in the byte alphabet with one space between them");
    }
  }
  void add_merge_part(std::string_view text) {
    const std::size_t rank = file_.merges.size() / 2;
    if (++pair_parts_ > 2) fail(where(), "more than two parts", "two");
    if (!append_token(file_.merges, text)) {
      fail(joined({"model.merges[", rank, "]"}), {"\"", shown(text), "\""}, "a part in the byte alphabet");
    }
  }

  // ---- settings

  [[nodiscard]] std::string_view setting(std::string_view path) const noexcept {
    for (const Setting& item : settings_) {
      if (item.path == path) return item.value;
    }
    return {};
  }
  [[nodiscard]] bool has_setting_under(std::string_view prefix) const noexcept {
    for (const Setting& item : settings_) {
      if (item.path.compare(0, prefix.size(), prefix) == 0) return true;
    }
    return false;
  }
  /// Refuses a setting whose value is none of those given ("" stands for absent).
  void expect(std::string_view path, std::initializer_list<std::string_view> allowed) const {
    const std::string_view found = setting(path);
    for (const std::string_view value : allowed) {
      if (found == value) return;
    }
    if (!found.empty()) fail(path, shown(found), *allowed.begin(), ErrorCode::unsupported);
    // It is absent: because what should have it is no object, or is absent too?
    const std::string_view outer = path.substr(0, path.rfind('.'));
    const std::string_view holder = setting(outer);
    if (holder.empty() || holder == "an object") {
      fail(path, "nothing", *allowed.begin(), ErrorCode::unsupported);
    }
    fail(outer, shown(holder), "an object", ErrorCode::unsupported);
  }

  void check_model() const {
    expect("model.type", {"\"BPE\"", ""});
    expect("model.dropout", {"null", "", "0.0", "0"});
    expect("model.byte_fallback", {"false", "", "null"});
    expect("model.ignore_merges", {"false", "", "null"});
    expect("model.continuing_subword_prefix", {"null", "", "\"\""});
    expect("model.end_of_word_suffix", {"null", "", "\"\""});
    expect("normalizer.type", {"\"NFC\""});
  }

  void check_pre_tokenizer() {
    expect("pre_tokenizer.type", {"\"Sequence\""});
    expect("pre_tokenizer.pretokenizers.0.type", {"\"Split\""});
    expect("pre_tokenizer.pretokenizers.0.behavior", {"\"Isolated\""});
    expect("pre_tokenizer.pretokenizers.0.invert", {"false", ""});
    expect("pre_tokenizer.pretokenizers.1.type", {"\"ByteLevel\""});
    expect("pre_tokenizer.pretokenizers.1.add_prefix_space", {"false"});
    expect("pre_tokenizer.pretokenizers.1.use_regex", {"false"});
    if (has_setting_under("pre_tokenizer.pretokenizers.2")) {
      fail("pre_tokenizer.pretokenizers", "more than two steps", "Split and ByteLevel",
           ErrorCode::unsupported);
    }
    constexpr std::string_view pattern = "pre_tokenizer.pretokenizers.0.pattern.Regex";
    std::string_view regex = setting(pattern);
    if (regex.size() >= 2) regex = regex.substr(1, regex.size() - 2);
    const auto rule = pre_split::rule_of(regex);
    if (!rule) {
      fail(pattern, regex.empty() ? "nothing" : joined({"\"", shown(regex), "\""}),
           "the regex of Qwen3 or of Qwen3.5", ErrorCode::unsupported);
    }
    file_.rule = *rule;
  }

  void check_byte_level(std::string_view part, bool may_be_absent) const {
    if (may_be_absent && (!has_setting_under(part) || setting(part) == "null")) return;
    expect(joined({part, ".type"}), {"\"ByteLevel\""});
  }

  Document document_;
  TokenizerFile file_;
  std::vector<Setting> settings_;
  std::vector<Level> levels_;
  std::string path_, key_;
  RawAddedToken token_;
  int pair_parts_ = 0;
  std::size_t key_count_ = 0;
  bool seen_vocabulary_ = false, seen_merges_ = false;
};

}  // namespace tokenizer_file
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
