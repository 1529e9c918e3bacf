// SPDX-License-Identifier: Apache-2.0
//
// Explanation: what was chosen when a model was opened, and why, for people who wonder: which kernels, how
// many threads, what is rounded, where the weights are, how much memory a session takes.
#pragma once

#include <string>

#include <qwenlite/models/open_options.hpp>
#include <qwenlite/models/quantised_store.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// The weights of an opened network. All of them are computed on where the checkpoint has them, but for those
/// that were quantised or unpacked, and the taps of convolutions (kilobytes), which are copied.
struct WeightFacts {
  Index tensors = 0;   ///< that the network computes with
  Index bytes = 0;     ///< theirs, as stored
  Index copied = 0;    ///< tensors that are computed on in a copy
  Index ignored = 0;   ///< tensors of the files that it has no use for
  Index off_line = 0;  ///< tensors that do not begin at a multiple of 64 bytes
  Index files = 0;
  std::string dtypes;  ///< "BF16 310", "F16 30, F32 17"
  std::string place;   ///< "mapped", "read into memory", "in memory of the caller"

  Index quantised = 0;        ///< tensors that were quantised when the network was opened
  Index quantised_bytes = 0;  ///< of what became of them, in memory
  std::string quantised_to;   ///< "int4 in groups of 64, embedding int8 in groups of 128"; empty if none was
  PackedFacts packed;         ///< matrices that the files hold packed
  Index bytes_in_use = 0;     ///< of all weights, as they are computed on
};

struct Explanation {
  std::string network;  ///< family and sizes
  std::string kernels;  ///< name of the instruction set
  std::string kernels_reason;
  int threads = 1;
  std::string threads_reason;
  std::string precision;  ///< "exact", "bf16" or "int8"
  std::string precision_reason;
  bool precision_used = true;  ///< false: asked for, but no product here rounds its inputs so
  std::string kv;              ///< name_of() a KvFormat
  std::string kv_reason;
  WeightFacts weights;
  Index chunk = 0;
  bool check = false;
  std::string check_reason;  ///< empty when off

  Index session_tokens = 0;    ///< 0: not asked for
  Index session_bytes = 0;     ///< all memory of a session of so many tokens
  Index session_kv_bytes = 0;  ///< the part for keys and values, committed as it fills

  /// A line for each choice: its name, what was chosen, and why.
  [[nodiscard]] std::string to_string() const;
};

/// What a network of `files` computes with; `prepared` knows which tensors were taken and quantised.
[[nodiscard]] WeightFacts weight_facts(const Checkpoint& files, const PreparedWeights& prepared);

/// All but the session.
[[nodiscard]] Explanation explanation_of(const Checkpoint& files, const Choices& choices,
                                         const WeightFacts& weights, KvFormat kv);

/// Warnings about the checkpoint and its packed matrices, then the lines of the explanation, which has none
/// about a session.
void write_log(const std::function<void(std::string_view)>& log, const Checkpoint& files,
               const Explanation& explanation);

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/models/explanation-inl.hpp>
#endif
