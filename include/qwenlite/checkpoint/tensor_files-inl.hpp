// SPDX-License-Identifier: Apache-2.0
//
// Implementation of tensor_files.hpp: paths that stay inside, the index of shards, the set of tensors.
#pragma once

#include <algorithm>
#include <system_error>

#include <qwenlite/checkpoint/json_reader-inl.hpp>
#include <qwenlite/checkpoint/tensor_files.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace shard_index {

inline constexpr const char* single_file = "model.safetensors";
inline constexpr const char* index_file = "model.safetensors.index.json";
inline constexpr Index max_index_bytes = 100'000'000;

/// A name that can only mean a file directly in the directory, on any operating system.
[[nodiscard]] inline bool is_plain(std::string_view name) {
  if (name.empty() || name == "." || name == "..") return false;
  return std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || c == ':' || static_cast<unsigned char>(c) < 0x20;
  });
}

/// One line of the index: which shard holds a tensor.
struct Placement {
  std::string tensor;
  std::string shard;
};

/// Reads {"weight_map": {TENSOR: SHARD}}; anything else at top level ("metadata") is passed over.
class IndexReader final : public json_text::EventReader {
 public:
  using EventReader::EventReader;

  std::vector<Placement> placements;
  bool has_map = false;

  bool null() override { return scalar("null"); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return scalar(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(std::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    return scalar(in_quotes(text));
  }

  bool string(string_t& value) override {
    if (!in_map_) return scalar(in_quotes(value));
    if (!is_plain(value)) unexpected(in_quotes(value));
    placements.back().shard = std::move(value);
    return true;
  }

  bool start_object(std::size_t /*size*/) override {
    if (in_map_) unexpected("an object");
    in_map_ = std::exchange(map_follows_, false);
    return open();
  }
  bool start_array(std::size_t /*size*/) override {
    if (in_map_ || map_follows_ || depth_ == 0) unexpected("an array");
    return open();
  }
  bool end_object() override {
    in_map_ = false;
    return close();
  }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (in_map_) {
      placements.push_back({std::move(name), ""});
    } else if (depth_ == 1 && name == "weight_map") {
      if (has_map) json_text::reject(file(), "'weight_map' stands twice");
      has_map = map_follows_ = true;
    }
    return true;
  }

 private:
  static constexpr int max_depth = 8;

  bool scalar(const std::string& found) {
    if (in_map_ || map_follows_ || depth_ == 0) unexpected(found);
    return true;
  }
  bool open() {
    if (++depth_ > max_depth) json_text::reject(file(), "JSON nested more than 8 deep");
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  [[nodiscard]] std::string where() const override {
    if (in_map_) return "weight_map entry " + in_quotes(placements.back().tensor);
    return map_follows_ ? "'weight_map'" : "index";
  }
  [[nodiscard]] std::string expected() const override {
    return in_map_ ? "the name of a file in the same directory" : "a JSON object";
  }

  int depth_ = 0;
  bool in_map_ = false;
  bool map_follows_ = false;
};

}  // namespace shard_index

// ---------------------------------------------------------------------------------- ModelDirectory

inline ModelDirectory::ModelDirectory(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code failure;
  root_ = std::filesystem::canonical(path_, failure);
  if (failure) {
    throw Error(ErrorCode::io,
                in_quotes(path_.string()) + ": cannot open the directory: " + failure.message());
  }
  if (!std::filesystem::is_directory(root_, failure)) {
    throw Error(ErrorCode::io, in_quotes(path_.string()), "a file", "the directory of a checkpoint");
  }
  // In a Hugging Face cache the files of a snapshot are links into the repository's store of blobs.
  const std::filesystem::path snapshots = root_.parent_path();
  const std::filesystem::path repository = snapshots.parent_path();
  if (snapshots.filename() == "snapshots" && repository.filename().string().starts_with("models--")) {
    root_ = repository;
  }
}

inline bool ModelDirectory::has(std::string_view name) const {
  std::error_code failure;
  const auto type = std::filesystem::symlink_status(path_ / name, failure).type();
  return type != std::filesystem::file_type::not_found && type != std::filesystem::file_type::none;
}

inline std::filesystem::path ModelDirectory::resolve(std::string_view name) const {
  const std::string shown = in_quotes((path_ / name).string());
  if (!shard_index::is_plain(name)) {
    throw Error(ErrorCode::bad_file, in_quotes(path_.string()) + ": file name", in_quotes(name),
                "a plain name");
  }
  std::error_code failure;
  std::filesystem::path real = std::filesystem::canonical(path_ / name, failure);
  if (failure) throw Error(ErrorCode::io, shown + ": cannot open it: " + failure.message());
  const auto [root_end, real_end] = std::mismatch(root_.begin(), root_.end(), real.begin(), real.end());
  if (root_end != root_.end() || real_end == real.end()) {
    throw Error(ErrorCode::bad_file, shown, "a link to " + in_quotes(real.string()),
                "a file inside " + in_quotes(root_.string()));
  }
  return real;
}

inline std::string ModelDirectory::read_text(std::string_view name, Index max_bytes) const {
  const MappedFile file(resolve(name), ReadMode::read, max_bytes);
  if (file.bytes().empty()) json_text::reject(in_quotes((path_ / name).string()), "the file is empty");
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// ------------------------------------------------------------------------------------- TensorFiles

inline TensorFiles::TensorFiles(const ModelDirectory& directory, ReadMode mode) {
  if (directory.has(shard_index::single_file)) {
    const std::filesystem::path real = directory.resolve(shard_index::single_file);
    name_ = (directory.path() / shard_index::single_file).string();
    files_.emplace_back(MappedFile(real, mode), name_);
  } else if (directory.has(shard_index::index_file)) {
    name_ = directory.path().string();
    open_shards(directory, mode);
  } else {
    throw Error(ErrorCode::io, in_quotes(directory.path().string()), "no weights",
                std::string(shard_index::single_file) + " or " + shard_index::index_file);
  }
  name_ = in_quotes(name_);
  add_all();
}

inline TensorFiles::TensorFiles(std::span<const NamedBytes> files) {
  require(!files.empty(), "a checkpoint in memory needs at least one safetensors file");
  for (const NamedBytes& file : files) files_.emplace_back(file.bytes, file.name);
  name_ = files.size() == 1 ? in_quotes(files.front().name) : "weights in memory";
  add_all();
}

inline void TensorFiles::open_shards(const ModelDirectory& directory, ReadMode mode) {
  const std::string index = (directory.path() / shard_index::index_file).string();
  shard_index::IndexReader reader(in_quotes(index));
  reader.read(directory.read_text(shard_index::index_file, shard_index::max_index_bytes));
  if (!reader.has_map) json_text::reject(in_quotes(index), "found no 'weight_map', expected one");

  std::unordered_map<std::string_view, std::size_t> opened;  // shard name -> index into files_
  std::vector<std::string_view> listed;
  listed.reserve(reader.placements.size());
  for (const auto& [tensor, shard] : reader.placements) {
    const std::string entry = in_quotes(index) + ": weight_map entry " + in_quotes(tensor);
    auto found = opened.find(shard);
    if (found == opened.end()) {
      if (!directory.has(shard)) throw Error(ErrorCode::io, entry, "no file " + in_quotes(shard), "one");
      const std::filesystem::path real = directory.resolve(shard);
      files_.emplace_back(MappedFile(real, mode), (directory.path() / shard).string());
      found = opened.emplace(shard, files_.size() - 1).first;
    }
    if (files_[found->second].find(tensor) == nullptr) {
      throw Error(ErrorCode::bad_file, entry, "no such tensor in " + in_quotes(shard), "one");
    }
    listed.push_back(tensor);
  }
  std::sort(listed.begin(), listed.end());
  const auto twice = std::adjacent_find(listed.begin(), listed.end());
  if (twice != listed.end()) {
    json_text::reject(in_quotes(index), "weight_map entry " + in_quotes(*twice) + " stands twice");
  }
}

inline void TensorFiles::add_all() {
  std::size_t count = 0;
  for (const SafetensorsFile& file : files_) count += file.tensors().size();
  entries_.reserve(count);
  by_name_.reserve(count);
  for (std::size_t i = 0; i < files_.size(); ++i) {
    for (const NamedTensor& tensor : files_[i].tensors()) {
      entries_.push_back({tensor.name, tensor.view, static_cast<Index>(i)});
      const auto [at, is_new] =
          by_name_.emplace(entries_.back().name, static_cast<Index>(entries_.size()) - 1);
      if (is_new) continue;
      const Index first = entries_[static_cast<std::size_t>(at->second)].file;
      throw Error(ErrorCode::bad_file, in_quotes(files_[i].name()) + ": tensor " + in_quotes(tensor.name),
                  "the name again in " + in_quotes(file_name(first)), "each tensor in one file");
    }
  }
}

inline Index TensorFiles::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? -1 : found->second;
}

inline Index TensorFiles::bytes() const noexcept {
  Index sum = 0;
  for (const SafetensorsFile& file : files_) sum += file.bytes();
  return sum;
}

inline Index TensorFiles::bytes_mapped() const noexcept {
  Index sum = 0;
  for (const SafetensorsFile& file : files_) sum += file.bytes_mapped();
  return sum;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
