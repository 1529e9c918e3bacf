// SPDX-License-Identifier: Apache-2.0
//
// Implementation of safetensors_writer.hpp.
#pragma once

#include <algorithm>
#include <utility>

#include <qwenlite/checkpoint/safetensors-inl.hpp>
#include <qwenlite/checkpoint/safetensors_writer.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace safetensors_format {

/// Whole cache lines first, then larger elements first: each tensor then begins at a multiple of its element.
inline void sort_for_mapping(std::vector<NamedTensor>& tensors) {
  const auto rank = [](const NamedTensor& tensor) {
    return bytes_of(tensor) % 64 == 0 ? 0 : 16 - size_of(tensor.view.dtype);
  };
  std::stable_sort(tensors.begin(), tensors.end(),
                   [&](const NamedTensor& a, const NamedTensor& b) { return rank(a) < rank(b); });
}

}  // namespace safetensors_format

QWENLITE_INLINE SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                                     std::vector<NamedTensor> tensors,
                                                     const Metadata& metadata)
    : tensors_(std::move(tensors)), file_(path) {
  namespace format = safetensors_format;
  format::sort_for_mapping(tensors_);
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors_) order.push_back(&tensor);
  const std::string beginning = format::beginning_of(path, order, metadata);
  bytes_ = static_cast<Index>(beginning.size());
  for (const NamedTensor& tensor : tensors_) {
    const Index size = format::bytes_of(tensor);
    places_.insert({tensor.name, {bytes_, size}});
    bytes_ += size;
    ++missing_;
  }
  file_.write(std::as_bytes(std::span(beginning)));
}

QWENLITE_INLINE void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  const auto found = places_.find(name);
  const char* const what = "tensor to write: ";
  if (found == places_.end() || found->second.written) {
    throw Error(ErrorCode::bad_argument, {what, in_quotes(name)}, {bytes.size(), " bytes"},
                "a tensor that is still missing");
  }
  if (found->second.bytes != std::ssize(bytes)) {
    throw Error(ErrorCode::bad_argument, {what, in_quotes(name)}, {bytes.size(), " bytes"},
                {found->second.bytes});
  }
  file_.write_at(found->second.begin, bytes);
  found->second.written = true;
  --missing_;
}

QWENLITE_INLINE bool SafetensorsWriter::has(std::string_view name) const {
  const auto found = places_.find(name);
  return found != places_.end() && found->second.written;
}

QWENLITE_INLINE void SafetensorsWriter::commit() {
  if (missing_ > 0) {
    throw Error(ErrorCode::bad_argument, "tensors to write", {missing_, " missing"}, "all of them");
  }
  file_.commit();
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
