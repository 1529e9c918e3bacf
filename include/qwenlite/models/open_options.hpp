// SPDX-License-Identifier: Apache-2.0
//
// OpenOptions, and the decisions made while a network is opened: threads, kernels, where in the checkpoint
// the text network lies, and which sampling values it suggests.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <qwenlite/checkpoint/checkpoint.hpp>
#include <qwenlite/kernels/dispatch.hpp>
#include <qwenlite/kernels/ops.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Told how far something is: bytes done, and bytes in all.
using Progress = std::function<void(Index done, Index all)>;

/// How a network runs. None of it changes results, except `precision`, `kernels`, `kv`, `weights` and
/// `embedding_weights`.
struct OpenOptions {
  /// Threads of the built-in pool, the caller included; 0: as many as the process may use.
  int threads = 0;
  /// Where to run instead: a ThreadPool shared between models, or a class of your own.
  std::shared_ptr<Executor> executor = nullptr;
  /// What matrix products round their inputs to; empty: the default of the kernels. int8 is for weights in
  /// int8 or int4: faster with several tokens at once, and less exact. The output matrix is always exact.
  std::optional<Precision> precision = {};
  /// Null: kernels::active().
  const kernels::KernelTable* kernels = nullptr;
  /// Storage of keys and values; empty: that of the cache's type, or bf16.
  std::optional<KvFormat> kv = {};
  /// What the layers' matrices are quantised to while the network is opened: {.weights = Format::int8}, or
  /// WeightFormat(Format::int4, 32). Empty: they are computed on as stored and where they lie. A format that
  /// is not quantised asks that they are stored so, and of matrices that the files hold quantised any format
  /// does: another than theirs is an error, and so are other groups or zero points. The usual ones of a
  /// format (Format::int4 alone) stand for any.
  std::optional<WeightFormat> weights = {};
  /// The same for embedding and output matrix. Empty: int8 by rows if `weights` is quantised, since
  /// errors of the output matrix go straight into the logits.
  std::optional<WeightFormat> embedding_weights = {};
  /// Called while weights are quantised or unpacked: bytes done and bytes in all, equal in the last call. An
  /// exception ends the opening.
  Progress progress = {};
  /// Most rows that pass through the network together: scratch memory grows with it, and the weights are
  /// read once per so many tokens of a prompt.
  Index chunk = 512;
  /// Compares every operation with the scalar kernels and throws `numeric` at the first number that rounding
  /// cannot explain (see Ops); QWENLITE_CHECK=1 in the environment does the same. Very slow.
  bool check = false;
  /// Called while a model is opened, once for each warning about the checkpoint and for each line of
  /// Explanation::to_string() but the one about a session. The library itself prints nothing, ever.
  std::function<void(std::string_view)> log = {};
};

/// What was decided while opening, and why, in words; see Model::explain().
struct Choices {
  const kernels::KernelTable* kernels = nullptr;
  std::string kernels_reason;
  std::shared_ptr<Executor> executor;
  std::string threads_reason;
  Precision precision = Precision::exact;
  std::string precision_reason;
  bool precision_used = true;                     ///< false: no product rounds its inputs so
  std::optional<KvFormat> kv;                     ///< as asked for
  std::optional<WeightFormat> weights;            ///< as asked for
  std::optional<WeightFormat> embedding_weights;  ///< as asked for, or what follows from `weights`
  Index chunk = 0;
  bool check = false;
  std::string check_reason;
};

/// Throws `bad_argument` for options that contradict each other or are out of range and for a QWENLITE_CHECK
/// that is neither 0 nor 1, `unsupported` for a QWENLITE_ISA that cannot run here.
[[nodiscard]] Choices choices_of(const OpenOptions& options);

/// Throws `bad_argument` with the groups that are possible unless `format` is empty or one that there is.
void require_format(const char* option, const std::optional<WeightFormat>& format);

/// Says in the reason for the precision when it is int8 and no matrix of the layers has a format for it.
void explain_precision(Choices& choices, FormatSet layers);

/// The tensors of the text network. Their prefix differs: "model." in text checkpoints,
/// "model.language_model." in those with a vision part, none in embedding checkpoints.
[[nodiscard]] Weights text_scope(const Weights& all);

/// Fields that `file` leaves open, from the model card. A file that states a temperature states a set of
/// values that belong together, for its own way to use the model: the card's penalties, which belong to the
/// card's temperature, are then left out.
[[nodiscard]] GenerationDefaults with_card_values(GenerationDefaults file, const GenerationDefaults& card);

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/models/open_options-inl.hpp>
#endif
