// SPDX-License-Identifier: Apache-2.0
//
// The one exception type of the library, and the inline namespace that keeps translation units with
// different instruction-set or debug flags apart.
//
// Errors are thrown at the boundary (opening files, creating sessions, calling with wrong sizes) and
// never inside a decode step. The library does not print and does not end the process.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#define QWENLITE_VERSION_MAJOR 0
#define QWENLITE_VERSION_MINOR 1
#define QWENLITE_VERSION_PATCH 0

// The layout of some standard and third-party types and the code of every inline function depend on
// these flags. Encoding them in the namespace turns passing an object between two such units into a
// link error, where it would otherwise be a crash at run time.
#if defined(__AVX512F__)
#define QWENLITE_ABI_SIMD avx512
#elif defined(__AVX2__) && defined(__FMA__)
#define QWENLITE_ABI_SIMD avx2_fma
#elif defined(__AVX2__)
#define QWENLITE_ABI_SIMD avx2
#elif defined(__FMA__)
#define QWENLITE_ABI_SIMD fma
#else
#define QWENLITE_ABI_SIMD base
#endif
#if defined(__FAST_MATH__)
#define QWENLITE_ABI_MATH fast
#else
#define QWENLITE_ABI_MATH ieee
#endif
#if defined(_GLIBCXX_DEBUG)
#define QWENLITE_ABI_CHECKS debug
#else
#define QWENLITE_ABI_CHECKS plain
#endif
#define QWENLITE_ABI_JOIN_(a, b, c) abi_0_##a##_##b##_##c
#define QWENLITE_ABI_JOIN(a, b, c) QWENLITE_ABI_JOIN_(a, b, c)
#define QWENLITE_ABI QWENLITE_ABI_JOIN(QWENLITE_ABI_SIMD, QWENLITE_ABI_MATH, QWENLITE_ABI_CHECKS)

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// What kind of thing went wrong; `Error::what()` says exactly what, found and expected.
enum class ErrorCode : std::uint8_t {
  io,            ///< a file or directory is missing or unreadable
  bad_file,      ///< a file's content breaks its format (truncated, malformed, out of bounds)
  bad_config,    ///< config.json (or a static shape) states something impossible or contradictory
  bad_tensor,    ///< a tensor is missing, unknown, or has another shape or dtype than needed
  unsupported,   ///< well-formed, but not something this library runs
  bad_argument,  ///< a caller's option or argument is out of range
  bad_text,      ///< text that cannot be processed (a chat message of the wrong form)
  context_full,  ///< more tokens than the session was created for
  numeric,       ///< logits that are NaN or have no finite entry
  cancelled,     ///< the caller asked to stop
};

/// Thrown for every failure a caller can meet. The message is one line: what, found, expected.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  /// Builds "WHAT: found FOUND, expected EXPECTED".
  Error(ErrorCode code, std::string_view what, std::string_view found, std::string_view expected)
      : code_(code) {
    message_.append(what).append(": found ").append(found).append(", expected ").append(expected);
  }

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

 private:
  ErrorCode code_;
  std::string message_;
};

/// Throws `bad_argument` with `message` unless `condition` holds. For arguments of public functions.
inline void require(bool condition, const char* message) {
  if (!condition) throw Error(ErrorCode::bad_argument, message);
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
