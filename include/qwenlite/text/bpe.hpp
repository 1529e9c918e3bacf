// SPDX-License-Identifier: Apache-2.0
//
// Byte-pair encoding of one piece: the neighbouring pair of the lowest merge rank is merged, leftmost
// first, until no pair merges.
//
// Short pieces rescan an array on the stack, which is quickest for words. Long ones keep a linked list
// and a heap of (rank, position), so that n bytes take O(n log n) whatever they hold; neither recurses.
// Order is by rank alone: a merge whose part a later merge makes simply waits until the part exists.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/text/vocabulary.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Work done by an encoding, for tests and diagnosis.
struct EncodeStats {
  std::uint64_t pieces = 0;            ///< pieces of the pre-split
  std::uint64_t queue_operations = 0;  ///< entries put into and taken from merge queues
};

namespace bpe {

/// Pieces up to this many bytes are merged by rescanning.
inline constexpr std::size_t short_piece = 64;

/// Merges `piece` and appends its tokens. At most `short_piece` bytes, at least one.
inline void encode_short(std::string_view piece, const std::array<int, 256>& byte_ids,
                         const MergeTable& merges, std::vector<int>& out) {
  std::array<int, short_piece> tokens;   // NOLINT: filled up to `count`
  std::array<Merge, short_piece> pairs;  // pairs[i]: tokens i and i + 1
  std::size_t count = piece.size();
  for (std::size_t i = 0; i < count; ++i) tokens[i] = byte_ids[static_cast<unsigned char>(piece[i])];
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = merges.find(tokens[i], tokens[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == Merge::never) break;
    tokens[best] = pairs[best].token;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) tokens[i] = tokens[i + 1];
    for (std::size_t i = best + 1; i + 1 < count; ++i) pairs[i] = pairs[i + 1];
    if (best > 0) pairs[best - 1] = merges.find(tokens[best - 1], tokens[best]);
    if (best + 1 < count) pairs[best] = merges.find(tokens[best], tokens[best + 1]);
  }
  out.insert(out.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
}

/// Merges long pieces; keeps its memory from one piece to the next.
class LongPieces {
 public:
  void encode(std::string_view piece, const std::array<int, 256>& byte_ids, const MergeTable& merges,
              std::vector<int>& out) {
    start(piece, byte_ids, merges);
    while (!queue_.empty()) {
      const std::uint64_t entry = take();
      const auto at = static_cast<std::uint32_t>(entry);
      if (nodes_[at].pair.rank != entry >> 32U) continue;  // merged away or changed since it was queued
      merge(at, merges);
    }
    for (std::uint32_t at = 0; at != end; at = nodes_[at].next) out.push_back(nodes_[at].token);
  }

  [[nodiscard]] std::uint64_t queue_operations() const noexcept { return operations_; }

 private:
  static constexpr std::uint32_t end = UINT32_MAX;

  struct Node {
    int token = Vocabulary::none;
    std::uint32_t previous = end;
    std::uint32_t next = end;
    Merge pair;  // of this node and the next; rank never for a node merged away
  };

  void start(std::string_view piece, const std::array<int, 256>& byte_ids, const MergeTable& merges) {
    const auto count = static_cast<std::uint32_t>(piece.size());
    nodes_.assign(count, Node{});
    queue_.clear();
    for (std::uint32_t i = 0; i < count; ++i) {
      Node& node = nodes_[i];
      node.token = byte_ids[static_cast<unsigned char>(piece[i])];
      node.previous = i == 0 ? end : i - 1;
      node.next = i + 1 == count ? end : i + 1;
    }
    for (std::uint32_t i = 0; i + 1 < count; ++i) {
      nodes_[i].pair = merges.find(nodes_[i].token, nodes_[i + 1].token);
      if (nodes_[i].pair.rank != Merge::never) queue_.push_back(entry_of(i));
    }
    std::make_heap(queue_.begin(), queue_.end(), std::greater<>());
    operations_ += queue_.size();
  }

  /// Merges a node with its successor and queues the two pairs that come to be.
  void merge(std::uint32_t at, const MergeTable& merges) {
    Node& node = nodes_[at];
    Node& gone = nodes_[node.next];
    node.token = node.pair.token;
    node.next = gone.next;
    gone.pair = Merge{};
    if (node.next != end) nodes_[node.next].previous = at;
    if (node.previous != end) pair_up(node.previous, merges);
    pair_up(at, merges);
  }

  void pair_up(std::uint32_t at, const MergeTable& merges) {
    Node& node = nodes_[at];
    node.pair = node.next == end ? Merge{} : merges.find(node.token, nodes_[node.next].token);
    if (node.pair.rank == Merge::never) return;
    queue_.push_back(entry_of(at));
    std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
    ++operations_;
  }

  [[nodiscard]] std::uint64_t take() {
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
    const std::uint64_t entry = queue_.back();
    queue_.pop_back();
    ++operations_;
    return entry;
  }

  /// Rank first, position second: the order of merging.
  [[nodiscard]] std::uint64_t entry_of(std::uint32_t at) const noexcept {
    return (std::uint64_t{nodes_[at].pair.rank} << 32U) | at;
  }

  std::vector<Node> nodes_;
  std::vector<std::uint64_t> queue_;
  std::uint64_t operations_ = 0;
};

}  // namespace bpe
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
