// SPDX-License-Identifier: Apache-2.0
#include "chat/commands.hpp"

#include <algorithm>
#include <iomanip>
#include <iterator>
#include <utility>

#include <qwenlite/in_quotes.hpp>

#include "chat/printable.hpp"
#include "chat/saved_conversation.hpp"

namespace ql = qwenlite;

namespace chat {

struct CommandTable {
  struct Row {
    const char* name;
    const char* arguments;
    const char* does;
    bool (Commands::*run)(const std::string&);
  };
  static constexpr Row rows[] = {
      {"/help", "", "list the commands", &Commands::help},
      {"/reset", "", "forget the conversation, but not the system message", &Commands::reset},
      {"/think", "[on|off]", "let the model think before it answers", &Commands::think},
      {"/system", "[TEXT|off]", "show, set or remove the system message", &Commands::system},
      {"/stats", "[on|off]", "show what each answer took", &Commands::stats},
      {"/save", "FILE", "write the conversation to a new file", &Commands::save},
      {"/save!", "FILE", "the same, replacing a file", &Commands::save_over},
      {"/load", "FILE", "go on with a saved conversation", &Commands::load},
      {"/exit", "", "end", &Commands::exit},
  };
};

namespace {

constexpr const char* white = " \t\n\r";

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(white);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(white) + 1 - first));
}

/// "on", "off", or nothing for the other of the two.
bool switched(const std::string& argument, bool now) {
  if (argument.empty()) return !now;
  if (argument != "on" && argument != "off") {
    throw ql::Error(ql::ErrorCode::bad_argument, "the argument", ql::in_quotes(argument), "on or off");
  }
  return argument == "on";
}

void refuse_argument(const std::string& argument) {
  if (argument.empty()) return;
  throw ql::Error(ql::ErrorCode::bad_argument, "the argument", ql::in_quotes(argument), "none");
}

std::string messages_in_words(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " message" : " messages");
}

/// No message, or a system message alone.
bool nothing_said(const std::vector<ql::Message>& messages) {
  return messages.empty() || (messages.size() == 1 && messages.front().role == "system");
}

/// Tokens of a conversation out of a file. Throws if the template refuses it, as it may do when nothing was
/// said yet: that is none.
std::size_t token_count(const std::vector<ql::Message>& messages, const ql::Tokenizer& tokenizer,
                        const std::string& path) {
  if (nothing_said(messages)) return 0;
  try {
    return tokenizer.encode_chat(messages).size();
  } catch (const ql::Error& e) {
    throw ql::Error(e.code(), path + ": is no conversation for this model: " + e.what());
  }
}

void require_file(const std::string& argument) {
  ql::require(!argument.empty(), "found no file name, expected one");
}

}  // namespace

std::optional<Command> command_of(std::string_view text) {
  const std::string command = trimmed(text);
  if (command.empty() || command[0] != '/' || command.rfind("//", 0) == 0) return {};
  const std::size_t end = std::min(command.find_first_of(white), command.size());
  return Command{command.substr(0, end), trimmed(std::string_view(command).substr(end))};
}

std::string message_of(std::string text) {
  if (text.rfind("//", 0) == 0) text.erase(0, 1);
  return text;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const auto& row : CommandTable::rows) names.emplace_back(row.name);
  return names;
}

bool Commands::run(const Command& command) {
  const auto* const end = std::end(CommandTable::rows);
  const auto* const row = std::find_if(std::begin(CommandTable::rows), end,
                                       [&](const auto& r) { return r.name == command.name; });
  if (row == end) {
    notes_ << "note: there is no command " << ql::in_quotes(command.name) << "; there are";
    for (const std::string& name : command_names()) notes_ << ' ' << name;
    notes_ << " (// begins a message with a slash)" << std::endl;
    return true;
  }
  try {
    return (this->*row->run)(command.argument);
  } catch (const std::exception& e) {
    notes_ << "note: " << row->name << ": " << printable_line(e.what()) << std::endl;
    return true;
  }
}

bool Commands::help(const std::string& argument) {
  refuse_argument(argument);
  for (const auto& row : CommandTable::rows) {
    const std::string call = std::string(row.name) + " " + row.arguments;
    notes_ << "  " << std::left << std::setw(19) << call << row.does << '\n';
  }
  notes_ << "A line that ends in \\ goes on with the next. // begins a message with a slash.\n"
         << "Ctrl-C stops an answer or drops a line; twice on an empty one, or Ctrl-D, ends." << std::endl;
  return true;
}

bool Commands::reset(const std::string& argument) {
  refuse_argument(argument);
  chat_.reset();
  told_full_ = false;
  notes_ << "note: the conversation is forgotten" << std::endl;
  return true;
}

bool Commands::thinks() const {
  const std::optional<bool> chosen = chat_.options().thinking;
  return chosen.value_or(chat_.tokenizer().chat_template().thinks());
}

bool Commands::think(const std::string& argument) {
  chat_.set_thinking(switched(argument, thinks()));
  notes_ << "note: the model " << (thinks() ? "thinks before it answers" : "answers without thinking")
         << std::endl;
  return true;
}

std::string Commands::system_message() const {
  const auto& messages = chat_.messages();
  return !messages.empty() && messages.front().role == "system" ? messages.front().content : "";
}

bool Commands::system(const std::string& argument) {
  if (!argument.empty()) chat_.set_system(argument == "off" ? "" : argument);
  const std::string text = system_message();
  notes_ << "note: " << (text.empty() ? "there is no system message" : "the system message is: ")
         << printable_line(text) << std::endl;
  return true;
}

bool Commands::stats(const std::string& argument) {
  stats_ = switched(argument, stats_);
  notes_ << "note: statistics are " << (stats_ ? "shown after each answer" : "not shown") << std::endl;
  return true;
}

void Commands::save_to(const std::string& path, bool replace) {
  require_file(path);
  save_conversation(path, {chat_.messages(), chat_.options().thinking}, replace);
  notes_ << "note: saved " << messages_in_words(chat_.messages().size()) << " to " << printable_line(path)
         << std::endl;
}

bool Commands::save(const std::string& argument) {
  save_to(argument, false);
  return true;
}

bool Commands::save_over(const std::string& argument) {
  save_to(argument, true);
  return true;
}

bool Commands::load(const std::string& argument) {
  require_file(argument);
  const ql::Tokenizer& tokenizer = chat_.tokenizer();
  SavedConversation saved =
      load_conversation(argument, tokenizer.chat_template().family().value_or(ql::ChatFamily::qwen3));
  const std::size_t count = saved.messages.size();
  const std::size_t tokens = token_count(saved.messages, tokenizer, argument);
  chat_.set_messages(std::move(saved.messages));
  chat_.set_thinking(saved.thinking);
  told_full_ = false;
  notes_ << "note: loaded " << messages_in_words(count);
  if (tokens > 0) notes_ << " (" << tokens << " tokens)";
  notes_ << " from " << printable_line(argument);
  if (saved.has_tools) notes_ << "; its tools are left out, as chat has none";
  const ql::Index context = chat_.session().max_tokens();
  if (static_cast<ql::Index>(tokens) >= context) {
    notes_ << "; it does not fit into the context of " << context
           << " tokens: the oldest messages will be left out";
  }
  notes_ << std::endl;
  return true;
}

bool Commands::exit(const std::string& argument) {
  refuse_argument(argument);
  return false;
}

}  // namespace chat
