// SPDX-License-Identifier: Apache-2.0
//
// AlignedBuffer: memory for kernels to write to, aligned as their widest loads like it.
#pragma once

#include <cstring>
#include <memory>
#include <new>

#include <qwenlite/kernels/process.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Memory aligned to 64 bytes, zeroed, never resized.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(Index bytes)
      : data_(bytes > 0 ? static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), alignment))
                        : nullptr),
        bytes_(bytes) {
    if (bytes <= 0) return;
    if (bytes >= huge_page) kernels::prefer_huge_pages(data_.get(), bytes);
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
