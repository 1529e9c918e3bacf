// SPDX-License-Identifier: Apache-2.0
//
// inspect tokenize, detokenize and template: text to ids and back. Also the reading of ids.
#include <charconv>
#include <iostream>
#include <limits>

#include <qwenlite/json_text.hpp>
#include <qwenlite/text/chat_template.hpp>

#include "inspect/commands.hpp"
#include "inspect/json_output.hpp"
#include "programs/chat_family.hpp"
#include "programs/standard_input.hpp"
#include "programs/text_file.hpp"

namespace ql = qwenlite;

namespace inspect {
namespace {

std::vector<int> ids_of_file(const std::string& name) {
  const std::string text = programs::read_text(name, programs::most_small);
  const auto reject = [&](const std::string& found) -> ql::Error {
    return {ql::ErrorCode::bad_file, ql::in_quotes(name), found, "a JSON array of token ids"};
  };
  const auto [json, problem] = ql::json_text::parse(text, {.max_depth = 8, .max_commas = text.size()});
  if (problem) throw reject(*problem);
  if (!json.is_array()) throw reject(json.type_name());
  std::vector<int> ids;
  for (const auto& value : json) {
    if (!value.is_number_integer() || value > std::numeric_limits<int>::max() || value < 0) {
      throw reject("an array with " + ql::on_one_line(value.dump(), 60));
    }
    ids.push_back(value.get<int>());
  }
  return ids;
}

void print_ids(const std::vector<int>& ids, const Options& options) {
  if (options.json) {
    std::cout << "{\"ids\":";
    write_values(std::cout, ids);
    std::cout << "}\n";
    return;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) std::cout << (i == 0 ? "" : " ") << ids[i];
  std::cout << '\n' << ids.size() << " tokens\n";
}

}  // namespace

std::vector<int> parse_ids(const std::string& text, const char* option) {
  if (text.size() > 1 && text.front() == '@') return ids_of_file(text.substr(1));
  std::vector<int> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int id = 0;
    const auto [stop, status] = std::from_chars(at, end, id);
    const bool separated = stop == end || (*stop == ',' && stop + 1 != end);
    if (status != std::errc{} || id < 0 || !separated) {
      throw CLI::ValidationError(
          option, "found " + ql::in_quotes(text) + ", expected numbers like 1,2,3 or @FILE.json");
    }
    ids.push_back(id);
    at = stop == end ? end : stop + 1;
  }
  return ids;
}

std::vector<int> some_ids(const std::string& text, const char* option, const char* what) {
  std::vector<int> ids = parse_ids(text, option);
  if (ids.empty()) {
    throw CLI::ValidationError(option, std::string("found none, expected at least one ") + what);
  }
  return ids;
}

void check_context(const ql::Checkpoint& files, const char* option, Index tokens) {
  const Index most = files.config().context_limit();
  if (tokens <= most) return;
  throw CLI::ValidationError(option, "found " + std::to_string(tokens) +
                                         " tokens, expected at most the model's " + std::to_string(most));
}

void tokenize(const Options& options) {
  const ql::Tokenizer tokenizer = programs::open_tokenizer(options.directory, options.family);
  const std::string text = options.text ? *options.text : programs::all_input(programs::most_text);
  const auto encode = [&] { return tokenizer.encode(text, {.control_tokens = options.special}); };
  print_ids(programs::with_memory_for("the tokens of the text", encode), options);
}

void detokenize(const Options& options) {
  const std::vector<int> ids = parse_ids(options.ids, "--ids");
  const ql::Tokenizer tokenizer = programs::open_tokenizer(options.directory, options.family);
  for (const int id : ids) {
    if (id < tokenizer.vocab_size()) continue;
    throw ql::Error(ql::ErrorCode::bad_argument, "--ids", std::to_string(id),
                    "ids below " + std::to_string(tokenizer.vocab_size()));
  }
  const std::string text = tokenizer.decode(ids);
  if (options.json) {
    std::cout << "{\"text\":" << json_value(text) << "}\n";
  } else {
    std::cout << text << '\n';
  }
}

void render_template(const Options& options) {
  const ql::Tokenizer tokenizer = programs::open_tokenizer(options.directory, options.family);
  programs::require_template(tokenizer);
  const ql::ChatTemplate& chat = tokenizer.chat_template();
  const ql::ChatRequest request = ql::parse_chat_request(programs::all_input(programs::most_small),
                                                         chat.family().value_or(ql::ChatFamily::qwen3));
  for (const std::string& field : request.passed_over) {
    std::cerr << "note: " << field << "; the template of this model passes over it\n";
  }
  const std::string text = chat.render(request.messages, request.options);
  const std::vector<int> ids = tokenizer.encode_chat(request.messages, request.options);
  if (options.json) {
    std::cout << "{\"text\":" << json_value(text) << ",\"ids\":";
    write_values(std::cout, ids);
    std::cout << "}\n";
  } else {
    std::cout << text << "\n-- ";
    print_ids(ids, options);
  }
}

}  // namespace inspect
