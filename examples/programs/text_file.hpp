// SPDX-License-Identifier: Apache-2.0
//
// Texts that programs are given as files.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include <qwenlite/error.hpp>

namespace programs {

/// The bytes of a file. Throws `io` when it cannot be read.
inline std::string read_text(const std::string& name) {
  std::error_code ignored;
  std::ifstream file(name, std::ios::binary);
  if (!file || std::filesystem::is_directory(name, ignored)) {
    throw qwenlite::Error(qwenlite::ErrorCode::io, name + ": cannot be read");
  }
  std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) throw qwenlite::Error(qwenlite::ErrorCode::io, name + ": cannot be read");
  return content;
}

}  // namespace programs
