// SPDX-License-Identifier: Apache-2.0
//
// Implementation of mapped_file.hpp for POSIX systems.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <qwenlite/checkpoint/mapped_file.hpp>
#include <qwenlite/file_kind.hpp>
#include <qwenlite/in_quotes.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace files {

/// A file descriptor that closes itself.
struct Descriptor {
  int value = -1;

  explicit Descriptor(int descriptor) noexcept : value(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

/// Throws `io`: "'FILE': cannot ACTION: REASON" with the reason of the last failed call.
[[noreturn]] inline void fail(const std::string& name, const char* action) {
  const std::string reason = std::generic_category().message(errno);
  throw Error(ErrorCode::io, {name, ": cannot ", action, ": ", reason});
}

/// One call moves less than 2 GiB on Linux, so large files take several.
inline constexpr std::size_t transfer_limit = std::size_t{1} << 30U;

}  // namespace files

QWENLITE_INLINE MappedFile::MappedFile(const std::filesystem::path& path, ReadMode mode, Index max_bytes) {
  const std::string name = in_quotes(path.string());
  // O_NONBLOCK: opening a named pipe must report that it is no regular file, not wait for a writer.
  const files::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.value < 0) files::fail(name, "open it");
  struct stat status {};
  if (::fstat(file.value, &status) != 0) files::fail(name, "read its size");
  if (!S_ISREG(status.st_mode)) {
    const std::string found = other_than_file(path);  // empty: it has been replaced since
    throw Error(ErrorCode::io, name, found.empty() ? std::string("something else") : found, "a regular file");
  }
  if (status.st_size > max_bytes) {
    throw Error(ErrorCode::bad_file, name, {status.st_size, " bytes"}, {"at most ", max_bytes});
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;  // an empty range cannot be mapped
  if (mode == ReadMode::map) {
    map(file.value, name);
  } else {
    read(file.value, name);
  }
}

QWENLITE_INLINE void MappedFile::map(int descriptor, const std::string& name) {
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED) files::fail(name, "map it");
  data_ = static_cast<const std::byte*>(address);
  mapped_ = true;
}

QWENLITE_INLINE void MappedFile::drop_pages(std::span<const std::byte> part) const noexcept {
  if (!mapped_) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t first = (start + page - 1) / page * page;
  const std::uintptr_t last = (start + part.size()) / page * page;
  if (first < last) (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

QWENLITE_INLINE void MappedFile::read(int descriptor, const std::string& name) {
  owned_ = std::make_unique_for_overwrite<std::byte[]>(size_);
  data_ = owned_.get();
  std::size_t done = 0;
  while (done < size_) {
    const std::size_t wanted = std::min(size_ - done, files::transfer_limit);
    const ssize_t got = ::pread(descriptor, owned_.get() + done, wanted, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) files::fail(name, "read it");
    if (got == 0) {
      throw Error(ErrorCode::io,
                  {name, ": ended after ", done, " of ", size_, " bytes: it was shortened while being read"});
    }
    done += static_cast<std::size_t>(got);
  }
}

QWENLITE_INLINE MappedFile::~MappedFile() {
  // munmap wants the address it gave out as a pointer to mutable memory; nothing is written.
  if (mapped_) ::munmap(const_cast<std::byte*>(data_), size_);
}

QWENLITE_INLINE OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code ignored;
  const auto status = std::filesystem::symlink_status(path_, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw Error(ErrorCode::io, in_quotes(path_.string()), "a directory, link or device",
                "a new name or a regular file to replace");
  }
  const std::string stem = joined({path_.string(), ".", ::getpid()});
  for (int attempt = 0; descriptor_ < 0 && attempt < 1000; ++attempt) {
    temporary_ = joined({stem, "-", attempt, ".partial"});
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) fail("create it");
  }
  if (descriptor_ < 0) fail("create it");
}

QWENLITE_INLINE void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t wanted = std::min(bytes.size(), files::transfer_limit);
    const ssize_t put = ::write(descriptor_, bytes.data(), wanted);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("write it");
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

QWENLITE_INLINE void OutputFile::write_at(Index offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t wanted = std::min(bytes.size(), files::transfer_limit);
    const ssize_t put = ::pwrite(descriptor_, bytes.data(), wanted, offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("write it");
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += put;
  }
}

QWENLITE_INLINE void OutputFile::commit() {
  if (::fsync(descriptor_) != 0) fail("flush it");
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0) fail("close it");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename it into place");
  temporary_.clear();
}

QWENLITE_INLINE void OutputFile::fail(const char* action) const {
  files::fail(in_quotes(path_.string()), action);
}

QWENLITE_INLINE OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
