// SPDX-License-Identifier: Apache-2.0
#include "quantize/report.hpp"

#include <cstdio>
#include <iomanip>

namespace ql = qwenlite;

namespace quantize {
namespace {

std::string rounded(const char* form, double value) {
  char text[64];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

std::string embedding_of(const ql::QuantiseOptions& options) {
  if (options.embedding_weights) return to_string(*options.embedding_weights);
  const bool own = options.weights.format == ql::Format::int8 || options.weights.format == ql::Format::int4;
  return own ? to_string(ql::WeightFormat(ql::Format::int8)) : "as stored";
}

std::string method_of(const ql::QuantiseOptions& options) {
  std::string text = options.method == ql::QuantisationMethod::gptq  ? "GPTQ"
                     : options.method == ql::QuantisationMethod::awq ? "AWQ"
                                                                     : "rounding to nearest";
  return options.search ? text + ", clipped by search" : text;
}

}  // namespace

std::string megabytes(ql::Index bytes) {
  return rounded("%.1f MB", static_cast<double>(bytes) / 1e6);
}

void write_json(std::ostream& out, const Result& result) {
  const ql::QuantiseReport& r = result.report;
  out << "{\"matrices\":" << r.matrices << ",\"source_bytes\":" << r.source_bytes << ",\"bytes\":" << r.bytes
      << ",\"tokens\":" << r.tokens << ",\"error\":" << rounded("%.9g", r.error)
      << ",\"seconds\":" << rounded("%.3f", result.seconds) << "}\n";
}

void write_table(std::ostream& out, const Result& result, const ql::QuantiseOptions& options,
                 const std::string& out_name) {
  const ql::QuantiseReport& r = result.report;
  const auto row = [&](const char* what, const std::string& value) {
    out << std::left << std::setw(18) << what << value << '\n';
  };
  row("written", out_name);
  row("weights", to_string(options.weights));
  row("embedding", embedding_of(options));
  row("method", method_of(options));
  if (r.tokens > 0) row("calibration", std::to_string(r.tokens) + " tokens");
  row("matrices", std::to_string(r.matrices));
  const double part = static_cast<double>(r.bytes) / static_cast<double>(r.source_bytes);
  row("size",
      megabytes(r.bytes) + ", " + rounded("%.1f %%", 100 * part) + " of " + megabytes(r.source_bytes));
  row("error", rounded("%.2f %% of the layers' ", 100 * r.error) + (r.tokens > 0 ? "results" : "weights"));
  row("time", rounded("%.1f s", result.seconds));
}

}  // namespace quantize
