// SPDX-License-Identifier: Apache-2.0
//
// All tensors of a checkpoint, in one safetensors file or in shards named by an index, as one set.
//
// ModelDirectory is the door to a directory: names are plain, and a link that leaves the directory (or,
// in a Hugging Face cache, the repository's folder) is refused, since the files decide what is opened.
// A tensor's name is unique over all shards.
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

/// A directory of model files, as downloaded or as a snapshot inside a Hugging Face cache
/// (`models--ORG--NAME/snapshots/REVISION`, whose files are links into `models--ORG--NAME/blobs`).
class ModelDirectory {
 public:
  /// Throws `io` unless `path` is a directory.
  explicit ModelDirectory(std::filesystem::path path);

  /// As given.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Whether the directory has an entry of that name (a broken link counts: opening it then says so).
  [[nodiscard]] bool has(std::string_view name) const;

  /// The real path of a file. Throws `bad_file` for a name that is not plain or a link that leaves
  /// the directory's tree, `io` when there is no regular file.
  [[nodiscard]] std::filesystem::path resolve(std::string_view name) const;

  /// The content of a text file. Throws `bad_file` when it is longer than `max_bytes`, and as resolve() does.
  [[nodiscard]] std::string read_text(std::string_view name, Index max_bytes) const;

 private:
  std::filesystem::path path_;
  std::filesystem::path root_;  // real path that no file may leave
};

/// A file in memory; the caller keeps the bytes alive.
struct NamedBytes {
  std::string name;
  std::span<const std::byte> bytes;
};

/// The tensors of a checkpoint. Cannot be copied: views point into the files it owns.
class TensorFiles {
 public:
  /// A tensor and the file it lies in.
  struct Entry {
    std::string name;
    TensorView view;
    Index file = 0;  ///< index of the shard, see file_name()
  };

  /// Opens `model.safetensors`, else the shards that `model.safetensors.index.json` names.
  /// Throws as SafetensorsFile does, and `bad_file` when index and shards do not agree.
  explicit TensorFiles(const ModelDirectory& directory, ReadMode mode = ReadMode::map);

  /// Files in memory instead.
  explicit TensorFiles(std::span<const NamedBytes> files);

  TensorFiles(TensorFiles&&) noexcept = default;
  TensorFiles& operator=(TensorFiles&&) noexcept = default;
  TensorFiles(const TensorFiles&) = delete;
  TensorFiles& operator=(const TensorFiles&) = delete;
  ~TensorFiles() = default;

  /// Where the tensors come from, for messages: the single file, or the directory of the shards.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// All tensors; file by file, sorted by name inside each.
  [[nodiscard]] std::span<const Entry> entries() const noexcept { return entries_; }

  /// Index into entries() of the tensor of that name, or -1.
  [[nodiscard]] Index find(std::string_view name) const;

  /// The files, counted from 0.
  [[nodiscard]] Index file_count() const noexcept { return static_cast<Index>(files_.size()); }
  [[nodiscard]] const SafetensorsFile& file(Index i) const { return files_.at(static_cast<std::size_t>(i)); }
  [[nodiscard]] const std::string& file_name(Index i) const { return file(i).name(); }

  [[nodiscard]] Index bytes() const noexcept;         ///< sizes of all files
  [[nodiscard]] Index bytes_mapped() const noexcept;  ///< how much of them is mapped

 private:
  void open(const ModelDirectory& directory, std::string_view name, ReadMode mode);
  void open_shards(const ModelDirectory& directory, ReadMode mode);
  void add_all();

  std::string name_;
  std::vector<SafetensorsFile> files_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, Index> by_name_;  // keys point into entries_
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/checkpoint/tensor_files-inl.hpp>
#endif
