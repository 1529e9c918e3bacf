// SPDX-License-Identifier: Apache-2.0
//
// A fresh directory under the system's temporary one, for tests that need files of their own. Removed, with
// all that is in it, at the end.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string form = (std::filesystem::temp_directory_path() / "qwenlite-test-XXXXXX").string();
    if (::mkdtemp(form.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = form;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Writes a file, which may lie in a folder of its own, and returns its path.
  std::filesystem::path write(const std::filesystem::path& name, std::string_view text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out << text;
    out.close();
    if (!out) throw std::runtime_error(file.string() + " could not be written");
    return file;
  }
  std::filesystem::path write(const std::filesystem::path& name, std::span<const std::byte> bytes) const {
    return write(name, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }

 private:
  std::filesystem::path path_;
};
