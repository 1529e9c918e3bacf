// SPDX-License-Identifier: Apache-2.0
//
// Unpacking: from a packed matrix to one that kernels compute with.
//
// Every element is exactly (u - zero) * scale, or value * scale for FP8, as the file's scale has it, in
// float32. Where the planes of quantised.hpp can hold that, the matrix becomes those, numbers copied; what
// lies in the file as they do is used where it lies. Else it becomes float32: groups of another size or in
// another order than 32 columns, and scales that float16 does not hold exactly.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include <qwenlite/checkpoint/packed.hpp>
#include <qwenlite/kernels/quantised_matrix.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// What was odd about a matrix, though it can be computed with.
enum class PackedOddity : std::uint8_t {
  mislabelled_zeros,  ///< symmetric, and its zero points are those of the other version than it says
  ignored_zeros,      ///< said to be symmetric, with other zero points than the middle
  other_scales,       ///< became float32: a scale that float16 does not hold
  other_groups,       ///< became float32: groups that are not 32 columns or a multiple side by side
  other_blocks,       ///< became float32: FP8 blocks other than 128 x 128
};
inline constexpr Index packed_oddities = 5;

/// "symmetric zero points of the other version than checkpoint_format says" and so on.
[[nodiscard]] const char* to_string(PackedOddity oddity) noexcept;

/// A matrix as it is computed with, and the memory for what does not lie in the file.
struct UnpackedMatrix {
  QuantisedMatrix quantised;
  AlignedBuffer floats;
  WeightView view{};
  bool mapped = false;             ///< its numbers are those of the file
  bool odd[packed_oddities] = {};  ///< see PackedOddity

  [[nodiscard]] Index bytes() const noexcept { return quantised.bytes() + floats.bytes(); }
};

/// Unpacks one matrix: made, which reads scales and zero points; run, which are tasks for any threads; taken.
class Unpacking {
 public:
  /// Prepares to unpack; `plainly`, to float32 whatever it is. `matrix` must outlive this. Throws
  /// `bad_tensor` for a scale that is not finite (FP8: or not positive), a group that does not exist, and
  /// zero points that are out of range or of which nobody can tell what they mean.
  explicit Unpacking(const PackedMatrix& matrix, bool plainly = false);
  Unpacking(const Unpacking&) = delete;
  Unpacking& operator=(const Unpacking&) = delete;
  ~Unpacking() = default;

  /// Tasks 0 to tasks() - 1, in any order, each once. `scratch` has scratch_bytes().
  [[nodiscard]] Index tasks() const noexcept;
  [[nodiscard]] Index scratch_bytes() const noexcept;
  void run(Index task, std::byte* scratch) noexcept;

  /// The matrix, when all tasks have been run. Throws `bad_tensor` when its numbers say that its zero points
  /// are not of the version that its label says.
  [[nodiscard]] UnpackedMatrix take();

 private:
  void read_scales();
  void read_zeros();
  void settle_gptq_zeros(int least, int most);
  void read_groups();
  void use_in_place();
  void choose_blocks();
  void choose_planes(bool plainly);
  void fill_groups() const;
  void read_numbers(Index first, Index count, std::uint8_t* numbers) const noexcept;
  void write_floats(Index r, const std::uint8_t* numbers) noexcept;

  [[nodiscard]] std::size_t scale_index(Index r, Index g) const noexcept {
    return static_cast<std::size_t>(r / m_.block_rows * m_.groups + g);
  }
  [[nodiscard]] std::size_t zero_index(Index r, Index g) const noexcept {
    return static_cast<std::size_t>(r * m_.groups + g);
  }
  [[nodiscard]] int middle() const noexcept { return 1 << (m_.bits - 1); }
  void note(PackedOddity oddity) noexcept { out_.odd[static_cast<std::size_t>(oddity)] = true; }

  const PackedMatrix& m_;
  std::vector<float> scales_;         // [ceil(rows / block_rows)][groups]
  std::vector<std::uint8_t> zeros_;   // [rows][groups]; empty: the middle
  std::vector<std::int32_t> groups_;  // [cols]: the group of each column
  Index stride_ = 0;                  // of a row of numbers: whole blocks
  std::atomic<std::int64_t> sum_{0};  // of all u - zero
  UnpackedMatrix out_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/checkpoint/packed_unpack-inl.hpp>
#endif
