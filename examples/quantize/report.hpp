// SPDX-License-Identifier: Apache-2.0
//
// What quantising made of a checkpoint, for people or as one JSON object.
#pragma once

#include <ostream>
#include <string>

#include <qwenlite/quantize/quantise_checkpoint.hpp>

namespace quantize {

struct Result {
  qwenlite::QuantiseReport report;
  double seconds = 0;
};

/// "1192.1 MB".
[[nodiscard]] std::string megabytes(qwenlite::Index bytes);

/// {"matrices":n,"source_bytes":n,"bytes":n,"tokens":n,"error":x,"seconds":x}
void write_json(std::ostream& out, const Result& result);

/// A table; `out_name` is what was written.
void write_table(std::ostream& out, const Result& result, const qwenlite::QuantiseOptions& options,
                 const std::string& out_name);

}  // namespace quantize
