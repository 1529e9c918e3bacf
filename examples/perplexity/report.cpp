// SPDX-License-Identifier: Apache-2.0
#include "perplexity/report.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "programs/json_value.hpp"

namespace ql = qwenlite;

namespace perplexity {
namespace {

using programs::json_value;

std::string rounded(double value, const char* form) {
  char text[64];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

std::string json_of(const Ran& ran, double perplexity) {
  return "{\"name\":" + json_value(ran.name) + ",\"weights\":" + json_value(ran.weights) +
         ",\"kv\":" + json_value(ran.kv) + ",\"precision\":" + json_value(ran.precision) +
         ",\"perplexity\":" + json_value(perplexity) + "}";
}

/// Rows of a name and one or two values, in columns as wide as they need to be.
class Table {
 public:
  void add(const std::string& name, const std::string& first, const std::string& second = {}) {
    rows_.push_back({name, first, second});
  }

  void write(std::ostream& out) const {
    const std::size_t names = std::max<std::size_t>(width(&Row::name), 18);
    const std::size_t firsts = width(&Row::first);
    for (const Row& row : rows_) {
      out << padded(row.name, names) << (row.second.empty() ? row.first : padded(row.first, firsts))
          << row.second << '\n';
    }
  }

 private:
  struct Row {
    std::string name;
    std::string first;
    std::string second;
  };

  [[nodiscard]] std::size_t width(std::string Row::*column) const {
    std::size_t most = 0;
    for (const Row& row : rows_) most = std::max(most, (row.*column).size() + 2);
    return most;
  }
  static std::string padded(std::string text, std::size_t width) {
    text.resize(width, ' ');
    return text;
  }

  std::vector<Row> rows_;
};

Table table_of_one(const ql::Score& score, const Ran& ran) {
  Table table;
  table.add("checkpoint", ran.name);
  table.add("weights", ran.weights);
  table.add("keys and values", ran.kv);
  table.add("precision", ran.precision);
  table.add("perplexity", rounded(score.perplexity(), "%.5f"));
  return table;
}

Table table_of_two(const ql::Score& score, const Ran& model, const Ran& reference) {
  Table table;
  table.add("", "model", "reference");
  table.add("checkpoint", model.name, reference.name);
  table.add("weights", model.weights, reference.weights);
  table.add("keys and values", model.kv, reference.kv);
  table.add("precision", model.precision, reference.precision);
  table.add("perplexity", rounded(score.perplexity(), "%.5f"), rounded(score.reference_perplexity(), "%.5f"));
  return table;
}

}  // namespace

void write_json(std::ostream& out, const ql::Score& score, const Ran& model, const Ran* reference) {
  out << "{\"tokens\":" << score.tokens << ",\"perplexity\":" << json_value(score.perplexity())
      << ",\"kl\":" << json_value(score.mean_kl()) << ",\"top1\":" << json_value(score.top1())
      << ",\"model\":" << json_of(model, score.perplexity()) << ",\"reference\":"
      << (reference == nullptr ? "null" : json_of(*reference, score.reference_perplexity())) << "}\n";
}

void write_table(std::ostream& out, const ql::Score& score, const Read& read, const Ran& model,
                 const Ran* reference) {
  out << score.tokens << " tokens scored of " << read.tokens;
  if (read.texts > 1) out << " in " << read.texts << " conversations";
  out << "\n\n";
  if (reference == nullptr) return table_of_one(score, model).write(out);
  table_of_two(score, model, *reference).write(out);
  Table compared;
  const double rise = score.perplexity() / score.reference_perplexity() - 1;
  compared.add("perplexity rise", rounded(rise * 100, "%+.3f %%"));
  compared.add("KL divergence", rounded(score.mean_kl(), "%.3g nats a token"));
  compared.add("top-1 agreement", rounded(score.top1() * 100, "%.2f %%"));
  out << '\n';
  compared.write(out);
}

}  // namespace perplexity
