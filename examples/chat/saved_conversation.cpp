// SPDX-License-Identifier: Apache-2.0
#include "chat/saved_conversation.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <unistd.h>

#include <qwenlite/in_quotes.hpp>
#include <qwenlite/text/conversation.hpp>

namespace fs = std::filesystem;
namespace ql = qwenlite;

namespace chat {
namespace {

constexpr std::uintmax_t most_bytes = std::uintmax_t{64} << 20U;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw ql::Error(ql::ErrorCode::io, path + ": " + what);
}

/// "~/chat.json" as a shell has it.
std::string expanded(const std::string& path) {
  const char* home = std::getenv("HOME");
  return home != nullptr && path.rfind("~/", 0) == 0 ? home + path.substr(1) : path;
}

/// The templates pass over messages of other roles, in silence.
void check_role(const std::string& role) {
  for (const char* known : {"system", "user", "assistant", "tool"}) {
    if (role == known) return;
  }
  throw ql::Error(ql::ErrorCode::bad_text, "role", ql::in_quotes(role), "system, user, assistant or tool");
}

/// A file under a name of its own, gone again unless it was given its final name.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& beside) : name_(beside + ".XXXXXX") {
    file_ = ::mkstemp(name_.data());
    if (file_ < 0) fail(beside, std::string("could not be written: ") + std::strerror(errno));
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    ::close(file_);
    if (!kept_) ::unlink(name_.c_str());
  }

  [[nodiscard]] bool write(std::string_view text) const {
    while (!text.empty()) {
      const auto written = ::write(file_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    return ::fsync(file_) == 0;
  }
  [[nodiscard]] bool rename_to(const std::string& path) {
    kept_ = ::rename(name_.c_str(), path.c_str()) == 0;
    return kept_;
  }

 private:
  std::string name_;
  int file_ = -1;
  bool kept_ = false;
};

}  // namespace

void save_conversation(const std::string& path, const SavedConversation& saved, bool replace) {
  const std::string name = expanded(path);
  std::error_code status;
  if (fs::is_directory(name, status)) fail(path, "is a directory");
  if (!replace && fs::exists(fs::symlink_status(name, status))) {
    fail(path, "exists already (/save! replaces it)");
  }
  ql::ChatRequest request;
  request.messages = saved.messages;
  request.options.enable_thinking = saved.thinking;
  TemporaryFile file(name);
  if (!file.write(ql::chat_request_json(request) + "\n") || !file.rename_to(name)) {
    fail(path, std::string("could not be written: ") + std::strerror(errno));
  }
}

SavedConversation load_conversation(const std::string& path, ql::ChatFamily family) {
  const std::string name = expanded(path);
  std::error_code status;
  if (!fs::is_regular_file(name, status)) fail(path, status ? status.message() : "is not a file");
  if (fs::file_size(name, status) > most_bytes) fail(path, "is too large for a conversation");
  std::ifstream file(name, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) fail(path, "could not be read");
  try {
    ql::ChatRequest request = ql::parse_chat_request(text, family);
    for (const std::string& field : request.passed_over) throw ql::Error(ql::ErrorCode::bad_text, field);
    for (const ql::Message& message : request.messages) check_role(message.role);
    return {std::move(request.messages), request.options.enable_thinking, !request.options.tools.empty()};
  } catch (const ql::Error& e) {
    fail(path, std::string("is not a saved conversation: ") + e.what());
  }
}

}  // namespace chat
