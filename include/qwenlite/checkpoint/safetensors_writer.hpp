// SPDX-License-Identifier: Apache-2.0
//
// SafetensorsWriter: a safetensors file whose tensors are written one by one, in any order, as they are made:
// for results that need not be in memory together. What there will be is told at the start.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <qwenlite/checkpoint/safetensors.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

class SafetensorsWriter {
 public:
  /// Names, dtypes and shapes of all tensors; their views need no data. Within the file those whose bytes are
  /// a multiple of 64 come first and so begin at one; the rest follows by element size, largest first.
  /// `path` appears when the file is complete. Throws as write_safetensors() does.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
                    const Metadata& metadata = {});
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  ~SafetensorsWriter() = default;

  /// Writes a tensor whole. Throws `bad_argument` when there is none of that name and size, or it was written
  /// before; `io`.
  void write(std::string_view name, std::span<const std::byte> bytes);

  /// Throws `bad_argument` when a tensor is missing; `io`.
  void commit();

  /// Whether it was written.
  [[nodiscard]] bool has(std::string_view name) const;
  /// Of the whole file.
  [[nodiscard]] Index bytes() const noexcept { return bytes_; }

 private:
  struct Place {
    Index begin = 0;
    Index bytes = 0;
    bool written = false;
  };

  std::vector<NamedTensor> tensors_;                    // in the order of the file
  std::unordered_map<std::string_view, Place> places_;  // keys point into tensors_
  Index bytes_ = 0;
  Index missing_ = 0;
  OutputFile file_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/checkpoint/safetensors_writer-inl.hpp>
#endif
