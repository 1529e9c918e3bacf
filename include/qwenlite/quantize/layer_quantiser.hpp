// SPDX-License-Identifier: Apache-2.0
//
// LayerQuantiser: the layers of a network, one after the other, by GPTQ or AWQ. Inputs are gathered from the
// network as it is so far: the layers before are quantised already, so that a layer makes up for some of what
// they changed. Within a layer, inputs are those of its own weights as stored.
//
// Memory: the moments of a layer's inputs, its matrices in float32, and the texts on their way.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <qwenlite/quantize/awq.hpp>
#include <qwenlite/quantize/calibration.hpp>
#include <qwenlite/quantize/gptq.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

enum class QuantisationMethod : std::uint8_t {
  rtn,   ///< rounding to nearest
  gptq,  ///< arXiv:2210.17323
  awq,   ///< arXiv:2306.00978
};

[[nodiscard]] constexpr std::string_view name_of(QuantisationMethod method) noexcept {
  if (method == QuantisationMethod::rtn) return "rtn";
  return method == QuantisationMethod::gptq ? "gptq" : "awq";
}

/// Takes what quantising makes of a network's tensors.
class QuantisedSink {
 public:
  QuantisedSink() = default;
  QuantisedSink(const QuantisedSink&) = delete;
  QuantisedSink& operator=(const QuantisedSink&) = delete;
  virtual ~QuantisedSink() = default;

  /// A matrix, rounded.
  virtual void matrix(const std::string& name, const WeightView& rounded) = 0;
  /// A tensor that stays float, with other elements than before.
  virtual void elements(const std::string& name, std::span<const float> changed) = 0;
};

/// Squares of what the results of products are off by, and of the results themselves.
struct ErrorSums {
  double error = 0;
  double whole = 0;

  ErrorSums& operator+=(const ErrorSums& other) noexcept {
    error += other.error;
    whole += other.whole;
    return *this;
  }
  [[nodiscard]] bool finite() const noexcept { return std::isfinite(error) && std::isfinite(whole); }
};

/// Calls `work`, and has what it throws name the tensor that it was about.
template <class Work>
decltype(auto) about_tensor(const std::string& name, const Work& work) {
  try {
    return work();
  } catch (const Error& e) {
    throw Error(e.code(), {"tensor ", in_quotes(name), ": ", e.what()});
  }
}

/// How layers are quantised.
struct LayerQuantisation {
  QuantisationMethod method = QuantisationMethod::gptq;
  WeightFormat format = Format::int4;
  bool search = false;     ///< for the best clipping of each group
  double damping = 0.01;   ///< see GptqOptions
  bool act_order = false;  ///< see GptqOptions
};

template <ModelShape Shape>
class LayerQuantiser {
 public:
  /// Throws as CalibrationRun's constructor does.
  LayerQuantiser(const Decoder<Shape>& network, std::span<const std::vector<int>> texts,
                 const LayerQuantisation& how)
      : network_(network), run_(network, texts), how_(how) {}

  /// Quantises layer `index`; to be called for 0, 1, ... `done` is told each matrix as it was stored. Throws
  /// `bad_tensor` for a matrix that cannot be rounded, `numeric` for one whose inputs are not finite or, with
  /// GPTQ, all zero; both name it.
  void quantise(Index index, QuantisedSink& sink, const std::function<void(const WeightView&)>& done);

  /// Of all products so far, for the inputs seen.
  [[nodiscard]] const ErrorSums& error() const noexcept { return error_; }

 private:
  using Layers = std::vector<typename Shape::template Layer<Shape>>;

  /// Products with the same input.
  struct Products {
    std::vector<const std::byte*> weights;
    InputMoments inputs;

    [[nodiscard]] bool are_of(const SourceMatrix& source) const {
      return std::find(weights.begin(), weights.end(), source.view.data) != weights.end();
    }
  };

  [[nodiscard]] Layers layers_with(const std::shared_ptr<LayerStore>& store) const {
    const Weights text = text_scope(network_.files.weights().with(store));
    return Shape::make_layers(text, network_.shape, network_.files.config());
  }
  [[nodiscard]] std::vector<Products> observed(const typename Shape::template Layer<Shape>& layer);
  [[nodiscard]] const InputMoments& inputs_of(std::string_view name, const std::vector<Products>& all) const;
  void scale(const std::string& prefix, const std::vector<Products>& all, QuantisedSink& sink);
  [[nodiscard]] std::vector<float> stored_elements(const std::string& name) const;
  [[nodiscard]] const std::string& name_of_first(const Products& products) const;
  void round_all(const Products& products, LayerStore& store, QuantisedSink& sink,
                 const std::function<void(const WeightView&)>& done);
  [[nodiscard]] QuantisedMatrix round(const LayerMatrix& matrix, const InputMoments& inputs,
                                      const GptqInputs* factor);
  [[nodiscard]] std::vector<float> effective(const LayerMatrix& matrix, const WeightView& rounded,
                                             OutputError& outputs);

  const Decoder<Shape>& network_;
  CalibrationRun<Shape> run_;
  LayerQuantisation how_;
  ErrorSums error_;
  std::vector<SourceMatrix> sources_;  // of the layer under way, as layer_.matrices
  LayerTensors layer_;
};

template <ModelShape Shape>
void LayerQuantiser<Shape>::quantise(Index index, QuantisedSink& sink,
                                     const std::function<void(const WeightView&)>& done) {
  const std::string prefix = layer_prefix(text_scope(network_.files.weights()), index);
  const auto store = std::make_shared<LayerStore>(prefix);
  const auto at = static_cast<std::size_t>(index);
  std::vector<Products> all = observed(layers_with(store).at(at));
  sources_ = store->noted();
  layer_ = {};
  for (const SourceMatrix& source : sources_) {
    const LayerMatrix& matrix = layer_.matrices.emplace_back(source, run_.ops());
    // Here, as scales carry what is not finite from one matrix into others.
    const auto finite = [](float x) { return std::isfinite(x); };
    if (std::all_of(matrix.elements.begin(), matrix.elements.end(), finite)) continue;
    about_tensor(matrix.name, [&] { refuse_to_quantise(how_.format); });
  }
  if (how_.method == QuantisationMethod::awq) scale(prefix, all, sink);
  for (Products& products : all) {
    round_all(products, *store, sink, done);
    products.inputs = InputMoments(0);  // they are large
  }
  layer_ = {};
  run_.advance(layers_with(store).at(at));
}

/// The inputs of a layer's products.
template <ModelShape Shape>
auto LayerQuantiser<Shape>::observed(const typename Shape::template Layer<Shape>& layer)
    -> std::vector<Products> {
  std::vector<Products> all;
  run_.observe(layer, [&](const ConstMatrix<float>& input, std::span<const WeightView> weights) {
    const auto same = [&](const Products& p) { return p.weights.front() == weights.front().data; };
    auto products = std::find_if(all.begin(), all.end(), same);
    if (products == all.end()) {
      all.push_back({{}, InputMoments(input.cols())});
      products = all.end() - 1;
      for (const WeightView& w : weights) products->weights.push_back(w.data);
    }
    products->inputs.add(input, run_.ops());
  });
  return all;
}

template <ModelShape Shape>
const InputMoments& LayerQuantiser<Shape>::inputs_of(std::string_view name,
                                                     const std::vector<Products>& all) const {
  for (const SourceMatrix& source : sources_) {
    if (source.name != name) continue;
    for (const Products& p : all) {
      if (p.are_of(source)) return p.inputs;
    }
  }
  throw Error(ErrorCode::bad_tensor, {"tensor ", in_quotes(name), ": no product of the layer takes it"});
}

/// Scales columns as AWQ would have them.
template <ModelShape Shape>
void LayerQuantiser<Shape>::scale(const std::string& prefix, const std::vector<Products>& all,
                                  QuantisedSink& sink) {
  constexpr float offset = std::is_same_v<typename Shape::Norm, OnePlusRmsNorm> ? 1 : 0;
  const bool attention = layer_.find("self_attn.o_proj.weight") != nullptr;
  for (const AwqFold& fold : awq_folds(network_.shape, attention, offset)) {
    if (fold.is_norm) layer_.others[fold.source] = stored_elements(prefix + fold.source);
    for (const std::string& name : fold.others) layer_.others[name] = stored_elements(prefix + name);
    std::vector<LayerMatrix*> targets;
    for (const std::string& name : fold.targets) targets.push_back(layer_.find(name));
    const InputMoments& inputs = inputs_of(targets.front()->name, all);
    fold_scales(fold, awq_scales(targets, inputs, fold, how_.format, run_.ops()), layer_);
  }
  for (const auto& [name, elements] : layer_.others) sink.elements(prefix + name, elements);
}

/// A tensor of the source in float32.
template <ModelShape Shape>
std::vector<float> LayerQuantiser<Shape>::stored_elements(const std::string& name) const {
  const TensorFiles& files = network_.files.tensors();
  const TensorView& view = files.entries()[static_cast<std::size_t>(files.find(name))].view;
  const Format format = *stored_format(view.dtype);  // the network computes with it
  Index count = 0;
  (void)view.shape.elements(count);
  std::vector<float> elements(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) elements[static_cast<std::size_t>(i)] = decode(format, view.data, i);
  return elements;
}

/// The name of the first matrix of products.
template <ModelShape Shape>
const std::string& LayerQuantiser<Shape>::name_of_first(const Products& products) const {
  const auto its = [&](const SourceMatrix& source) { return products.are_of(source); };
  return std::find_if(sources_.begin(), sources_.end(), its)->name;
}

/// Rounds the matrices that share an input, and has the layer compute with what became of them.
template <ModelShape Shape>
void LayerQuantiser<Shape>::round_all(const Products& products, LayerStore& store, QuantisedSink& sink,
                                      const std::function<void(const WeightView&)>& done) {
  const Ops& ops = run_.ops();
  const std::string& first = name_of_first(products);
  const auto require_finite = [&](bool finite, const std::string& name, const char* what) {
    if (finite) return;
    throw Error(ErrorCode::numeric, {"tensor ", in_quotes(name)}, {what, " that are not finite"},
                "finite ones for the calibration texts");
  };
  const auto sums = products.inputs.sums();
  require_finite(std::all_of(sums.begin(), sums.end(), [](double x) { return std::isfinite(x); }), first,
                 "inputs");
  OutputError outputs(products.inputs, ops);
  std::optional<GptqInputs> factor;
  if (how_.method == QuantisationMethod::gptq) {
    const GptqOptions options{.damping = how_.damping, .act_order = how_.act_order, .search = how_.search};
    about_tensor(first, [&] { factor.emplace(products.inputs, ops.executor(), options); });
  }
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (!products.are_of(sources_[i])) continue;
    const LayerMatrix& matrix = layer_.matrices[i];
    const QuantisedMatrix rounded = about_tensor(
        matrix.name, [&] { return round(matrix, products.inputs, factor ? &*factor : nullptr); });
    sink.matrix(matrix.name, rounded.view());
    store.replace(matrix.name, effective(matrix, rounded.view(), outputs));
    require_finite(error_.finite(), matrix.name, "results");
    done(sources_[i].view);
  }
}

template <ModelShape Shape>
QuantisedMatrix LayerQuantiser<Shape>::round(const LayerMatrix& matrix, const InputMoments& inputs,
                                             const GptqInputs* factor) {
  Executor& executor = run_.ops().executor();
  if (factor != nullptr) return gptq(matrix.elements, matrix.rows, *factor, how_.format, executor);
  if (how_.method == QuantisationMethod::awq) return awq_round(matrix, inputs, how_.format, executor);
  return round_to_nearest(matrix.view(), how_.format, run_.ops().table(), executor, how_.search);
}

/// What the rounded matrix stands for, without the scales.
template <ModelShape Shape>
std::vector<float> LayerQuantiser<Shape>::effective(const LayerMatrix& matrix, const WeightView& rounded,
                                                    OutputError& outputs) {
  const Index cols = matrix.cols;
  std::vector<float> elements(matrix.elements.size());
  constexpr Index together = OutputError::most_rows;
  const AlignedBuffer memory(2 * together * cols * 4);
  float* const wholes = memory.floats();
  float* const errors = wholes + together * cols;
  for (Index first = 0; first < matrix.rows; first += together) {
    const Index count = std::min(together, matrix.rows - first);
    auto task = [&](Index i, int /*worker*/) {
      const Index r = first + i;
      float* const row = elements.data() + r * cols;
      run_.ops().table().decode_quantised(rounded, r, row);
      for (Index c = 0; c < cols; ++c) {
        const float scale =
            matrix.row_scale[static_cast<std::size_t>(r)] * matrix.column_scale[static_cast<std::size_t>(c)];
        row[c] /= scale;
        wholes[i * cols + c] = matrix.row(r)[c] / scale;
        errors[i * cols + c] = row[c] - wholes[i * cols + c];
      }
    };
    run_.ops().executor().run(count, TaskRef(task));
    error_.error += outputs.of({errors, count, cols, Eigen::OuterStride<>(cols)});
    error_.whole += outputs.of({wholes, count, cols, Eigen::OuterStride<>(cols)});
  }
  return elements;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
