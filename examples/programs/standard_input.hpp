// SPDX-License-Identifier: Apache-2.0
//
// Standard input of the programs, past the streams of the library, which say nothing of why they fail.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <unistd.h>

#include <qwenlite/error.hpp>

#include "programs/input_limits.hpp"
#include "programs/out_of_memory.hpp"

namespace programs {

/// Appends what there is, and waits for something. False: it ended. Throws `io` when it cannot be read.
inline bool append_input(std::string& text) {
  char bytes[4096];
  while (true) {
    const auto count = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (count >= 0) text.append(bytes, static_cast<std::size_t>(count));
    if (count >= 0) return count > 0;
    if (errno == EINTR) continue;
    const std::string why = errno == EBADF ? "it is closed" : std::strerror(errno);
    throw qwenlite::Error(qwenlite::ErrorCode::io, "standard input: could not be read: " + why);
  }
}

/// All of it. Throws as append_input does, and `bad_text` when there are more than `most` bytes.
inline std::string all_input(std::size_t most) {
  return with_memory_for("standard input", [most] {
    std::string text;
    while (append_input(text)) require_at_most(text.size(), most, "standard input");
    return text;
  });
}

}  // namespace programs
