// SPDX-License-Identifier: Apache-2.0
//
// The header of a safetensors file: its reader, and the checks after which every range it states can be
// trusted. Sizes are compared as they come, with overflow in mind, before anything is added to a pointer.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/checkpoint/json_reader-inl.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace safetensors_format {

inline constexpr std::uint64_t max_header_bytes = 100'000'000;
inline constexpr std::size_t length_bytes = 8;

/// What the header says about one tensor. begin and end count from the start of the data.
struct Entry {
  std::string name;
  DType dtype = DType::bf16;
  Shape shape;
  Index begin = 0;
  Index end = 0;
};

/// The dtype of that name.
[[nodiscard]] inline std::optional<DType> dtype_named(std::string_view name) {
  constexpr auto last = static_cast<int>(DType::boolean);
  for (int i = 0; i <= last; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (name_of(dtype) == name) return dtype;
  }
  return std::nullopt;
}

/// Reads {"NAME": {"dtype": D, "shape": [...], "data_offsets": [b, e]}, "__metadata__": {K: V}}.
/// Fields the format does not have are refused: they might change what the bytes mean.
class HeaderReader final : public json_text::EventReader {
 public:
  using EventReader::EventReader;

  std::vector<Entry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;

  bool start_object(std::size_t /*size*/) override {
    if (at_ == At::start) {
      at_ = At::names;
    } else if (at_ == At::metadata) {
      at_ = At::metadata_keys;
    } else if (at_ == At::entry) {
      at_ = At::fields;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (at_ == At::names) {
      start_entry(name);
    } else if (at_ == At::metadata_keys) {
      metadata.push_back({std::move(name), ""});
      at_ = At::metadata_value;
    } else {
      start_field(name);
    }
    return true;
  }

  bool string(string_t& value) override {
    if (at_ == At::metadata_value) {
      metadata.back().second = std::move(value);
      at_ = At::metadata_keys;
      return true;
    }
    if (at_ != At::dtype) unexpected({"the string ", in_quotes(value)});
    const std::optional<DType> dtype = dtype_named(value);
    if (!dtype) {
      throw Error(ErrorCode::unsupported, {file(), ": ", where()}, in_quotes(value),
                  "a known dtype, such as BF16");
    }
    entries.back().dtype = *dtype;
    at_ = At::fields;
    return true;
  }

  bool start_array(std::size_t /*size*/) override {
    if (at_ == At::shape) {
      at_ = At::shape_sizes;
    } else if (at_ == At::offsets) {
      at_ = At::offset_values;
    } else {
      unexpected("an array");
    }
    numbers_.clear();
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    const bool wanted = at_ == At::shape_sizes || at_ == At::offset_values;
    if (!wanted || value > static_cast<number_unsigned_t>(PTRDIFF_MAX)) unexpected({value});
    const std::size_t limit = at_ == At::shape_sizes ? static_cast<std::size_t>(Shape::max_rank) : 2;
    if (numbers_.size() == limit) unexpected({"more than ", limit, " numbers"});
    numbers_.push_back(static_cast<Index>(value));
    return true;
  }

  bool end_array() override {
    if (at_ == At::shape_sizes) {
      entries.back().shape = Shape(std::span<const Index>(numbers_));
    } else {
      if (numbers_.size() != 2) unexpected({numbers_.size(), " numbers"});
      entries.back().begin = numbers_[0];
      entries.back().end = numbers_[1];
    }
    at_ = At::fields;
    return true;
  }

  bool end_object() override {
    if (at_ == At::fields) {
      for (const Field& field : fields) require_seen(field);
    }
    at_ = At::names;  // also after the header itself: the parser allows nothing behind it
    return true;
  }

 private:
  enum class At {
    start,
    names,
    metadata,
    metadata_keys,
    metadata_value,
    entry,
    fields,
    dtype,
    shape,
    shape_sizes,
    offsets,
    offset_values
  };
  struct Field {
    const char* name;
    At value;
    unsigned bit;
  };
  static constexpr std::array<Field, 3> fields{
      {{"dtype", At::dtype, 1U}, {"shape", At::shape, 2U}, {"data_offsets", At::offsets, 4U}}};

  void start_entry(string_t& name) {
    if (name == "__metadata__") {
      if (metadata_seen_) json_text::reject(file(), "'__metadata__' stands twice");
      metadata_seen_ = true;
      at_ = At::metadata;
      return;
    }
    entries.emplace_back().name = std::move(name);
    seen_ = 0;
    at_ = At::entry;
  }

  void start_field(const string_t& name) {
    for (const Field& field : fields) {
      if (name != field.name) continue;
      if ((seen_ & field.bit) != 0) unexpected({in_quotes(name), " twice"});
      seen_ |= field.bit;
      at_ = field.value;
      return;
    }
    unexpected({"the field ", in_quotes(name)});
  }

  void require_seen(const Field& field) const {
    if ((seen_ & field.bit) == 0) unexpected({"no '", field.name, "'"});
  }

  [[nodiscard]] std::string where() const override {
    if (at_ == At::start || at_ == At::names) return "header";
    if (at_ == At::metadata || at_ == At::metadata_keys || at_ == At::metadata_value) return "'__metadata__'";
    const char* field = "";
    if (at_ == At::dtype) field = ": dtype";
    if (at_ == At::shape || at_ == At::shape_sizes) field = ": shape";
    if (at_ == At::offsets || at_ == At::offset_values) field = ": data_offsets";
    return joined({"tensor ", in_quotes(entries.back().name), field});
  }

  [[nodiscard]] const char* expected() const override {
    switch (at_) {
      case At::start: return "a JSON object";
      case At::metadata:
      case At::metadata_keys:
      case At::metadata_value: return "an object of strings";
      case At::dtype: return "a string";
      case At::shape: return "a list of at most 8 sizes";
      case At::shape_sizes: return "a list of at most 8 sizes, whole numbers from 0 on";
      case At::offsets: return "two byte positions";
      case At::offset_values: return "two byte positions, whole numbers from 0 on";
      case At::names:
      case At::entry:
      case At::fields: break;
    }
    return "an object with dtype, shape and data_offsets, each once";
  }

  At at_ = At::start;
  unsigned seen_ = 0;  // bits of the fields of the current entry
  bool metadata_seen_ = false;
  std::vector<Index> numbers_;
};

/// Bytes of an entry's shape and dtype; throws when they do not fit Index.
[[nodiscard]] inline Index bytes_of(const Entry& entry, const std::string& file) {
  Index count = 0;
  Index bytes = 0;
  if (!entry.shape.elements(count) || !multiply_checked(count, size_of(entry.dtype), bytes)) {
    throw Error(ErrorCode::bad_file, {file, ": tensor ", in_quotes(entry.name), ": shape"},
                {entry.shape.to_string(), ", more bytes than can be counted"}, "a possible size");
  }
  return bytes;
}

/// Throws for a tensor's data_offsets.
[[noreturn]] inline void reject_range(const Entry& entry, const std::string& file,
                                      const MessageText& expected) {
  throw Error(ErrorCode::bad_file, {file, ": tensor ", in_quotes(entry.name), ": data_offsets"},
              {"[", entry.begin, ", ", entry.end, "]"}, expected);
}

/// Each tensor's range has exactly the bytes of its shape and dtype.
inline void check_ranges(const std::vector<Entry>& entries, const std::string& file) {
  for (const Entry& entry : entries) {
    if (entry.begin > entry.end) reject_range(entry, file, "begin <= end");
    const Index bytes = bytes_of(entry, file);
    if (bytes != entry.end - entry.begin) {
      reject_range(entry, file, {bytes, " bytes for ", name_of(entry.dtype), " ", entry.shape.to_string()});
    }
  }
}

/// No tensor ends behind the file, which has `data_bytes` of data after `data_start`.
inline void check_end(const std::vector<Entry>& entries, Index data_start, Index data_bytes,
                      const std::string& file) {
  if (entries.empty()) return;
  const auto last = std::max_element(entries.begin(), entries.end(),
                                     [](const Entry& a, const Entry& b) { return a.end < b.end; });
  if (last->end <= data_bytes) return;
  const std::string tensor = in_quotes(last->name);
  Index needed = 0;
  if (!add_checked(data_start, last->end, needed)) {
    json_text::reject(file, {"tensor ", tensor, ": data_offsets end at ", last->end, ", beyond any file"});
  }
  json_text::reject(file, {"file is ", data_start + data_bytes, " bytes, header needs ", needed,
                           " for tensor ", tensor, " (an incomplete download?)"});
}

/// The entries in another order. Pointers are sorted, by a function that is passed, so that sorting is
/// compiled once.
[[nodiscard]] inline std::vector<Entry*> sorted(std::vector<Entry>& entries,
                                                bool (*before)(const Entry* a, const Entry* b)) {
  std::vector<Entry*> order;
  order.reserve(entries.size());
  for (Entry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), before);
  return order;
}

/// The tensors tile the data: each begins where the one before ends, the last ends with the file.
inline void check_coverage(std::vector<Entry>& entries, Index data_bytes, const std::string& file) {
  const auto by_place = [](const Entry* a, const Entry* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  };
  Index covered = 0;
  for (const Entry* entry : sorted(entries, by_place)) {
    if (entry->begin != covered) {
      const char* problem = entry->begin < covered ? " (tensors overlap)" : " (a hole in the data)";
      throw Error(ErrorCode::bad_file, {file, ": tensor ", in_quotes(entry->name), ": data_offsets"},
                  {"begin ", entry->begin, problem}, {covered});
    }
    covered = entry->end;
  }
  if (covered != data_bytes) {
    throw Error(ErrorCode::bad_file, {file, ": data"}, {data_bytes, " bytes"},
                {covered, ", what the tensors in the header take"});
  }
}

/// The entries by name. No name stands twice.
[[nodiscard]] inline std::vector<Entry*> sorted_by_name(std::vector<Entry>& entries,
                                                        const std::string& file) {
  std::vector<Entry*> order =
      sorted(entries, [](const Entry* a, const Entry* b) { return a->name < b->name; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i]->name != order[i - 1]->name) continue;
    json_text::reject(file, {"tensor ", in_quotes(order[i]->name), " stands twice"});
  }
  return order;
}

/// Length of the header, checked against the format and the file.
[[nodiscard]] inline std::size_t header_length(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.size() < length_bytes) {
    json_text::reject(file, {"file is ", bytes.size(), " bytes, header needs at least ", length_bytes});
  }
  std::uint64_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) {
    length = length << 8U | std::to_integer<std::uint64_t>(bytes[i]);
  }
  constexpr std::uint64_t lfs_pointer = 0x206E6F6973726576;  // "version ", how such a file begins
  if (length == lfs_pointer) {
    json_text::reject(file, "found a git-lfs pointer, expected the weights (git lfs pull fetches them)");
  }
  if (length < 2 || length > max_header_bytes) {
    throw Error(ErrorCode::bad_file, {file, ": header length"}, {length, " bytes"},
                {"2 to ", max_header_bytes});
  }
  if (length > bytes.size() - length_bytes) {
    json_text::reject(file, {"file is ", bytes.size(), " bytes, header needs ", length + length_bytes});
  }
  return length;
}

}  // namespace safetensors_format

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
