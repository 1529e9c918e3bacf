// SPDX-License-Identifier: Apache-2.0
//
// How well a model predicts a text: perplexity, and with a reference model the KL divergence and the
// agreement of the likeliest tokens. For judging weights, caches and precisions by what they cost.
//
// A text longer than the context is read in windows. Window k reads tokens [k * stride, k * stride + window)
// from an empty session; it scores those of them that no earlier window did, so every token but the first of
// the text is scored exactly once, and all after the first window see at least window - stride tokens before
// them. Memory is bounded: the logits of at most `piece` tokens exist at a time, and none of the tokens that
// are read as context only.
#pragma once

#include <concepts>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <qwenlite/score_numbers.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// What scoring needs of a model and its session: `logits` processes tokens and returns those after chosen
/// ones (ascending indices), [chosen, vocab_size]; `prefill` only processes them; truncate(0) empties the
/// session.
template <class Model, class Session>
concept ScorableModel = requires(const Model& model, Session& session, std::span<const int> tokens,
                                 std::span<const Index> which) {
  { model.logits(session, tokens, which) } -> std::convertible_to<ConstMatrix<float>>;
  model.prefill(session, tokens);
  { model.vocab_size() } -> std::convertible_to<Index>;
  session.truncate(Index{});
  { session.max_tokens() } -> std::convertible_to<Index>;
};

/// How a text is read.
struct ScoreOptions {
  /// Tokens of a window, at least 2; 0: as many as the sessions hold.
  Index window = 0;
  /// From the beginning of a window to that of the next, less than a window; 0: half of it.
  Index stride = 0;
  /// Most tokens processed at once: their logits take 4 * vocab_size bytes each.
  Index piece = 64;
  /// Which tokens to score, by their place in the text; not set: all but the first. The rest is context.
  std::function<bool(Index)> scored = {};
  /// Called after each piece with the number of tokens processed and their total (what windows share is
  /// counted in each). False stops.
  std::function<bool(Index, Index)> progress = {};
};

/// Tokens that are read together: [first, end) of the text, of which [scored, end) are new.
struct ScoreWindow {
  Index first = 0;
  Index scored = 1;
  Index end = 0;
};

/// The windows of a text of `tokens` tokens. Throws `bad_argument` for options out of range and for a text
/// of fewer than two tokens, which predicts nothing.
[[nodiscard]] inline std::vector<ScoreWindow> score_windows(Index tokens, Index max_tokens,
                                                            const ScoreOptions& options) {
  const auto check = [](const char* what, Index found, Index least, Index most) {
    if (found >= least && found <= most) return;
    throw Error(ErrorCode::bad_argument, what, found, {least, " to ", most});
  };
  if (tokens < 2) {
    throw Error(ErrorCode::bad_argument, "text to score", {tokens, tokens == 1 ? " token" : " tokens"},
                "at least 2");
  }
  check("tokens that a session holds", max_tokens, 2, std::numeric_limits<Index>::max());
  const Index window = options.window == 0 ? max_tokens : options.window;
  check("window", window, 2, max_tokens);
  const Index stride = options.stride == 0 ? window / 2 : options.stride;
  check("stride", stride, 1, window - 1);
  check("piece", options.piece, 1, std::numeric_limits<Index>::max());

  std::vector<ScoreWindow> windows = {{0, 1, std::min(window, tokens)}};
  while (windows.back().end < tokens) {
    const Index first = windows.back().first + stride;
    windows.push_back({first, windows.back().end, first + std::min(window, tokens - first)});
  }
  return windows;
}

/// A model to compare with, and a session of it.
template <class Model, class Session>
struct Reference {
  const Model& model;
  Session& session;

  Reference(const Model& with, Session& of_it) : model(with), session(of_it) {}
};

/// One run of score() or compare(), piece by piece.
template <class Model, class Session, class ReferenceModel = Model, class ReferenceSession = Session>
requires ScorableModel<Model, Session> && ScorableModel<ReferenceModel, ReferenceSession>
class Scoring {
 public:
  using Compared = Reference<ReferenceModel, ReferenceSession>;

  Scoring(const Model& model, Session& session, std::optional<Compared> reference,
          std::span<const int> tokens, const ScoreOptions& options)
      : model_(model), session_(session), reference_(reference), tokens_(tokens), options_(options) {
    check_tokens();
    Index room = session.max_tokens();
    if (reference) {
      check_reference(*reference);
      room = std::min<Index>(room, reference->session.max_tokens());
    }
    windows_ = score_windows(static_cast<Index>(tokens.size()), room, options);
    for (const ScoreWindow& w : windows_) total_ += w.end - 1 - w.first;
  }

  [[nodiscard]] Score run() {
    for (const ScoreWindow& window : windows_) {
      session_.truncate(0);
      if (reference_) reference_->session.truncate(0);
      // The last token of a window predicts none of it.
      for (Index at = window.first, count = 0; at < window.end - 1; at += count) {
        count = std::min(options_.piece, window.end - 1 - at);
        read(at, count, window.scored);
        done_ += count;
        score_.stopped = options_.progress && !options_.progress(done_, total_);
        if (score_.stopped) return score_;
      }
    }
    return score_;
  }

 private:
  void check_tokens() const {
    const Index vocab_size = model_.vocab_size();
    for (const int id : tokens_) {
      if (id >= 0 && id < vocab_size) continue;
      throw Error(ErrorCode::bad_argument, "token id", id, {"0 to ", vocab_size - 1});
    }
  }

  void check_reference(const Compared& reference) const {
    const bool apart = static_cast<const void*>(&reference.session) != &session_;
    require(apart, "the reference model needs a session of its own");
    const Index found = reference.model.vocab_size();
    const Index expected = model_.vocab_size();
    if (found == expected) return;
    throw Error(ErrorCode::bad_argument, "vocabulary of the reference model", {found, " tokens"},
                {expected, ", as the model"});
  }

  /// Processes tokens [at, at + count), and scores those that follow them.
  void read(Index at, Index count, Index first_scored) {
    which_.clear();
    for (Index i = std::max<Index>(0, first_scored - 1 - at); i < count; ++i) {
      if (!options_.scored || options_.scored(at + i + 1)) which_.push_back(i);
    }
    const auto piece = tokens_.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
    if (which_.empty()) {
      model_.prefill(session_, piece);
      if (reference_) reference_->model.prefill(reference_->session, piece);
      return;
    }
    const ConstMatrix<float> found = model_.logits(session_, piece, which_);
    if (!reference_) {
      for (std::size_t i = 0; i < which_.size(); ++i) {
        scoring::add(score_, row(found, i), token_after(at + which_[i]));
      }
      return;
    }
    const ConstMatrix<float> expected = reference_->model.logits(reference_->session, piece, which_);
    for (std::size_t i = 0; i < which_.size(); ++i) {
      scoring::add(score_, row(found, i), row(expected, i), token_after(at + which_[i]));
    }
  }

  [[nodiscard]] static std::span<const float> row(const ConstMatrix<float>& logits, std::size_t i) noexcept {
    return {logits.data() + static_cast<Index>(i) * logits.outerStride(),
            static_cast<std::size_t>(logits.cols())};
  }

  [[nodiscard]] std::size_t token_after(Index place) const noexcept {
    return static_cast<std::size_t>(tokens_[static_cast<std::size_t>(place + 1)]);
  }

  const Model& model_;
  Session& session_;
  std::optional<Compared> reference_;
  std::span<const int> tokens_;
  const ScoreOptions& options_;
  std::vector<ScoreWindow> windows_;
  std::vector<Index> which_;
  Index done_ = 0;
  Index total_ = 0;
  Score score_;
};

/// Scores a text: reads it through the session, which is emptied first and left with the last window. Throws
/// as score_windows() does, `bad_argument` for an id out of range, `numeric` for logits that are broken.
template <class Model, class Session>
requires ScorableModel<Model, Session>
[[nodiscard]] Score score(const Model& model, Session& session, std::span<const int> tokens,
                          const ScoreOptions& options = {}) {
  return Scoring<Model, Session>(model, session, std::nullopt, tokens, options).run();
}

/// The same, and compares with a reference model that reads the same tokens. Needs a session of its own for
/// it, and a vocabulary of the same size; throws `bad_argument` otherwise.
template <class Model, class Session, class ReferenceModel, class ReferenceSession>
requires ScorableModel<Model, Session> && ScorableModel<ReferenceModel, ReferenceSession>
[[nodiscard]] Score compare(const Model& model, Session& session,
                            Reference<ReferenceModel, ReferenceSession> reference,
                            std::span<const int> tokens, const ScoreOptions& options = {}) {
  return Scoring<Model, Session, ReferenceModel, ReferenceSession>(model, session, reference, tokens, options)
      .run();
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
