// SPDX-License-Identifier: Apache-2.0
//
// Implementation of packed.hpp: for each way to pack a matrix, which tensors it has, of which shapes.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include <qwenlite/checkpoint/packed.hpp>
#include <qwenlite/checkpoint/packed_names-inl.hpp>
#include <qwenlite/in_quotes.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Gathers the tensors of one matrix.
class PackedTensors::Finder {
 public:
  Finder(const PackedTensors& from, std::string_view name, Index rows, Index cols)
      : files_(*from.files_), config_(from.config_), module_(packed_names::module_of(name)) {
    out_.method = config_.method;
    out_.rows = rows;
    out_.cols = cols;
  }

  [[nodiscard]] PackedMatrix find() {
    require(out_.rows > 0 && out_.cols > 0, "a packed matrix without elements");
    expect_packed();
    switch (config_.method) {
      case QuantMethod::own: find_own(); break;
      case QuantMethod::gptq: find_gptq(); break;
      case QuantMethod::awq: find_awq(); break;
      case QuantMethod::fp8: find_fp8(); break;
      case QuantMethod::compressed: find_compressed(); break;
      case QuantMethod::none: reject(".weight", "a plain matrix", "a packed one");
    }
    out_.name = where(".weight", out_.entries.front());
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::string full(std::string_view suffix) const {
    return std::string(module_).append(suffix);
  }
  [[nodiscard]] Index entry(std::string_view suffix) const { return files_.find(full(suffix)); }
  [[nodiscard]] std::string where(std::string_view suffix, Index i) const {
    const Index file = files_.entries()[static_cast<std::size_t>(i)].file;
    return joined({in_quotes(files_.file_name(file)), ": tensor ", in_quotes(full(suffix))});
  }
  [[noreturn]] void reject(std::string_view suffix, const MessageText& found, const MessageText& expected) {
    const Index i = entry(suffix);
    throw Error(ErrorCode::bad_tensor,
                i < 0 ? joined({files_.name(), ": tensor ", in_quotes(full(suffix))}) : where(suffix, i),
                found, expected);
  }

  /// A tensor of the matrix; without data if there is none.
  TensorView optional(std::string_view suffix) {
    const Index i = entry(suffix);
    if (i < 0) return {};
    out_.entries.push_back(i);
    return files_.entries()[static_cast<std::size_t>(i)].view;
  }
  TensorView tensor(std::string_view suffix, std::initializer_list<DType> dtypes, const Shape& shape) {
    const TensorView view = optional(suffix);
    if (entry(suffix) < 0)
      reject(suffix, "none", {"shape ", shape.to_string(), " beside ", in_quotes(main_name())});
    check(suffix, view, dtypes, shape);
    return view;
  }
  TensorView optional(std::string_view suffix, std::initializer_list<DType> dtypes, const Shape& shape) {
    return entry(suffix) < 0 ? TensorView{} : tensor(suffix, dtypes, shape);
  }
  void check(std::string_view suffix, const TensorView& view, std::initializer_list<DType> dtypes,
             const Shape& shape) {
    if (std::find(dtypes.begin(), dtypes.end(), view.dtype) == dtypes.end()) {
      std::string expected;
      for (const DType dtype : dtypes) expected.append(expected.empty() ? "" : " or ").append(name_of(dtype));
      reject(suffix, {"dtype ", name_of(view.dtype)}, expected);
    }
    if (view.shape != shape) {
      reject(suffix, {"shape ", view.shape.to_string()}, {"shape ", shape.to_string(), stated_});
    }
  }
  [[nodiscard]] std::string main_name() const { return full(packed_names::values_suffix(config_.method)); }

  /// By the rules; keeps what they say about bits and groups.
  void expect_packed() {
    const char* const values = packed_names::values_suffix(config_.method);
    ExpectedForm form = config_.expected(module_);
    if (form.kind == ExpectedForm::Kind::plain) form = config_.expected(module_, true);
    if (form.kind == ExpectedForm::Kind::plain) {
      reject(values, "a packed matrix", {"a plain one by the rules of ", config_.place});
    }
    out_.bits = form.bits;
    out_.group_size = form.group_size;
    out_.symmetric = form.symmetric;
    note_stated();
    if (std::string_view(values) != ".weight" && entry(values) >= 0 && entry(".weight") >= 0) {
      reject(".weight", {"the matrix plainly, and packed as ", in_quotes(main_name())}, "one of them");
    }
  }

  /// What the configuration states that shapes follow from.
  void note_stated() {
    if (config_.method == QuantMethod::own) return;
    stated_ = joined({", which follows from ", name_of(config_.method)});
    if (config_.method == QuantMethod::fp8) {
      stated_ += joined({" in blocks of ", config_.block_rows, " x ", config_.block_cols});
    }
    if (out_.bits != 0) stated_ += joined({", ", out_.bits, " bits"});
    if (out_.group_size > 0) stated_ += joined({" in groups of ", out_.group_size});
    if (out_.group_size < 0) stated_ += " by rows";
    stated_ += joined({", in ", config_.place});
  }

  /// Columns of a group, as the rules have them; where they are not known, as `found` groups tell.
  void settle_groups(std::string_view suffix, Index found) {
    out_.by_rows = out_.group_size < 0 || (out_.group_size == 0 && config_.group_size < 0 && found == 1);
    const Index usual = config_.group_size < 0 ? out_.cols : config_.group_size;
    if (out_.group_size == 0 && usual > 0 && ceil_div(out_.cols, usual) == found) out_.group_size = usual;
    if (out_.group_size == 0 && found > 0 && out_.cols % found == 0) out_.group_size = out_.cols / found;
    if (out_.group_size == 0) {
      reject(suffix, found > 0 ? joined({found, " groups"}) : found_shape(suffix),
             {"a number of groups that divides ", out_.cols, " columns"});
    }
    if (out_.group_size < 0) out_.group_size = out_.cols;
    out_.groups = ceil_div(out_.cols, out_.group_size);
  }
  /// The size of a dimension of a tensor of two; 0 for other tensors.
  [[nodiscard]] Index size_of_axis(std::string_view suffix, Index axis) const {
    const Index i = entry(suffix);
    if (i < 0) return 0;
    const Shape& shape = files_.entries()[static_cast<std::size_t>(i)].view.shape;
    return shape.rank() == 2 ? shape[axis] : 0;
  }

  /// Of a tensor that has none of the shapes it may have.
  [[nodiscard]] std::string found_shape(std::string_view suffix) const {
    const Index i = entry(suffix);
    if (i < 0) return "none";
    return joined({"shape ", files_.entries()[static_cast<std::size_t>(i)].view.shape.to_string()});
  }

  static constexpr std::initializer_list<DType> scale_dtypes{DType::f16, DType::bf16, DType::f32};

  void find_own();
  void find_gptq();
  void find_awq();
  void find_fp8();
  void find_compressed();
  void check_stored_shape();
  void find_own_groups();
  void check_label(const packed_names::Label& label, const std::optional<WeightFormat>& said);

  const TensorFiles& files_;
  const QuantisationConfig& config_;
  std::string_view module_;
  std::string stated_;  // by the configuration, as the end of a message
  PackedMatrix out_;
};

/// int4 or int8 by the width of the rows; a group by the number of scales.
inline void PackedTensors::Finder::find_own() {
  const packed_names::Label label(config_, module_);
  const std::optional<WeightFormat> said = label.format(config_);
  const Index narrow = row_bytes(Format::int4, out_.cols);
  const Index wide = row_bytes(Format::int8, out_.cols);
  const Index width = size_of_axis(".weight.values", 1);
  const bool int4 = said && said->format == Format::int4;
  const bool known = width == narrow || width == wide;  // otherwise it is refused
  out_.layout = PackedLayout::own;
  out_.bits = width == narrow || (!known && int4) ? 4 : 8;
  if (!known) {
    const bool one = int4 || (said && said->format == Format::int8);
    stated_ = one ? joined({" for ", to_string(*said), ", which is '", label.field, "' in ", config_.place})
                  : joined({" for int8 or ", Shape{out_.rows, narrow}.to_string(), " for int4"});
  }
  out_.values = tensor(".weight.values", {DType::u8}, {out_.rows, out_.bits == 4 ? narrow : wide});
  find_own_groups();
  out_.by_rows = out_.group_size > quantised_block || (said && said->group == 0 && out_.groups == 1);
  out_.scales = tensor(".weight.scales", {DType::f16}, {out_.rows, out_.groups});
  out_.zeros = optional(".weight.zeros", {DType::u8}, {out_.rows, out_.groups});
  check_label(label, said);
}

inline void PackedTensors::Finder::find_own_groups() {
  const Index found = size_of_axis(".weight.scales", 1);
  std::string possible;
  for (const Index group : {Index{128}, Index{64}, Index{32}, round_up(out_.cols, quantised_block)}) {
    const Index groups = ceil_div(out_.cols, group);
    if (group > quantised_block && out_.bits != 8) continue;
    if (out_.groups == 0 && groups == found) {
      out_.groups = found;
      out_.group_size = group;
    }
    const std::string shape = Shape{out_.rows, groups}.to_string();
    if (possible.find(shape) == std::string::npos) possible += (possible.empty() ? "" : " or ") + shape;
  }
  if (out_.groups == 0) reject(".weight.scales", found_shape(".weight.scales"), {"shape ", possible});
}

/// Against what the configuration tells of it. Rows may have as many groups by one size as by another.
inline void PackedTensors::Finder::check_label(const packed_names::Label& label,
                                               const std::optional<WeightFormat>& said) {
  if (!said) return;
  const Format format = out_.bits == 4 ? Format::int4 : Format::int8;
  const bool symmetric = out_.zeros.data == nullptr;
  const bool as_said = said->format == format && said->symmetric == symmetric &&
                       ceil_div(out_.cols, said->group_of(out_.cols)) == out_.groups;
  if (as_said) return;
  const Index group = out_.by_rows ? 0 : out_.group_size;
  reject(".weight.values", {to_string(WeightFormat(format, group, symmetric))},
         {to_string(*said), ", which is '", label.field, "' in ", config_.place});
}

inline void PackedTensors::Finder::find_gptq() {
  out_.layout = PackedLayout::words_of_cols;
  const Index height = size_of_axis(".qweight", 0);
  if (out_.bits == 0) out_.bits = out_.cols % 8 == 0 && height == out_.cols / 8 ? 4 : 8;
  const Index per_word = 32 / out_.bits;
  if (out_.cols % per_word != 0) {
    reject(".qweight", {out_.cols, " columns"}, {"a multiple of ", per_word, " for ", out_.bits, " bits"});
  }
  out_.values = tensor(".qweight", {DType::i32}, {out_.cols / per_word, out_.rows});
  settle_groups(".scales", size_of_axis(".scales", 0));
  out_.scales = tensor(".scales", scale_dtypes, {out_.groups, out_.rows});
  out_.zeros = optional(".qzeros", {DType::i32}, {out_.groups, ceil_div(out_.rows, per_word)});
  out_.group_of = optional(".g_idx", {DType::i32}, {out_.cols});
  out_.zeros_less_one = config_.zeros_less_one;
  if (out_.group_of.data == nullptr && config_.act_order && out_.groups > 1) {
    reject(".g_idx", "none", {"the group of each column, since desc_act is true in ", config_.place});
  }
  if (out_.zeros.data == nullptr && out_.symmetric == false) {
    reject(".qzeros", "none", {"zero points, since sym is false in ", config_.place});
  }
}

inline void PackedTensors::Finder::find_awq() {
  out_.layout = PackedLayout::words_of_rows;
  out_.bits = 4;
  if (out_.rows % 8 != 0) reject(".qweight", {out_.rows, " rows"}, "a multiple of 8");
  out_.values = tensor(".qweight", {DType::i32}, {out_.cols, out_.rows / 8});
  settle_groups(".scales", size_of_axis(".scales", 0));
  out_.scales = tensor(".scales", scale_dtypes, {out_.groups, out_.rows});
  out_.zeros = tensor(".qzeros", {DType::i32}, {out_.groups, out_.rows / 8});
}

inline void PackedTensors::Finder::find_fp8() {
  out_.layout = PackedLayout::e4m3;
  out_.bits = 8;
  out_.values = tensor(".weight", {DType::f8_e4m3}, {out_.rows, out_.cols});
  out_.block_rows = config_.block_rows;
  out_.group_size = config_.block_cols;
  out_.groups = ceil_div(out_.cols, out_.group_size);
  const Index block_rows = ceil_div(out_.rows, out_.block_rows);
  out_.scales = tensor(".weight_scale_inv", scale_dtypes, {block_rows, out_.groups});
}

inline void PackedTensors::Finder::find_compressed() {
  const bool bytes = entry(".weight_packed") < 0;
  out_.layout = bytes ? PackedLayout::signed_bytes : PackedLayout::rows_of_words;
  if (bytes) {
    out_.values = tensor(".weight", {DType::i8}, {out_.rows, out_.cols});
    out_.bits = 8;
  } else {
    const Index width = size_of_axis(".weight_packed", 1);
    if (out_.bits == 0) out_.bits = width == ceil_div(out_.cols, 8) ? 4 : 8;
    const Index words = ceil_div(out_.cols, 32 / out_.bits);
    out_.values = tensor(".weight_packed", {DType::i32}, {out_.rows, words});
    check_stored_shape();
  }
  settle_groups(".weight_scale", size_of_axis(".weight_scale", 1));
  const Index scale = entry(".weight_scale");
  const bool single = scale >= 0 && files_.entries()[static_cast<std::size_t>(scale)].view.shape == Shape{1};
  const bool one = single && out_.groups == 1;  // a scale for the whole matrix
  out_.block_rows = one ? out_.rows : 1;
  out_.scales = one ? tensor(".weight_scale", scale_dtypes, {1})
                    : tensor(".weight_scale", scale_dtypes, {out_.rows, out_.groups});
  const Index zeros = entry(".weight_zero_point");
  if (zeros < 0) {
    if (out_.symmetric == false) {
      reject(".weight_zero_point", "none", {"zero points, since symmetric is false in ", config_.place});
    }
  } else if (files_.entries()[static_cast<std::size_t>(zeros)].view.dtype == DType::i8) {
    out_.zeros = tensor(".weight_zero_point", {DType::i8}, one ? Shape{1} : Shape{out_.rows, out_.groups});
  } else {
    out_.zeros = tensor(".weight_zero_point", {DType::i32, DType::i8},
                        {ceil_div(out_.rows, 32 / out_.bits), out_.groups});
  }
  out_.group_of = optional(".weight_g_idx", {DType::i32}, {out_.cols});
}

/// The tensor that holds the matrix's sizes.
inline void PackedTensors::Finder::check_stored_shape() {
  const TensorView shape = tensor(".weight_shape", {DType::i64, DType::i32}, {2});
  std::array<std::int64_t, 2> sizes{};
  for (std::size_t i = 0; i < 2; ++i) {
    std::int32_t narrow = 0;
    if (shape.dtype == DType::i64) std::memcpy(&sizes[i], shape.data + 8 * i, 8);
    if (shape.dtype == DType::i32) std::memcpy(&narrow, shape.data + 4 * i, 4);
    if (shape.dtype == DType::i32) sizes[i] = narrow;
  }
  if (sizes[0] != out_.rows || sizes[1] != out_.cols) {
    reject(".weight_shape", {"[", sizes[0], ", ", sizes[1], "]"}, {"[", out_.rows, ", ", out_.cols, "]"});
  }
}

QWENLITE_INLINE bool PackedTensors::has(std::string_view name) const {
  const std::string module(packed_names::module_of(name));
  if (module.empty() || config_.method == QuantMethod::none) return false;
  const bool packed = files_->find(module + packed_names::values_suffix(config_.method)) >= 0;
  const bool by_dtype =
      config_.method == QuantMethod::fp8 || (config_.method == QuantMethod::compressed && !packed);
  if (!by_dtype) return packed;
  const Index plain = files_->find(name);
  if (plain < 0) return false;
  const DType dtype = files_->entries()[static_cast<std::size_t>(plain)].view.dtype;
  if (config_.method == QuantMethod::compressed) return dtype == DType::i8;
  return size_of(dtype) == 1 || files_->find(module + ".weight_scale_inv") >= 0;
}

QWENLITE_INLINE PackedMatrix PackedTensors::matrix(std::string_view name, Index rows, Index cols) const {
  return Finder(*this, name, rows, cols).find();
}

QWENLITE_INLINE void PackedTensors::check_plain(std::string_view name) const {
  const std::string_view module = packed_names::module_of(name);
  const bool layer = module.find("layers.") != std::string_view::npos && !module.starts_with("mtp.");
  const bool small = module.ends_with(".in_proj_a") || module.ends_with(".in_proj_b");
  if (!layer || small) return;
  bool expected = config_.expected(module, true).kind == ExpectedForm::Kind::packed;
  if (config_.method == QuantMethod::own) {
    const std::optional<WeightFormat> said = packed_names::Label(config_, module).format(config_);
    expected = said && is_quantised(said->format);
  }
  if (!expected) return;
  const std::string otherwise = packed_otherwise(*files_, name);
  const Index i = files_->find(name);
  const std::string plain =
      i < 0 ? std::string("none")
            : joined(
                  {"a plain matrix of ", name_of(files_->entries()[static_cast<std::size_t>(i)].view.dtype)});
  throw Error(ErrorCode::bad_tensor, {files_->name(), ": tensor ", in_quotes(name)},
              otherwise.empty() ? plain : otherwise,
              {"a packed one (", name_of(config_.method), ") by the rules of ", config_.place});
}

QWENLITE_INLINE std::string packed_otherwise(const TensorFiles& files, std::string_view name) {
  struct Way {
    const char* suffix;
    const char* who;
  };
  constexpr std::array<Way, 3> ways{{{".qweight", "GPTQ and AWQ pack"},
                                     {".weight_packed", "compressed-tensors packs"},
                                     {".weight.values", "qwenlite packs"}}};
  const std::string module(packed_names::module_of(name));
  for (const Way& way : ways) {
    const std::string packed = module + way.suffix;
    if (module.empty() || files.find(packed) < 0) continue;
    return joined({in_quotes(packed), ", as ", way.who, " a matrix"});
  }
  return {};
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
