// SPDX-License-Identifier: Apache-2.0
//
// What stands where a file was expected, in words: for messages about links that lead nowhere, directories
// and pipes; and where links of a model's directory may lead. Nothing is opened, so nothing here can wait.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include <qwenlite/in_quotes.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

[[nodiscard]] constexpr const char* name_of(std::filesystem::file_type type) noexcept {
  using Type = std::filesystem::file_type;
  switch (type) {
    case Type::regular: return "a regular file";
    case Type::directory: return "a directory";
    case Type::symlink: return "a link";
    case Type::block:
    case Type::character: return "a device";
    case Type::fifo: return "a named pipe";
    case Type::socket: return "a socket";
    case Type::not_found: return "nothing";
    case Type::none:
    case Type::unknown: break;
  }
  return "something unknown";
}

/// What stands at `path`, links followed: "a directory", "a link to 'X' (a named pipe)", "a link to 'X' that
/// cannot be followed (No such file or directory)", "nothing". Empty when it is a regular file.
[[nodiscard]] inline std::string other_than_file(const std::filesystem::path& path) {
  std::error_code failure;
  std::error_code ignored;
  const std::filesystem::file_type type = std::filesystem::status(path, failure).type();
  if (type == std::filesystem::file_type::regular) return {};
  const bool link = std::filesystem::is_symlink(std::filesystem::symlink_status(path, ignored));
  const std::string target =
      link ? joined({"a link to ", in_quotes(std::filesystem::read_symlink(path, ignored).string())})
           : std::string();
  if (type == std::filesystem::file_type::none || (link && type == std::filesystem::file_type::not_found)) {
    const std::string why = failure ? failure.message() : std::string("it leads nowhere");
    return link ? joined({target, " that cannot be followed (", why, ")"})
                : joined({"what cannot be looked at (", why, ")"});
  }
  return link ? joined({target, " (", name_of(type), ")"}) : std::string(name_of(type));
}

/// The real directory that files of a model's directory may not leave: itself, or for a snapshot in a Hugging
/// Face cache, whose files are links into the repository's store of blobs, the repository. Throws `io` when
/// it cannot be opened.
[[nodiscard]] inline std::filesystem::path root_of_links(const std::filesystem::path& directory) {
  std::error_code failure;
  std::filesystem::path root = std::filesystem::canonical(directory, failure);
  if (failure) {
    throw Error(ErrorCode::io,
                {in_quotes(directory.string()), ": cannot open the directory: ", failure.message()});
  }
  const std::filesystem::path snapshots = root.parent_path();
  const std::filesystem::path repository = snapshots.parent_path();
  const bool cached =
      snapshots.filename().native() == "snapshots" && repository.filename().native().starts_with("models--");
  return cached ? repository : root;
}

/// The real path of a file. Throws `io` unless it is a regular file, `bad_file` for a link out of `root`.
[[nodiscard]] inline std::filesystem::path resolve_inside(const std::filesystem::path& root,
                                                          const std::filesystem::path& path) {
  if (const std::string found = other_than_file(path); !found.empty()) {
    throw Error(ErrorCode::io, in_quotes(path.string()), found, "a regular file");
  }
  std::error_code failure;
  std::filesystem::path real = std::filesystem::canonical(path, failure);
  if (failure) {
    throw Error(ErrorCode::io, {in_quotes(path.string()), ": cannot open it: ", failure.message()});
  }
  const auto [root_end, real_end] = std::mismatch(root.begin(), root.end(), real.begin(), real.end());
  if (root_end != root.end() || real_end == real.end()) {
    throw Error(ErrorCode::bad_file, in_quotes(path.string()), {"a link to ", in_quotes(real.string())},
                {"a file inside ", in_quotes(root.string())});
  }
  return real;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
