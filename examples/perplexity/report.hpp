// SPDX-License-Identifier: Apache-2.0
//
// What was measured, for people or as one JSON object.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>

#include <qwenlite/score.hpp>

namespace perplexity {

/// How one of the models was run, in words.
struct Ran {
  std::string name;
  std::string weights;
  std::string kv;
  std::string precision;
};

/// What was read.
struct Read {
  std::size_t texts = 0;
  qwenlite::Index tokens = 0;
};

/// {"tokens":n,"perplexity":x,"kl":x,"top1":x,"model":RAN,"reference":RAN}; null for what was not measured or
/// is infinite. RAN is {"name":...,"weights":...,"kv":...,"precision":...,"perplexity":x}. `reference` is
/// null without one.
void write_json(std::ostream& out, const qwenlite::Score& score, const Ran& model, const Ran* reference);

/// The same as a table.
void write_table(std::ostream& out, const qwenlite::Score& score, const Read& read, const Ran& model,
                 const Ran* reference);

}  // namespace perplexity
