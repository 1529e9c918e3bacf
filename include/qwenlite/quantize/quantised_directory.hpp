// SPDX-License-Identifier: Apache-2.0
//
// QuantisedDirectory: a checkpoint directory with quantised matrices, written tensor by tensor.
//
// int8 and int4 are this library's own form, mapped and computed on as it lies: of a matrix X.weight the
// files hold X.weight.values, X.weight.scales and perhaps X.weight.zeros, the planes of
// kernels/quantised.hpp. fp8 is the published form of FP8 checkpoints (X.weight and X.weight_scale_inv),
// which other engines read too. All else is as in the source: other tensors, and the JSON, text and template
// files byte for byte, but for "quantization_config", which config.json gets.
//
// The directory is put together under another name beside its place, and appears there when it is complete.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/checkpoint/checkpoint.hpp>
#include <qwenlite/checkpoint/safetensors_writer.hpp>
#include <qwenlite/kernels/weight_words.hpp>
#include <qwenlite/quantize/layer_matrices.hpp>
#include <qwenlite/quantize/layer_quantiser.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// What a directory holds, for its config.json.
struct QuantisedForm {
  QuantisationMethod method = QuantisationMethod::rtn;
  WeightFormat weights;    ///< of the layers' matrices; as stored if it is not quantised
  WeightFormat embedding;  ///< of embedding and output matrix; likewise

  [[nodiscard]] const WeightFormat& of(MatrixUse use) const noexcept {
    return use == MatrixUse::layer ? weights : embedding;
  }
};

class QuantisedDirectory final : public QuantisedSink {
 public:
  /// Begins to write what becomes `path`. `changed` names tensors that will have other elements, in float32.
  /// Throws `io` when `path` is the source; and when it exists, unless `replace`: then it must be a directory
  /// with a config.json and nothing that is not a checkpoint's.
  QuantisedDirectory(const Checkpoint& source, const std::filesystem::path& path, const QuantisedForm& form,
                     std::span<const SourceMatrix> matrices, std::span<const std::string> changed,
                     bool replace);
  QuantisedDirectory(const QuantisedDirectory&) = delete;
  QuantisedDirectory& operator=(const QuantisedDirectory&) = delete;
  /// Removes what was written, unless it was committed.
  ~QuantisedDirectory() override;

  void matrix(const std::string& name, const WeightView& rounded) override;
  void elements(const std::string& name, std::span<const float> changed) override;

  /// Writes everything that is still missing, as it is in the source, and puts the directory in its place.
  void commit();

  /// Tensors that were copied although elements of theirs are NaN or infinite; after commit().
  [[nodiscard]] const std::vector<std::string>& not_finite() const noexcept { return not_finite_; }

  /// Of model.safetensors.
  [[nodiscard]] Index bytes() const noexcept { return writer_->bytes(); }

 private:
  void plan(std::span<const SourceMatrix> matrices, std::span<const std::string> changed);
  void copy_tensors();
  void copy_files();
  void put_in_place();

  Checkpoint source_;
  std::filesystem::path path_;
  QuantisedForm form_;
  bool replace_;
  std::filesystem::path temporary_;   // empty once it is in its place
  std::vector<std::string> plain_;    // modules that stay as they are, for fp8
  std::vector<NamedTensor> tensors_;  // of the file
  std::vector<Index> copied_;         // entries of the source that are copied
  std::vector<std::string> not_finite_;
  std::unique_ptr<SafetensorsWriter> writer_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#include <qwenlite/quantize/quantised_directory-inl.hpp>
