// SPDX-License-Identifier: Apache-2.0
//
// Texts that programs are given as files. What a shell puts in place of <(COMMAND) is a pipe, and read like a
// file; a pipe that nobody writes to is refused, where reading it would wait for ever.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <qwenlite/error.hpp>
#include <qwenlite/in_quotes.hpp>

#include "programs/input_limits.hpp"

namespace programs {

/// The bytes of a file. Throws `io` when it cannot be read, `bad_text` when there are more than `most`.
inline std::string read_text(const std::string& name, std::size_t most = most_text) {
  struct Opened {
    int file;
    ~Opened() {
      if (file >= 0) ::close(file);
    }
  };
  const std::string shown = qwenlite::in_quotes(name);
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const Opened opened{::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  const auto fail = [&](const std::string& why) {
    throw qwenlite::Error(qwenlite::ErrorCode::io, shown + ": cannot be read: " + why);
  };
  struct stat status {};
  if (opened.file < 0 || ::fstat(opened.file, &status) != 0) fail(std::strerror(errno));
  if (S_ISDIR(status.st_mode)) fail("found a directory, expected a file");
  if (S_ISREG(status.st_mode)) require_at_most(static_cast<std::size_t>(status.st_size), most, shown);
  std::string content;
  char bytes[1 << 16];
  auto count = ::read(opened.file, bytes, sizeof bytes);  // of a pipe: 0 without a writer, else it may wait
  if (count == 0 && S_ISFIFO(status.st_mode)) fail("found a pipe that nobody writes to, expected a file");
  ::fcntl(opened.file, F_SETFL, O_RDONLY);
  while (count != 0) {
    if (count > 0) content.append(bytes, static_cast<std::size_t>(count));
    require_at_most(content.size(), most, shown);
    if (count < 0 && errno != EINTR && errno != EAGAIN) fail(std::strerror(errno));
    count = ::read(opened.file, bytes, sizeof bytes);
  }
  return content;
}

}  // namespace programs
