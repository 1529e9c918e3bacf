// SPDX-License-Identifier: Apache-2.0
//
// Implementation of round_to_nearest.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include <qwenlite/quantize/round_to_nearest.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace rounding {

/// The least and the largest of a group, zero included.
struct Range {
  float low = 0;
  float high = 0;
};

[[nodiscard]] inline Range range_of(std::span<const float> values) noexcept {
  Range range;
  for (const float v : values) {
    range.low = v < range.low ? v : range.low;
    range.high = v > range.high ? v : range.high;
  }
  return range;
}

[[nodiscard]] inline GroupRounding for_range(const Range& range, const WeightFormat& format) noexcept {
  if (!format.symmetric) {
    const F16 scale((range.high - range.low) / static_cast<float>(largest_value(format.format)));
    const auto step = static_cast<float>(scale);
    const float below = step > 0 ? std::nearbyint(-range.low / step) : 0;
    return {scale, static_cast<int>(std::min(below, static_cast<float>(largest_value(format.format))))};
  }
  if (format.format == Format::int8) {
    return {F16(std::max(range.high, -range.low) / 127.0F), middle_value(Format::int8)};
  }
  return {F16((range.high > -range.low ? range.high : range.low) / -8.0F), middle_value(Format::int4)};
}

/// An element in steps of its scale, up from the least stored number; not yet an integer, but within range.
struct Steps {
  float divisor;
  float zero;
  float largest;

  Steps(const GroupRounding& rounding, Format format) noexcept
      : divisor(static_cast<float>(rounding.scale)),
        zero(static_cast<float>(rounding.zero)),
        largest(static_cast<float>(largest_value(format))) {
    if (divisor == 0) divisor = std::numeric_limits<float>::infinity();  // then everything is zero
  }

  /// Adding 2^23 leaves no fraction: what rounds to nearest is the addition.
  [[nodiscard]] int nearest(float value) const noexcept {
    const float steps = std::clamp(value / divisor + zero, 0.0F, largest);
    return static_cast<int>(std::bit_cast<std::uint32_t>(steps + 8388608.0F) & 0xFFU);
  }
};

[[nodiscard]] inline double square_error(std::span<const float> values, const GroupRounding& rounding,
                                         Format format) noexcept {
  const Steps steps(rounding, format);
  const auto scale = static_cast<float>(rounding.scale);
  double sum = 0;
  for (const float v : values) {
    const auto e = static_cast<double>(static_cast<float>(steps.nearest(v) - rounding.zero) * scale - v);
    sum += e * e;
  }
  return sum;
}

/// The scale of an fp8 block: its largest magnitude becomes 448. It is a bfloat16, as files store it.
[[nodiscard]] inline float block_scale_for(float largest) noexcept {
  if (largest == 0) return 1;
  return std::max(static_cast<float>(Bf16(largest / 448.0F)), std::numeric_limits<float>::min());
}

/// The larger of `least` and the largest magnitude of `values`, as bits: they ascend as magnitudes do, and
/// those of what is not finite are above all others.
[[nodiscard]] inline std::uint32_t largest_magnitude(std::span<const float> values,
                                                     std::uint32_t least) noexcept {
  for (const float v : values) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(v) & 0x7FFFFFFFU;
    least = magnitude > least ? magnitude : least;
  }
  return least;
}

/// Rounds 128 rows to fp8. decoded(r) gives a row as float32; `numbers` has room for whole blocks and
/// `largest` for one number for each. False when an element is not finite, or a scale too large.
template <class Decoded>
[[nodiscard]] bool round_block_row(Index block_row, const Decoded& decoded, const QuantisedMatrix& out,
                                   std::uint8_t* numbers, std::uint32_t* largest) {
  const WeightView& w = out.view();
  const Index first = block_row * quantised_block;
  const Index last = std::min(w.rows, first + quantised_block);
  const Index groups = ceil_div(w.cols, quantised_block);
  const auto block = [&](const float* row, Index g) {
    const Index begin = g * quantised_block;
    return std::span(row + begin, static_cast<std::size_t>(std::min(w.cols - begin, quantised_block)));
  };
  std::fill(largest, largest + groups, 0U);
  for (Index r = first; r < last; ++r) {
    const float* const row = decoded(r);
    for (Index g = 0; g < groups; ++g) largest[g] = largest_magnitude(block(row, g), largest[g]);
  }
  bool finite = true;
  for (Index g = 0; g < groups; ++g) {
    const float scale = block_scale_for(std::bit_cast<float>(largest[g]));
    finite = finite && scale < 0x1p119F;
    out.set_block(block_row, g, scale);
  }
  std::fill(numbers, numbers + groups * quantised_block, std::uint8_t{0});
  for (Index r = first; r < last; ++r) {
    const float* const row = decoded(r);
    for (Index g = 0; g < groups; ++g) {
      const float scale = block_scale(w, r, g);
      std::uint8_t* to = numbers + g * quantised_block;
      for (const float v : block(row, g)) *to++ = F8E4M3(v / scale).bits;
    }
    out.set_row(r, numbers);
  }
  return finite;
}

/// Whether the largest scale of a matrix is so small that float16 holds less than six bits of it, or none
/// (`vanished`: a group that is not all zero has scale 0). A few such groups in a matrix of larger ones do no
/// harm.
[[nodiscard]] inline bool scales_too_small(const QuantisedMatrix& matrix, bool vanished) noexcept {
  const WeightView& w = matrix.view();
  const Index count = w.rows * ceil_div(w.cols, w.planes.group);
  int largest = 0;
  for (Index i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, w.planes.scales + 2 * i, 2);
    largest = std::max(largest, bits & 0x7FFF);  // magnitudes ascend as their bits do
  }
  return largest < 64 && (largest > 0 || vanished);
}

/// What became of a row.
struct RowRounding {
  bool finite = true;     ///< false: a number cannot be rounded
  bool vanished = false;  ///< a group that is not all zero got scale 0
};

/// Rounds a row of float32. `numbers` has room for whole blocks.
[[nodiscard]] inline RowRounding round_row(const float* values, Index r, const WeightFormat& format,
                                           bool search, const QuantisedMatrix& out, std::uint8_t* numbers) {
  const WeightView& w = out.view();
  RowRounding row;
  for (Index first = 0, g = 0; first < w.cols; first += w.planes.group, ++g) {
    const Index count = std::min(w.planes.group, w.cols - first);
    const std::span<const float> group(values + first, static_cast<std::size_t>(count));
    const GroupRounding chosen = choose_rounding(group, format, search);
    row.finite = row.finite && std::isfinite(static_cast<float>(chosen.scale));
    out.set_group(r, g, chosen.scale, chosen.zero);
    const Steps steps(chosen, w.format);
    float check = 0;  // NaN as soon as an element is none or infinite
    bool zero = true;
    for (Index i = 0; i < count; ++i) {
      const float v = values[first + i];
      check += v * 0;
      zero = zero && v == 0;
      numbers[first + i] = static_cast<std::uint8_t>(steps.nearest(v));
    }
    row.finite = row.finite && check == 0;
    row.vanished = row.vanished || (!zero && static_cast<float>(chosen.scale) == 0);
    const Index end = std::min(first + w.planes.group, round_up(w.cols, quantised_block));
    std::fill(numbers + first + count, numbers + end, static_cast<std::uint8_t>(chosen.zero));
  }
  out.set_row(r, numbers);
  return row;
}

}  // namespace rounding

QWENLITE_INLINE GroupRounding choose_rounding(std::span<const float> values, const WeightFormat& format,
                                              bool search) {
  require(format.format != Format::fp8,
          "choose_rounding: the scales of fp8 are not those of groups of a row");
  const rounding::Range range = rounding::range_of(values);
  GroupRounding best = rounding::for_range(range, format);
  if (!search) return best;
  double least = rounding::square_error(values, best, format.format);
  for (int percent = 97; percent >= 50; --percent) {
    const float part = static_cast<float>(percent) / 100.0F;
    const GroupRounding clipped = rounding::for_range({range.low * part, range.high * part}, format);
    const double error = rounding::square_error(values, clipped, format.format);
    if (error >= least) continue;
    least = error;
    best = clipped;
  }
  return best;
}

QWENLITE_INLINE int nearest(float value, const GroupRounding& rounding, Format format) noexcept {
  return rounding::Steps(rounding, format).nearest(value);
}

QWENLITE_INLINE void refuse_to_quantise(const WeightFormat& format) {
  throw Error(ErrorCode::bad_tensor, {"quantising to ", name_of(format.format)},
              "elements that are not finite, or too large or all too small for its scales",
              "weights of ordinary size");
}

QWENLITE_INLINE QuantisedMatrix round_to_nearest(const WeightView& stored, const WeightFormat& format,
                                                 const kernels::KernelTable& table, Executor& executor,
                                                 bool search) {
  QuantisedMatrix out(format, stored.rows, stored.cols);
  const Index padded = round_up(stored.cols, quantised_block);
  const Index worker_bytes = padded * 6;  // a row in float32, its numbers, and a number for each block
  const AlignedBuffer memory(worker_bytes * executor.concurrency());
  std::atomic<bool> finite{true};
  std::atomic<bool> vanished{false};
  const bool blocks = format.format == Format::fp8;
  const Index strip = blocks ? quantised_block : 16;
  auto task = [&](Index i, int worker) {
    std::byte* const own = memory.data() + worker * worker_bytes;
    auto* const values = reinterpret_cast<float*>(own);
    auto* const numbers = reinterpret_cast<std::uint8_t*>(own + padded * 4);
    const auto decoded = [&](Index r) {
      table.decode_row(stored.format, stored.row(r), stored.cols, values);
      return values;
    };
    if (blocks) {
      auto* const largest = reinterpret_cast<std::uint32_t*>(own + padded * 5);
      if (!rounding::round_block_row(i, decoded, out, numbers, largest)) finite = false;
      return;
    }
    for (Index r = i * strip; r < std::min(stored.rows, (i + 1) * strip); ++r) {
      (void)decoded(r);
      const rounding::RowRounding row = rounding::round_row(values, r, format, search, out, numbers);
      if (!row.finite) finite = false;
      if (row.vanished) vanished = true;
    }
  };
  executor.run(ceil_div(stored.rows, strip), TaskRef(task));
  if (!finite || (!blocks && rounding::scales_too_small(out, vanished))) refuse_to_quantise(format);
  return out;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
