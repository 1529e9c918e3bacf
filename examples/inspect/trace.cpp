// SPDX-License-Identifier: Apache-2.0
//
// inspect trace: every intermediate result of a forward pass under the names of the reference program, to
// find where two implementations part.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <iostream>

#include <qwenlite/checkpoint/safetensors.hpp>

#include "inspect/commands.hpp"
#include "inspect/json_output.hpp"
#include "programs/open_model.hpp"
#include "programs/out_of_memory.hpp"

namespace ql = qwenlite;

namespace inspect {
namespace {

/// A result: [rows, width], row by row.
struct Traced {
  std::string name;
  Index rows = 0;
  Index width = 0;
  std::vector<float> values;
};

/// Gathers results in the order in which they first come. A prompt passes in parts, each of which gives
/// further rows; without `all`, only the last row is kept.
class Collector {
 public:
  explicit Collector(bool all) : all_(all) {}

  void add(std::string_view name, const ql::ConstMatrix<float>& rows) {
    const auto same = [&](const Traced& t) { return t.name == name; };
    auto found = std::find_if(results_.begin(), results_.end(), same);
    if (found == results_.end()) {
      found = results_.insert(results_.end(), Traced{std::string(name), 0, rows.cols(), {}});
    }
    Traced& result = *found;
    if (!all_) {
      result.values.clear();
      result.rows = 0;
    }
    for (Index r = all_ ? 0 : rows.rows() - 1; r < rows.rows(); ++r) {
      const float* row = rows.data() + r * rows.outerStride();
      result.values.insert(result.values.end(), row, row + rows.cols());
      ++result.rows;
    }
  }

  [[nodiscard]] const std::vector<Traced>& results() const { return results_; }

 private:
  bool all_;
  std::vector<Traced> results_;
};

void print_summary(const std::vector<Traced>& results) {
  std::cout << std::left << std::setw(34) << "name" << std::setw(16) << "shape" << std::setw(14) << "mean"
            << std::setw(14) << "rms"
            << "first values\n";
  for (const Traced& t : results) {
    double sum = 0;
    double squares = 0;
    for (const float x : t.values) {
      sum += static_cast<double>(x);
      squares += static_cast<double>(x) * static_cast<double>(x);
    }
    const auto count = static_cast<double>(t.values.size());
    const ql::Shape shape{t.rows, t.width};
    std::cout << std::left << std::setw(34) << t.name << std::setw(16) << shape.to_string() << std::setw(14)
              << sum / count << std::setw(14) << std::sqrt(squares / count);
    for (std::size_t i = 0; i < std::min<std::size_t>(4, t.values.size()); ++i)
      std::cout << t.values[i] << ' ';
    std::cout << '\n';
  }
}

void print_json(const std::vector<Traced>& results) {
  std::cout << '{';
  const char* separator = "";
  for (const Traced& t : results) {
    std::cout << separator << json_value(t.name) << ":{\"shape\":[" << t.rows << ',' << t.width
              << "],\"values\":";
    write_values(std::cout, t.values);
    std::cout << '}';
    separator = ",";
  }
  std::cout << "}\n";
}

void write_file(const std::vector<Traced>& results, const std::string& path) {
  std::vector<ql::NamedTensor> tensors;
  for (const Traced& t : results) {
    const auto* bytes = reinterpret_cast<const std::byte*>(t.values.data());
    tensors.push_back({t.name, {bytes, ql::DType::f32, ql::Shape{t.rows, t.width}}});
  }
  ql::write_safetensors(path, tensors);
}

/// Refuses to replace a file of the checkpoint that is being read.
void check_output(const std::string& path, const ql::Checkpoint& files) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(files.directory())) {
    if (path.empty() || !std::filesystem::equivalent(entry.path(), path, ignored)) continue;
    throw ql::Error(ql::ErrorCode::bad_argument, "--out", ql::in_quotes(path) + ", a file of the checkpoint",
                    "a name of its own");
  }
}

}  // namespace

void trace(const Options& options) {
  const std::vector<int> ids = some_ids(options.ids, "--ids");
  const ql::Checkpoint files(options.directory);
  check_context(files, "--ids", std::ssize(ids));
  check_output(options.out, files);
  const programs::ProgramModel model = programs::open_model(files, options.run);
  auto session = programs::new_session(model, std::ssize(ids));
  Collector collector(options.all);
  const ql::TraceSink sink = [&](std::string_view name, const ql::ConstMatrix<float>& rows) {
    collector.add(name, rows);
  };
  std::span<const int> traced = ids;
  if (!options.all && ids.size() > 1) {  // the results of one token do not depend on who is traced with it
    model.prefill(session, traced.first(ids.size() - 1));
    traced = traced.last(1);
  }
  model.trace(session, traced, sink);
  if (!options.out.empty()) {
    write_file(collector.results(), options.out);
    if (options.json) std::cout << "{\"file\":" << json_value(options.out) << "}\n";
  } else if (options.json) {
    print_json(collector.results());
  } else {
    print_summary(collector.results());
  }
}

}  // namespace inspect
