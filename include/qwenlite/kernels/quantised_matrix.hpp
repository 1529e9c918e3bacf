// SPDX-License-Identifier: Apache-2.0
//
// QuantisedMatrix: the planes of a quantised matrix, owned. Whoever makes one (rounding, or unpacking what a
// checkpoint holds) fills it row by row and group by group; kernels read its view.
#pragma once

#include <cstring>

#include <qwenlite/kernels/aligned_buffer.hpp>
#include <qwenlite/kernels/quantised.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// The planes of a quantised matrix [rows, cols]; see quantised.hpp.
class QuantisedMatrix {
 public:
  QuantisedMatrix() = default;
  QuantisedMatrix(const WeightFormat& format, Index rows, Index cols)
      : values_(rows * row_bytes(format.format, cols)),
        scales_(format.scale_bytes(rows, cols)),
        zeros_(format.symmetric ? 0 : rows * ceil_div(cols, format.group_of(cols))),
        view_{values_.data(),
              rows,
              cols,
              format.format,
              {scales_.data(), zeros_.data(), format.group_of(cols)}} {}

  /// Valid while this object, or what it was moved to, lives.
  [[nodiscard]] const WeightView& view() const noexcept { return view_; }
  [[nodiscard]] Index bytes() const noexcept { return values_.bytes() + scales_.bytes() + zeros_.bytes(); }

  /// For those who fill it: the stored numbers of a row, as many as its blocks have, and scale and zero point
  /// of a group. The zero point of a symmetric format stays what it is.
  void set_row(Index r, const std::uint8_t* numbers) const noexcept;
  /// fp8: the scale of a block of 128 rows by 128 elements.
  void set_block(Index block_row, Index group, float scale) const noexcept {
    const Index at = block_row * ceil_div(view_.cols, view_.planes.group) + group;
    std::memcpy(scales_.data() + 4 * at, &scale, 4);
  }
  void set_group(Index r, Index group, F16 scale, int zero) const noexcept {
    const Index at = r * ceil_div(view_.cols, view_.planes.group) + group;
    std::memcpy(scales_.data() + 2 * at, &scale, 2);
    if (zeros_.bytes() > 0) zeros_.data()[at] = static_cast<std::byte>(zero);
  }

 private:
  AlignedBuffer values_;
  AlignedBuffer scales_;
  AlignedBuffer zeros_;
  WeightView view_{};
};

inline void QuantisedMatrix::set_row(Index r, const std::uint8_t* numbers) const noexcept {
  std::byte* const row = values_.data() + r * view_.row_bytes();
  if (view_.format != Format::int4) {
    std::memcpy(row, numbers, static_cast<std::size_t>(view_.row_bytes()));
    return;
  }
  for (Index word = 0; word < view_.row_bytes() / 4; ++word) {
    const std::uint8_t* const lane = numbers + word / 16 * quantised_block + word % 16;
    std::uint32_t bits = 0;
    for (Index j = 8; j-- > 0;) bits = bits << 4U | lane[16 * j];
    std::memcpy(row + 4 * word, &bits, 4);
  }
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
