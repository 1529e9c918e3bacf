// SPDX-License-Identifier: Apache-2.0
//
// One file in the safetensors format: 8 bytes of header length (little endian), a JSON header, then
// the bytes of all tensors. Everything the header says is checked before any tensor is handed out, so
// a TensorView from here always lies inside the file.
//
// The rules are those of the format: the header starts with '{' and may end in spaces, names are
// unique, each tensor's range has exactly the bytes of its shape and dtype, and the ranges together
// cover the data without overlap, hole or tail. Tensors may start at any address: data is not aligned.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/checkpoint/mapped_file.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// A tensor and its name in the file.
struct NamedTensor {
  std::string name;
  TensorView view;
};

/// The `__metadata__` entry: text by text.
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// An opened safetensors file. Views stay valid as long as it lives (moving it keeps them valid).
class SafetensorsFile {
 public:
  /// Opens and checks `path`. Throws `io` when it cannot be read, `bad_file` when its content breaks
  /// the format, `unsupported` for a dtype or rank this library does not know.
  explicit SafetensorsFile(const std::filesystem::path& path, ReadMode mode = ReadMode::map);

  /// The same for a file in memory, which the caller keeps alive; `name` is for messages.
  SafetensorsFile(std::span<const std::byte> bytes, std::string name);

  /// The same for a file that is already open.
  SafetensorsFile(MappedFile file, std::string name);

  /// The path or name it was opened with.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// All tensors, sorted by name.
  [[nodiscard]] std::span<const NamedTensor> tensors() const noexcept { return tensors_; }

  /// The tensor of that name, or nullptr.
  [[nodiscard]] const TensorView* find(std::string_view name) const noexcept;

  /// The `__metadata__` entry, in the file's order; empty when there is none.
  [[nodiscard]] const Metadata& metadata() const noexcept { return metadata_; }

  /// Size of the file, and how much of it is mapped (0 unless opened with ReadMode::map).
  [[nodiscard]] Index bytes() const noexcept { return static_cast<Index>(file_.bytes().size()); }
  [[nodiscard]] Index bytes_mapped() const noexcept { return file_.bytes_mapped(); }

  /// See MappedFile::drop_pages().
  void drop_pages(std::span<const std::byte> part) const noexcept { file_.drop_pages(part); }

 private:
  void parse();

  MappedFile file_;
  std::string name_;
  std::vector<NamedTensor> tensors_;
  Metadata metadata_;
};

/// Writes a file that SafetensorsFile and other readers of the format open. Tensors are streamed, not
/// gathered in memory, and `path` appears only when it is complete. Within the file they are ordered
/// by element size, largest first (else as given), and data begins at a multiple of 64 bytes, so that
/// every tensor is aligned to its element. Throws `io`, or `bad_argument` for names that are not
/// unique or not UTF-8 and for shapes without a byte count.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const Metadata& metadata = {});

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/checkpoint/safetensors-inl.hpp>
#endif
