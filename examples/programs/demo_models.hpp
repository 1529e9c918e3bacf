// SPDX-License-Identifier: Apache-2.0
//
// The demo models that come with the library, by name: installed beside the program, or in the source tree.
// Wherever a program takes a checkpoint directory, the name of a demo model does too. A directory of that
// name in the current one comes first: what lies there was put there by the user.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>

#include <qwenlite/error.hpp>
#include <qwenlite/in_quotes.hpp>

namespace programs {

/// Folders below demo_models; the first is the model when none is asked for.
inline constexpr std::array<std::string_view, 2> demo_models = {"qwen3", "qwen3_5"};

/// For the help of such an argument.
inline constexpr const char* checkpoint_help =
    "checkpoint directory; or, where no directory has that name, a demo model: qwen3 or qwen3_5";

/// Whether a demo model is meant by a name.
inline bool means_demo_model(std::string_view name) {
  std::error_code ignored;
  return std::find(demo_models.begin(), demo_models.end(), name) != demo_models.end() &&
         !std::filesystem::is_directory(name, ignored);
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

/// The checkpoint directory that is meant by an argument: a path, or the name of a demo model. A bare name
/// that is neither is a `bad_argument` that tells the demo models; what is wrong with other paths shows when
/// they are opened.
inline std::string model_directory(const std::string& name, const char* argument) {
  if (means_demo_model(name)) return demo_directory(name);
  std::error_code ignored;
  if (name.find('/') != std::string::npos || std::filesystem::exists(name, ignored)) return name;
  std::string known;
  for (const std::string_view model : demo_models)
    known += (known.empty() ? "" : " or ") + std::string(model);
  throw qwenlite::Error(qwenlite::ErrorCode::bad_argument, argument,
                        name.empty() ? std::string("an empty name") : qwenlite::in_quotes(name),
                        "a checkpoint directory or a demo model (" + known + ")");
}

}  // namespace programs
