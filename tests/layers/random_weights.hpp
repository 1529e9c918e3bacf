// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint of random weights in memory, for tests of single layers: every tensor in the format of
// one's choice, and its values as the kernels will decode them.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <qwenlite/checkpoint/weights.hpp>
#include <qwenlite/kernels/dispatch.hpp>
#include <qwenlite/kernels/ops.hpp>

namespace layers_test {

using qwenlite::Index;

/// A plain matrix of doubles.
struct Table {
  Index rows = 0;
  Index cols = 0;
  std::vector<double> values;

  Table(Index r, Index c) : rows(r), cols(c), values(static_cast<std::size_t>(r * c)) {}
  double& operator()(Index r, Index c) { return values[static_cast<std::size_t>(r * cols + c)]; }
  double operator()(Index r, Index c) const { return values[static_cast<std::size_t>(r * cols + c)]; }
};

class RandomWeights {
 public:
  explicit RandomWeights(unsigned seed) : random_(seed) {}

  /// Adds a tensor of normal deviates times `scale`, plus `offset`.
  const Table& add(const std::string& name, Index rows, Index cols, qwenlite::DType dtype, double scale,
                   double offset = 0) {
    Table table(rows, cols);
    std::normal_distribution<double> normal;
    const std::size_t begin = data_.size();
    for (double& value : table.values) {
      value = store(static_cast<float>(offset + scale * normal(random_)), dtype);
    }
    const std::string shape =
        rows == 1 ? std::to_string(cols) : std::to_string(rows) + middle_ + "," + std::to_string(cols);
    header_ += (header_.empty() ? "{" : ",") + ("\"" + name + "\":{\"dtype\":\"") +
               std::string(qwenlite::name_of(dtype)) + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
               std::to_string(begin) + "," + std::to_string(data_.size()) + "]}";
    return tables_.emplace(name, std::move(table)).first->second;
  }

  /// The weight [channels, 1, kernel] of a depthwise convolution.
  const Table& add_depthwise(const std::string& name, Index channels, Index kernel, qwenlite::DType dtype,
                             double scale) {
    middle_ = ",1";
    const Table& table = add(name, channels, kernel, dtype, scale);
    middle_ = "";
    return table;
  }

  [[nodiscard]] const Table& operator[](const std::string& name) const { return tables_.at(name); }

  /// The tensors so far. They refer to this object's memory.
  [[nodiscard]] qwenlite::Weights open() {
    const std::string header = header_ + "}";
    file_.assign(8, 0);
    for (std::size_t i = 0; i < 8; ++i) file_[i] = static_cast<unsigned char>(header.size() >> 8 * i);
    file_.insert(file_.end(), header.begin(), header.end());
    file_.insert(file_.end(), data_.begin(), data_.end());
    const qwenlite::NamedBytes bytes{"random.safetensors", std::as_bytes(std::span(file_))};
    return qwenlite::Weights(std::make_shared<const qwenlite::TensorFiles>(std::span(&bytes, 1)));
  }

 private:
  double store(float value, qwenlite::DType dtype) {
    const auto put = [&](const void* from, std::size_t bytes) {
      const auto* p = static_cast<const unsigned char*>(from);
      data_.insert(data_.end(), p, p + bytes);
    };
    if (dtype == qwenlite::DType::bf16) {
      const qwenlite::Bf16 stored(value);
      put(&stored.bits, 2);
      return static_cast<double>(static_cast<float>(stored));
    }
    if (dtype == qwenlite::DType::f16) {
      const qwenlite::F16 stored(value);
      put(&stored.bits, 2);
      return static_cast<double>(static_cast<float>(stored));
    }
    put(&value, 4);
    return static_cast<double>(value);
  }

  std::mt19937 random_;
  std::string header_;
  std::string middle_;  // of the next tensor's shape
  std::vector<unsigned char> data_;
  std::vector<unsigned char> file_;
  std::map<std::string, Table> tables_;
};

/// Random activations, as doubles and as the floats they round to.
class RandomRows {
 public:
  RandomRows(Index rows, Index cols, unsigned seed) : exact(rows, cols), buffer_(rows * cols * 4) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < exact.values.size(); ++i) {
      buffer_.floats()[i] = normal(random);
      exact.values[i] = static_cast<double>(buffer_.floats()[i]);
    }
  }
  [[nodiscard]] qwenlite::Matrix<float> matrix() const {
    return {buffer_.floats(), exact.rows, exact.cols, Eigen::OuterStride<>(exact.cols)};
  }

  Table exact;

 private:
  qwenlite::AlignedBuffer buffer_;
};

/// Operations with scratch memory large enough for the tests of layers.
struct TestOps {
  explicit TestOps(const qwenlite::kernels::KernelTable& table, qwenlite::Precision precision)
      : pool(1),
        ops(table, pool, precision),
        scratch(ops, {.tokens = 80,
                      .width = 256,
                      .head_dim = 64,
                      .num_heads = 8,
                      .num_kv_heads = 8,
                      .pieces = 4,
                      .max_tokens = 256}) {}

  qwenlite::ThreadPool pool;
  qwenlite::Ops ops;
  qwenlite::OpsScratch scratch;
};

/// y = x W^T.
inline Table times(const Table& x, const Table& w) {
  Table y(x.rows, w.rows);
  for (Index t = 0; t < x.rows; ++t) {
    for (Index r = 0; r < w.rows; ++r) {
      for (Index i = 0; i < w.cols; ++i) y(t, r) += x(t, i) * w(r, i);
    }
  }
  return y;
}

/// RMS norm of each run of w.cols elements.
inline Table normed(const Table& x, const Table& w, double epsilon) {
  Table y = x;
  for (Index t = 0; t < x.rows; ++t) {
    for (Index first = 0; first < x.cols; first += w.cols) {
      double sum = 0;
      for (Index i = 0; i < w.cols; ++i) sum += x(t, first + i) * x(t, first + i);
      const double scale = 1 / std::sqrt(sum / static_cast<double>(w.cols) + epsilon);
      for (Index i = 0; i < w.cols; ++i) y(t, first + i) = x(t, first + i) * scale * w(0, i);
    }
  }
  return y;
}

/// Largest difference over the largest magnitude of what is expected.
inline double relative_error(const qwenlite::Matrix<float>& found, const Table& expected) {
  double worst = 0;
  double largest = 0;
  for (Index t = 0; t < expected.rows; ++t) {
    for (Index i = 0; i < expected.cols; ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(found(t, i)) - expected(t, i)));
      largest = std::max(largest, std::abs(expected(t, i)));
    }
  }
  return worst / largest;
}

/// Every table this CPU runs with its own precision.
template <class F>
void for_each_table(const F& f) {
  for (const qwenlite::kernels::KernelTable* table : qwenlite::kernels::supported()) {
    f(*table, qwenlite::Precision::exact);
  }
}

}  // namespace layers_test
