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
  marks_.clear();
  held_.append(text);
  while (step()) {
  }
  if (last) {
    const bool inside = state_ == ThinkState::inside;
    if (inside) emit(held_.find_last_not_of('\n') + 1, ThinkPartKind::thinking);
    emit(held_.size(), inside ? ThinkPartKind::markup : ThinkPartKind::answer);
  }
  parts_.clear();
  std::size_t from = 0;
  for (const Mark& mark : marks_) {
    parts_.push_back({std::string_view(text_).substr(from, mark.end - from), mark.kind});
    from = mark.end;
  }
}

QWENLITE_INLINE void ThinkSplitter::emit(std::size_t count, ThinkPartKind kind) {
  if (count == 0) return;
  text_.append(held_, 0, count);
  held_.erase(0, count);
  if (marks_.empty() || marks_.back().kind != kind) marks_.push_back({0, kind});
  marks_.back().end = text_.size();
}

QWENLITE_INLINE bool ThinkSplitter::step() {
  switch (state_) {
    case ThinkState::before: return step_before();
    case ThinkState::inside: return step_inside();
    case ThinkState::after: break;
  }
  if (drop_newlines_) emit(std::min(held_.find_first_not_of('\n'), held_.size()), ThinkPartKind::markup);
  drop_newlines_ = drop_newlines_ && held_.empty();
  emit(held_.size(), ThinkPartKind::answer);
  return false;
}

QWENLITE_INLINE bool ThinkSplitter::step_before() {
  const std::size_t first = held_.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return false;
  const std::string_view rest = std::string_view(held_).substr(first);
  if (rest.size() < open_tag.size() && open_tag.substr(0, rest.size()) == rest) return false;
  if (rest.substr(0, open_tag.size()) == open_tag) {
    emit(first + open_tag.size(), ThinkPartKind::markup);
    state_ = ThinkState::inside;
    drop_newlines_ = true;
  } else {
    state_ = ThinkState::after;
  }
  return true;
}

QWENLITE_INLINE bool ThinkSplitter::step_inside() {
  if (drop_newlines_) {
    emit(std::min(held_.find_first_not_of('\n'), held_.size()), ThinkPartKind::markup);
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
  emit(text_end, ThinkPartKind::thinking);
  if (!closes) return false;
  emit(after_tag - text_end, ThinkPartKind::markup);
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
  held_.clear();
  stopped_ = false;
}

QWENLITE_INLINE TextDelta TextStream::push(int token) {
  const bool skipped = options_.skip_special && tokenizer_->is_special(token);
  if (!skipped && !stopped_) raw_.append(tokenizer_->token_bytes(token));
  return advance(false);
}

QWENLITE_INLINE TextDelta TextStream::advance(bool last) {
  move_characters(last);
  out_.clear();
  ranges_.clear();
  const bool was_stopped = stopped_;
  splitter_.push(characters_, last);
  for (const ThinkPart& part : splitter_.parts()) {
    if (!stopped_) take(part);
  }
  if (last) release(held_.size());
  if (stopped_ && !was_stopped) {  // what came behind the stop string was not said
    splitter_ = ThinkSplitter(thinking_ ? ThinkState::inside : splitter_.state());
  }
  pieces_.clear();
  for (const Range& range : ranges_) {
    pieces_.push_back({std::string_view(out_).substr(range.begin, range.end - range.begin), range.thinking});
  }
  return {options_.stop_strings.empty() ? characters_ : out_, pieces_};
}

QWENLITE_INLINE void TextStream::take(const ThinkPart& part) {
  if (part.kind == ThinkPartKind::markup) {  // stands between the channels: what was held is no stop string
    release(held_.size());
    out_.append(part.text);
    return;
  }
  thinking_ = part.kind == ThinkPartKind::thinking;
  held_.append(part.text);
  const Stop stop = first_stop();
  stop.end != std::string::npos ? stop_at(stop.begin) : release(held_.size() - held_back());
}

QWENLITE_INLINE void TextStream::release(std::size_t count) {
  if (count == 0) return;
  const std::size_t begin = out_.size();
  out_.append(held_, 0, count);
  held_.erase(0, count);
  if (ranges_.empty() || ranges_.back().end != begin) ranges_.push_back({begin, begin, thinking_});
  ranges_.back().end = out_.size();
}

QWENLITE_INLINE void TextStream::stop_at(std::size_t begin) {
  std::size_t kept = begin;
  while (thinking_ && kept > 0 && held_[kept - 1] == '\n') --kept;
  release(kept);
  out_.append(held_, 0, begin - kept);
  held_.clear();
  raw_.clear();
  stopped_ = true;
}

QWENLITE_INLINE void TextStream::move_characters(bool last) {
  characters_.clear();
  std::size_t at = 0;
  while (at < raw_.size()) {
    const unicode::Decoded next = unicode::decode(raw_, at);
    if (!next.complete && !last) break;
    characters_.append(next.valid ? std::string_view(raw_).substr(at, next.length)
                                  : unicode::replacement_utf8);
    at += next.length;
  }
  raw_.erase(0, at);
}

QWENLITE_INLINE auto TextStream::first_stop() const noexcept -> Stop {
  Stop first;
  for (const std::string& stop : options_.stop_strings) {
    const std::size_t begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    const std::size_t end = begin + stop.size();
    if (end < first.end || (end == first.end && begin < first.begin)) first = {begin, end};
  }
  return first;
}

QWENLITE_INLINE std::size_t TextStream::held_back() const noexcept {
  std::size_t held = 0;
  for (const std::string& stop : options_.stop_strings) {
    held = std::max(held, tail_that_begins(stop, held_));
  }
  if (thinking_ && held > 0) {
    while (held < held_.size() && held_[held_.size() - held - 1] == '\n') ++held;
  }
  return held;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
