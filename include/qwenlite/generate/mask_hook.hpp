// SPDX-License-Identifier: Apache-2.0
//
// The hook that a caller may have called before every draw: it sees the reply so far and says which tokens
// may come next, or which one must.
//
// What the hook sees depends on the reply alone, not on when it was started or continued, so a hook without
// state of its own lets a reply be stopped and continued with the same text.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/generate/token_mask.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// The reply at the moment before a draw.
struct MaskContext {
  std::span<const int> generated;  ///< its tokens so far, those that an earlier call generated included
  Index position = 0;              ///< tokens before the one to be drawn, prompt included
  bool inside_think = false;       ///< the next token belongs to the think block (or closes it)
  Index think_tokens = 0;          ///< inside: tokens of the block so far, without its opening one; else 0
};

/// Called before every draw with a mask that allows everything. Example, a budget for thinking:
///   [](const MaskContext& reply, TokenMask& mask) {
///     if (reply.inside_think && reply.think_tokens >= 500) mask.force(end_of_think_id);
///   }
using MaskHook = std::function<void(const MaskContext&, TokenMask&)>;

/// How the think block is recognised. Ids are those of the tokenizer's <think> and </think>; -1: none.
struct ThinkBlock {
  int open = -1;
  int close = -1;
  bool open_at_start = false;  ///< the prompt ends inside the block, as some templates make it
};

/// A hook at work on one reply: keeps what it is to see. Allocates at construction only.
class HookedMask {
 public:
  /// most_tokens: of the reply, all calls together. Throws bad_argument for ids out of range.
  HookedMask(MaskHook hook, const ThinkBlock& think, Index token_count, Index most_tokens)
      : hook_(std::move(hook)), think_(think), mask_(token_count), inside_think_(think.open_at_start) {
    check("think.open", think.open);
    check("think.close", think.close);
    generated_.reserve(static_cast<std::size_t>(most_tokens));
  }

  /// Adds a token to the reply.
  void append(int token) {
    generated_.push_back(token);
    if (token == think_.close) {
      inside_think_ = false;
      think_tokens_ = 0;
    } else if (inside_think_) {
      ++think_tokens_;
    } else {
      inside_think_ = token == think_.open;
    }
  }

  /// Asks the hook about the token at `position`. What the hook throws passes through.
  [[nodiscard]] const TokenMask& at(Index position) {
    mask_.clear();
    hook_({generated_, position, inside_think_, think_tokens_}, mask_);
    return mask_;
  }

 private:
  void check(const char* name, int id) const {
    if (id >= -1 && id < mask_.token_count()) return;
    throw Error(ErrorCode::bad_argument, name, id,
                {"-1 (none) or a token id up to ", mask_.token_count() - 1});
  }

  MaskHook hook_;
  ThinkBlock think_;
  TokenMask mask_;
  std::vector<int> generated_;
  bool inside_think_;
  Index think_tokens_ = 0;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
