// SPDX-License-Identifier: Apache-2.0
//
// Definitions of text_stream.hpp.
#pragma once

#include <algorithm>
#include <utility>

#include <qwenlite/text/partial_match.hpp>
#include <qwenlite/text/text_stream.hpp>
#include <qwenlite/text/unicode.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

QWENLITE_INLINE void ThinkSplitter::push(std::string_view text, bool last) {
  text_.clear();
  parts_.clear();
  held_.append(text);
  while (step()) {
  }
  if (last) {
    const bool inside = state_ == ThinkState::inside;
    if (inside) held_.resize(held_.find_last_not_of('\n') + 1);
    emit(held_.size(), inside);
    held_.clear();
  }
  pieces_.clear();
  std::size_t from = 0;
  for (const Part& part : parts_) {
    pieces_.push_back({std::string_view(text_).substr(from, part.end - from), part.thinking});
    from = part.end;
  }
}

QWENLITE_INLINE void ThinkSplitter::emit(std::size_t count, bool thinking) {
  if (count == 0) return;
  text_.append(held_, 0, count);
  held_.erase(0, count);
  if (parts_.empty() || parts_.back().thinking != thinking) parts_.push_back({0, thinking});
  parts_.back().end = text_.size();
}

QWENLITE_INLINE bool ThinkSplitter::step() {
  switch (state_) {
    case ThinkState::before: return step_before();
    case ThinkState::inside: return step_inside();
    case ThinkState::after: break;
  }
  if (drop_newlines_) held_.erase(0, std::min(held_.find_first_not_of('\n'), held_.size()));
  drop_newlines_ = drop_newlines_ && held_.empty();
  emit(held_.size(), false);
  return false;
}

QWENLITE_INLINE bool ThinkSplitter::step_before() {
  const std::size_t first = held_.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return false;
  const std::string_view rest = std::string_view(held_).substr(first);
  if (rest.size() < open_tag.size() && open_tag.substr(0, rest.size()) == rest) return false;
  if (rest.substr(0, open_tag.size()) == open_tag) {
    held_.erase(0, first + open_tag.size());
    state_ = ThinkState::inside;
    drop_newlines_ = true;
  } else {
    state_ = ThinkState::after;
  }
  return true;
}

QWENLITE_INLINE bool ThinkSplitter::step_inside() {
  if (drop_newlines_) {
    held_.erase(0, std::min(held_.find_first_not_of('\n'), held_.size()));
    drop_newlines_ = held_.empty();
  }
  std::size_t keep = held_.find(close_tag);
  const bool closes = keep != std::string::npos;
  if (!closes) {  // the longest tail that may become the tag
    keep = held_.size() - tail_that_begins(close_tag, held_);
  }
  const std::size_t after_tag = keep + close_tag.size();
  std::size_t text_end = keep;  // line breaks before the tag, or what may become it, wait with it
  while (text_end > 0 && held_[text_end - 1] == '\n') --text_end;
  emit(text_end, true);
  if (!closes) return false;
  held_.erase(0, after_tag - text_end);
  state_ = ThinkState::after;
  drop_newlines_ = true;
  return true;
}

QWENLITE_INLINE TextStream::TextStream(const Tokenizer& tokenizer, TextStreamOptions options)
    : tokenizer_(&tokenizer), options_(std::move(options)), splitter_(options_.think) {
  for (const std::string& stop : options_.stop_strings) {
    require(!stop.empty(), "TextStreamOptions::stop_strings: found an empty string, expected text");
  }
}

QWENLITE_INLINE void TextStream::begin(std::span<const int> prompt) {
  splitter_ = ThinkSplitter(think_state_from_prompt(*tokenizer_, prompt));
  raw_.clear();
  pending_.clear();
  stopped_ = false;
}

QWENLITE_INLINE TextDelta TextStream::push(int token) {
  const bool skipped = options_.skip_special && tokenizer_->is_special(token);
  if (!skipped && !stopped_) raw_.append(tokenizer_->token_bytes(token));
  return advance(false);
}

QWENLITE_INLINE TextDelta TextStream::advance(bool last) {
  move_characters(last);
  const Stop stop = first_stop();
  const bool met = stop.end != std::string::npos;
  const std::size_t ready = met ? stop.begin : last ? pending_.size() : pending_.size() - held_back();
  out_.assign(pending_, 0, ready);
  pending_.erase(0, met ? std::string::npos : ready);
  if (met) {
    stopped_ = true;
    raw_.clear();
  }
  splitter_.push(out_, last || met);
  return {out_, splitter_.pieces()};
}

QWENLITE_INLINE void TextStream::move_characters(bool last) {
  std::size_t at = 0;
  while (at < raw_.size()) {
    const unicode::Decoded next = unicode::decode(raw_, at);
    if (!next.complete && !last) break;
    pending_.append(next.valid ? std::string_view(raw_).substr(at, next.length) : unicode::replacement_utf8);
    at += next.length;
  }
  raw_.erase(0, at);
}

QWENLITE_INLINE auto TextStream::first_stop() const noexcept -> Stop {
  Stop first;
  for (const std::string& stop : options_.stop_strings) {
    const std::size_t begin = pending_.find(stop);
    if (begin == std::string::npos) continue;
    const std::size_t end = begin + stop.size();
    if (end < first.end || (end == first.end && begin < first.begin)) first = {begin, end};
  }
  return first;
}

QWENLITE_INLINE std::size_t TextStream::held_back() const noexcept {
  std::size_t held = 0;
  for (const std::string& stop : options_.stop_strings) {
    held = std::max(held, tail_that_begins(stop, pending_));
  }
  return held;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
