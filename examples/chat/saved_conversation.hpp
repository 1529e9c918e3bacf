// SPDX-License-Identifier: Apache-2.0
//
// A conversation in a file: {"messages": [{"role": ..., "content": ...}, ...], "enable_thinking": true}, the
// form in which chat servers take them and `inspect template` reads them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <qwenlite/text/chat_template.hpp>

namespace chat {

struct SavedConversation {
  std::vector<qwenlite::Message> messages;  // a system message is the first
  std::optional<bool> thinking;             // empty: the template's own choice
  bool has_tools = false;                   // definitions of tools: chat has none, and they are not kept
};

/// Writes a file as a whole or not at all. An existing one is only replaced if the caller says so. Throws
/// qwenlite::Error that names the file.
void save_conversation(const std::string& path, const SavedConversation& saved, bool replace);

/// Throws qwenlite::Error that names the file and what is wrong with it.
[[nodiscard]] SavedConversation load_conversation(const std::string& path, qwenlite::ChatFamily family);

}  // namespace chat
