// SPDX-License-Identifier: Apache-2.0
//
// Making checkpoint files byte by byte, right and wrong ones, and looking at the errors they give.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/checkpoint/checkpoint.hpp>

#include "catch_any.hpp"
#include "temporary_directory.hpp"

namespace fixtures {

namespace fs = std::filesystem;

using Bytes = std::vector<std::byte>;

inline Bytes to_bytes(std::string_view text) {
  Bytes bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

/// The eight bytes that begin a safetensors file.
inline Bytes length_prefix(std::uint64_t length) {
  Bytes bytes;
  for (unsigned i = 0; i < 8; ++i) bytes.push_back(static_cast<std::byte>(length >> 8U * i & 0xFFU));
  return bytes;
}

/// A file of any header, right or wrong, and `data_bytes` counted-up bytes of data.
inline Bytes safetensors(std::string_view header, std::size_t data_bytes) {
  Bytes file = length_prefix(header.size());
  const Bytes text = to_bytes(header);
  file.insert(file.end(), text.begin(), text.end());
  for (std::size_t i = 0; i < data_bytes; ++i) file.push_back(static_cast<std::byte>(i * 7 + 1));
  return file;
}

/// Opens a copy that has exactly the file's size on the heap, so that a sanitizer sees any step outside.
inline qwenlite::SafetensorsFile open_bytes(const Bytes& file) {
  return qwenlite::SafetensorsFile(std::span(file), "given.safetensors");
}

/// Runs `action`, which must throw a qwenlite::Error of that code, in one line, whose message has all
/// of `parts` in it.
template <class Action>
void expect_error(qwenlite::ErrorCode code, std::initializer_list<std::string> parts, Action&& action) {
  bool thrown = false;
  try {
    action();
  } catch (const qwenlite::Error& e) {
    thrown = true;
    const std::string message = e.what();
    INFO("message: " << message);
    CHECK(static_cast<int>(e.code()) == static_cast<int>(code));
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.size() < 1000);
    for (const std::string& part : parts) CHECK_THAT(message, has_text(part));
  }
  CHECK(thrown);
}

inline Bytes copy(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

/// The bytes of a tensor.
inline Bytes bytes_of(const qwenlite::TensorView& view) {
  qwenlite::Index count = 0;
  REQUIRE(view.shape.elements(count));
  return copy({view.data, static_cast<std::size_t>(count * qwenlite::size_of(view.dtype))});
}

inline fs::path test_data(const std::string& name) {
  return fs::path(QWENLITE_TEST_DATA) / "checkpoints" / name;
}

}  // namespace fixtures
