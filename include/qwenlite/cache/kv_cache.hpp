// SPDX-License-Identifier: Apache-2.0
//
// KvCache: keys and values of one sequence in one contiguous reservation. NoCache: nothing is remembered
// and every forward recomputes the whole sequence.
//
// Memory is [block][layer][kv_head]{k plane, v plane}, so that the part in use is a prefix: the system
// commits pages as a sequence grows, and unused capacity costs address space only. `length()` is what every
// layer has; rows appended for a forward under way count in block() at once and in length() after
// advance().
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <qwenlite/cache/kv_layout.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Storage of a KvCache whose format is a value.
struct RuntimeKv {};

/// The format of a KvCache: chosen at run time (RuntimeKv) or fixed by a type (Bf16, float, Int8, Fp8, Int4).
template <class Storage>
struct KvStorage;

template <>
struct KvStorage<RuntimeKv> {
  static constexpr KvFormat default_format = KvFormat::bf16;
  explicit KvStorage(KvFormat chosen) : format(chosen) {}
  KvFormat format;
};

/// A fixed format; being asked for another one is an error.
template <KvFormat Fixed>
struct FixedKvStorage {
  static constexpr KvFormat default_format = Fixed;
  static constexpr KvFormat format = Fixed;
  explicit FixedKvStorage(KvFormat chosen) {
    if (chosen == Fixed) return;
    throw Error(ErrorCode::bad_argument, "format of a key/value cache", name_of(chosen), name_of(Fixed));
  }
};

template <>
struct KvStorage<Bf16> : FixedKvStorage<KvFormat::bf16> {
  using FixedKvStorage::FixedKvStorage;
};
template <>
struct KvStorage<float> : FixedKvStorage<KvFormat::f32> {
  using FixedKvStorage::FixedKvStorage;
};
template <>
struct KvStorage<Int8> : FixedKvStorage<KvFormat::int8> {
  using FixedKvStorage::FixedKvStorage;
};
template <>
struct KvStorage<Fp8> : FixedKvStorage<KvFormat::fp8> {
  using FixedKvStorage::FixedKvStorage;
};
template <>
struct KvStorage<Int4> : FixedKvStorage<KvFormat::int4> {
  using FixedKvStorage::FixedKvStorage;
};

/// The contiguous cache. Meets KvPolicy.
template <class Storage = RuntimeKv>
class KvCache {
 public:
  static constexpr bool retains = true;  ///< positions stay for the next forward
  static constexpr KvFormat default_format = KvStorage<Storage>::default_format;

  /// Reserves room for layout.max_tokens. Throws `bad_argument` when the system refuses that much, and for a
  /// head_dim that the format cannot store.
  explicit KvCache(const KvLayout& layout, KvFormat format = default_format);

  /// Stores rows of one layer at positions first, first + 1, ...: k and v are [n, kv_heads * head_dim].
  /// Throws `context_full` past max_tokens.
  void append(Index layer, Index first, const ConstMatrix<float>& k, const ConstMatrix<float>& v);

  /// The same in parts: first makes room for `count` rows of a layer, then stores their columns of one head,
  /// for each head once. Different heads may be stored at the same time.
  void begin_append(Index layer, Index first, Index count);
  void append_head(Index layer, Index head, Index first, const ConstMatrix<float>& k,
                   const ConstMatrix<float>& v) noexcept;

  /// Positions [64 * index, 64 * index + 64) of one head, as far as written.
  [[nodiscard]] KvBlock block(Index layer, Index kv_head, Index index) const noexcept {
    const std::byte* const k = planes(layer, kv_head, index);
    const Index first = index * block_positions;
    return {k, k + plane_bytes_, first, std::min(block_positions, written_ - first), storage_.format};
  }

  /// Declares that all layers have received n more positions.
  void advance(Index n) noexcept {
    length_ += n;
    touched_ = std::max(touched_, length_);
  }

  /// Forgets everything from position n on.
  void truncate(Index n);

  /// Positions that all layers have.
  [[nodiscard]] Index length() const noexcept { return length_; }
  [[nodiscard]] KvFormat format() const noexcept { return storage_.format; }
  /// Bytes reserved.
  [[nodiscard]] Index bytes() const noexcept { return layout_.blocks() * block_bytes_; }
  /// Bytes in use: whole blocks of 64 positions.
  [[nodiscard]] Index used_bytes() const noexcept {
    return ceil_div(length_, block_positions) * block_bytes_;
  }

 private:
  struct Free {
    void operator()(void* p) const noexcept { std::free(p); }
  };

  [[nodiscard]] std::byte* planes(Index layer, Index kv_head, Index index) const noexcept {
    const Index head = layer * layout_.kv_heads + kv_head;
    return base_ + index * block_bytes_ + head * 2 * plane_bytes_;
  }
  void reserve();
  void clear_rows(Index layer, Index from, Index to) noexcept;

  KvLayout layout_;
  [[no_unique_address]] KvStorage<Storage> storage_;
  Index plane_bytes_ = 0;                  // of k or v of one block of one head
  Index block_bytes_ = 0;                  // of one block of all layers and heads
  std::unique_ptr<std::byte, Free> data_;  // as allocated
  std::byte* base_ = nullptr;              // data_ rounded up to a multiple of 64
  std::vector<float> zeros_;               // [head_dim]
  Index length_ = 0;
  Index written_ = 0;  // length_ and the rows of a forward under way
  Index touched_ = 0;  // rows from here on have never been written
};

template <class Storage>
KvCache<Storage>::KvCache(const KvLayout& layout, KvFormat format) : layout_(layout), storage_(format) {
  layout_.check();
  check_kv_format(storage_.format, layout_.head_dim);
  reserve();
  zeros_.resize(static_cast<std::size_t>(layout_.head_dim));
}

template <class Storage>
void KvCache<Storage>::reserve() {
  Index heads = 0;
  Index total = 0;
  // No format takes more than 4 bytes for an element of a padded row and 4 for its scale.
  bool fits =
      add_checked(layout_.head_dim, code_group, total) && multiply_checked(total, block_positions * 8, total);
  plane_bytes_ = fits ? kv_plane_bytes(storage_.format, layout_.head_dim) : 0;
  fits = fits && multiply_checked(layout_.layers, layout_.kv_heads, heads);
  // An odd number of pairs of planes: the blocks of one head then start in different sets of the caches.
  fits = fits && multiply_checked(heads | 1, plane_bytes_, total) && multiply_checked(total, 2, total);
  block_bytes_ = total;
  fits = fits && multiply_checked(total, layout_.blocks(), total) && add_checked(total, 64, total);
  // calloc leaves fresh pages to the system, which commits them (as zeros) on first use.
  if (fits) data_.reset(static_cast<std::byte*>(std::calloc(static_cast<std::size_t>(total), 1)));
  if (data_ == nullptr) {
    throw Error(ErrorCode::bad_argument, {"key/value cache of ", layout_.to_string()},
                "no memory of that size", "fewer tokens");
  }
  const auto address = reinterpret_cast<std::uintptr_t>(data_.get());
  base_ = data_.get() + (64 - address % 64) % 64;
}

template <class Storage>
void KvCache<Storage>::append(Index layer, Index first, const ConstMatrix<float>& k,
                              const ConstMatrix<float>& v) {
  begin_append(layer, first, k.rows());
  for (Index head = 0; head < layout_.kv_heads; ++head) append_head(layer, head, first, k, v);
}

template <class Storage>
void KvCache<Storage>::begin_append(Index layer, Index first, Index count) {
  const Index end = first + count;
  if (end > layout_.max_tokens) {
    throw Error(ErrorCode::context_full, "key/value cache", {end, " tokens"},
                {"at most ", layout_.max_tokens});
  }
  // Kernels multiply rows past `count` by zero: what an earlier use left there must not be infinite.
  for (Index from = round_up(first, block_positions); from < std::min(end, touched_);
       from += block_positions) {
    clear_rows(layer, from, std::min(touched_, from + block_positions));
  }
  written_ = end;
}

template <class Storage>
void KvCache<Storage>::append_head(Index layer, Index head, Index first, const ConstMatrix<float>& k,
                                   const ConstMatrix<float>& v) noexcept {
  const Index width = layout_.head_dim;
  for (Index row = 0; row < k.rows(); ++row) {
    const Index position = first + row;
    std::byte* const out = planes(layer, head, position / block_positions);
    store_kv(storage_.format, width, position % block_positions,
             k.data() + row * k.outerStride() + head * width, v.data() + row * v.outerStride() + head * width,
             out, out + plane_bytes_);
  }
}

template <class Storage>
void KvCache<Storage>::truncate(Index n) {
  if (n < 0 || n > length_) {
    throw Error(ErrorCode::bad_argument, "truncate", {n}, {"0 to ", length_, " tokens"});
  }
  touched_ = std::max(touched_, written_);
  length_ = written_ = n;
  if (n % block_positions == 0) return;  // append() clears what it starts anew
  const Index to = std::min(touched_, round_up(n, block_positions));
  for (Index layer = 0; layer < layout_.layers; ++layer) clear_rows(layer, n, to);
}

/// Zeroes rows [from, to) of one block.
template <class Storage>
void KvCache<Storage>::clear_rows(Index layer, Index from, Index to) noexcept {
  for (Index head = 0; head < layout_.kv_heads; ++head) {
    std::byte* const out = planes(layer, head, from / block_positions);
    for (Index position = from; position < to; ++position) {
      store_kv(storage_.format, layout_.head_dim, position % block_positions, zeros_.data(), zeros_.data(),
               out, out + plane_bytes_);
    }
  }
}

/// Remembers nothing between forwards. While one runs it holds the keys and values of the layer under
/// way, so a forward takes each layer for all positions before the next. Meets KvPolicy; gives the bits
/// of a KvCache of the same format.
class NoCache {
 public:
  static constexpr bool retains = false;
  static constexpr KvFormat default_format = KvFormat::bf16;

  explicit NoCache(const KvLayout& layout, KvFormat format = default_format)
      : layer_under_way_({1, layout.kv_heads, layout.head_dim, layout.max_tokens}, format) {
    layout.check();
  }

  /// As KvCache::append(); position 0 begins another layer.
  void append(Index /*layer*/, Index first, const ConstMatrix<float>& k, const ConstMatrix<float>& v) {
    if (first == 0) layer_under_way_.truncate(0);
    layer_under_way_.append(0, first, k, v);
  }
  /// As KvCache has them.
  void begin_append(Index /*layer*/, Index first, Index count) {
    if (first == 0) layer_under_way_.truncate(0);
    layer_under_way_.begin_append(0, first, count);
  }
  void append_head(Index /*layer*/, Index head, Index first, const ConstMatrix<float>& k,
                   const ConstMatrix<float>& v) noexcept {
    layer_under_way_.append_head(0, head, first, k, v);
  }
  [[nodiscard]] KvBlock block(Index /*layer*/, Index kv_head, Index index) const noexcept {
    return layer_under_way_.block(0, kv_head, index);
  }
  void advance(Index /*n*/) noexcept {}
  void truncate(Index /*n*/) noexcept {}

  [[nodiscard]] Index length() const noexcept { return 0; }
  [[nodiscard]] KvFormat format() const noexcept { return layer_under_way_.format(); }
  [[nodiscard]] Index bytes() const noexcept { return layer_under_way_.bytes(); }
  [[nodiscard]] Index used_bytes() const noexcept { return 0; }

 private:
  KvCache<> layer_under_way_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
