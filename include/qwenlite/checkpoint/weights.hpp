// SPDX-License-Identifier: Apache-2.0
//
// Weights: lookup by name, dtype and shape together, relative to a scope, so that each layer names
// only its own tensors and a mismatch prints both sides.
//
// A Weights value is a cheap handle. Handles made from one another by scope() share the note of which
// tensors were taken, and all of them keep the files open. Taking is for one thread at a time.
//
// Matrices that products read may be had in another format than the stored one, and those that the files hold
// packed must be made of several tensors: a MatrixStore does both.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/checkpoint/packed.hpp>
#include <qwenlite/checkpoint/tensor_files.hpp>
#include <qwenlite/in_quotes.hpp>
#include <qwenlite/kernels/formats.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// What a matrix is for: formats are chosen by it.
enum class MatrixUse : std::uint8_t {
  layer,      ///< a layer's product
  embedding,  ///< rows by token id, and the output matrix too if it is tied
  output,     ///< the output matrix alone
  plain,      ///< a small matrix that is never quantised: bf16, f16 or f32 is needed
};

/// Makes matrices in other formats than they are stored in, and owns them.
class MatrixStore {
 public:
  MatrixStore() = default;
  MatrixStore(const MatrixStore&) = delete;
  MatrixStore& operator=(const MatrixStore&) = delete;
  virtual ~MatrixStore() = default;

  /// The matrix to compute with instead of `stored`, which may be itself. `name` is for messages.
  [[nodiscard]] virtual WeightView prepared(std::string_view name, const WeightView& stored,
                                            MatrixUse use) = 0;

  /// The matrix to compute with for one that the files hold packed. Throws `unsupported` unless it can
  /// unpack.
  [[nodiscard]] virtual WeightView unpacked(const PackedMatrix& packed, MatrixUse use);
};

[[noreturn]] inline void refuse_packed(const std::string& name) {
  throw Error(ErrorCode::unsupported, name, "a packed matrix", "a model that is opened to unpack it");
}

inline WeightView MatrixStore::unpacked(const PackedMatrix& packed, MatrixUse /*use*/) {
  refuse_packed(packed.name);
}

/// A handle of the tensors whose names begin with a prefix. Copies and scopes share the files and the note of
/// which tensors were taken.
class Weights {
 public:
  /// All tensors of `files`, none of them taken yet; `packed` finds the packed matrices among them, if any.
  explicit Weights(std::shared_ptr<const TensorFiles> files,
                   std::shared_ptr<const PackedTensors> packed = nullptr)
      : files_(std::move(files)),
        packed_(std::move(packed)),
        taken_(std::make_shared<std::vector<unsigned char>>(files_->entries().size())) {}

  /// The tensors whose names start with this handle's prefix and then `prefix` ("model.layers.0.").
  [[nodiscard]] Weights scope(std::string_view prefix) const {
    Weights inner = *this;
    inner.prefix_.append(prefix);
    return inner;
  }

  /// The same tensors, with products in the formats of `store`.
  [[nodiscard]] Weights with(std::shared_ptr<MatrixStore> store) const {
    Weights other = *this;
    other.store_ = std::move(store);
    return other;
  }

  /// What the names given to this handle are appended to.
  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }
  [[nodiscard]] const std::shared_ptr<const TensorFiles>& files() const noexcept { return files_; }

  /// Whether the tensor exists, or a matrix of that name is packed; does not count as taking it.
  [[nodiscard]] bool contains(std::string_view name) const {
    const std::string key = full(name);
    return files_->find(key) >= 0 || (packed_ != nullptr && packed_->has(key));
  }

  /// A matrix [rows, cols] = [out, in] stored as BF16, F16 or F32, or unpacked to one of them.
  /// Throws `bad_tensor` when it is missing or has another shape or dtype.
  [[nodiscard]] WeightView matrix(std::string_view name, Index rows, Index cols) const {
    if (packed_ != nullptr && packed_->has(full(name))) return unpacked(name, rows, cols, MatrixUse::plain);
    const TensorView view = tensor(name, Shape{rows, cols});
    return {view.data, rows, cols, format_of(view, name)};
  }

  /// A matrix for products, in the format that was chosen for its use; otherwise as matrix(). Pages of the
  /// file that were only read to make another are dropped.
  [[nodiscard]] WeightView product(std::string_view name, Index rows, Index cols, MatrixUse use) const {
    if (packed_ != nullptr) {
      const std::string key = full(name);
      if (packed_->has(key)) return unpacked(name, rows, cols, use);
      packed_->check_plain(key);
    }
    const WeightView stored = matrix(name, rows, cols);
    if (store_ == nullptr) return stored;
    const WeightView prepared = store_->prepared(full(name), stored, use);
    if (prepared.data != stored.data) {
      const Index file = files_->entries()[static_cast<std::size_t>(files_->find(full(name)))].file;
      files_->file(file).drop_pages({stored.data, static_cast<std::size_t>(rows * stored.row_bytes())});
    }
    return prepared;
  }

  /// The weight [channels, 1, kernel] of a depthwise convolution as a matrix [channels, kernel].
  /// Throws as matrix() does.
  [[nodiscard]] WeightView depthwise(std::string_view name, Index channels, Index kernel) const {
    const TensorView view = tensor(name, Shape{channels, 1, kernel});
    return {view.data, channels, kernel, format_of(view, name)};
  }

  /// A vector [size] stored as BF16, F16 or F32. Throws as matrix() does.
  [[nodiscard]] VectorView vector(std::string_view name, Index size) const {
    const TensorView view = tensor(name, Shape{size});
    return {view.data, size, format_of(view, name)};
  }

  /// A tensor of any dtype. Throws `bad_tensor` when it is missing or has another shape.
  [[nodiscard]] TensorView tensor(std::string_view name, const Shape& shape) const {
    const std::string key = full(name);
    const Index i = files_->find(key);
    if (i < 0) refuse_missing(key, shape);
    const auto at = static_cast<std::size_t>(i);
    const TensorView& view = files_->entries()[at].view;
    if (view.shape != shape) {
      throw Error(ErrorCode::bad_tensor, where(key), {"shape ", view.shape.to_string()},
                  {"shape ", shape.to_string()});
    }
    (*taken_)[at] = 1;
    return view;
  }

  /// Whether entry `i` of files()->entries() was taken, through this handle or a related one.
  [[nodiscard]] bool was_taken(Index i) const { return (*taken_)[static_cast<std::size_t>(i)]; }

  /// Throws `bad_tensor`, naming the first five, when tensors under this handle's prefix were never
  /// taken: a checkpoint with more in it than the network uses is a different network. Names that
  /// start (after the prefix) with one of `ignored` are passed over: "lm_head." of a tied model,
  /// "model.visual.", "mtp.".
  void expect_all_used(std::span<const std::string_view> ignored = {}) const {
    std::string names;
    Index unused = 0;
    for (std::size_t i = 0; i < taken_->size(); ++i) {
      const std::string& name = files_->entries()[i].name;
      const bool known = (*taken_)[i] != 0 || !name.starts_with(prefix_) || is_ignored(name, ignored);
      if (known || ++unused > 5) continue;
      names.append(unused == 1 ? "" : ", ").append(in_quotes(name));
    }
    if (unused == 0) return;
    throw Error(ErrorCode::bad_tensor, {files_->name(), ": tensors this model has no use for"},
                {unused, " (", names, unused > 5 ? ", ...)" : ")"}, "none");
  }
  void expect_all_used(std::initializer_list<std::string_view> ignored) const {
    expect_all_used(std::span(ignored.begin(), ignored.size()));
  }

 private:
  /// A packed matrix in a form to compute with; all its tensors are taken.
  [[nodiscard]] WeightView unpacked(std::string_view name, Index rows, Index cols, MatrixUse use) const {
    const PackedMatrix packed = packed_->matrix(full(name), rows, cols);
    for (const Index i : packed.entries) (*taken_)[static_cast<std::size_t>(i)] = 1;
    if (store_ == nullptr) refuse_packed(packed.name);
    const WeightView view = store_->unpacked(packed, use);
    for (const Index i : packed.entries) {
      if (view.data == packed.values.data) break;  // computed on where it lies
      const TensorFiles::Entry& entry = files_->entries()[static_cast<std::size_t>(i)];
      Index elements = 0;
      (void)entry.view.shape.elements(elements);
      files_->file(entry.file)
          .drop_pages({entry.view.data, static_cast<std::size_t>(elements * size_of(entry.view.dtype))});
    }
    return view;
  }

  [[nodiscard]] std::string full(std::string_view name) const { return std::string(prefix_).append(name); }

  /// "FILE: tensor 'NAME'" with the shard that holds it.
  [[nodiscard]] std::string where(const std::string& key) const {
    const Index i = files_->find(key);
    const Index file = files_->entries()[static_cast<std::size_t>(i)].file;
    return joined({in_quotes(files_->file_name(file)), ": tensor ", in_quotes(key)});
  }

  [[nodiscard]] Format format_of(const TensorView& view, std::string_view name) const {
    if (const std::optional<Format> format = stored_format(view.dtype)) return *format;
    throw Error(ErrorCode::bad_tensor, where(full(name)), {"dtype ", name_of(view.dtype)},
                {"BF16, F16 or F32", size_of(view.dtype) == 1 ? packing_stated() : std::string()});
  }

  /// A matrix that is missing may be there packed, in another way than the configuration says.
  [[noreturn]] void refuse_missing(const std::string& key, const Shape& shape) const {
    const std::string packed = packed_otherwise(*files_, key);
    throw Error(ErrorCode::bad_tensor, {files_->name(), ": tensor ", in_quotes(key)},
                packed.empty() ? std::string("none") : packed,
                {"shape ", shape.to_string(), packed.empty() ? std::string() : packing_stated()});
  }

  /// What the configuration says of packed matrices, as the end of a message.
  [[nodiscard]] std::string packing_stated() const {
    if (packed_ == nullptr) return ", since config.json has no 'quantization_config'";
    const QuantisationConfig& config = packed_->config();
    return joined({", or a matrix packed by ", name_of(config.method), " as in ", config.place});
  }

  [[nodiscard]] bool is_ignored(std::string_view name, std::span<const std::string_view> ignored) const {
    name.remove_prefix(prefix_.size());
    for (const std::string_view prefix : ignored) {
      if (name.starts_with(prefix)) return true;
    }
    return false;
  }

  std::shared_ptr<const TensorFiles> files_;
  std::shared_ptr<const PackedTensors> packed_;        // null: nothing is packed
  std::shared_ptr<std::vector<unsigned char>> taken_;  // 1 for entries of files_ that were taken
  std::shared_ptr<MatrixStore> store_;                 // null: all as stored
  std::string prefix_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
