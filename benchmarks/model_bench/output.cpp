// SPDX-License-Identifier: Apache-2.0

#include "output.hpp"

#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace bench {

namespace {

using Json = nlohmann::ordered_json;

/// printf into a string.
[[nodiscard, gnu::format(printf, 1, 2)]] std::string text(const char* format, ...) {
  char buffer[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

[[nodiscard]] std::string or_dash(const std::optional<double>& value) {
  return value ? text("%.0f", *value) : "-";
}

[[nodiscard]] Json or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

[[nodiscard]] Json to_json(const Roofline& r, const std::string& isa) {
  return {{"read_gb_s", r.read_gb_s},
          {"tile_peak_gflop_s", or_null(r.tile_peak_gflop_s)},
          {"tile_fed_gflop_s", or_null(r.tile_fed_gflop_s)},
          {"bf16_dot_gflop_s", or_null(r.bf16_dot_gflop_s)},
          {"fma_gflop_s", or_null(r.fma_gflop_s)},
          {"quietness", r.quietness},
          {"vnni_gop_s", or_null(r.int8_gop_s)},
          {"threads", r.threads},
          {"isa", isa}};
}

/// Of the layers.
[[nodiscard]] std::string weights_name(const Configuration& c) {
  return c.weights ? word_of(c.weights->layers) : c.stored_name;
}

[[nodiscard]] std::string precision_name(const Configuration& c) {
  return c.precision ? std::string(name_of(*c.precision)) : "default";
}

[[nodiscard]] Json to_json(const Figure& f, const std::string& model) {
  const Configuration& c = f.configuration;
  const double speed = median(f.tokens_per_s);
  const Roofline roof = median_of(f.roofline);
  return {{"model", model},
          {"weights", weights_name(c)},
          {"embedding_weights", c.packed ? Json(nullptr) : Json(word_of(c.formats.head))},
          {"kv", name_of(c.kv)},
          {"precision", precision_name(c)},
          {"isa", c.isa},
          {"threads", c.threads},
          {"test", f.spec.name()},
          {"tokens", f.spec.tokens},
          {"context", f.spec.context},
          {"batch", f.spec.batch},
          {"tokens_per_s", speed},
          {"spread", spread(f.tokens_per_s)},
          {"roofline_ratio", f.roofline_ratio.empty() ? Json(nullptr) : Json(median(f.roofline_ratio))},
          {"peak_rss_bytes", f.peak_rss_bytes},
          {"quietness", roof.quietness},
          {"product_gflop_s", f.flop_in_products * speed / 1e9},
          {"all_gflop_s", (f.flop_in_products + f.flop_in_mixing) * speed / 1e9},
          {"read_gb_s", f.bytes_of_step * speed / static_cast<double>(f.spec.batch) / 1e9},
          {"roofline_read_gb_s", roof.read_gb_s},
          {"samples", f.tokens_per_s}};
}

/// The limits with the most threads, of the kernels measured first.
[[nodiscard]] const std::pair<const RooflineKey, std::vector<Roofline>>& main_roofline(const Report& report) {
  const auto* found = &*report.rooflines.begin();
  const std::string& isa = report.figures.empty() ? found->first.second : report.figures[0].configuration.isa;
  for (const auto& entry : report.rooflines) {
    if (entry.first.second == isa) found = &entry;  // ascending in threads
  }
  return *found;
}

[[nodiscard]] std::string table_line(const Figure& f) {
  const Configuration& c = f.configuration;
  const Roofline roof = median_of(f.roofline);
  const std::string weights = c.weights ? c.weights->word() : c.stored_name;
  return text("%-15s %-4s %-7s %-11s %3d  %-8s %6td %8td %6td %11.1f %6.0f%% ", weights.c_str(),
              std::string(name_of(c.kv)).c_str(), precision_name(c).c_str(), c.isa.c_str(), c.threads,
              f.spec.name(), f.spec.tokens, f.spec.context, f.spec.batch, median(f.tokens_per_s),
              100 * spread(f.tokens_per_s)) +
         (f.roofline_ratio.empty() ? "      -" : text("%7.2f", median(f.roofline_ratio))) +
         text(" %9.2f %8.0f", roof.quietness, static_cast<double>(f.peak_rss_bytes) / 1e6) +
         (roof.quietness < 0.9 ? "  void: noisy\n" : "\n");
}

}  // namespace

std::string to_table(const Report& report) {
  const Machine& m = report.machine;
  std::string out = text("%s, medians of %zu interleaved repeats\n", report.model.c_str(),
                         report.figures.empty() ? std::size_t{1} : report.figures[0].tokens_per_s.size());
  out += text("%s, %d cores (%d threads), %.0f GB, %s, %s\n\n", m.cpu.c_str(), m.threads.cores,
              m.threads.cpus, m.memory_gb, m.system.c_str(), m.compiler.c_str());
  out +=
      "limits                read   tile peak   tile fed      bf16 dot     f32 FMA      int8 VNNI  quiet\n";
  out += "threads isa           GB/s   GFLOP/s     GFLOP/s       GFLOP/s      GFLOP/s      GOP/s\n";
  for (const auto& [key, measured] : report.rooflines) {
    const Roofline r = median_of(measured);
    out += text("%7d %-11s %6.1f   %-9s   %-11s   %-10s   %-10s   %-9s  %5.2f\n", key.first,
                key.second.c_str(), r.read_gb_s, or_dash(r.tile_peak_gflop_s).c_str(),
                or_dash(r.tile_fed_gflop_s).c_str(), or_dash(r.bf16_dot_gflop_s).c_str(),
                or_dash(r.fma_gflop_s).c_str(), or_dash(r.int8_gop_s).c_str(), r.quietness);
  }
  out +=
      "\nweights         kv   inputs  isa     threads test     tokens  context  batch    tokens/s spread of "
      "roof "
      "quietness  peak "
      "MB\n";
  for (const Figure& f : report.figures) out += table_line(f);
  out += text("\nopening takes %.1f ms, process start to first token of a %td-id prompt %.0f ms\n",
              1e3 * report.open_seconds, first_token_prompt, 1e3 * report.first_token_seconds);
  return out;
}

std::string to_json(const Report& report) {
  const Machine& m = report.machine;
  Json json;
  json["machine"] = {
      {"cpu", m.cpu},   {"cores", m.threads.cores}, {"cpus", m.threads.cpus}, {"memory_gb", m.memory_gb},
      {"isas", m.isas}, {"system", m.system},       {"compiler", m.compiler}};
  const auto& [key, measured] = main_roofline(report);
  json["roofline"] = to_json(median_of(measured), key.second);
  json["results"] = Json::array();
  for (const Figure& f : report.figures) json["results"].push_back(to_json(f, report.model));
  json["open_seconds"] = report.open_seconds;
  json["first_token_seconds"] = report.first_token_seconds;
  json["rooflines"] = Json::array();
  for (const auto& [each, samples] : report.rooflines) {
    json["rooflines"].push_back(to_json(median_of(samples), each.second));
  }
  return json.dump(1) + "\n";
}

}  // namespace bench
