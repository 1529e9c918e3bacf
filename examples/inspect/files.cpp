// SPDX-License-Identifier: Apache-2.0
//
// inspect config and inspect tensors: what the library understood of a checkpoint's files.
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <vector>

#include <qwenlite/checkpoint/checkpoint.hpp>
#include <qwenlite/in_quotes.hpp>

#include "inspect/commands.hpp"
#include "inspect/json_output.hpp"

namespace ql = qwenlite;

namespace inspect {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

/// A float as the shortest decimal that reads back as it (0.6, not 0.60000002).
Json shortest(const std::optional<float>& value) {
  return value ? Json::parse(json_value(*value)) : Json(nullptr);
}

Json rope_json(const ql::RopeParameters& rope) {
  Json json = {{"rope_theta", rope.rope_theta},
               {"rope_type", rope.rope_type == ql::RopeType::yarn ? "yarn" : "default"},
               {"partial_rotary_factor", rope.partial_rotary_factor}};
  if (rope.rope_type != ql::RopeType::yarn) return json;
  json["factor"] = rope.factor;
  json["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  json["beta_fast"] = rope.beta_fast;
  json["beta_slow"] = rope.beta_slow;
  json["attention_factor"] = rope.attention_factor;
  json["truncate"] = rope.truncate;
  return json;
}

Json generation_json(const ql::GenerationDefaults& defaults) {
  return {{"do_sample", or_null(defaults.do_sample)},
          {"temperature", shortest(defaults.temperature)},
          {"top_k", or_null(defaults.top_k)},
          {"top_p", shortest(defaults.top_p)},
          {"min_p", shortest(defaults.min_p)},
          {"repetition_penalty", shortest(defaults.repetition_penalty)},
          {"presence_penalty", shortest(defaults.presence_penalty)}};
}

/// The Gated DeltaNet layers of a Qwen3.5.
Json delta_json(const ql::ModelConfig& config) {
  return {{"linear_attention_layers", config.layers_of(ql::LayerType::linear_attention)},
          {"linear_num_key_heads", config.linear_num_key_heads},
          {"linear_num_value_heads", config.linear_num_value_heads},
          {"linear_key_head_dim", config.linear_key_head_dim},
          {"linear_value_head_dim", config.linear_value_head_dim},
          {"linear_conv_kernel_dim", config.linear_conv_kernel_dim},
          {"mtp_num_hidden_layers", config.mtp_num_hidden_layers}};
}

Json config_json(const ql::Checkpoint& files) {
  const ql::ModelConfig& config = files.config();
  Json json = {{"model_type", config.model_type},
               {"hidden_size", config.hidden_size},
               {"num_hidden_layers", config.num_hidden_layers},
               {"num_attention_heads", config.num_attention_heads},
               {"num_key_value_heads", config.num_key_value_heads},
               {"head_dim", config.head_dim},
               {"intermediate_size", config.intermediate_size},
               {"vocab_size", config.vocab_size},
               {"rms_norm_eps", shortest(config.rms_norm_eps)},
               {"max_position_embeddings", config.max_position_embeddings},
               {"context_limit", config.context_limit()},
               {"tie_word_embeddings", config.tie_word_embeddings},
               {"rope", rope_json(config.rope)},
               {"generation", generation_json(files.generation_defaults())},
               {"token_count", or_null(files.token_count())}};
  if (config.model_type == "qwen3_5") json["delta_net"] = delta_json(config);
  json["stop_ids"] = std::vector<int>(files.stop_ids().begin(), files.stop_ids().end());
  json["quantisation"] = ql::to_string(config.quantisation);
  json["weight_bytes"] = files.tensors().bytes();
  json["warnings"] = std::vector<std::string>(files.warnings().begin(), files.warnings().end());
  return json;
}

/// One line per value; objects indented below their name.
void print_lines(const Json& json, int indent) {
  for (const auto& [key, value] : json.items()) {
    std::cout << std::string(static_cast<std::size_t>(indent), ' ');
    if (value.is_object()) {
      std::cout << key << ":\n";
      print_lines(value, indent + 2);
    } else if (!value.is_null()) {
      std::cout << std::left << std::setw(34 - indent) << key << ' '
                << ql::on_one_line(value.is_string()
                                       ? value.get<std::string>()
                                       : value.dump(-1, ' ', false, Json::error_handler_t::replace),
                                   4096)
                << '\n';
    } else {
      std::cout << std::left << std::setw(34 - indent) << key << " not set\n";
    }
  }
}

/// Where the tensors' bytes begin in each file: nothing lies between them, nor after the last.
std::vector<Index> data_starts(const ql::TensorFiles& tensors) {
  std::vector<Index> starts;
  for (Index i = 0; i < tensors.file_count(); ++i) starts.push_back(tensors.file(i).bytes());
  for (const auto& entry : tensors.entries()) {
    Index elements = 0;
    (void)entry.view.shape.elements(elements);
    starts[static_cast<std::size_t>(entry.file)] -= elements * ql::size_of(entry.view.dtype);
  }
  return starts;
}

/// The lowest address of a tensor of each file.
std::vector<const std::byte*> first_bytes(const ql::TensorFiles& tensors) {
  std::vector<const std::byte*> first(static_cast<std::size_t>(tensors.file_count()), nullptr);
  for (const auto& entry : tensors.entries()) {
    const std::byte*& lowest = first[static_cast<std::size_t>(entry.file)];
    if (lowest == nullptr || std::less<>()(entry.view.data, lowest)) lowest = entry.view.data;
  }
  return first;
}

}  // namespace

void show_config(const Options& options) {
  const ql::Checkpoint files(options.directory);
  const Json json = config_json(files);
  if (options.json) {
    std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  } else {
    print_lines(json, 0);
  }
}

void show_tensors(const Options& options) {
  const ql::Checkpoint files(options.directory);
  const ql::TensorFiles& tensors = files.tensors();
  const std::vector<Index> starts = data_starts(tensors);
  const std::vector<const std::byte*> first = first_bytes(tensors);
  const auto offset_of = [&](const ql::TensorFiles::Entry& entry) {
    const auto file = static_cast<std::size_t>(entry.file);
    return starts[file] + (entry.view.data - first[file]);
  };
  if (!options.json) {
    for (const auto& entry : tensors.entries()) {
      std::cout << std::left << std::setw(54) << ql::on_one_line(entry.name, 4096) << std::setw(8)
                << ql::name_of(entry.view.dtype) << std::setw(18) << entry.view.shape.to_string()
                << tensors.file_name(entry.file) << " @ " << offset_of(entry) << '\n';
    }
    std::cout << tensors.entries().size() << " tensors in " << tensors.file_count() << " file(s), "
              << tensors.bytes() << " bytes\n";
    return;
  }
  std::cout << "{\"tensors\":";
  write_array(std::cout, tensors.entries(), [&](const ql::TensorFiles::Entry& entry) {
    std::vector<Index> shape;
    for (Index axis = 0; axis < entry.view.shape.rank(); ++axis) shape.push_back(entry.view.shape[axis]);
    std::cout << "{\"name\":" << json_value(entry.name)
              << ",\"dtype\":" << json_value(std::string(ql::name_of(entry.view.dtype))) << ",\"shape\":";
    write_values(std::cout, shape);
    std::cout << ",\"file\":" << json_value(tensors.file_name(entry.file))
              << ",\"offset\":" << offset_of(entry) << '}';
  });
  std::cout << "}\n";
}

}  // namespace inspect
