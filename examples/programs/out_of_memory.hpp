// SPDX-License-Identifier: Apache-2.0
//
// What a program needed memory for when there was none left.
#pragma once

#include <new>
#include <string>

#include <qwenlite/error.hpp>
#include <qwenlite/tensor.hpp>

namespace programs {

/// What `work` returns. Throws `io` that names `purpose` when the system has no memory for it.
template <class Work>
auto with_memory_for(const std::string& purpose, const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw qwenlite::Error(qwenlite::ErrorCode::io, "out of memory: there is no room for " + purpose);
  }
}

/// A session for so many tokens.
template <class Model>
typename Model::Session new_session(const Model& model, qwenlite::Index tokens) {
  return with_memory_for("a session of " + std::to_string(tokens) + " tokens",
                         [&] { return model.new_session({.max_tokens = tokens}); });
}

}  // namespace programs
