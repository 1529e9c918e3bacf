// SPDX-License-Identifier: Apache-2.0
//
// Implementation of safetensors.hpp: opening and writing files.
#pragma once

#include <algorithm>
#include <cstring>

#include <qwenlite/checkpoint/safetensors.hpp>
#include <qwenlite/checkpoint/safetensors_header-inl.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

QWENLITE_INLINE SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, ReadMode mode)
    : SafetensorsFile(MappedFile(path, mode), path.string()) {}

QWENLITE_INLINE SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, std::string name)
    : SafetensorsFile(MappedFile(bytes), std::move(name)) {}

QWENLITE_INLINE SafetensorsFile::SafetensorsFile(MappedFile file, std::string name)
    : file_(std::move(file)), name_(std::move(name)) {
  parse();
}

QWENLITE_INLINE void SafetensorsFile::parse() {
  namespace format = safetensors_format;
  const std::span<const std::byte> bytes = file_.bytes();
  const std::string file = in_quotes(name_);
  const std::size_t length = format::header_length(bytes, file);
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + format::length_bytes;
  if (*text != '{') json_text::reject(file, "header does not start with '{'");
  format::HeaderReader header(file);
  header.read({text, length});

  const auto data = bytes.subspan(format::length_bytes + length);
  const auto data_bytes = static_cast<Index>(data.size());
  format::check_ranges(header.entries, file);
  format::check_end(header.entries, static_cast<Index>(bytes.size()) - data_bytes, data_bytes, file);
  format::check_coverage(header.entries, data_bytes, file);

  tensors_.reserve(header.entries.size());
  for (format::Entry* entry : format::sorted_by_name(header.entries, file)) {
    tensors_.push_back({std::move(entry->name), {data.data() + entry->begin, entry->dtype, entry->shape}});
  }
  metadata_ = std::move(header.metadata);
}

QWENLITE_INLINE const TensorView* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](const NamedTensor& a, std::string_view b) { return a.name < b; });
  return found != tensors_.end() && found->name == name ? &found->view : nullptr;
}

namespace safetensors_format {

/// `text` as a JSON string. Bytes of 0x80 and more are kept: names are UTF-8.
inline void append_string(std::string& out, std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      out.append("\\u00") += hex[byte >> 4U];
      out += hex[byte & 15U];
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  out += '"';
}

/// Bytes of a tensor that a caller hands in.
[[nodiscard]] inline Index bytes_of(const NamedTensor& tensor) {
  Index count = 0;
  Index bytes = 0;
  if (!tensor.view.shape.elements(count) || !multiply_checked(count, size_of(tensor.view.dtype), bytes)) {
    throw Error(ErrorCode::bad_argument, {"tensor ", in_quotes(tensor.name), ": shape"},
                tensor.view.shape.to_string(), "a countable number of bytes");
  }
  return bytes;
}

/// The order in which tensors are stored: larger elements first, so that each starts at a multiple of
/// its own element size.
[[nodiscard]] inline std::vector<const NamedTensor*> storage_order(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  order.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return size_of(a->view.dtype) > size_of(b->view.dtype);
  });
  return order;
}

inline void append_metadata(std::string& json, const Metadata& metadata) {
  if (metadata.empty()) return;
  json += "\"__metadata__\":{";
  for (const auto& [key, value] : metadata) {
    append_string(json, key);
    json += ':';
    append_string(json, value);
    json += ',';
  }
  json.back() = '}';
  json += ',';
}

/// The JSON header, padded with spaces so that the data behind it starts at a multiple of 64 bytes.
[[nodiscard]] inline std::string header_of(const std::vector<const NamedTensor*>& order,
                                           const Metadata& metadata) {
  std::string json = "{";
  append_metadata(json, metadata);
  Index begin = 0;
  for (const NamedTensor* tensor : order) {
    Index end = 0;
    if (!add_checked(begin, bytes_of(*tensor), end)) {
      throw Error(ErrorCode::bad_argument, "tensors to write take more bytes than can be counted");
    }
    append_string(json, tensor->name);
    json.append(":{\"dtype\":\"").append(name_of(tensor->view.dtype)).append("\",\"shape\":");
    json.append(tensor->view.shape.to_string()).append(",\"data_offsets\":[");
    json.append(joined({begin, ",", end, "]},"}));
    begin = end;
  }
  if (json.back() == ',') json.pop_back();
  json += '}';
  const std::size_t padded = (json.size() + length_bytes + 63) / 64 * 64 - length_bytes;
  json.append(padded - json.size(), ' ');
  return json;
}

/// Reads the header back as any reader would, so that no file is written that cannot be opened.
inline void check_header(const std::string& json, const std::string& file) {
  if (json.size() > max_header_bytes) {
    throw Error(ErrorCode::bad_argument, {file, ": header"}, {json.size(), " bytes"},
                {"at most ", max_header_bytes});
  }
  try {
    HeaderReader header(file);
    header.read(json);
    static_cast<void>(sorted_by_name(header.entries, file));
  } catch (const Error& e) {
    throw Error(ErrorCode::bad_argument, e.what());
  }
}

/// What a file begins with, up to the bytes of its first tensor. Throws as write_safetensors() does.
[[nodiscard]] inline std::string beginning_of(const std::filesystem::path& path,
                                              const std::vector<const NamedTensor*>& order,
                                              const Metadata& metadata) {
  const std::string json = header_of(order, metadata);
  check_header(json, in_quotes(path.string()));
  std::string beginning;
  for (std::size_t i = 0; i < length_bytes; ++i) beginning += static_cast<char>(json.size() >> 8U * i);
  return beginning.append(json);
}

}  // namespace safetensors_format

QWENLITE_INLINE void write_safetensors(const std::filesystem::path& path,
                                       std::span<const NamedTensor> tensors, const Metadata& metadata) {
  namespace format = safetensors_format;
  const std::vector<const NamedTensor*> order = format::storage_order(tensors);
  const std::string beginning = format::beginning_of(path, order, metadata);

  OutputFile file(path);
  file.write(std::as_bytes(std::span(beginning)));
  for (const NamedTensor* tensor : order) {
    file.write({tensor->view.data, static_cast<std::size_t>(format::bytes_of(*tensor))});
  }
  file.commit();
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
