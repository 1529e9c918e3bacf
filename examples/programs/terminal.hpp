// SPDX-License-Identifier: Apache-2.0
//
// What a terminal can be asked for.
#pragma once

#include <cstdlib>
#include <string_view>
#include <unistd.h>

namespace programs {

/// A terminal inside an editor, or one that nobody knows: it takes text and nothing else.
inline bool is_dumb_terminal() {
  const char* terminal = std::getenv("TERM");
  return terminal == nullptr || std::string_view(terminal) == "dumb";
}

/// Whether standard error is a terminal on which a line can be erased again.
inline bool shows_progress() {
  return ::isatty(STDERR_FILENO) != 0 && !is_dumb_terminal();
}

}  // namespace programs
