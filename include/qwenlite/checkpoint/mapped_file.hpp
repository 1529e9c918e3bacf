// SPDX-License-Identifier: Apache-2.0
//
// Bytes of a file, and a file that appears only when it is complete: every call to the operating
// system that concerns files is made in this header's implementation.
//
// A mapping is private and read-only and lives as long as its MappedFile. Sizes are taken once, when
// the file is opened. A file that somebody shortens while it is mapped cannot be guarded against (the
// system answers a read past its end with SIGBUS): programs that cannot rule that out, or that read
// from a network file system that may vanish, use ReadMode::read.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// How the bytes of a checkpoint reach memory.
enum class ReadMode : std::uint8_t {
  map,   ///< map the file; pages are loaded on first use and shared with other processes
  read,  ///< read the whole file into this process's own memory
};

/// The bytes of one regular file, mapped or read, or of memory that the caller keeps alive.
class MappedFile {
 public:
  MappedFile() = default;

  /// Opens `path`. Throws `io` when it cannot be opened or read or is not a regular file, and
  /// `bad_file` when it is longer than `max_bytes`.
  explicit MappedFile(const std::filesystem::path& path, ReadMode mode = ReadMode::map,
                      Index max_bytes = PTRDIFF_MAX);

  /// Bytes owned by somebody else, who keeps them alive and unchanged.
  explicit MappedFile(std::span<const std::byte> borrowed) noexcept
      : data_(borrowed.data()), size_(borrowed.size()) {}

  MappedFile(MappedFile&& other) noexcept { swap(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    MappedFile moved(std::move(other));
    swap(moved);
    return *this;
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  /// The whole content.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

  /// Bytes of address space mapped from a file: 0 unless opened with ReadMode::map.
  [[nodiscard]] Index bytes_mapped() const noexcept { return mapped_ ? static_cast<Index>(size_) : 0; }

  /// Takes the whole pages inside a part of bytes() out of this process's memory, if they are mapped from a
  /// file; whoever reads them again finds them as they were.
  void drop_pages(std::span<const std::byte> part) const noexcept;

 private:
  void swap(MappedFile& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
    std::swap(owned_, other.owned_);
  }
  void map(int descriptor, const std::string& name);
  void read(int descriptor, const std::string& name);

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool mapped_ = false;
  std::unique_ptr<std::byte[]> owned_;
};

/// A file being written under a temporary name beside `path`. commit() flushes it to the disk and
/// renames it, replacing what was there, so that a reader sees the old file or the new one and never
/// half of it. Without commit() the temporary file is removed. Only a regular file is replaced, never a link
/// or a device. Every failure throws `io`.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Writes after what was written last.
  void write(std::span<const std::byte> bytes);
  /// Writes at a place of its own, from the start of the file; later write() calls are not moved by it.
  void write_at(Index offset, std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* action) const;

  std::filesystem::path path_;
  std::string temporary_;
  int descriptor_ = -1;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/checkpoint/mapped_file-inl.hpp>
#endif
