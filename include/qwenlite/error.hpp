// SPDX-License-Identifier: Apache-2.0
//
// The one exception type of the library, and the inline namespace that keeps translation units with
// different instruction-set or debug flags apart.
//
// Errors are thrown at the boundary (opening files, creating sessions, calling with wrong sizes) and
// never inside a decode step. The library does not print and does not end the process.
#pragma once

#if __cplusplus < 202002L
#error "qwenlite needs C++20: compile with -std=c++20 or newer"
#endif

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>

#define QWENLITE_VERSION_MAJOR 0
#define QWENLITE_VERSION_MINOR 1
#define QWENLITE_VERSION_PATCH 0

#if !defined(__cpp_exceptions)
#error "qwenlite reports failures as exceptions: compile without -fno-exceptions (-fno-rtti is fine)"
#endif

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

// Definitions that lie in -inl.hpp files: inline where the library is used as headers alone; in a program
// that links the target qwenlite_instances (which defines QWENLITE_COMPILED) they are compiled there, once.
#if defined(QWENLITE_COMPILED)
#define QWENLITE_INLINE
#else
#define QWENLITE_INLINE inline
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {

#define QWENLITE_VERSION_TEXT_(a, b, c) #a "." #b "." #c
#define QWENLITE_VERSION_TEXT(a, b, c) QWENLITE_VERSION_TEXT_(a, b, c)
/// "0.1.0"
inline constexpr const char* version =
    QWENLITE_VERSION_TEXT(QWENLITE_VERSION_MAJOR, QWENLITE_VERSION_MINOR, QWENLITE_VERSION_PATCH);
#undef QWENLITE_VERSION_TEXT
#undef QWENLITE_VERSION_TEXT_

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

/// The code as written: "bad_file".
[[nodiscard]] constexpr std::string_view name_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::io: return "io";
    case ErrorCode::bad_file: return "bad_file";
    case ErrorCode::bad_config: return "bad_config";
    case ErrorCode::bad_tensor: return "bad_tensor";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::bad_argument: return "bad_argument";
    case ErrorCode::bad_text: return "bad_text";
    case ErrorCode::context_full: return "context_full";
    case ErrorCode::numeric: return "numeric";
    case ErrorCode::cancelled: return "cancelled";
  }
  return "?";
}

/// A piece of a message: text, or a whole number. A view: it lives as long as the call it is written in.
class MessagePart {
 public:
  MessagePart(const char* text) noexcept : text_(text) {}         // NOLINT(google-explicit-constructor)
  MessagePart(std::string_view text) noexcept : text_(text) {}    // NOLINT(google-explicit-constructor)
  MessagePart(const std::string& text) noexcept : text_(text) {}  // NOLINT(google-explicit-constructor)
  template <std::integral Number>
  requires(!std::same_as<Number, char> && !std::same_as<Number, bool>) MessagePart(Number number)
  noexcept  // NOLINT(google-explicit-constructor)
      : number_(static_cast<std::uint64_t>(number)), kind_(number < 0 ? Kind::negative : Kind::number) {}

  void append_to(std::string& message) const {
    if (kind_ == Kind::text) {
      message.append(text_);
    } else if (kind_ == Kind::number) {
      message.append(std::to_string(number_));
    } else {
      message.append(std::to_string(static_cast<std::int64_t>(number_)));
    }
  }

 private:
  enum class Kind : std::uint8_t { text, number, negative };
  std::string_view text_{};
  std::uint64_t number_ = 0;
  Kind kind_ = Kind::text;
};

/// One piece, or several in braces: {"tensor ", name, ": ", count, " bytes"}. Messages are put together
/// where they are thrown from, in one function, instead of at a hundred places.
class MessageText {
 public:
  template <class Part>
  requires std::constructible_from<MessagePart, const Part&> MessageText(const Part& part)
  noexcept : part_(part) {}  // NOLINT(google-explicit-constructor)
  MessageText(std::initializer_list<MessagePart> parts) noexcept : parts_(parts) {}

  void append_to(std::string& message) const {
    part_.append_to(message);
    for (const MessagePart& part : parts_) part.append_to(message);
  }

 private:
  MessagePart part_{""};
  std::initializer_list<MessagePart> parts_{};
};

/// The pieces as one string.
[[nodiscard]] inline std::string joined(std::initializer_list<MessagePart> parts) {
  std::string message;
  for (const MessagePart& part : parts) part.append_to(message);
  return message;
}

/// Thrown for every failure a caller can meet. The message is one line: what, found, expected.
class Error : public std::exception {
 public:
  Error(ErrorCode code, const MessageText& message) : code_(code) { message.append_to(message_); }

  /// Builds "WHAT: found FOUND, expected EXPECTED".
  Error(ErrorCode code, const MessageText& what, const MessageText& found, const MessageText& expected)
      : code_(code) {
    what.append_to(message_);
    message_.append(": found ");
    found.append_to(message_);
    message_.append(", expected ");
    expected.append_to(message_);
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
