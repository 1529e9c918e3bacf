// SPDX-License-Identifier: Apache-2.0
//
// The two tables of a byte-level BPE tokenizer: tokens by id and by bytes, and merges by pair.
//
// Token bytes lie in one arena in the order of ids. Both look-ups are open-addressing hash tables with
// a load of at most one half, so that an absent pair, the usual case while encoding, costs about one
// cache line. Tables are filled once and constant afterwards: any number of threads may read them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/error.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Most slots that an entry of the hash tables below is looked for in. The tables are at most half full,
/// where a hundred is rare; but a file chooses what it puts in, and the hash is known.
inline constexpr std::size_t most_probes = 1024;

/// Byte strings in one arena.
class ByteStrings {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return ends_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return arena_.size(); }
  [[nodiscard]] std::string_view operator[](std::size_t i) const noexcept {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return {arena_.data() + begin, ends_[i] - begin};
  }

  void reserve(std::size_t count, std::size_t bytes) {
    ends_.reserve(count);
    arena_.reserve(bytes);
  }
  void push_back(std::string_view text) {
    arena_.append(text);
    close();
  }
  void push_byte(char byte) { arena_.push_back(byte); }
  /// Ends the string whose bytes were pushed one by one.
  void close() {
    if (arena_.size() > UINT32_MAX) throw Error(ErrorCode::bad_file, "the tokenizer's text exceeds 4 GiB");
    ends_.push_back(static_cast<std::uint32_t>(arena_.size()));
  }
  void shrink_to_fit() {
    arena_.shrink_to_fit();
    ends_.shrink_to_fit();
  }

 private:
  std::string arena_;
  std::vector<std::uint32_t> ends_;
};

/// Tokens by id and by bytes. An id without text has an empty string and is not found by text.
class Vocabulary {
 public:
  static constexpr int none = -1;

  Vocabulary() = default;
  /// Takes the tokens in the order of their ids. When two have equal text, `duplicate()` says which.
  explicit Vocabulary(ByteStrings tokens) : tokens_(std::move(tokens)) {
    tokens_.shrink_to_fit();
    const std::size_t slots = std::bit_ceil(tokens_.size() * 2 + 2);
    slots_.assign(slots, Slot{});
    mask_ = slots - 1;
    for (std::size_t id = 0; id < tokens_.size(); ++id) insert(static_cast<int>(id));
  }

  [[nodiscard]] std::size_t size() const noexcept { return tokens_.size(); }
  /// The bytes of a token; empty for ids outside the vocabulary.
  [[nodiscard]] std::string_view operator[](int id) const noexcept {
    return id >= 0 && static_cast<std::size_t>(id) < size() ? tokens_[static_cast<std::size_t>(id)]
                                                            : std::string_view();
  }
  /// An id whose text another id has too, or `none`.
  [[nodiscard]] int duplicate() const noexcept { return duplicate_; }
  /// Where a token is looked for first, modulo the size of the table, a power of two.
  [[nodiscard]] static std::uint64_t hash(std::string_view text) noexcept {
    std::uint64_t state = 0x2545F4914F6CDD1DULL ^ text.size();
    while (!text.empty()) {
      const std::size_t taken = text.size() < 8 ? text.size() : 8;
      std::uint64_t word = 0;
      std::memcpy(&word, text.data(), taken);
      state = (state ^ word) * 0x9FB21C651E98DF25ULL;
      state ^= state >> 29U;
      text.remove_prefix(taken);
    }
    return state * 0xD6E8FEB86659FD93ULL ^ (state >> 32U);
  }
  /// Whether so many tokens meet at one place of the table as do only when they were made for it. Those after
  /// the first such one are left out.
  [[nodiscard]] bool crowded() const noexcept { return crowded_; }

  /// The id of a token, or `none`.
  [[nodiscard]] int find(std::string_view text) const noexcept {
    if (slots_.empty() || text.empty()) return none;
    const std::uint64_t hashed = hash(text);
    for (std::size_t i = static_cast<std::size_t>(hashed) & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.id == none) return none;
      if (slot.tag == tag(hashed) && (*this)[slot.id] == text) return slot.id;
    }
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    int id = none;
  };

  [[nodiscard]] static std::uint32_t tag(std::uint64_t hashed) noexcept {
    return static_cast<std::uint32_t>(hashed >> 32U);
  }

  void insert(int id) noexcept {
    const std::string_view text = (*this)[id];
    if (text.empty()) return;
    const std::uint64_t hashed = hash(text);
    std::size_t i = static_cast<std::size_t>(hashed) & mask_;
    for (std::size_t steps = 0; slots_[i].id != none; i = (i + 1) & mask_) {
      crowded_ = crowded_ || ++steps > most_probes;
      if (crowded_) return;
      if (slots_[i].tag != tag(hashed) || (*this)[slots_[i].id] != text) continue;
      duplicate_ = id;
      return;
    }
    slots_[i] = {tag(hashed), id};
  }

  ByteStrings tokens_;
  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
  int duplicate_ = none;
  bool crowded_ = false;
};

/// What two neighbouring tokens become, and how early the pair is merged.
struct Merge {
  static constexpr std::uint32_t never = UINT32_MAX;
  std::uint32_t rank = never;
  int token = Vocabulary::none;
};

/// Merges by pair of token ids, in a table as Vocabulary's.
class MergeTable {
 public:
  MergeTable() = default;
  explicit MergeTable(std::size_t count) {
    const std::size_t slots = std::bit_ceil(count * 2 + 2);
    slots_.assign(slots, Slot{});
    shift_ = 64U - static_cast<unsigned>(std::countr_zero(slots));
  }

  /// Adds a merge; false when the pair is there already, or its place is too crowded().
  [[nodiscard]] bool insert(int left, int right, Merge merge) noexcept {
    const std::uint64_t pair = key(left, right);
    std::size_t i = home(pair);
    for (std::size_t steps = 0; slots_[i].merge.rank != Merge::never; i = (i + 1) & (slots_.size() - 1)) {
      crowded_ = crowded_ || ++steps > most_probes;
      if (crowded_ || slots_[i].pair == pair) return false;
    }
    slots_[i] = {pair, merge};
    return true;
  }

  /// Whether so many pairs meet at one place as do only when they were made for it.
  [[nodiscard]] bool crowded() const noexcept { return crowded_; }

  /// The merge of two neighbours; its rank is Merge::never when they do not merge.
  [[nodiscard]] Merge find(int left, int right) const noexcept {
    const std::uint64_t pair = key(left, right);
    for (std::size_t i = home(pair);; i = (i + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[i];
      if (slot.pair == pair || slot.merge.rank == Merge::never) return slot.merge;
    }
  }

 private:
  struct Slot {
    std::uint64_t pair = UINT64_MAX;
    Merge merge;
  };

  [[nodiscard]] static std::uint64_t key(int left, int right) noexcept {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U) |
           static_cast<std::uint32_t>(right);
  }
  [[nodiscard]] std::size_t home(std::uint64_t pair) const noexcept {
    return static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15ULL) >> shift_);
  }

  std::vector<Slot> slots_ = std::vector<Slot>(2);
  unsigned shift_ = 63;
  bool crowded_ = false;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
