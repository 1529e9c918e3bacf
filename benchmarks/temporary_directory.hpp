// SPDX-License-Identifier: Apache-2.0
//
// A directory for files of a gigabyte that must not be left behind: where $TMPDIR says, else in /tmp; removed
// with the object and also when the program is interrupted. On a disk weights lie in memory as users' do,
// which files in memory (/dev/shm) do not: those have small pages.
#pragma once

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <unistd.h>

#include <qwenlite/error.hpp>

namespace bench {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    namespace fs = std::filesystem;
    const fs::path place = fs::temp_directory_path();
    std::string name = (place / "qwenlite-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw qwenlite::Error(qwenlite::ErrorCode::io, place.string(), "not writable",
                            "room for weights (TMPDIR names another place)");
    }
    path_ = name;
    for (const char* file : {"config.json", "model.safetensors"}) remember((path_ / file).string());
    remember(path_.string());
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  static constexpr std::size_t most_paths = 30;
  using Path = std::array<char, 128>;
  inline static std::array<Path, most_paths> paths{};
  inline static volatile std::sig_atomic_t path_count = 0;

  /// The handler may call nothing but unlink() and rmdir() on what was written down before.
  static void remember(const std::string& path) {
    const auto index = static_cast<std::size_t>(path_count);
    if (index >= most_paths || path.size() >= paths[index].size()) return;
    path.copy(paths[index].data(), path.size());
    path_count = path_count + 1;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, remove_all);
  }
  static void remove_all(int signal) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(path_count); ++i) {
      if (unlink(paths[i].data()) != 0) rmdir(paths[i].data());
    }
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }

  std::filesystem::path path_;
};

}  // namespace bench
