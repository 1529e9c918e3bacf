// SPDX-License-Identifier: Apache-2.0
//
// Implementation of packed_unpack.hpp: reading words, choosing a form, filling it.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include <qwenlite/checkpoint/packed_unpack.hpp>
#include <qwenlite/checkpoint/plane_checks-inl.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace packed_words {

/// Rows of a task. A multiple of 8: no word of AWQ is read by two tasks.
inline constexpr Index strip = 32;

[[nodiscard]] inline std::uint32_t word(const std::byte* words, Index i) noexcept {
  std::uint32_t bits = 0;
  std::memcpy(&bits, words + 4 * i, 4);
  return bits;
}

/// The eight numbers of a word as bytes, the lowest bits first.
[[nodiscard]] inline std::uint64_t spread(std::uint32_t bits) noexcept {
  std::uint64_t x = bits;
  x = (x | x << 16U) & 0x0000FFFF0000FFFFU;
  x = (x | x << 8U) & 0x00FF00FF00FF00FFU;
  return (x | x << 4U) & 0x0F0F0F0F0F0F0F0FU;
}

/// Writes the numbers of a word to consecutive bytes.
inline void store(Index bits, std::uint32_t value, std::uint8_t* to) noexcept {
  if (bits == 8) {
    std::memcpy(to, &value, 4);
    return;
  }
  const std::uint64_t bytes = spread(value);
  std::memcpy(to, &bytes, 8);
}

/// Number `i` of those packed in consecutive words.
[[nodiscard]] inline int number_at(Index bits, const std::byte* words, Index i) noexcept {
  const Index per_word = 32 / bits;
  const auto shift = static_cast<unsigned>(i % per_word * bits);
  return static_cast<int>(word(words, i / per_word) >> shift & ((1U << bits) - 1U));
}

/// Which four bits of a word of AWQ hold its row 0, 1, ...
inline constexpr std::array<unsigned, 8> awq_place{0, 4, 1, 5, 2, 6, 3, 7};

}  // namespace packed_words

QWENLITE_INLINE const char* to_string(PackedOddity oddity) noexcept {
  switch (oddity) {
    case PackedOddity::mislabelled_zeros:
      return "symmetric, with zero points of the other version than checkpoint_format says; read as "
             "symmetric";
    case PackedOddity::ignored_zeros:
      return "said to be symmetric, with zero points other than the middle, which were ignored";
    case PackedOddity::other_scales: return "unpacked to float32: scales that float16 does not hold exactly";
    case PackedOddity::other_groups:
      return "unpacked to float32: groups of columns that do not lie side by side in multiples of 32";
    case PackedOddity::other_blocks: return "unpacked to float32: blocks of another size than 128 x 128";
  }
  return "?";
}

// -------------------------------------------------------------------------------------- what was read

QWENLITE_INLINE Unpacking::Unpacking(const PackedMatrix& matrix, bool plainly)
    : m_(matrix), stride_(round_up(matrix.cols, quantised_block)) {
  if (m_.layout == PackedLayout::own && !plainly) {
    use_in_place();
    return;
  }
  read_scales();
  read_zeros();
  read_groups();
  if (m_.layout == PackedLayout::e4m3 && !plainly) {
    choose_blocks();
  } else {
    choose_planes(plainly);
  }
}

inline void Unpacking::read_scales() {
  const Index block_rows = ceil_div(m_.rows, m_.block_rows);
  const Format format = *stored_format(m_.scales.dtype);  // checked when it was found
  const bool groups_first =
      m_.layout == PackedLayout::words_of_cols || m_.layout == PackedLayout::words_of_rows;
  scales_.resize(static_cast<std::size_t>(block_rows * m_.groups));
  for (Index r = 0; r < block_rows; ++r) {
    for (Index g = 0; g < m_.groups; ++g) {
      const Index at = groups_first ? g * m_.rows + r : r * m_.groups + g;
      const float scale = decode(format, m_.scales.data, at);
      const bool small = std::fabs(scale) < plane_checks::scale_limit;  // false for NaN
      if (!small || (m_.layout == PackedLayout::e4m3 && !(scale > 0))) {
        plane_checks::reject_scale(m_, r * m_.block_rows, g, scale);
      }
      scales_[static_cast<std::size_t>(r * m_.groups + g)] = scale;
    }
  }
}

inline void Unpacking::read_zeros() {
  if (m_.zeros.data == nullptr) return;
  zeros_.resize(static_cast<std::size_t>(m_.rows * m_.groups));
  int least = 255;
  int most = 0;
  const Index per_word = 32 / m_.bits;
  for (Index r = 0; r < m_.rows; ++r) {
    for (Index g = 0; g < m_.groups; ++g) {
      int zero = 0;
      if (m_.zeros.dtype == DType::u8 || m_.zeros.dtype == DType::i8) {
        const Index at = m_.block_rows > 1 ? 0 : r * m_.groups + g;
        zero = std::to_integer<int>(m_.zeros.data[at]);
        if (m_.zeros.dtype == DType::i8) zero = static_cast<std::int8_t>(zero) + middle();
      } else if (m_.layout == PackedLayout::words_of_cols) {
        zero = packed_words::number_at(m_.bits, m_.zeros.data + 4 * g * ceil_div(m_.rows, per_word), r);
      } else if (m_.layout == PackedLayout::words_of_rows) {
        const unsigned place = packed_words::awq_place[static_cast<std::size_t>(r % 8)];
        const std::uint32_t word = packed_words::word(m_.zeros.data, g * (m_.rows / 8) + r / 8);
        zero = static_cast<int>(word >> 4U * place & 15U);
      } else {  // words of rows, one below the other
        const std::uint32_t word = packed_words::word(m_.zeros.data, r / per_word * m_.groups + g);
        zero =
            static_cast<int>(word >> static_cast<unsigned>(r % per_word * m_.bits) & ((1U << m_.bits) - 1U));
      }
      least = std::min(least, zero);
      most = std::max(most, zero);
      zeros_[zero_index(r, g)] = static_cast<std::uint8_t>(zero);
    }
  }
  if (least < 0 || most >= 1 << m_.bits) {
    throw Error(ErrorCode::bad_tensor, {m_.name, ": its zero points"}, {"from ", least, " to ", most},
                {"from 0 to ", (1 << m_.bits) - 1});
  }
  if (m_.method == QuantMethod::gptq) settle_gptq_zeros(least, most);
  if (m_.method == QuantMethod::compressed && m_.symmetric == true &&
      (least != middle() || most != middle())) {
    throw Error(ErrorCode::bad_tensor, {m_.name, ": its zero points"}, {"from ", least, " to ", most},
                {middle(), ", since the configuration says it is symmetric"});
  }
  if (!zeros_.empty() && std::all_of(zeros_.begin(), zeros_.end(), [&](int z) { return z == middle(); })) {
    zeros_.clear();
  }
}

/// What the stored zero points of a GPTQ file mean. Version 1 stores them less one; files that say so may
/// hold those of version 2, and symmetric ones anything. Adds the one to zeros_ where it belongs.
inline void Unpacking::settle_gptq_zeros(int least, int most) {
  const int labelled = m_.zeros_less_one ? middle() - 1 : middle();
  const bool uniform = least == most && (least == middle() || least == middle() - 1);
  if (m_.symmetric == true || (!m_.symmetric && uniform)) {
    if (!uniform) note(PackedOddity::ignored_zeros);
    if (uniform && least != labelled) note(PackedOddity::mislabelled_zeros);
    zeros_.clear();
    return;
  }
  const char* const label =
      m_.zeros_less_one ? "'gptq', zero points less one" : "'gptq_v2', zero points as they are";
  if (uniform && least != labelled && zeros_.size() >= 16) {
    throw Error(ErrorCode::bad_tensor, {m_.name, ": its zero points are ambiguous"},
                {"all ", least, ", the middle in the other version"}, {"those of ", label});
  }
  if (!m_.zeros_less_one) return;
  if (most == (1 << m_.bits) - 1) {
    throw Error(ErrorCode::bad_tensor, {m_.name, ": its zero points are ambiguous"},
                {most, ", which is ", most + 1, " or 0"}, {"those of ", label});
  }
  for (std::uint8_t& zero : zeros_) ++zero;
}

inline void Unpacking::read_groups() {
  groups_.resize(static_cast<std::size_t>(m_.cols));
  const Index bytes = m_.cols * 4;
  if (m_.group_of.data != nullptr)
    std::memcpy(groups_.data(), m_.group_of.data, static_cast<std::size_t>(bytes));
  const bool none =
      m_.method == QuantMethod::compressed &&  // which is how it says that there is no such order
      std::all_of(groups_.begin(), groups_.end(), [](std::int32_t g) { return g == -1; });
  if (m_.group_of.data == nullptr || none) {
    for (Index i = 0; i < m_.cols; ++i) {
      groups_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i / m_.group_size);
    }
  }
  for (Index i = 0; i < m_.cols; ++i) {
    const std::int32_t g = groups_[static_cast<std::size_t>(i)];
    if (g >= 0 && g < m_.groups) continue;
    throw Error(ErrorCode::bad_tensor, {m_.name, ": the group of column ", i}, g,
                {"one of its ", m_.groups, " groups"});
  }
}

// -------------------------------------------------------------------------------------- what it becomes

inline void Unpacking::use_in_place() {
  plane_checks::check(m_);
  const Format format = m_.bits == 4 ? Format::int4 : Format::int8;
  out_.view = {m_.values.data, m_.rows, m_.cols, format, {m_.scales.data, m_.zeros.data, m_.group_size}};
  out_.mapped = true;
}

/// FP8: in place where rows are whole blocks, with scales of its own.
inline void Unpacking::choose_blocks() {
  if (m_.block_rows != quantised_block || m_.group_size != quantised_block) {
    note(PackedOddity::other_blocks);
    choose_planes(true);
    return;
  }
  if (m_.cols % quantised_block != 0) {
    out_.quantised = QuantisedMatrix(Format::fp8, m_.rows, m_.cols);
    out_.view = out_.quantised.view();
    for (Index b = 0; b < ceil_div(m_.rows, quantised_block); ++b) {
      for (Index g = 0; g < m_.groups; ++g) {
        out_.quantised.set_block(b, g, scales_[static_cast<std::size_t>(b * m_.groups + g)]);
      }
    }
    return;
  }
  out_.floats = AlignedBuffer(static_cast<Index>(scales_.size()) * 4);
  std::copy(scales_.begin(), scales_.end(), out_.floats.floats());
  out_.view = {m_.values.data, m_.rows, m_.cols, Format::fp8, {out_.floats.data(), nullptr, quantised_block}};
  out_.mapped = true;
}

/// int4 or int8 in groups of the largest size inside which no column belongs to another group, if float16
/// holds all scales; else float32.
inline void Unpacking::choose_planes(bool plainly) {
  const auto holds = [](float scale) { return static_cast<float>(F16(scale)) == scale; };
  const auto together = [&](Index size) {
    for (Index i = 0; i < m_.cols; ++i) {
      if (groups_[static_cast<std::size_t>(i)] != groups_[static_cast<std::size_t>(i / size * size)])
        return false;
    }
    return true;
  };
  Index group = 0;
  for (const Index size : {128, 64, 32}) {
    const bool needless = size > 32 && size / 2 >= m_.group_size;  // half of it holds a group as well
    if (group == 0 && !needless && together(size)) group = size;
  }
  const bool exact = std::all_of(scales_.begin(), scales_.end(), holds);
  if (!plainly && group != 0 && exact) {
    const bool row = m_.bits == 8 && zeros_.empty() && together(stride_);
    const Format format = m_.bits == 4 ? Format::int4 : Format::int8;
    out_.quantised = QuantisedMatrix({format, row ? 0 : group, zeros_.empty()}, m_.rows, m_.cols);
    out_.view = out_.quantised.view();
    fill_groups();
    return;
  }
  if (!plainly) note(group == 0 ? PackedOddity::other_groups : PackedOddity::other_scales);
  out_.floats = AlignedBuffer(m_.rows * m_.cols * 4);
  out_.view = {out_.floats.data(), m_.rows, m_.cols, Format::f32};
}

inline void Unpacking::fill_groups() const {
  const Index group = out_.view.planes.group;
  for (Index r = 0; r < m_.rows; ++r) {
    for (Index g = 0; g * group < m_.cols; ++g) {
      const Index from = groups_[static_cast<std::size_t>(g * group)];
      const int zero = zeros_.empty() ? middle() : zeros_[zero_index(r, from)];
      out_.quantised.set_group(r, g, F16(scales_[scale_index(r, from)]), zero);
    }
  }
}

// ------------------------------------------------------------------------------------------ its numbers

QWENLITE_INLINE Index Unpacking::tasks() const noexcept {
  return out_.mapped ? 0 : ceil_div(m_.rows, packed_words::strip);
}

QWENLITE_INLINE Index Unpacking::scratch_bytes() const noexcept {
  return packed_words::strip * stride_;
}

/// The numbers of `count` rows, as bytes, in rows of stride_.
inline void Unpacking::read_numbers(Index first, Index count, std::uint8_t* numbers) const noexcept {
  const std::byte* const from = m_.values.data;
  const Index per_word = 32 / m_.bits;
  switch (m_.layout) {
    case PackedLayout::words_of_cols:
      for (Index k = 0; k < m_.cols / per_word; ++k) {
        for (Index r = 0; r < count; ++r) {
          const std::uint32_t word = packed_words::word(from, k * m_.rows + first + r);
          packed_words::store(m_.bits, word, numbers + r * stride_ + k * per_word);
        }
      }
      break;
    case PackedLayout::words_of_rows:
      for (Index i = 0; i < m_.cols; ++i) {
        for (Index r = 0; r < count; ++r) {
          const std::uint32_t word = packed_words::word(from, i * (m_.rows / 8) + (first + r) / 8);
          const unsigned place = packed_words::awq_place[static_cast<std::size_t>(r % 8)];
          numbers[r * stride_ + i] = static_cast<std::uint8_t>(word >> 4U * place & 15U);
        }
      }
      break;
    case PackedLayout::rows_of_words:
      for (Index r = 0; r < count; ++r) {
        const Index words = ceil_div(m_.cols, per_word);
        for (Index k = 0; k < words; ++k) {
          const std::uint32_t word = packed_words::word(from, (first + r) * words + k);
          packed_words::store(m_.bits, word, numbers + r * stride_ + k * per_word);
        }
      }
      break;
    case PackedLayout::signed_bytes:
    case PackedLayout::e4m3:
    case PackedLayout::own:
      for (Index r = 0; r < count; ++r) {
        std::uint8_t* const row = numbers + r * stride_;
        for (Index i = 0; i < m_.cols; ++i) {
          if (m_.layout == PackedLayout::own) {
            const Format format = m_.bits == 4 ? Format::int4 : Format::int8;
            row[i] = static_cast<std::uint8_t>(
                stored_value(format, from + (first + r) * row_bytes(format, m_.cols), i));
          } else {
            const auto byte = std::to_integer<std::uint8_t>(from[(first + r) * m_.cols + i]);
            row[i] = m_.layout == PackedLayout::e4m3 ? byte : static_cast<std::uint8_t>(byte ^ 0x80U);
          }
        }
      }
      break;
  }
}

inline void Unpacking::write_floats(Index r, const std::uint8_t* numbers) noexcept {
  float* const row = out_.floats.floats() + r * m_.cols;
  for (Index i = 0; i < m_.cols; ++i) {
    const Index g = groups_[static_cast<std::size_t>(i)];
    const float scale = scales_[scale_index(r, g)];
    if (m_.layout == PackedLayout::e4m3) {
      row[i] = static_cast<float>(F8E4M3::from_bits(numbers[i])) * scale;
    } else {
      const int zero = zeros_.empty() ? middle() : zeros_[zero_index(r, g)];
      row[i] = static_cast<float>(numbers[i] - zero) * scale;
    }
  }
}

QWENLITE_INLINE void Unpacking::run(Index task, std::byte* scratch) noexcept {
  auto* const numbers = reinterpret_cast<std::uint8_t*>(scratch);
  const Index first = task * packed_words::strip;
  const Index count = std::min(packed_words::strip, m_.rows - first);
  read_numbers(first, count, numbers);
  std::int64_t sum = 0;
  for (Index r = 0; r < count; ++r) {
    std::uint8_t* const row = numbers + r * stride_;
    if (!zeros_.empty()) {
      for (Index i = 0; i < m_.cols; ++i) {
        sum += row[i] - zeros_[zero_index(first + r, groups_[static_cast<std::size_t>(i)])];
      }
    }
    if (out_.floats.bytes() > 0) {
      write_floats(first + r, row);
      continue;
    }
    const bool last_zero = !zeros_.empty();  // padding decodes to zero
    const Index group = groups_[static_cast<std::size_t>(m_.cols - 1)];
    const int zero = m_.layout == PackedLayout::e4m3 ? 0
                     : last_zero                     ? zeros_[zero_index(first + r, group)]
                                                     : middle();
    std::fill(row + m_.cols, row + stride_, static_cast<std::uint8_t>(zero));
    out_.quantised.set_row(first + r, row);
  }
  sum_.fetch_add(sum, std::memory_order_relaxed);
}

/// Weights of a matrix are about zero in the mean. With zero points off by one they are off by one step,
/// which at 4 bits is far more than any matrix's own mean.
QWENLITE_INLINE UnpackedMatrix Unpacking::take() {
  const auto count = static_cast<double>(m_.rows * m_.cols);
  if (m_.method == QuantMethod::gptq && m_.bits == 4 && !zeros_.empty() && count >= 4096) {
    const double mean = static_cast<double>(sum_.load(std::memory_order_relaxed)) / count;
    const double other = m_.zeros_less_one ? mean + 1 : mean - 1;
    if (std::fabs(mean) > 0.75 && std::fabs(other) < 0.25) {
      throw Error(ErrorCode::bad_tensor, {m_.name, ": its zero points are ambiguous"},
                  "weights whose mean is off by one step",
                  {"a mean near zero, as with those of ", m_.zeros_less_one ? "'gptq_v2'" : "'gptq'"});
    }
  }
  return std::move(out_);
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
