// SPDX-License-Identifier: Apache-2.0
//
// inspect explain: which kernels, threads, precision and storage the library chooses for a model on this
// machine, why, and how much memory that takes.
#include <iostream>

#include "inspect/commands.hpp"
#include "inspect/json_output.hpp"
#include "programs/open_model.hpp"

namespace ql = qwenlite;

namespace inspect {
namespace {

using Json = nlohmann::ordered_json;

Json choice(const Json& value, const std::string& reason) {
  return {{"value", value}, {"reason", reason}};
}

/// The matrices that the files hold packed.
Json packed_json(const ql::PackedFacts& packed) {
  return {{"matrices", packed.matrices},
          {"mapped", packed.mapped},
          {"bytes", packed.bytes},
          {"forms", packed.forms},
          {"warnings", packed.warnings}};
}

Json explanation_json(const ql::Explanation& e) {
  return {{"network", e.network},
          {"kernels", choice(e.kernels, e.kernels_reason)},
          {"threads", choice(e.threads, e.threads_reason)},
          {"precision", choice(e.precision, e.precision_reason)},
          {"kv", choice(e.kv, e.kv_reason)},
          {"check", choice(e.check, e.check_reason)},
          {"chunk", e.chunk},
          {"weights",
           {{"place", e.weights.place},
            {"bytes", e.weights.bytes},
            {"tensors", e.weights.tensors},
            {"dtypes", e.weights.dtypes},
            {"off_line", e.weights.off_line},
            {"ignored", e.weights.ignored},
            {"files", e.weights.files},
            {"packed", packed_json(e.weights.packed)},
            {"quantised", e.weights.quantised},
            {"quantised_bytes", e.weights.quantised_bytes},
            {"quantised_to", e.weights.quantised_to},
            {"bytes_in_use", e.weights.bytes_in_use}}},
          {"session",
           {{"tokens", e.session_tokens}, {"bytes", e.session_bytes}, {"kv_bytes", e.session_kv_bytes}}}};
}

}  // namespace

void explain(const Options& options) {
  const ql::Checkpoint files(options.directory);
  check_context(files, "--tokens", options.tokens);
  const programs::ProgramModel model = programs::open_model(files, options.run);
  const ql::Explanation explanation = model.explain({.max_tokens = options.tokens});
  if (options.json) {
    std::cout << explanation_json(explanation).dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
    return;
  }
  for (const std::string& warning : files.warnings()) std::cout << "warning: " << warning << '\n';
  for (const std::string& warning : explanation.weights.packed.warnings) {
    std::cout << "warning: " << warning << '\n';
  }
  std::cout << explanation.to_string();
}

}  // namespace inspect
