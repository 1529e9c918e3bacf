// SPDX-License-Identifier: Apache-2.0
#include "chat/line_reader.hpp"

namespace chat {
namespace {

/// An odd number of backslashes at the end: the last of them escapes the end of the line.
bool goes_on(const std::string& text) {
  const std::size_t last = text.find_last_not_of('\\');
  const std::size_t count = text.size() - (last == std::string::npos ? 0 : last + 1);
  return count % 2 == 1;
}

}  // namespace

Line read_message(LineReader& reader, const std::string& prompt, const std::string& continued) {
  Line message = reader.read(prompt);
  while (message.kind == Line::Kind::text && goes_on(message.text)) {
    message.text.back() = '\n';
    Line next = reader.read(continued);
    if (next.kind == Line::Kind::end) break;
    next.text.insert(0, message.text);
    next.was_empty = false;
    message = std::move(next);
  }
  return message;
}

std::unique_ptr<LineReader> make_line_reader(Interrupts& interrupts, const LineReaderOptions& options) {
#ifdef QWENLITE_CHAT_READLINE
  if (options.editing) return make_readline_reader(options);
#endif
  return make_plain_reader(interrupts, options);
}

}  // namespace chat
