// SPDX-License-Identifier: Apache-2.0
//
// The networks of the programs, opened as their options say. `--kv none` is another type of network (it
// recomputes everything), so two of each family are compiled in and chosen from at run time.
#pragma once

#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <type_traits>

#include <qwenlite/cache/kv_cache.hpp>
#include <qwenlite/models/any_model.hpp>
#include <qwenlite/models/qwen3.hpp>
#include <qwenlite/models/qwen3_5.hpp>

#include "programs/out_of_memory.hpp"
#include "programs/progress_bar.hpp"
#include "programs/run_options.hpp"

namespace programs {

using ProgramModel =
    qwenlite::AnyOf<qwenlite::Model<qwenlite::Qwen3>, qwenlite::Model<qwenlite::Qwen3, qwenlite::NoCache>,
                    qwenlite::Model<qwenlite::Qwen3_5>,
                    qwenlite::Model<qwenlite::Qwen3_5, qwenlite::NoCache>>;

/// Not all kernels round the inputs of products, nor before all weights; then what was asked for is not what
/// is done.
inline void tell_unused_precision(const ProgramModel& model, const std::string& option) {
  const qwenlite::Explanation e = model.explain({.max_tokens = 1, .own_scratch = false});
  if (e.precision_used) return;
  std::cerr << "note: " << option << ' ' << e.precision << " has no effect here: "
            << (e.precision == "int8"
                    ? "no weights of layers are int8 or int4, and products are computed exactly"
                    : "the " + e.kernels + " kernels compute exactly")
            << '\n';
}

/// What `--kv` asks for: f32 if nothing is kept, since then only the layer under way is stored.
inline std::optional<qwenlite::KvFormat> kv_format(const RunOptions& options) {
  if (options.kv == "bf16") return std::nullopt;  // the default
  for (const qwenlite::KvFormat format : qwenlite::kv_formats) {
    if (options.kv == name_of(format)) return format;
  }
  return qwenlite::KvFormat::f32;
}

inline std::string megabytes(qwenlite::Index bytes) {
  return std::to_string(bytes / 1'000'000);
}

/// Quantising weights takes seconds, which a terminal shows.
inline ProgramModel open_model(const qwenlite::Checkpoint& files, const RunOptions& options) {
  qwenlite::OpenOptions open;
  open.threads = options.threads;
  open.kv = kv_format(options);
  if (!options.precision.empty()) {
    open.precision = options.precision == "exact"  ? qwenlite::Precision::exact
                     : options.precision == "int8" ? qwenlite::Precision::int8
                                                   : qwenlite::Precision::bf16;
  }
  if (!options.weights.empty()) open.weights = weight_format(options.weights);
  if (!options.embedding_weights.empty()) open.embedding_weights = weight_format(options.embedding_weights);
  if (options.chunk) open.chunk = *options.chunk;
  const std::string prefix(options.prefix);
  for (const auto& check : {check_stored, check_packed}) {
    check(files, Matrices::layers, prefix + "weights", options.weights);
    check(files, Matrices::embedding, prefix + "embedding-weights", options.embedding_weights);
  }
  ProgressBar bar(std::cerr);
  open.progress = [&bar](qwenlite::Index done, qwenlite::Index all) {
    bar.show(done, all, " quantising " + megabytes(done) + " of " + megabytes(all) + " MB");
  };
  const auto wanted = [&]<class Network>(std::type_identity<Network>) {
    return Network::Kv::retains == options.cached();
  };
  const char* const purpose = open.weights || open.embedding_weights ? "the model with quantised weights"
                                                                     : "the model beside its weights";
  ProgramModel model =
      with_memory_for(purpose, [&] { return qwenlite::open_as<ProgramModel>(files, open, wanted); });
  bar.erase();
  if (!options.precision.empty()) {
    tell_unused_precision(model, prefix + "precision");
  }
  return model;
}

/// How a model is stored, in words.
struct Storage {
  std::string weights;
  qwenlite::Index weight_bytes = 0;
  std::string kv;
  std::string precision;
};

/// What the matrices are, if any is quantised: in the files, while opening, or both; else how they are
/// stored.
inline std::string weights_in_words(const qwenlite::WeightFacts& weights) {
  const std::string& packed = weights.packed.forms;
  if (weights.quantised == 0) return packed.empty() ? weights.dtypes : packed;
  return packed.empty() ? weights.quantised_to : packed + "; while opening " + weights.quantised_to;
}

inline Storage storage_of(const ProgramModel& model, const RunOptions& options) {
  const qwenlite::Explanation e = model.explain({.max_tokens = 1, .own_scratch = false});
  return {.weights = weights_in_words(e.weights),
          .weight_bytes = e.weights.bytes_in_use,
          .kv = options.cached() ? e.kv : "none",
          .precision = e.precision};
}

/// Checkpoints of networks alone come without one. A link that leads nowhere counts: opening it says so.
inline bool has_tokenizer(const std::filesystem::path& directory) {
  std::error_code ignored;
  const auto has = [&](const char* name) {
    return std::filesystem::exists(std::filesystem::symlink_status(directory / name, ignored));
  };
  return has("tokenizer.json") || has("vocab.json");
}

}  // namespace programs
