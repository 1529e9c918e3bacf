// SPDX-License-Identifier: Apache-2.0
//
// Matrices that a checkpoint holds packed: as several tensors (numbers, scales, zero points, the groups of
// columns) in one of the published ways, or in this library's own, which is computed on where it lies.
//
// Whether a matrix is packed is decided by the tensors there are, and checked against the configuration's
// rules. A PackedMatrix from here has tensors of the right dtypes and shapes; unpacking it
// (packed_unpack.hpp) checks what they contain.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/checkpoint/quantisation_config.hpp>
#include <qwenlite/checkpoint/tensor_files.hpp>
#include <qwenlite/kernels/formats.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// How the numbers of a matrix [rows, cols] lie in `values`.
enum class PackedLayout : std::uint8_t {
  own,            ///< U8 [rows, row_bytes], see quantised.hpp
  words_of_cols,  ///< GPTQ: I32 [cols / n, rows], n consecutive columns in a word, lowest bits first
  words_of_rows,  ///< AWQ: I32 [cols, rows / 8], a word has 8 rows in the order 0 2 4 6 1 3 5 7
  rows_of_words,  ///< compressed-tensors: I32 [rows, ceil(cols / n)], n consecutive columns in a word
  signed_bytes,   ///< compressed-tensors: I8 [rows, cols]
  e4m3,           ///< F8_E4M3 [rows, cols]
};

/// The tensors of a packed matrix. Those that it does not have are without data.
struct PackedMatrix {
  std::string name;  ///< "'FILE': tensor 'model.layers.0.mlp.up_proj.weight'", for messages
  QuantMethod method = QuantMethod::none;
  PackedLayout layout = PackedLayout::own;
  Index rows = 0;
  Index cols = 0;
  Index bits = 0;
  Index groups = 0;       ///< of a row
  Index group_size = 0;   ///< columns of a group, where they follow each other; FP8: columns of a block
  bool by_rows = false;   ///< its groups are whole rows, not as many columns as a row happens to have
  Index block_rows = 1;   ///< rows that share a scale: of a block of FP8; else 1, or all
  TensorView values{};    ///< see PackedLayout
  TensorView scales{};    ///< BF16, F16 or F32; [groups, rows] in GPTQ and AWQ, else rows first
  TensorView zeros{};     ///< zero points: packed as the values are, or U8 or I8 [rows, groups]
  TensorView group_of{};  ///< I32 [cols]: the group of each column
  std::optional<bool> symmetric;  ///< what the configuration says
  bool zeros_less_one = false;    ///< zero points are said to be stored less one
  std::vector<Index> entries;     ///< all tensors it consists of, as indices into TensorFiles::entries()
};

/// Finds packed matrices among the tensors of a checkpoint.
class PackedTensors {
 public:
  PackedTensors(std::shared_ptr<const TensorFiles> files, const QuantisationConfig& config)
      : files_(std::move(files)), config_(config) {}

  [[nodiscard]] const QuantisationConfig& config() const noexcept { return config_; }

  /// Whether the matrix of that name ("model.layers.0.mlp.up_proj.weight") is packed.
  [[nodiscard]] bool has(std::string_view name) const;

  /// A packed matrix [rows, cols]. Throws `bad_tensor` when one of its tensors is missing or has another
  /// shape or dtype, when its numbers do not fit the configuration, or when the matrix is there plainly as
  /// well; `bad_config` when the configuration names a format that there is not.
  [[nodiscard]] PackedMatrix matrix(std::string_view name, Index rows, Index cols) const;

  /// Throws `bad_tensor` when a matrix of a layer is not packed in the way that it should be by the rules.
  void check_plain(std::string_view name) const;

 private:
  class Finder;
  std::shared_ptr<const TensorFiles> files_;
  QuantisationConfig config_;
};

/// The tensor that holds the matrix of that name packed, in whatever way, for a message about one that is not
/// there: "'model.layers.0.mlp.up_proj.qweight', as GPTQ and AWQ pack a matrix". Empty when there is none.
[[nodiscard]] std::string packed_otherwise(const TensorFiles& files, std::string_view name);

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/checkpoint/packed-inl.hpp>
#endif
