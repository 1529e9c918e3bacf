// SPDX-License-Identifier: Apache-2.0
//
// Making checkpoint files byte by byte, right and wrong ones, and looking at the errors they give.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/checkpoint/checkpoint.hpp>

#include "catch_any.hpp"

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

/// A fresh directory under the system's temporary one, removed at the end.
class TempDirectory {
 public:
  TempDirectory() {
    std::string form = (fs::temp_directory_path() / "qwenlite-test-XXXXXX").string();
    REQUIRE(::mkdtemp(form.data()) != nullptr);
    path_ = form;
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  [[nodiscard]] const fs::path& path() const noexcept { return path_; }

  fs::path write(const fs::path& name, std::span<const std::byte> bytes) const {
    const fs::path file = path_ / name;
    fs::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    out.close();
    REQUIRE(out.good());
    return file;
  }
  fs::path write(const fs::path& name, std::string_view text) const { return write(name, to_bytes(text)); }

 private:
  fs::path path_;
};

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
