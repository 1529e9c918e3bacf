// SPDX-License-Identifier: Apache-2.0
//
// quantise_checkpoint(): from a checkpoint as published to a directory with quantised matrices, which opens
// by mapping like any other. What examples/quantize does, for programs of your own.
//
// Matrices are quantised one after the other and written at once, and the pages they were read from dropped:
// rounding needs the memory of one matrix and its result, GPTQ and AWQ that of a layer in float32 and of what
// is known of its inputs.
#pragma once

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <qwenlite/models/qwen3.hpp>
#include <qwenlite/models/qwen3_5.hpp>
#include <qwenlite/quantize/layer_quantiser.hpp>
#include <qwenlite/quantize/quantised_directory.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

struct QuantiseOptions {
  /// What the layers' matrices become. One that is not quantised asks that they are stored so, and stay.
  WeightFormat weights = Format::int4;
  /// The same for embedding and output matrix. Empty: int8 by rows; with fp8 as stored.
  std::optional<WeightFormat> embedding_weights = {};
  /// For the layers; embedding, output matrix and a head for multi-token prediction are rounded to nearest.
  QuantisationMethod method = QuantisationMethod::rtn;
  /// Search for the best clipping of each group, as in choose_rounding().
  bool search = false;
  /// What GPTQ and AWQ see, each text read from an empty context; see calibration_texts().
  std::vector<std::vector<int>> texts = {};
  /// 0: as many as the process may use.
  int threads = 0;
  /// Replace a checkpoint directory of the same name.
  bool replace = false;
  /// Called as matrices are done: their bytes, and those of all. An exception ends the work; nothing is left.
  Progress progress = {};
};

struct QuantiseReport {
  Index matrices = 0;      ///< quantised
  Index source_bytes = 0;  ///< of the weight files before
  Index bytes = 0;         ///< and after
  Index tokens = 0;        ///< of calibration texts
  /// Root of the mean square of what is off, as a part of the whole: of the layers' weights, or with
  /// calibration of their products' results.
  double error = 0;
  /// Tensors that were copied as they are although elements of theirs are NaN or infinite: what the model
  /// computes will be, too. (A matrix of that kind cannot be rounded, which is an error.)
  std::vector<std::string> not_finite{};
};

/// Cuts the ids of a text where `end` stands (of "<|endoftext|>"; it goes with what it ends), and into pieces
/// of at most `longest`; takes pieces from all over the text until they have about `tokens`.
[[nodiscard]] std::vector<std::vector<int>> calibration_texts(std::span<const int> ids, int end,
                                                              Index longest, Index tokens);

/// Writes the directory `path`. Throws as Model's constructor and QuantisedDirectory do; `unsupported` for a
/// source that is quantised already, `bad_argument` for options that do not go together, `bad_tensor` for a
/// matrix that cannot be rounded or whose squares float32 cannot sum, and as LayerQuantiser::quantise() does.
QuantiseReport quantise_checkpoint(const Checkpoint& source, const std::filesystem::path& path,
                                   const QuantiseOptions& options);

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#include <qwenlite/quantize/quantise_checkpoint-inl.hpp>
