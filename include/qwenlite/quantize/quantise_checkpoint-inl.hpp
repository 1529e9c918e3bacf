// SPDX-License-Identifier: Apache-2.0
//
// Implementation of quantise_checkpoint.hpp.
#pragma once

#include <vector>

#include <qwenlite/quantize/quantise_checkpoint.hpp>
#include <qwenlite/quantize/throwing_tasks.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

inline std::vector<std::vector<int>> calibration_texts(std::span<const int> ids, int end, Index longest,
                                                       Index tokens) {
  require(longest > 0 && tokens > 0, "calibration_texts: sizes must be positive");
  std::vector<std::vector<int>> pieces;
  bool fresh = true;
  for (const int id : ids) {
    if (fresh || std::ssize(pieces.back()) == longest) pieces.emplace_back();
    pieces.back().push_back(id);
    fresh = id == end;
  }
  Index all = 0;
  for (const auto& piece : pieces) all += std::ssize(piece);
  if (all <= tokens) return pieces;
  std::vector<std::vector<int>> chosen;  // as evenly spread as whole pieces allow
  Index passed = 0;
  Index taken = 0;
  for (auto& piece : pieces) {
    passed += std::ssize(piece);
    const double due = static_cast<double>(passed) / static_cast<double>(all) * static_cast<double>(tokens);
    if (static_cast<double>(taken + std::ssize(piece)) > due && !chosen.empty()) continue;
    taken += std::ssize(piece);
    chosen.push_back(std::move(piece));
  }
  return chosen;
}

namespace quantising {

/// The options, checked against each other, as what is to be written.
[[nodiscard]] inline QuantisedForm form_of(const QuantiseOptions& options, Format stored) {
  QuantisedForm form{options.method, options.weights, Format::int8};
  const bool fp8 = options.weights.format == Format::fp8;
  if (fp8 || !is_quantised(options.weights.format)) form.embedding = stored;
  if (options.embedding_weights) form.embedding = *options.embedding_weights;
  require_format("weights", form.weights);
  require_format("embedding_weights", form.embedding);
  const bool layers = is_quantised(form.weights.format);
  require(layers || is_quantised(form.embedding.format),
          "quantise_checkpoint: found no quantised format, expected one for layers or embedding");
  require(form.embedding.format != Format::fp8 && !(fp8 && is_quantised(form.embedding.format)),
          "quantise_checkpoint: fp8 is for layers alone; embedding and output matrix stay as stored with it");
  require(options.method == QuantisationMethod::rtn || (layers && !fp8),
          "quantise_checkpoint: GPTQ and AWQ are for int8 and int4");
  require(options.method == QuantisationMethod::rtn || !options.texts.empty(),
          "quantise_checkpoint: GPTQ and AWQ need calibration texts");
  return form;
}

/// Sums over a matrix: squares of what rounding changed, and of the elements.
[[nodiscard]] inline ErrorSums rounding_error(const WeightView& stored, const WeightView& rounded,
                                              const Ops& ops) {
  constexpr Index strip = 64;
  std::vector<ErrorSums> parts(static_cast<std::size_t>(ceil_div(stored.rows, strip)));
  const auto task = [&](Index i, int /*worker*/) {
    std::vector<float> memory(static_cast<std::size_t>(2 * stored.cols));
    float* const was = memory.data();
    float* const is = was + stored.cols;
    for (Index r = i * strip; r < std::min(stored.rows, (i + 1) * strip); ++r) {
      ops.table().decode_row(stored.format, stored.row(r), stored.cols, was);
      ops.table().decode_quantised(rounded, r, is);
      float error = 0;
      float whole = 0;
      for (Index c = 0; c < stored.cols; ++c) {
        error += (is[c] - was[c]) * (is[c] - was[c]);
        whole += was[c] * was[c];
      }
      parts[static_cast<std::size_t>(i)] += {static_cast<double>(error), static_cast<double>(whole)};
    }
  };
  run_throwing(ops.executor(), std::ssize(parts), task);
  ErrorSums sums;
  for (const ErrorSums& part : parts) sums += part;
  return sums;
}

/// One run of quantise_checkpoint().
template <ModelShape Shape>
class Run {
 public:
  Run(const Checkpoint& source, const std::filesystem::path& path, const QuantiseOptions& options)
      : options_(options),
        network_(source, OpenOptions{.threads = options.threads}),
        matrices_(product_matrices(network_)),
        form_(form_of(options, matrices_.front().view.format)),
        directory_(source, path, form_, matrices_, changed(), options.replace) {
    for (const SourceMatrix& m : matrices_) {
      const Format wanted = form_.of(m.use).format;
      if (is_quantised(wanted)) all_ += m.view.rows * m.view.row_bytes();
      if (is_quantised(wanted) || wanted == m.view.format) continue;
      throw Error(ErrorCode::unsupported, {"tensor ", in_quotes(m.name)}, name_of(m.view.format),
                  {name_of(wanted), " as asked for, or a quantised format to convert it to"});
    }
    report_.source_bytes = source.tensors().bytes();
  }

  [[nodiscard]] QuantiseReport result() {
    tell();
    if (options_.method != QuantisationMethod::rtn) quantise_layers();
    for (const SourceMatrix& m : matrices_) {
      if (is_quantised(form_.of(m.use).format) && !(calibrated(m) && in_layers(m))) round(m);
    }
    directory_.commit();
    report_.bytes = directory_.bytes();
    report_.not_finite = directory_.not_finite();
    report_.error = error_.whole > 0 ? std::sqrt(error_.error / error_.whole) : 0;
    return report_;
  }

 private:
  [[nodiscard]] bool calibrated(const SourceMatrix& m) const {
    return options_.method != QuantisationMethod::rtn && m.use == MatrixUse::layer;
  }
  /// And not in a head for multi-token prediction.
  [[nodiscard]] bool in_layers(const SourceMatrix& m) const {
    return m.name.starts_with(text_scope(network_.files.weights()).scope("layers.").prefix());
  }
  /// Tensors that get other elements.
  [[nodiscard]] std::vector<std::string> changed() const {
    std::vector<std::string> names;
    if (options_.method != QuantisationMethod::awq) return names;
    const Weights text = text_scope(network_.files.weights());
    for (Index i = 0; i < network_.files.config().num_hidden_layers; ++i) {
      const std::string prefix = layer_prefix(text, i);
      const bool attention = network_.files.tensors().find(prefix + "self_attn.o_proj.weight") >= 0;
      for (const AwqFold& fold : awq_folds(network_.shape, attention, 0)) {
        if (fold.is_norm) names.push_back(prefix + fold.source);
        for (const std::string& other : fold.others) names.push_back(prefix + other);
      }
    }
    return names;
  }

  void quantise_layers() {
    const LayerQuantisation how{
        .method = options_.method, .format = form_.weights, .search = options_.search};
    LayerQuantiser<Shape> layers(network_, options_.texts, how);
    for (const auto& text : options_.texts) report_.tokens += std::ssize(text);
    for (Index i = 0; i < network_.files.config().num_hidden_layers; ++i) {
      layers.quantise(i, directory_, [&](const WeightView& stored) {
        add(stored);
        tell();
      });
    }
    error_ = layers.error();
  }

  void round(const SourceMatrix& m) {
    const WeightFormat& format = form_.of(m.use);
    const Ops& ops = network_.ops;
    about_tensor(m.name, [&] {
      const QuantisedMatrix rounded =
          round_to_nearest(m.view, format, ops.table(), ops.executor(), options_.search);
      if (options_.method == QuantisationMethod::rtn && m.use == MatrixUse::layer) {
        error_ += rounding_error(m.view, rounded.view(), ops);
        if (!error_.finite()) {  // fp8 has scales for them, but nothing finite can be computed with them
          throw Error(ErrorCode::bad_tensor, {"quantising to ", name_of(format.format)},
                      "elements too large for their squares to be summed", "weights of ordinary size");
        }
      }
      directory_.matrix(m.name, rounded.view());
    });
    const TensorFiles& files = network_.files.tensors();
    const Index file = files.entries()[static_cast<std::size_t>(files.find(m.name))].file;
    files.file(file).drop_pages({m.view.data, static_cast<std::size_t>(m.view.rows * m.view.row_bytes())});
    add(m.view);
    tell();
  }

  void add(const WeightView& stored) {
    ++report_.matrices;
    done_ += stored.rows * stored.row_bytes();
  }
  void tell() const {
    if (options_.progress) options_.progress(done_, all_);
  }

  const QuantiseOptions& options_;
  Decoder<Shape> network_;
  std::vector<SourceMatrix> matrices_;
  QuantisedForm form_;
  QuantisedDirectory directory_;
  QuantiseReport report_;
  ErrorSums error_;
  Index done_ = 0;
  Index all_ = 0;
};

}  // namespace quantising

inline QuantiseReport quantise_checkpoint(const Checkpoint& source, const std::filesystem::path& path,
                                          const QuantiseOptions& options) {
  require(!source.directory().empty(), "quantise_checkpoint: the source must be a directory");
  if (source.config().quantisation.method != QuantMethod::none) {
    throw Error(ErrorCode::unsupported, source.config().quantisation.place,
                "weights that are quantised already", "a checkpoint as it was trained");
  }
  if (source.config().model_type == Qwen3::model_type) {
    return quantising::Run<Qwen3>(source, path, options).result();
  }
  return quantising::Run<Qwen3_5>(source, path, options).result();
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
