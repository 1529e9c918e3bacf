// SPDX-License-Identifier: Apache-2.0
//
// AlignedBuffer: memory for kernels to write to, aligned as their widest loads like it.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Asks for pages of 2 MB where they fit into memory that was not touched yet: what reads it from end to end,
/// as decoding a token does, then waits less for translations of addresses. Never more memory than without.
inline void prefer_huge_pages([[maybe_unused]] std::byte* data, [[maybe_unused]] Index bytes) noexcept {
#if defined(__linux__)
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + static_cast<std::uintptr_t>(bytes)) / page * page;
  if (first < last) (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

/// Memory aligned to 64 bytes, zeroed, never resized.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(Index bytes)
      : data_(bytes > 0 ? static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), alignment))
                        : nullptr),
        bytes_(bytes) {
    if (bytes <= 0) return;
    if (bytes >= huge_page) prefer_huge_pages(data_.get(), bytes);
    std::memset(data_.get(), 0, static_cast<std::size_t>(bytes));
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] float* floats() const noexcept { return reinterpret_cast<float*>(data_.get()); }
  [[nodiscard]] Index bytes() const noexcept { return data_ != nullptr ? bytes_ : 0; }

 private:
  static constexpr std::align_val_t alignment{64};
  static constexpr Index huge_page = Index{1} << 21;
  struct Free {
    void operator()(std::byte* p) const noexcept { ::operator delete(p, alignment); }
  };
  std::unique_ptr<std::byte, Free> data_;
  Index bytes_ = 0;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
