// SPDX-License-Identifier: Apache-2.0
//
// DeltaState: what one sequence remembers in its Gated DeltaNet layers. NoState: nothing; every forward
// recomputes the whole sequence.
//
// Kept for each layer are the states at the start of the open chunk and of the one before, the rows of both
// chunks, and the inputs of the convolution of the last 64 positions. So any of the last 64 positions can be
// cut back to by dropping rows, at no cost. A snapshot of any of them takes the rows of its open chunk along,
// so that farther back the very place of a snapshot is restored and no token is processed again. All of it
// has a fixed size, known beforehand. Results have the bits of a sequence that never went further.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <qwenlite/kernels/ops_delta.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Sizes of the recurrent state of one sequence.
struct DeltaLayout {
  Index layers = 0;  ///< Gated DeltaNet layers
  DeltaSizes sizes;

  /// Throws `bad_argument` unless there are layers and their sizes are sound.
  void check() const {
    sizes.check();
    if (layers > 0 && layers <= Index{1} << 16U) return;
    throw Error(ErrorCode::bad_argument, "Gated DeltaNet layers of a state", {layers}, "1 to 65536");
  }
};

/// What all layers remember at one position: the states at its chunk's start, the rows of the chunk before
/// the position, the convolution's last inputs. All that a sequence needs to go on from there. A value that
/// outlives the state it was taken from; movable.
class DeltaSnapshot {
 public:
  DeltaSnapshot() = default;

  [[nodiscard]] Index position() const noexcept { return position_; }
  [[nodiscard]] Index bytes() const noexcept { return data_.bytes(); }

 private:
  friend class StoredDeltaState;
  Index position_ = 0;
  DeltaLayout layout_;
  Format format_ = Format::f32;
  AlignedBuffer data_;  // [layers]{state, rows of the open chunk, conv_kernel_dim - 1 inputs}
};

/// DeltaState with the format of its states as a value.
class StoredDeltaState {
 public:
  static constexpr bool retains = true;

  /// Throws `bad_argument` for impossible sizes and when the system refuses the memory.
  StoredDeltaState(const DeltaLayout& layout, Format format);

  /// The memory of a layer (counted over Gated DeltaNet layers), which is going to receive `count` rows from
  /// position `first` on. Throws `bad_argument` unless the sequence is that long.
  [[nodiscard]] DeltaMemory open(Index layer, Index first, Index count);

  /// Declares that all layers have received n more positions.
  void advance(Index n) noexcept { length_ += n; }
  [[nodiscard]] Index length() const noexcept { return length_; }

  /// The first position, besides 0, that truncate() can go back to.
  [[nodiscard]] Index reach() const noexcept { return reach_; }
  [[nodiscard]] bool can_truncate(Index n) const noexcept { return n == 0 || (n >= reach_ && n <= length_); }
  /// Forgets everything from position n on. Throws `bad_argument` unless can_truncate(n).
  void truncate(Index n);

  /// Whether snapshot(n) can be taken: where truncate() can go back to, but for 0.
  [[nodiscard]] bool can_snapshot(Index n) const noexcept { return n > 0 && can_truncate(n); }
  /// Copies what a sequence of length n needs. Throws `bad_argument` unless can_snapshot(n).
  [[nodiscard]] DeltaSnapshot snapshot(Index n) const;
  /// Becomes the sequence at the snapshot's position. Throws `bad_argument` for one of other sizes.
  void restore(const DeltaSnapshot& from);

  [[nodiscard]] Index bytes() const noexcept { return layout_.layers * layer_bytes_; }
  /// Of a snapshot at position n: least at multiples of 64, where no chunk is open.
  [[nodiscard]] Index snapshot_bytes(Index n) const noexcept {
    const DeltaSizes& s = layout_.sizes;
    const Index row = 4 * (s.key_width() + s.value_width()) + 8 * s.num_value_heads;
    return layout_.layers * ((n < block_positions ? 0 : state_bytes()) + n % block_positions * row +
                             std::min(n, s.conv_kernel_dim - 1) * input_bytes());
  }
  /// Of the largest.
  [[nodiscard]] Index most_snapshot_bytes() const noexcept { return snapshot_bytes(2 * block_positions - 1); }
  [[nodiscard]] Format format() const noexcept { return format_; }
  [[nodiscard]] const DeltaLayout& layout() const noexcept { return layout_; }

 private:
  struct Free {
    void operator()(void* p) const noexcept { std::free(p); }
  };

  [[nodiscard]] DeltaMemory memory_of(Index layer) const noexcept;
  [[nodiscard]] Index state_bytes() const noexcept {
    return layout_.sizes.state_floats() * element_bytes(format_);
  }
  [[nodiscard]] Index input_bytes() const noexcept { return layout_.sizes.channels() * 4; }
  template <class F>
  void for_snapshot_parts(Index position, const F& f) const;
  void begin_at(Index position) noexcept {
    length_ = reach_ = position;
    std::fill(layer_reach_.begin(), layer_reach_.end(), position);
  }

  DeltaLayout layout_;
  Format format_;
  Index layer_bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;  // as allocated
  std::byte* base_ = nullptr;              // data_ rounded up to a multiple of 64
  Index length_ = 0;
  Index reach_ = 0;                   // of the layer that can go back least
  std::vector<Index> layer_reach_{};  // [layers]
};

/// What states are rounded to at the end of each chunk: float, or Bf16, which halves the memory and gives
/// up accuracy (for comparison; the model runs in float32).
template <class Storage>
struct DeltaStorage;
template <>
struct DeltaStorage<float> {
  static constexpr Format format = Format::f32;
};
template <>
struct DeltaStorage<Bf16> {
  static constexpr Format format = Format::bf16;
};

/// Recurrent state of one sequence. Meets StatePolicy.
template <class Storage = float>
class DeltaState : public StoredDeltaState {
 public:
  explicit DeltaState(const DeltaLayout& layout) : StoredDeltaState(layout, DeltaStorage<Storage>::format) {}
};

/// Remembers nothing between forwards. While one runs it holds the state of the layer under way, so a
/// forward takes each layer for all positions before the next. Meets StatePolicy; gives the bits of a
/// DeltaState.
class NoState {
 public:
  static constexpr bool retains = false;

  explicit NoState(const DeltaLayout& layout) : layer_under_way_({1, layout.sizes}, Format::f32) {
    layout.check();
  }

  /// As StoredDeltaState::open(); position 0 begins another layer.
  [[nodiscard]] DeltaMemory open(Index /*layer*/, Index first, Index count) {
    if (first == 0) layer_under_way_.truncate(0);
    const DeltaMemory memory = layer_under_way_.open(0, first, count);
    layer_under_way_.advance(count);
    return memory;
  }
  void advance(Index /*n*/) noexcept {}
  [[nodiscard]] Index length() const noexcept { return 0; }
  [[nodiscard]] bool can_truncate(Index /*n*/) const noexcept { return true; }
  void truncate(Index /*n*/) noexcept {}
  [[nodiscard]] Index bytes() const noexcept { return layer_under_way_.bytes(); }

 private:
  StoredDeltaState layer_under_way_;
};

// -------------------------------------------------------------------------------- implementation

inline StoredDeltaState::StoredDeltaState(const DeltaLayout& layout, Format format)
    : layout_(layout), format_(format) {
  layout_.check();
  layer_reach_.resize(static_cast<std::size_t>(layout_.layers));
  const DeltaSizes& s = layout_.sizes;
  const Index rows = 2 * block_positions * 4 * (s.key_width() + s.value_width());
  const Index sums = 2 * block_positions * 8 * s.num_value_heads;
  layer_bytes_ = round_up(2 * state_bytes(), 64) + rows + sums + round_up(s.conv_rows() * input_bytes(), 64);
  Index total = 0;
  const bool fits = multiply_checked(layout_.layers, layer_bytes_, total) && add_checked(total, 64, total);
  // calloc leaves fresh pages to the system, which commits them on first use.
  if (fits) data_.reset(static_cast<std::byte*>(std::calloc(static_cast<std::size_t>(total), 1)));
  if (data_ == nullptr) {
    throw Error(ErrorCode::bad_argument, {"recurrent state of ", layout_.layers, " layers"},
                "no memory of that size", "fewer or smaller layers");
  }
  const auto address = reinterpret_cast<std::uintptr_t>(data_.get());
  base_ = data_.get() + (64 - address % 64) % 64;
}

inline DeltaMemory StoredDeltaState::memory_of(Index layer) const noexcept {
  const DeltaSizes& s = layout_.sizes;
  DeltaMemory memory{.state = base_ + layer * layer_bytes_, .state_format = format_};
  std::byte* const decay = memory.state + round_up(2 * state_bytes(), 64);
  memory.decay = reinterpret_cast<double*>(decay);
  memory.keys = reinterpret_cast<float*>(memory.decay + 2 * s.num_value_heads * block_positions);
  memory.values = memory.keys + 2 * s.key_width() * block_positions;
  memory.conv = memory.values + 2 * s.value_width() * block_positions;
  return memory;
}

inline DeltaMemory StoredDeltaState::open(Index layer, Index first, Index count) {
  require(layer >= 0 && layer < layout_.layers && count >= 0, "a recurrent state has no such layer");
  Index& reach = layer_reach_[static_cast<std::size_t>(layer)];
  if (first != length_ || first < reach) {
    throw Error(
        ErrorCode::bad_argument, "rows for a recurrent state", {"position ", first},
        {length_, first < reach ? ", which a forward that failed has overwritten: truncate to 0" : ""});
  }
  // Earlier rows may be overwritten from now on, whether or not the forward comes to its end.
  const Index end = first + count;
  reach = std::max({reach, (end / block_positions - 1) * block_positions, end - block_positions});
  reach_ = std::max(reach_, reach);
  return memory_of(layer);
}

inline void StoredDeltaState::truncate(Index n) {
  if (!can_truncate(n)) {
    throw Error(ErrorCode::bad_argument, "truncate a recurrent state", {n},
                {"0, or ", reach_, " to ", length_, " tokens"});
  }
  if (n == 0) begin_at(0);
  length_ = n;
}

/// Calls f(memory, bytes) for each piece of memory that a snapshot at `position` consists of, in order.
/// Before the first 64 positions the state is zero and not stored.
template <class F>
inline void StoredDeltaState::for_snapshot_parts(Index position, const F& f) const {
  const DeltaSizes& s = layout_.sizes;
  const Index place = position / block_positions % 2;
  const Index open = position % block_positions;
  const auto rows_of = [&](auto* from, Index stretches, Index stretch, Index count) {
    constexpr auto size = static_cast<Index>(sizeof(*from));
    for (Index i = place * stretches; i < (place + 1) * stretches && open > 0; ++i) {
      f(reinterpret_cast<std::byte*>(from + i * stretch), count * size);
    }
  };
  for (Index layer = 0; layer < layout_.layers; ++layer) {
    const DeltaMemory memory = memory_of(layer);
    if (position >= block_positions) f(memory.state + place * state_bytes(), state_bytes());
    rows_of(memory.keys, s.key_width(), block_positions, open);
    rows_of(memory.values, s.num_value_heads, block_positions * s.value_head_dim, open * s.value_head_dim);
    rows_of(memory.decay, s.num_value_heads, block_positions, open);
    for (Index p = std::max<Index>(0, position - s.conv_kernel_dim + 1); p < position; ++p) {
      f(reinterpret_cast<std::byte*>(memory.conv + p % s.conv_rows() * s.channels()), input_bytes());
    }
  }
}

inline DeltaSnapshot StoredDeltaState::snapshot(Index n) const {
  if (!can_snapshot(n)) {
    throw Error(ErrorCode::bad_argument, "snapshot of a recurrent state", {n, " tokens"},
                {std::max<Index>(reach_, 1), " to ", length_});
  }
  DeltaSnapshot copy;
  copy.position_ = n;
  copy.layout_ = layout_;
  copy.format_ = format_;
  copy.data_ = AlignedBuffer(snapshot_bytes(n));
  std::byte* to = copy.data_.data();
  for_snapshot_parts(n, [&to](const std::byte* from, Index bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    to += bytes;
  });
  return copy;
}

inline void StoredDeltaState::restore(const DeltaSnapshot& from) {
  require(from.layout_.layers == layout_.layers && from.layout_.sizes == layout_.sizes &&
              from.format_ == format_ && from.position_ > 0 &&
              from.bytes() == snapshot_bytes(from.position_),  // nothing is left of one that was moved from
          "restore: the snapshot is of a state of other sizes");
  const std::byte* source = from.data_.data();
  for_snapshot_parts(from.position_, [&source](std::byte* to, Index bytes) {
    std::memcpy(to, source, static_cast<std::size_t>(bytes));
    source += bytes;
  });
  begin_at(from.position_);
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
