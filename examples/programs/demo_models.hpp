// SPDX-License-Identifier: Apache-2.0
//
// The demo models that come with the library, by name: installed beside the program, or in the source tree.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>

#include <qwenlite/error.hpp>

namespace programs {

/// Folders below demo_models; the first is the model when none is asked for.
inline constexpr std::array<std::string_view, 2> demo_models = {"qwen3", "qwen3_5"};

inline bool is_demo_model(std::string_view name) {
  return std::find(demo_models.begin(), demo_models.end(), name) != demo_models.end();
}

/// The checkpoint directory of a demo model. Throws `io` when it is in neither place.
inline std::string demo_directory(std::string_view name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path installed = program.parent_path().parent_path() / "share/qwenlite/demo_models" / name;
  if (fs::exists(installed, ignored)) return installed.string();
  const fs::path built = fs::path(QWENLITE_DEMO_MODELS) / name;
  if (fs::exists(built, ignored)) return built.string();
  throw qwenlite::Error(qwenlite::ErrorCode::io, "the demo model " + std::string(name) + " is neither in " +
                                                     installed.string() + " nor in " + built.string());
}

/// The checkpoint directory that is meant by the name of a demo model or by a path. A name that is neither is
/// a `bad_argument` that tells the demo models.
inline std::string model_directory(const std::string& name) {
  if (is_demo_model(name)) return demo_directory(name);
  std::error_code ignored;
  if (std::filesystem::is_directory(name, ignored)) return name;
  std::string known;
  for (const std::string_view model : demo_models)
    known += (known.empty() ? "" : " or ") + std::string(model);
  throw qwenlite::Error(qwenlite::ErrorCode::bad_argument, "--model", "'" + name + "'",
                        "a demo model (" + known + ") or a checkpoint directory");
}

}  // namespace programs
