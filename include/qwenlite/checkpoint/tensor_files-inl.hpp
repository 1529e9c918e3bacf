// SPDX-License-Identifier: Apache-2.0
//
// Implementation of tensor_files.hpp: paths that stay inside, the index of shards, the set of tensors.
#pragma once

#include <algorithm>
#include <system_error>

#include <qwenlite/checkpoint/json_reader-inl.hpp>
#include <qwenlite/checkpoint/tensor_files.hpp>
#include <qwenlite/file_kind.hpp>

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

  /// Throws "INDEX: weight_map entry 'TENSOR': found PROBLEM'SHARD', expected one".
  [[noreturn]] void reject(const std::string& index, ErrorCode code, const char* problem) const {
    throw Error(code, {index, ": weight_map entry ", in_quotes(tensor)}, {problem, in_quotes(shard)}, "one");
  }
};

/// Reads {"weight_map": {TENSOR: SHARD}}; anything else at top level ("metadata") is passed over.
class IndexReader final : public json_text::EventReader {
 public:
  using EventReader::EventReader;

  std::vector<Placement> placements;
  bool has_map = false;

  bool null() override { return scalar("null"); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return scalar({value}); }
  bool number_unsigned(number_unsigned_t value) override { return scalar({value}); }
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

  bool scalar(const MessageText& found) {
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
    if (in_map_) return joined({"weight_map entry ", in_quotes(placements.back().tensor)});
    return map_follows_ ? "'weight_map'" : "index";
  }
  [[nodiscard]] const char* expected() const override {
    return in_map_ ? "the name of a file in the same directory" : "a JSON object";
  }

  int depth_ = 0;
  bool in_map_ = false;
  bool map_follows_ = false;
};

}  // namespace shard_index

// ---------------------------------------------------------------------------------- ModelDirectory

QWENLITE_INLINE ModelDirectory::ModelDirectory(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code failure;
  root_ = root_of_links(path_);
  if (!std::filesystem::is_directory(root_, failure)) {
    throw Error(ErrorCode::io, in_quotes(path_.string()), "a file", "the directory of a checkpoint");
  }
}

QWENLITE_INLINE bool ModelDirectory::has(std::string_view name) const {
  std::error_code failure;
  const auto type = std::filesystem::symlink_status(path_ / name, failure).type();
  if (failure == std::errc::permission_denied) {
    throw Error(ErrorCode::io, {in_quotes((path_ / name).string()), ": cannot open it: ", failure.message()});
  }
  return type != std::filesystem::file_type::not_found && type != std::filesystem::file_type::none;
}

QWENLITE_INLINE std::filesystem::path ModelDirectory::resolve(std::string_view name) const {
  if (!shard_index::is_plain(name)) {
    throw Error(ErrorCode::bad_file, {in_quotes(path_.string()), ": file name"}, in_quotes(name),
                "a plain name");
  }
  return resolve_inside(root_, path_ / name);
}

QWENLITE_INLINE std::string ModelDirectory::read_text(std::string_view name, Index max_bytes) const {
  const MappedFile file(resolve(name), ReadMode::read, max_bytes);
  if (file.bytes().empty()) json_text::reject(in_quotes((path_ / name).string()), "the file is empty");
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// ------------------------------------------------------------------------------------- TensorFiles

QWENLITE_INLINE TensorFiles::TensorFiles(const ModelDirectory& directory, ReadMode mode) {
  if (directory.has(shard_index::single_file)) {
    open(directory, shard_index::single_file, mode);
    name_ = in_quotes(file_name(0));
  } else if (directory.has(shard_index::index_file)) {
    open_shards(directory, mode);
    name_ = in_quotes(directory.path().string());
  } else {
    throw Error(ErrorCode::io, in_quotes(directory.path().string()), "no weights",
                {shard_index::single_file, " or ", shard_index::index_file});
  }
  add_all();
}

QWENLITE_INLINE TensorFiles::TensorFiles(std::span<const NamedBytes> files) {
  require(!files.empty(), "a checkpoint in memory needs at least one safetensors file");
  for (const NamedBytes& file : files) files_.push_back(SafetensorsFile(MappedFile(file.bytes), file.name));
  name_ = files.size() == 1 ? in_quotes(files.front().name) : "weights in memory";
  add_all();
}

QWENLITE_INLINE void TensorFiles::open(const ModelDirectory& directory, std::string_view name,
                                       ReadMode mode) {
  MappedFile file(directory.resolve(name), mode);
  files_.push_back(SafetensorsFile(std::move(file), (directory.path() / name).string()));
}

QWENLITE_INLINE void TensorFiles::open_shards(const ModelDirectory& directory, ReadMode mode) {
  const std::string index = in_quotes((directory.path() / shard_index::index_file).string());
  shard_index::IndexReader reader(index);
  reader.read(directory.read_text(shard_index::index_file, shard_index::max_index_bytes));
  if (!reader.has_map) json_text::reject(index, "found no 'weight_map', expected one");

  std::unordered_map<std::string_view, Index> opened;  // index into files_
  std::unordered_map<std::string_view, Index> placed;  // likewise, by tensor
  placed.reserve(reader.placements.size());
  for (const shard_index::Placement& entry : reader.placements) {
    const auto [shard, is_new] = opened.insert({entry.shard, file_count()});
    if (is_new) {
      if (!directory.has(entry.shard)) entry.reject(index, ErrorCode::io, "no file ");
      open(directory, entry.shard, mode);
    }
    if (file(shard->second).find(entry.tensor) == nullptr) {
      entry.reject(index, ErrorCode::bad_file, "no such tensor in ");
    }
    if (placed.insert({entry.tensor, shard->second}).second) continue;
    json_text::reject(index, {"weight_map entry ", in_quotes(entry.tensor), " stands twice"});
  }
}

QWENLITE_INLINE void TensorFiles::add_all() {
  std::size_t count = 0;
  for (const SafetensorsFile& file : files_) count += file.tensors().size();
  entries_.reserve(count);
  by_name_.reserve(count);
  for (Index i = 0; i < file_count(); ++i) {
    for (const NamedTensor& tensor : file(i).tensors()) {
      const auto place = static_cast<Index>(entries_.size());
      entries_.push_back({tensor.name, tensor.view, i});
      const auto [first, is_new] = by_name_.insert({entries_.back().name, place});
      if (is_new) continue;
      const Index other = entries_[static_cast<std::size_t>(first->second)].file;
      throw Error(ErrorCode::bad_file, {in_quotes(file_name(i)), ": tensor ", in_quotes(tensor.name)},
                  {"the name again in ", in_quotes(file_name(other))}, "each tensor in one file");
    }
  }
}

QWENLITE_INLINE Index TensorFiles::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? -1 : found->second;
}

QWENLITE_INLINE Index TensorFiles::bytes() const noexcept {
  Index sum = 0;
  for (const SafetensorsFile& file : files_) sum += file.bytes();
  return sum;
}

QWENLITE_INLINE Index TensorFiles::bytes_mapped() const noexcept {
  Index sum = 0;
  for (const SafetensorsFile& file : files_) sum += file.bytes_mapped();
  return sum;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
