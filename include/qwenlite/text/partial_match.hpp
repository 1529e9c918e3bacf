// SPDX-License-Identifier: Apache-2.0
//
// What a stream of text must hold back: an end that may become a tag or a stop string.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <qwenlite/error.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Length of the longest tail of `text` that begins `tag` without completing it. `tag` is not empty.
[[nodiscard]] inline std::size_t tail_that_begins(std::string_view tag, std::string_view text) noexcept {
  std::size_t count = std::min(tag.size() - 1, text.size());
  while (text.substr(text.size() - count) != tag.substr(0, count)) --count;
  return count;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
