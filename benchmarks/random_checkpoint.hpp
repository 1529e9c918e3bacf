// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint directory of a built-in shape with random weights, for measurements without a download. The
// tensors have the published names, dtypes and order and begin as many bytes past a 64-byte line as in the
// published files; their values are never zero. Written by all threads, straight into the mapped file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <qwenlite/checkpoint/model_config.hpp>
#include <qwenlite/kernels/formats.hpp>
#include <qwenlite/kernels/threads.hpp>

#include "shapes.hpp"
#include "temporary_directory.hpp"

namespace bench {

using qwenlite::DType;
using qwenlite::Index;

/// What a tensor's values look like: matrices around 0, norms around 3/4, A_log from -4 to -2 (a state that
/// forgets over some dozens of tokens).
enum class Values { matrix, norm, a_log };

struct RandomTensor {
  std::string name;
  DType dtype;
  std::vector<Index> shape;
  Values values = Values::matrix;

  [[nodiscard]] Index elements() const {
    Index n = 1;
    for (const Index d : shape) n *= d;
    return n;
  }
  [[nodiscard]] Index bytes() const { return elements() * size_of(dtype); }
};

/// The tensors of a network, matrices stored as `format`.
class TensorList {
 public:
  TensorList(const qwenlite::ModelConfig& config, qwenlite::Format format)
      : config_(config), dtype_(dtype_of(format)) {
    matrix("model.embed_tokens", config.vocab_size, config.hidden_size);
    norm("model.norm", config.hidden_size);
    for (Index layer = 0; layer < config.num_hidden_layers; ++layer) add_layer(layer);
    // As the published files are: larger elements first, then by name.
    std::sort(tensors_.begin(), tensors_.end(), [](const RandomTensor& a, const RandomTensor& b) {
      if (size_of(a.dtype) != size_of(b.dtype)) return size_of(a.dtype) > size_of(b.dtype);
      return a.name < b.name;
    });
  }
  [[nodiscard]] const std::vector<RandomTensor>& tensors() const { return tensors_; }

 private:
  [[nodiscard]] static DType dtype_of(qwenlite::Format format) {
    if (format == qwenlite::Format::f32) return DType::f32;
    return format == qwenlite::Format::f16 ? DType::f16 : DType::bf16;
  }
  void matrix(const std::string& name, Index rows, Index cols) {
    tensors_.push_back({name + ".weight", dtype_, {rows, cols}});
  }
  void norm(const std::string& name, Index size) {
    tensors_.push_back({name + ".weight", dtype_, {size}, Values::norm});
  }

  void add_layer(Index layer) {
    const auto& c = config_;
    const std::string scope = "model.layers." + std::to_string(layer) + ".";
    norm(scope + "input_layernorm", c.hidden_size);
    norm(scope + "post_attention_layernorm", c.hidden_size);
    matrix(scope + "mlp.gate_proj", c.intermediate_size, c.hidden_size);
    matrix(scope + "mlp.up_proj", c.intermediate_size, c.hidden_size);
    matrix(scope + "mlp.down_proj", c.hidden_size, c.intermediate_size);
    const bool linear =
        c.layer_types[static_cast<std::size_t>(layer)] == qwenlite::LayerType::linear_attention;
    if (linear)
      add_delta(scope + "linear_attn.");
    else
      add_attention(scope + "self_attn.");
  }

  void add_attention(const std::string& scope) {
    const auto& c = config_;
    const Index gate = c.model_type == "qwen3_5" ? 2 : 1;
    const Index query = c.num_attention_heads * c.head_dim;
    const Index kv = c.num_key_value_heads * c.head_dim;
    matrix(scope + "q_proj", gate * query, c.hidden_size);
    matrix(scope + "k_proj", kv, c.hidden_size);
    matrix(scope + "v_proj", kv, c.hidden_size);
    matrix(scope + "o_proj", c.hidden_size, query);
    norm(scope + "q_norm", c.head_dim);
    norm(scope + "k_norm", c.head_dim);
  }

  void add_delta(const std::string& scope) {
    const auto& c = config_;
    const Index value = c.linear_num_value_heads * c.linear_value_head_dim;
    const Index channels = 2 * c.linear_num_key_heads * c.linear_key_head_dim + value;
    matrix(scope + "in_proj_qkv", channels, c.hidden_size);
    matrix(scope + "in_proj_z", value, c.hidden_size);
    matrix(scope + "in_proj_b", c.linear_num_value_heads, c.hidden_size);
    matrix(scope + "in_proj_a", c.linear_num_value_heads, c.hidden_size);
    matrix(scope + "out_proj", c.hidden_size, value);
    tensors_.push_back({scope + "conv1d.weight", dtype_, {channels, 1, c.linear_conv_kernel_dim}});
    tensors_.push_back({scope + "dt_bias", dtype_, {c.linear_num_value_heads}});
    tensors_.push_back({scope + "A_log", DType::f32, {c.linear_num_value_heads}, Values::a_log});
    tensors_.push_back({scope + "norm.weight", DType::f32, {c.linear_value_head_dim}, Values::norm});
  }

  qwenlite::ModelConfig config_;
  DType dtype_;
  std::vector<RandomTensor> tensors_;
};

/// The JSON header of a safetensors file, padded so that data begins `past_line` bytes past a 64-byte line.
[[nodiscard]] inline std::string safetensors_header(const std::vector<RandomTensor>& tensors,
                                                    Index past_line) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  Index at = 0;
  for (const RandomTensor& t : tensors) {
    json += ",\"" + t.name + R"(":{"dtype":")" + std::string(name_of(t.dtype)) + R"(","shape":[)";
    for (std::size_t d = 0; d < t.shape.size(); ++d) json += (d > 0 ? "," : "") + std::to_string(t.shape[d]);
    json += R"(],"data_offsets":[)" + std::to_string(at) + "," + std::to_string(at + t.bytes()) + "]}";
    at += t.bytes();
  }
  json += "}";
  while ((static_cast<Index>(json.size()) + 8) % 64 != past_line) json += ' ';
  return json;
}

/// Random bits as a number of 16 (or, in the upper half, of 32) bits: its sign, four binades, its fraction.
[[nodiscard]] inline std::uint16_t random_half(std::uint64_t bits, DType dtype, Values values) {
  const bool f16 = dtype == DType::f16;
  const unsigned fraction_bits = f16 ? 10 : 7;
  const unsigned bias = f16 ? 15 : 127;
  const auto drawn = static_cast<unsigned>(bits & 0xFFFFU);
  const unsigned fraction = drawn >> 3U & ((1U << fraction_bits) - 1U);
  unsigned exponent = bias - 7 + (drawn & 3U);  // 2^-7 to 2^-3
  unsigned sign = drawn >> 15U;
  if (values == Values::norm) {
    exponent = bias - 1;  // 0.5 to 1
    sign = 0;
  } else if (values == Values::a_log) {
    exponent = bias + 1;  // -4 to -2
    sign = 1;
  }
  return static_cast<std::uint16_t>(sign << 15U | exponent << fraction_bits | fraction);
}

/// Fills `bytes` bytes at `out` from `seed`.
inline void fill_random(std::byte* out, Index bytes, std::uint64_t seed, const RandomTensor& tensor) {
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  const bool wide = size_of(tensor.dtype) == 4;
  const auto draw = [&](std::uint64_t bits) { return random_half(bits, tensor.dtype, tensor.values); };
  for (Index at = 0; at < bytes; at += 8) {
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    std::uint16_t four[4] = {draw(state), draw(state >> 16U), draw(state >> 32U), draw(state >> 48U)};
    if (wide) four[0] = four[2] = static_cast<std::uint16_t>(state >> 40U);  // lower halves of two floats
    std::memcpy(out + at, four, static_cast<std::size_t>(std::min<Index>(8, bytes - at)));
  }
}

/// Writes a file to the disk, forgets its pages and reads it again from end to end: it then lies in memory as
/// a file from another day does, in pages as large as the system reads ahead, not in those it was written in.
inline void read_anew(int file) {
  if (fsync(file) != 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) return;
  std::vector<std::byte> piece(std::size_t{1} << 20U);
  for (off_t at = 0;;) {
    const ssize_t got = pread(file, piece.data(), piece.size(), at);
    if (got <= 0) return;
    at += got;
  }
}

/// Writes model.safetensors. Throws qwenlite::Error when the system refuses.
inline void write_random_tensors(const std::filesystem::path& path, const std::vector<RandomTensor>& tensors,
                                 const std::string& header) {
  Index total = static_cast<Index>(header.size()) + 8;
  for (const RandomTensor& t : tensors) total += t.bytes();
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  const bool sized = file >= 0 && ftruncate(file, total) == 0;
  void* const mapped =
      sized ? mmap(nullptr, static_cast<std::size_t>(total), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
            : MAP_FAILED;
  if (mapped == MAP_FAILED) {
    if (file >= 0) close(file);
    throw qwenlite::Error(qwenlite::ErrorCode::io, path.string(), "cannot be written", "room for it");
  }
  auto* const bytes = static_cast<std::byte*>(mapped);
  const std::uint64_t length = header.size();
  std::memcpy(bytes, &length, 8);
  std::memcpy(bytes + 8, header.data(), header.size());
  std::byte* data = bytes + 8 + header.size();
  qwenlite::ThreadPool pool;
  std::uint64_t seed = 1;
  for (const RandomTensor& t : tensors) {
    constexpr Index piece = Index{1} << 20U;
    auto task = [&](Index i, int /*worker*/) {
      fill_random(data + i * piece, std::min(piece, t.bytes() - i * piece),
                  seed + static_cast<std::uint64_t>(i), t);
    };
    const Index pieces = qwenlite::ceil_div(t.bytes(), piece);
    pool.run(pieces, qwenlite::TaskRef(task));
    seed += static_cast<std::uint64_t>(pieces);
    data += t.bytes();
  }
  munmap(mapped, static_cast<std::size_t>(total));
  read_anew(file);
  close(file);
}

/// Writes config.json and model.safetensors into an existing directory.
inline void write_random_checkpoint(const std::filesystem::path& directory, const BuiltInShape& shape,
                                    qwenlite::Format format) {
  std::vector<std::string> warnings;
  const qwenlite::ModelConfig config =
      qwenlite::parse_model_config({shape.config, std::string(shape.name)}, warnings);
  std::ofstream(directory / "config.json") << shape.config << '\n';
  const TensorList list(config, format);
  write_random_tensors(directory / "model.safetensors", list.tensors(),
                       safetensors_header(list.tensors(), shape.first_byte_past_line));
}

/// Such a directory, removed with the object.
class RandomCheckpoint {
 public:
  RandomCheckpoint(const BuiltInShape& shape, qwenlite::Format format) {
    write_random_checkpoint(directory_.path(), shape, format);
  }
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
};

}  // namespace bench
