// SPDX-License-Identifier: Apache-2.0
//
// How much the programs read, at most, from a file, a pipe or a device that might never end.
#pragma once

#include <cstddef>
#include <string>

#include <qwenlite/error.hpp>

namespace programs {

/// A text to tokenize.
inline constexpr std::size_t most_text = std::size_t{1} << 30U;
/// A question, one line of a conversation, or a JSON text: token ids, a conversation.
inline constexpr std::size_t most_small = std::size_t{64} << 20U;

/// Throws `bad_text` when `place` holds more than `most` bytes, a whole number of MiB.
inline void require_at_most(std::size_t bytes, std::size_t most, const std::string& place) {
  if (bytes <= most) return;
  throw qwenlite::Error(qwenlite::ErrorCode::bad_text, place, {"more than ", most, " bytes"},
                        {"at most ", most >> 20U, " MiB"});
}

}  // namespace programs
