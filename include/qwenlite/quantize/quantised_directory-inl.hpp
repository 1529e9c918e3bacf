// SPDX-License-Identifier: Apache-2.0
//
// Implementation of quantised_directory.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <unordered_map>

#include <qwenlite/json_text.hpp>
#include <qwenlite/quantize/quantised_directory.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace quantised_files {

namespace fs = std::filesystem;

inline constexpr Index max_text_bytes = Index{1} << 30U;

[[noreturn]] inline void fail(const fs::path& path, const std::string& what, const std::error_code& why) {
  throw Error(ErrorCode::io, {in_quotes(path.string()), ": could not ", what, ": ", why.message()});
}

/// What is in a directory.
[[nodiscard]] inline std::vector<fs::directory_entry> entries_of(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) entries.push_back(*at);
  if (error) fail(directory, "list it", error);
  return entries;
}

[[nodiscard]] inline fs::path absolute(const fs::path& path) {
  std::error_code error;
  fs::path whole = path.empty() ? path : fs::absolute(path, error).lexically_normal();
  if (error) fail(path, "find the working directory", error);
  return whole.has_filename() ? whole : whole.parent_path();
}

/// Files that a checkpoint consists of besides its weights.
[[nodiscard]] inline bool belongs(const std::string& name) {
  if (name.ends_with(".index.json") || name == "config.json") return false;
  return name.ends_with(".json") || name.ends_with(".jinja") || name.ends_with(".txt") ||
         name.starts_with("LICENSE");
}

/// Throws unless `path` is a directory with a config.json in which nothing but a checkpoint's files would be
/// lost.
inline void check_replaceable(const fs::path& path) {
  const auto refuse = [&](const std::string& found) {
    throw Error(ErrorCode::io, in_quotes(path.string()), found,
                "a new name, or a checkpoint directory to replace");
  };
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(path, error)) || !fs::exists(path / "config.json", error)) {
    refuse("something that is not a checkpoint directory");
  }
  for (const fs::directory_entry& entry : entries_of(path)) {
    const std::string name = entry.path().filename().string();
    const bool known = belongs(name) || name == "config.json" || name.ends_with(".safetensors") ||
                       name.ends_with(".index.json");
    if (!known || fs::is_directory(entry.symlink_status(error))) {
      refuse("something that is not a checkpoint directory alone (" + in_quotes(name) + " is in it)");
    }
  }
}

inline void check_place(const fs::path& path, const fs::path& source, bool replace) {
  std::error_code error;
  if (path.empty()) throw Error(ErrorCode::io, "the directory to write", "an empty name", "a new name");
  if (!fs::exists(fs::symlink_status(path, error))) return;
  if (fs::equivalent(path, source, error)) {
    throw Error(ErrorCode::io, in_quotes(path.string()), "the checkpoint that is read", "another name");
  }
  if (!replace) {
    throw Error(ErrorCode::io, in_quotes(path.string()), "something that exists", "a new name");
  }
  check_replaceable(path);
}

/// A new directory beside `path`, hidden, named after it: ".NAME.0.partial".
[[nodiscard]] inline fs::path make_beside(const fs::path& path, std::string_view ending) {
  std::error_code error;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const fs::path name = path.parent_path() / joined({".", path.filename().string(), ".", attempt, ending});
    if (fs::create_directory(name, error)) return name;
    if (error) fail(path, "create a directory beside it", error);
  }
  fail(path, "create a directory beside it", std::make_error_code(std::errc::file_exists));
}

inline void write_text(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(std::as_bytes(std::span(text.data(), text.size())));
  file.commit();
}

/// As published checkpoints have it. Other engines need to be told how activations become fp8; that this
/// library wrote it tells it that the model was never meant to run so.
[[nodiscard]] inline std::string fp8_config(const std::vector<std::string>& plain) {
  std::string names;
  for (const std::string& name : plain) names += (names.empty() ? "" : ", ") + ("\"" + name + "\"");
  return "{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"activation_scheme\": \"dynamic\", "
         "\"weight_block_size\": [128, 128], \"quantized_by\": \"qwenlite\", \"modules_to_not_convert\": [" +
         names + "]}";
}

[[nodiscard]] inline std::string own_config(const QuantisedForm& form) {
  return joined({"{\"quant_method\": \"qwenlite\", \"version\": 1, \"method\": \"", name_of(form.method),
                 "\", \"weights\": \"", word_of(form.weights), "\", \"embedding\": \"",
                 word_of(form.embedding), "\"}"});
}

/// config.json with `quantization_config`, at its end if it has none (then the rest stays byte for byte);
/// where it has, it is null.
[[nodiscard]] inline std::string with_quantisation(const std::string& object, const std::string& value) {
  json_text::Json config = json_text::parse(object, {}).value;
  if (config.contains("quantization_config")) {
    config["quantization_config"] = json_text::parse(value, {}).value;
    return config.dump(2) + "\n";
  }
  const std::size_t end = object.rfind('}');
  const std::size_t last = object.find_last_not_of(" \t\r\n", end - 1);
  return object.substr(0, last + 1) + (object[last] == '{' ? "" : ",") +
         "\n  \"quantization_config\": " + value + "\n" + object.substr(end);
}

/// Rows of `bytes` bytes that lie `stride` apart, one after the other.
[[nodiscard]] inline std::vector<std::byte> without_padding(const WeightView& view) {
  std::vector<std::byte> bytes;
  for (Index r = 0; r < view.rows; ++r) bytes.insert(bytes.end(), view.row(r), view.row(r) + view.cols);
  return bytes;
}

[[nodiscard]] inline std::span<const std::byte> bytes_at(const std::byte* data, Index count) {
  return {data, static_cast<std::size_t>(count)};
}

/// Whether all bits of an exponent are set in any element, as they are in NaN and infinity.
template <class Element>
[[nodiscard]] bool has_full_exponent(std::span<const std::byte> bytes, Element exponent) noexcept {
  bool found = false;
  for (std::size_t at = 0; at + sizeof(Element) <= bytes.size(); at += sizeof(Element)) {
    Element element;
    std::memcpy(&element, bytes.data() + at, sizeof element);
    found |= (element & exponent) == exponent;
  }
  return found;
}

/// Whether elements of a type that weights are stored in are all finite; others are not looked at.
[[nodiscard]] inline bool is_finite(std::span<const std::byte> bytes, DType dtype) noexcept {
  if (dtype == DType::bf16) return !has_full_exponent(bytes, std::uint16_t{0x7F80});
  if (dtype == DType::f16) return !has_full_exponent(bytes, std::uint16_t{0x7C00});
  return dtype != DType::f32 || !has_full_exponent(bytes, std::uint32_t{0x7F800000});
}

}  // namespace quantised_files

inline QuantisedDirectory::QuantisedDirectory(const Checkpoint& source, const std::filesystem::path& path,
                                              const QuantisedForm& form,
                                              std::span<const SourceMatrix> matrices,
                                              std::span<const std::string> changed, bool replace)
    : source_(source), path_(quantised_files::absolute(path)), form_(form), replace_(replace) {
  quantised_files::check_place(path_, source_.directory(), replace_);
  plan(matrices, changed);
  temporary_ = quantised_files::make_beside(path_, ".partial");
  try {
    writer_ = std::make_unique<SafetensorsWriter>(temporary_ / "model.safetensors", tensors_,
                                                  Metadata{{"format", "pt"}});
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(temporary_, ignored);
    throw;
  }
}

inline QuantisedDirectory::~QuantisedDirectory() {
  writer_.reset();
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove_all(temporary_, ignored);
}

/// The tensors of the file: a matrix becomes planes, a changed tensor float32; a copy of a tied output matrix
/// is left out.
inline void QuantisedDirectory::plan(std::span<const SourceMatrix> matrices,
                                     std::span<const std::string> changed) {
  std::unordered_map<std::string_view, const SourceMatrix*> quantised;
  for (const SourceMatrix& m : matrices) {
    if (is_quantised(form_.of(m.use).format))
      quantised[m.name] = &m;
    else if (m.name.ends_with(".weight"))
      plain_.push_back(m.name.substr(0, m.name.size() - 7));
  }
  const bool tied = source_.config().tie_word_embeddings;
  const auto entries = source_.tensors().entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const TensorFiles::Entry& entry = entries[i];
    if (tied && entry.name == "lm_head.weight") continue;
    const auto found = quantised.find(entry.name);
    if (found == quantised.end()) {
      const bool other = std::find(changed.begin(), changed.end(), entry.name) != changed.end();
      tensors_.push_back({entry.name, {nullptr, other ? DType::f32 : entry.view.dtype, entry.view.shape}});
      if (!other) copied_.push_back(static_cast<Index>(i));
      continue;
    }
    const SourceMatrix& m = *found->second;
    const WeightFormat& format = form_.of(m.use);
    const Index rows = m.view.rows;
    const Index groups = ceil_div(m.view.cols, format.group_of(m.view.cols));
    if (format.format == Format::fp8) {
      tensors_.push_back({m.name, {nullptr, DType::f8_e4m3, Shape{rows, m.view.cols}}});
      tensors_.push_back(
          {m.name + "_scale_inv", {nullptr, DType::f32, Shape{ceil_div(rows, quantised_block), groups}}});
      continue;
    }
    const Index bytes = row_bytes(format.format, m.view.cols);
    tensors_.push_back({m.name + ".values", {nullptr, DType::u8, Shape{rows, bytes}}});
    tensors_.push_back({m.name + ".scales", {nullptr, DType::f16, Shape{rows, groups}}});
    if (!format.symmetric) {
      tensors_.push_back({m.name + ".zeros", {nullptr, DType::u8, Shape{rows, groups}}});
    }
  }
}

inline void QuantisedDirectory::matrix(const std::string& name, const WeightView& rounded) {
  using quantised_files::bytes_at;
  const Index groups = ceil_div(rounded.cols, rounded.planes.group);
  if (rounded.format == Format::fp8) {
    const bool padded = rounded.row_bytes() != rounded.cols;
    const std::vector<std::byte> rows =
        padded ? quantised_files::without_padding(rounded) : std::vector<std::byte>();
    writer_->write(name, padded ? std::span<const std::byte>(rows)
                                : bytes_at(rounded.data, rounded.rows * rounded.cols));
    writer_->write(name + "_scale_inv",
                   bytes_at(rounded.planes.scales, ceil_div(rounded.rows, quantised_block) * groups * 4));
    return;
  }
  writer_->write(name + ".values", bytes_at(rounded.data, rounded.rows * rounded.row_bytes()));
  writer_->write(name + ".scales", bytes_at(rounded.planes.scales, rounded.rows * groups * 2));
  if (rounded.planes.zeros != nullptr) {
    writer_->write(name + ".zeros", bytes_at(rounded.planes.zeros, rounded.rows * groups));
  }
}

inline void QuantisedDirectory::elements(const std::string& name, std::span<const float> changed) {
  writer_->write(name, std::as_bytes(changed));
}

inline void QuantisedDirectory::copy_tensors() {
  for (const Index i : copied_) {
    const TensorFiles::Entry& entry = source_.tensors().entries()[static_cast<std::size_t>(i)];
    Index count = 0;
    (void)entry.view.shape.elements(count);
    const auto bytes = quantised_files::bytes_at(entry.view.data, count * size_of(entry.view.dtype));
    writer_->write(entry.name, bytes);
    if (!quantised_files::is_finite(bytes, entry.view.dtype)) not_finite_.push_back(entry.name);
    source_.tensors().file(entry.file).drop_pages(bytes);
  }
}

inline void QuantisedDirectory::copy_files() {
  namespace fs = std::filesystem;
  const ModelDirectory directory(source_.directory());
  for (const fs::directory_entry& entry : quantised_files::entries_of(source_.directory())) {
    const std::string name = entry.path().filename().string();
    std::error_code error;
    if (!quantised_files::belongs(name) || !fs::is_regular_file(entry.status(error))) continue;
    quantised_files::write_text(temporary_ / name,
                                directory.read_text(name, quantised_files::max_text_bytes));
  }
  const bool published = form_.weights.format == Format::fp8;
  const std::string config = directory.read_text("config.json", quantised_files::max_text_bytes);
  quantised_files::write_text(
      temporary_ / "config.json",
      quantised_files::with_quantisation(
          config, published ? quantised_files::fp8_config(plain_) : quantised_files::own_config(form_)));
}

inline void QuantisedDirectory::put_in_place() {
  namespace fs = std::filesystem;
  quantised_files::check_place(path_, source_.directory(), replace_);
  std::error_code error;
  fs::path old;
  if (fs::exists(fs::symlink_status(path_, error))) {
    old = quantised_files::make_beside(path_, ".old");
    fs::rename(path_, old, error);  // an empty directory may be renamed over
    if (error) {
      const std::error_code why = error;
      fs::remove(old, error);
      quantised_files::fail(path_, "replace it", why);
    }
  }
  fs::rename(temporary_, path_, error);
  if (error) {
    const std::error_code why = error;
    if (!old.empty()) fs::rename(old, path_, error);
    quantised_files::fail(path_, "rename the result to it", why);
  }
  temporary_.clear();
  if (!old.empty()) fs::remove_all(old, error);
}

inline void QuantisedDirectory::commit() {
  copy_tensors();
  writer_->commit();
  copy_files();
  put_in_place();
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
