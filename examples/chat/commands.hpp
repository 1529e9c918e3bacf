// SPDX-License-Identifier: Apache-2.0
//
// The slash commands of a conversation. What they have to say goes to standard error, with the other notes; a
// command that fails says so in a line and changes nothing.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/chat.hpp>

#include "programs/open_model.hpp"

namespace chat {

using Chat = qwenlite::ChatSession<programs::ProgramModel>;

/// "/system Be brief." taken apart.
struct Command {
  std::string name;      // with its slash
  std::string argument;  // without white space around it
};

/// The command in what the user typed; empty for a message to the model. Two slashes begin a message that
/// begins with one.
[[nodiscard]] std::optional<Command> command_of(std::string_view text);

/// The message in what the user typed.
[[nodiscard]] std::string message_of(std::string text);

/// All commands, with their slashes.
[[nodiscard]] std::vector<std::string> command_names();

class Commands {
 public:
  Commands(Chat& chat, std::ostream& notes, bool stats) : chat_(chat), notes_(notes), stats_(stats) {}

  /// False: the conversation is to end.
  [[nodiscard]] bool run(const Command& command);

  [[nodiscard]] bool stats() const { return stats_; }
  /// The user was told that the context is full. Forgotten with the conversation.
  [[nodiscard]] bool told_full() const { return told_full_; }
  void set_told_full() { told_full_ = true; }

 private:
  friend struct CommandTable;
  bool help(const std::string& argument);
  bool reset(const std::string& argument);
  bool think(const std::string& argument);
  bool system(const std::string& argument);
  bool stats(const std::string& argument);
  bool save(const std::string& argument);
  bool save_over(const std::string& argument);
  bool load(const std::string& argument);
  bool exit(const std::string& argument);

  [[nodiscard]] bool thinks() const;
  [[nodiscard]] std::string system_message() const;
  void save_to(const std::string& path, bool replace);

  Chat& chat_;
  std::ostream& notes_;
  bool stats_;
  bool told_full_ = false;
};

}  // namespace chat
