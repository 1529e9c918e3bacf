// SPDX-License-Identifier: Apache-2.0
//
// The networks of the programs. `--kv none` is another type of network (it recomputes everything), so two of
// each family are compiled in and chosen from at run time.
#pragma once

#include <iostream>
#include <type_traits>

#include <qwenlite/cache/kv_cache.hpp>
#include <qwenlite/models/any_model.hpp>
#include <qwenlite/models/qwen3.hpp>
#include <qwenlite/models/qwen3_5.hpp>

#include "programs/run_options.hpp"

namespace programs {

using ProgramModel =
    qwenlite::AnyOf<qwenlite::Model<qwenlite::Qwen3>, qwenlite::Model<qwenlite::Qwen3, qwenlite::NoCache>,
                    qwenlite::Model<qwenlite::Qwen3_5>,
                    qwenlite::Model<qwenlite::Qwen3_5, qwenlite::NoCache>>;

/// Not all kernels round the inputs of products; then what was asked for is not what is done.
inline void tell_unused_precision(const ProgramModel& model) {
  using qwenlite::Format, qwenlite::Precision;
  const qwenlite::kernels::KernelTable& table = model.ops().table();
  if (table.layout(Format::bf16, Precision::bf16) != table.layout(Format::bf16, Precision::exact)) return;
  std::cerr << "note: --precision bf16 has no effect here: the " << table.name
            << " kernels compute exactly\n";
}

inline ProgramModel open_model(const qwenlite::Checkpoint& files, const RunOptions& options) {
  qwenlite::OpenOptions open;
  open.threads = options.threads;
  if (options.kv != "bf16") open.kv = qwenlite::KvFormat::f32;
  if (!options.precision.empty()) {
    open.precision = options.precision == "exact" ? qwenlite::Precision::exact : qwenlite::Precision::bf16;
  }
  if (!options.weights.empty()) open.weights = weight_format(options.weights);
  if (!options.embedding_weights.empty()) open.embedding_weights = weight_format(options.embedding_weights);
  if (options.chunk) open.chunk = *options.chunk;
  const auto wanted = [&]<class Network>(std::type_identity<Network>) {
    return Network::Kv::retains == options.cached();
  };
  ProgramModel model = qwenlite::open_as<ProgramModel>(files, open, wanted);
  if (options.precision == "bf16") tell_unused_precision(model);
  return model;
}

}  // namespace programs
