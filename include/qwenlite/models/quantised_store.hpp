// SPDX-License-Identifier: Apache-2.0
//
// Weights that are quantised while a network is opened, and those that the files hold packed and that are
// unpacked then: which matrices, to what, and where they live.
//
// Matrices are made one after the other, each on all threads, and the pages of the file it was read from
// are dropped at once: opening needs the memory of the result and of one matrix, not of the checkpoint.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <qwenlite/checkpoint/packed_unpack.hpp>
#include <qwenlite/models/open_options.hpp>
#include <qwenlite/quantize/round_to_nearest.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// What became of the matrices that the files hold packed.
struct PackedFacts {
  Index matrices = 0;
  Index mapped = 0;        ///< of them, computed on where they lie
  Index bytes = 0;         ///< of what was made of them, in memory
  Index source_bytes = 0;  ///< of the tensors that this was made from, and that are not read any more
  std::string forms;       ///< "int4 in groups of 128 (GPTQ)"; empty without any
  std::vector<std::string> warnings;  ///< what was odd about them, a line each
};

/// The matrices of a network that were quantised or unpacked.
class QuantisedStore final : public MatrixStore {
 public:
  /// `all` bytes of matrices are expected, for `progress`.
  QuantisedStore(const Choices& choices, Progress progress, Index all);

  /// Throws `bad_tensor` when the matrix cannot be quantised, `unsupported` when it is stored in another
  /// format than was asked for and that is not a quantised one.
  [[nodiscard]] WeightView prepared(std::string_view name, const WeightView& stored, MatrixUse use) override;

  /// Throws `bad_tensor` as Unpacking does, `unsupported` when another format was asked for.
  [[nodiscard]] WeightView unpacked(const PackedMatrix& packed, MatrixUse use) override;

  /// Nothing more will be taken: says so to `progress`, and forgets it.
  void finish();

  [[nodiscard]] Index tensors() const noexcept { return static_cast<Index>(matrices_.size()); }
  /// Of the quantised matrices, and of what they were made from.
  [[nodiscard]] Index bytes() const noexcept { return bytes_; }
  [[nodiscard]] Index source_bytes() const noexcept { return source_bytes_; }
  /// "int4 in groups of 64, embedding int8 in groups of 128"; empty when nothing was quantised.
  [[nodiscard]] std::string description() const;
  [[nodiscard]] PackedFacts packed() const;

 private:
  void check_wanted(const PackedMatrix& packed, MatrixUse use) const;
  void note(const PackedMatrix& packed, const UnpackedMatrix& made);
  void advance(Index bytes);

  /// How many matrices had an oddity, and the first of them.
  struct Oddity {
    Index count = 0;
    std::string first;
  };

  const kernels::KernelTable* table_;
  std::shared_ptr<Executor> executor_;
  std::optional<WeightFormat> layers_;
  std::optional<WeightFormat> embedding_;
  Progress progress_;
  std::vector<QuantisedMatrix> matrices_;
  std::vector<UnpackedMatrix> unpacked_;
  PackedFacts packed_;  // but for its texts
  std::vector<std::pair<std::string, Index>> forms_;
  std::array<Oddity, packed_oddities> oddities_;
  Index bytes_ = 0;
  Index source_bytes_ = 0;
  Index done_ = 0;
  Index all_ = 0;
};

/// The tensors of a checkpoint, with products in the formats that were chosen.
struct PreparedWeights {
  Weights all;
  std::shared_ptr<QuantisedStore> store;  ///< null when all are computed on as stored

  void finish() const {
    if (store != nullptr) store->finish();
  }
};

[[nodiscard]] PreparedWeights prepared_weights(const Checkpoint& files, const Choices& choices,
                                               const Progress& progress = {});

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/models/quantised_store-inl.hpp>
#endif
