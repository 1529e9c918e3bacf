// SPDX-License-Identifier: Apache-2.0
//
// A cache of your own: any class with these members can hold a model's keys and values. This one allocates
// a block of 64 positions when a head first needs it, and gives blocks back when the sequence is cut.
#pragma once

#include <qwenlite/cache/kv_layout.hpp>
#include <qwenlite/kernels/ops.hpp>

class BlockCache {
  using Index = qwenlite::Index;
  using Rows = qwenlite::ConstMatrix<float>;  // [tokens, kv_heads * head_dim]

 public:
  static constexpr bool retains = true;  // positions stay for the next call

  BlockCache(const qwenlite::KvLayout& layout, qwenlite::KvFormat format)
      : layout_(layout), format_(format), heads_(static_cast<std::size_t>(layout.layers * layout.kv_heads)) {}

  void append(Index layer, Index first, const Rows& k, const Rows& v) {
    written_ = first + k.rows();
    for (Index head = 0; head < layout_.kv_heads; ++head) {
      const Index column = head * layout_.head_dim;
      Blocks& blocks = heads_[at(layer, head)];
      while (std::ssize(blocks) * 64 < written_) blocks.emplace_back(2 * plane_bytes());
      for (Index position = first; position < written_; ++position) {
        const qwenlite::AlignedBuffer& block = blocks[std::size_t(position / 64)];
        const Index row = position - first;
        qwenlite::store_kv(format_, layout_.head_dim, position % 64, k.row(row).data() + column,
                           v.row(row).data() + column, block.data(), block.data() + plane_bytes());
      }
    }
  }

  qwenlite::KvBlock block(Index layer, Index head, Index index) const {
    const std::byte* k = heads_[at(layer, head)][std::size_t(index)].data();
    return {k, k + plane_bytes(), index * 64, std::min<Index>(64, written_ - index * 64), format_};
  }

  void advance(Index n) { length_ += n; }
  void truncate(Index n) {
    length_ = written_ = n;
    for (Blocks& blocks : heads_) blocks.resize(std::size_t((n + 63) / 64));
  }
  Index length() const { return length_; }
  Index bytes() const { return std::ssize(heads_) * layout_.blocks() * 2 * plane_bytes(); }
  Index used_bytes() const { return std::ssize(heads_) * ((length_ + 63) / 64) * 2 * plane_bytes(); }

 private:
  using Blocks = std::vector<qwenlite::AlignedBuffer>;
  Index plane_bytes() const { return qwenlite::kv_plane_bytes(format_, layout_.head_dim); }
  std::size_t at(Index layer, Index head) const { return std::size_t(layer * layout_.kv_heads + head); }

  qwenlite::KvLayout layout_;
  qwenlite::KvFormat format_;
  std::vector<Blocks> heads_;  // [layers * kv_heads][blocks], each a k plane and a v plane
  Index length_ = 0;           // positions that all layers have
  Index written_ = 0;          // and those of the call under way
};
