// SPDX-License-Identifier: Apache-2.0
//
// Sizes, element types and views: the floor that files, kernels and layers share.
//
// A TensorView is untyped memory of a checkpoint with its dtype and shape; a Matrix is a typed Eigen
// map over activations. Neither owns memory, and nothing here allocates through Eigen, whose allocator
// changes with -march: what one unit allocated another could not free. All sizes are signed 64-bit (`Index`).
#pragma once

#include <Eigen/Core>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <qwenlite/error.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

using Index = std::ptrdiff_t;

// ------------------------------------------------------------------------------------------ sizes

/// A size known at compile time. Converts to Index, so code is written once for both kinds.
template <Index N>
struct Fixed {
  static constexpr bool is_static = true;
  static constexpr Index eigen = N;
  constexpr operator Index() const noexcept { return N; }  // NOLINT(google-explicit-constructor)
};

/// A size known at run time.
struct Runtime {
  static constexpr bool is_static = false;
  static constexpr Index eigen = Eigen::Dynamic;
  Index value = 0;
  constexpr operator Index() const noexcept { return value; }  // NOLINT(google-explicit-constructor)
};

/// a * b for non-negative sizes; false when the product leaves the range of Index.
[[nodiscard]] constexpr bool multiply_checked(Index a, Index b, Index& product) noexcept {
  return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, &product);
}

/// a + b for non-negative sizes; false when the sum leaves the range of Index.
[[nodiscard]] constexpr bool add_checked(Index a, Index b, Index& sum) noexcept {
  return a >= 0 && b >= 0 && !__builtin_add_overflow(a, b, &sum);
}

[[nodiscard]] constexpr Index ceil_div(Index a, Index b) noexcept {
  return (a + b - 1) / b;
}
[[nodiscard]] constexpr Index round_up(Index a, Index b) noexcept {
  return ceil_div(a, b) * b;
}

// ------------------------------------------------------------------------------------ element types

/// bfloat16: the upper half of a float32. Conversion from float rounds to nearest, ties to even.
struct Bf16 {
  std::uint16_t bits = 0;

  Bf16() = default;
  constexpr explicit Bf16(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7FFFFFFFU) > 0x7F800000U) {  // NaN stays NaN: keep it quiet, do not round it away
      bits = static_cast<std::uint16_t>((word >> 16U) | 0x40U);
    } else {
      bits = static_cast<std::uint16_t>((word + 0x7FFFU + ((word >> 16U) & 1U)) >> 16U);
    }
  }
  explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
};

/// IEEE half precision.
struct F16 {
  std::uint16_t bits = 0;

  F16() = default;
  explicit F16(float value) noexcept;
  explicit operator float() const noexcept;
};

/// FP8 with 4 exponent and 3 mantissa bits, no infinities (the "fn" form): 0x7F and 0xFF are NaN.
struct F8E4M3 {
  std::uint8_t bits = 0;

  F8E4M3() = default;
  /// The nearest number, the one with the even code of two; 448 stands for all that is larger, and for NaN.
  explicit F8E4M3(float value) noexcept;
  [[nodiscard]] static F8E4M3 from_bits(std::uint8_t bits) noexcept {
    F8E4M3 number;
    number.bits = bits;
    return number;
  }
  explicit operator float() const noexcept;
};

/// FP8 with 5 exponent and 2 mantissa bits, IEEE-like: the upper byte of an F16.
struct F8E5M2 {
  std::uint8_t bits = 0;
  explicit operator float() const noexcept;
};

inline F16::operator float() const noexcept {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1FU;
  const std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13U));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
  }
  const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);  // zero and subnormals
  return sign != 0 ? -magnitude : magnitude;
}

inline F16::F16(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((word >> 16U) & 0x8000U);
  const std::uint32_t magnitude = word & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    bits = static_cast<std::uint16_t>(sign | 0x7E00U);
  } else if (magnitude >= 0x477FF000U) {  // 65520 and above round to infinity
    bits = static_cast<std::uint16_t>(sign | 0x7C00U);
  } else if (magnitude < 0x38800000U) {  // below 2^-14: a multiple of 2^-24, ties to even
    const float scaled = std::bit_cast<float>(magnitude) * 16777216.0F;
    bits = static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(scaled)));
  } else {
    const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13U) & 1U);
    bits = static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13U));
  }
}

inline F8E4M3::F8E4M3(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = word & 0x7FFFFFFFU;
  // Below 2^-6 codes count steps of 2^-9, which the last bits of a sum with 2^14 are.
  const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 16384.0F) & 0xFU;
  const std::uint32_t rounded = magnitude + 0x7FFFFU + (magnitude >> 20U & 1U);
  const std::uint32_t large = (rounded >> 20U) - (120U << 3U);
  const std::uint32_t code = magnitude < 0x3C800000U ? small : large;
  bits = static_cast<std::uint8_t>((word >> 24U & 0x80U) | (code < 0x7EU ? code : 0x7EU));
}

/// A float16 of the same sign, exponent and fraction is 2^8 times smaller, and NaN becomes one by the top bit
/// of the exponent.
inline F8E4M3::operator float() const noexcept {
  const unsigned magnitude = bits & 0x7FU;
  F16 half;
  half.bits =
      static_cast<std::uint16_t>((bits & 0x80U) << 8U | magnitude << 7U | (magnitude == 0x7F ? 0x4000U : 0U));
  return static_cast<float>(half) * 256.0F;
}

inline F8E5M2::operator float() const noexcept {
  F16 wide;
  wide.bits = static_cast<std::uint16_t>(bits << 8U);
  return static_cast<float>(wide);
}

/// Element types of the safetensors format.
enum class DType : std::uint8_t {
  bf16,
  f16,
  f32,
  f64,
  f8_e4m3,
  f8_e5m2,
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  boolean
};

/// Bytes of one element.
[[nodiscard]] constexpr Index size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f8_e4m3:
    case DType::f8_e5m2:
    case DType::i8:
    case DType::u8:
    case DType::boolean: return 1;
    case DType::bf16:
    case DType::f16:
    case DType::i16:
    case DType::u16: return 2;
    case DType::f32:
    case DType::i32:
    case DType::u32: return 4;
    case DType::f64:
    case DType::i64:
    case DType::u64: return 8;
  }
  return 0;
}

/// The name safetensors uses, such as "BF16".
[[nodiscard]] constexpr std::string_view name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::bf16: return "BF16";
    case DType::f16: return "F16";
    case DType::f32: return "F32";
    case DType::f64: return "F64";
    case DType::f8_e4m3: return "F8_E4M3";
    case DType::f8_e5m2: return "F8_E5M2";
    case DType::i8: return "I8";
    case DType::u8: return "U8";
    case DType::i16: return "I16";
    case DType::u16: return "U16";
    case DType::i32: return "I32";
    case DType::u32: return "U32";
    case DType::i64: return "I64";
    case DType::u64: return "U64";
    case DType::boolean: return "BOOL";
  }
  return "?";
}

// ------------------------------------------------------------------------------------------ views

/// The shape of a stored tensor: up to eight dimensions, outermost first; rank 0 is a scalar.
class Shape {
 public:
  static constexpr Index max_rank = 8;

  Shape() = default;
  Shape(std::initializer_list<Index> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const Index> dims) {
    require(static_cast<Index>(dims.size()) <= max_rank, "a tensor has at most 8 dimensions");
    for (const Index d : dims) dims_[static_cast<std::size_t>(rank_++)] = d;
  }

  [[nodiscard]] Index rank() const noexcept { return rank_; }
  [[nodiscard]] Index operator[](Index axis) const noexcept { return dims_[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] bool operator==(const Shape& other) const noexcept = default;

  /// Number of elements; false when it leaves the range of Index or a dimension is negative.
  [[nodiscard]] bool elements(Index& count) const noexcept {
    count = 1;
    for (Index i = 0; i < rank_; ++i) {
      if (!multiply_checked(count, (*this)[i], count)) return false;
    }
    return true;
  }

  /// "[2048, 1024]".
  [[nodiscard]] std::string to_string() const {
    std::string text = "[";
    for (Index i = 0; i < rank_; ++i) {
      if (i != 0) text += ", ";
      MessagePart((*this)[i]).append_to(text);
    }
    text += ']';
    return text;
  }

 private:
  std::array<Index, max_rank> dims_{};
  Index rank_ = 0;
};

/// Memory of a stored tensor: row-major, contiguous, at any alignment. Does not own it.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::bf16;
  Shape shape;
};

/// Activations [rows, cols], row-major, with a stride between rows: a typed map over somebody's
/// buffer. `Rows` and `Cols` may be Fixed<N> or Runtime.
template <class T, class Rows = Runtime, class Cols = Runtime>
using Matrix = Eigen::Map<
    Eigen::Matrix<T, static_cast<int>(Rows::eigen), static_cast<int>(Cols::eigen), Eigen::RowMajor>,
    Eigen::Unaligned, Eigen::OuterStride<>>;

/// A read-only Matrix.
template <class T, class Rows = Runtime, class Cols = Runtime>
using ConstMatrix = Eigen::Map<
    const Eigen::Matrix<T, static_cast<int>(Rows::eigen), static_cast<int>(Cols::eigen), Eigen::RowMajor>,
    Eigen::Unaligned, Eigen::OuterStride<>>;

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
