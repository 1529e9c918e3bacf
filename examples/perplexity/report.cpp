// SPDX-License-Identifier: Apache-2.0
#include "perplexity/report.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <string_view>

namespace ql = qwenlite;

namespace perplexity {
namespace {

/// As many digits as it takes to read the same number back.
std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char digits[64];
  return {std::begin(digits), std::to_chars(std::begin(digits), std::end(digits), value).ptr};
}

std::string rounded(double value, const char* form) {
  char text[64];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

class Table {
 public:
  Table(std::ostream& out, bool two) : out_(out), two_(two) {}

  void row(std::string_view what, const std::string& model, const std::string& reference) {
    out_ << cell(what, 18) << (two_ ? cell(model, 20) : model) << (two_ ? reference : "") << '\n';
  }

 private:
  static std::string cell(std::string_view text, std::size_t width) {
    std::string padded(text);
    padded.resize(std::max(width, text.size() + 2), ' ');
    return padded;
  }

  std::ostream& out_;
  bool two_;
};

}  // namespace

void write_json(std::ostream& out, const ql::Score& score) {
  out << "{\"tokens\":" << score.tokens << ",\"perplexity\":" << json_number(score.perplexity())
      << ",\"kl\":" << json_number(score.mean_kl()) << ",\"top1\":" << json_number(score.top1()) << "}\n";
}

void write_table(std::ostream& out, const ql::Score& score, const Read& read, const Ran& model,
                 const Ran* reference) {
  out << score.tokens << " tokens scored of " << read.tokens;
  if (read.texts > 1) out << " in " << read.texts << " conversations";
  out << "\n\n";
  const Ran& other = reference != nullptr ? *reference : model;
  Table table(out, reference != nullptr);
  table.row("", "model", "reference");
  table.row("checkpoint", model.name, other.name);
  table.row("weights", model.weights, other.weights);
  table.row("keys and values", model.kv, other.kv);
  table.row("precision", model.precision, other.precision);
  table.row("perplexity", rounded(score.perplexity(), "%.5f"), rounded(score.reference_perplexity(), "%.5f"));
  if (reference == nullptr) return;
  out << '\n';
  const double rise = score.perplexity() / score.reference_perplexity() - 1;
  Table alone(out, false);
  alone.row("perplexity rise", rounded(rise * 100, "%+.3f %%"), "");
  alone.row("KL divergence", rounded(score.mean_kl(), "%.3g nats a token"), "");
  alone.row("top-1 agreement", rounded(score.top1() * 100, "%.2f %%"), "");
}

}  // namespace perplexity
