// SPDX-License-Identifier: Apache-2.0
//
// TokenMask: which tokens may be drawn next, one bit per token, and perhaps one that must be.
//
// As long as nothing is banned a mask costs a draw nothing.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// All tokens are allowed at first. Ids are 0 to token_count - 1: any other throws bad_argument.
class TokenMask {
 public:
  explicit TokenMask(Index token_count)
      : token_count_(token_count), banned_(static_cast<std::size_t>((token_count + 63) / 64)) {}

  void ban(int token) {
    const auto id = checked(token);
    banned_[id / 64] |= std::uint64_t{1} << id % 64;
    bans_ = true;
  }
  void allow(int token) {
    const auto id = checked(token);
    banned_[id / 64] &= ~(std::uint64_t{1} << id % 64);
  }
  void ban_all() noexcept {
    std::fill(banned_.begin(), banned_.end(), ~std::uint64_t{0});
    if (token_count_ % 64 != 0) banned_.back() = (std::uint64_t{1} << token_count_ % 64) - 1;
    bans_ = true;
  }
  void allow_only(std::span<const int> tokens) {
    ban_all();
    for (const int token : tokens) allow(token);
  }
  /// This token comes next, whatever its logit, its bias and the bans say.
  void force(int token) { forced_ = static_cast<int>(checked(token)); }

  /// Allows everything again and forces nothing.
  void clear() noexcept {
    if (bans_) std::fill(banned_.begin(), banned_.end(), std::uint64_t{0});
    bans_ = false;
    forced_.reset();
  }

  [[nodiscard]] bool banned(int token) const {
    const auto id = checked(token);
    return (banned_[id / 64] >> id % 64 & 1U) != 0;
  }
  [[nodiscard]] const std::optional<int>& forced() const noexcept { return forced_; }
  /// False when certainly nothing is banned.
  [[nodiscard]] bool bans() const noexcept { return bans_; }
  [[nodiscard]] Index token_count() const noexcept { return token_count_; }

  /// Sets the logits of banned tokens to -infinity. logits: [token_count].
  void apply(std::span<float> logits) const noexcept {
    constexpr float never = -std::numeric_limits<float>::infinity();
    for (std::size_t w = 0; w < banned_.size(); ++w) {
      const std::size_t first = w * 64;
      if (banned_[w] == ~std::uint64_t{0}) {
        std::fill_n(logits.data() + first, 64, never);
        continue;
      }
      for (std::uint64_t bits = banned_[w]; bits != 0; bits &= bits - 1) {
        logits[first + static_cast<std::size_t>(std::countr_zero(bits))] = never;
      }
    }
  }

 private:
  [[nodiscard]] std::size_t checked(int token) const {
    if (token >= 0 && token < token_count_) return static_cast<std::size_t>(token);
    throw Error(ErrorCode::bad_argument, "token id for the mask", token, {"0 to ", token_count_ - 1});
  }

  Index token_count_;
  std::vector<std::uint64_t> banned_;  // [ceil(token_count / 64)], token i at bit i % 64
  bool bans_ = false;
  std::optional<int> forced_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
