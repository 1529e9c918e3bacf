// SPDX-License-Identifier: Apache-2.0
//
// The state policy of networks that have attention layers only: there is nothing to remember besides
// keys and values.
#pragma once

#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Meets StatePolicy; empty.
struct Stateless {
  static constexpr bool retains = true;

  void advance(Index /*n*/) noexcept {}
  [[nodiscard]] bool can_truncate(Index /*n*/) const noexcept { return true; }
  void truncate(Index /*n*/) noexcept {}
  [[nodiscard]] Index bytes() const noexcept { return 0; }
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
