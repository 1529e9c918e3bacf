// SPDX-License-Identifier: Apache-2.0
//
// Packed matrices made in memory: sizes that files of fixtures do not have, what zero points mean, and each
// way in which a file can be wrong.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include <qwenlite/checkpoint/checkpoint.hpp>

#include "checkpoint/packed_fixtures.hpp"

using namespace fixtures;
using namespace qwenlite;

namespace {

/// A tensor with its bytes.
struct Owned {
  DType dtype;
  Shape shape;
  Bytes bytes;
};

template <class T>
Owned tensor_of(DType dtype, const Shape& shape, const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return {dtype, shape, bytes};
}

/// The packed tensors of one matrix "model.layers.0.mlp.up_proj.weight" by suffix, and its configuration.
class Sample {
 public:
  Index rows = 0;
  Index cols = 0;
  QuantisationConfig config;
  std::vector<std::pair<std::string, Owned>> tensors;

  Owned& operator[](const std::string& suffix) {
    for (auto& [name, tensor] : tensors) {
      if (name == suffix) return tensor;
    }
    return tensors.emplace_back(suffix, Owned{}).second;
  }
  void erase(const std::string& suffix) {
    std::erase_if(tensors, [&](const auto& each) { return each.first == suffix; });
  }

  /// Opens the tensors as a file, finds the matrix and unpacks it.
  UnpackedMatrix open() {
    const TemporaryDirectory place;
    std::vector<NamedTensor> named;
    for (const auto& [suffix, tensor] : tensors) {
      named.push_back({module + suffix, {tensor.bytes.data(), tensor.dtype, tensor.shape}});
    }
    write_safetensors(place.path() / "model.safetensors", named);
    files_ = std::make_shared<const TensorFiles>(ModelDirectory(place.path()), ReadMode::read);
    const PackedTensors packed(files_, config);
    REQUIRE(packed.has(module + ".weight"));
    return unpack(packed.matrix(module + ".weight", rows, cols));
  }

  static inline const std::string module = "model.layers.0.mlp.up_proj";

 private:
  std::shared_ptr<const TensorFiles> files_;
};

/// GPTQ: number u of row r, column i is number(r, i); all stored zero points are `zero`, all scales 1.
Sample gptq(Index rows, Index cols, Index bits, Index group, int zero,
            const std::function<int(Index, Index)>& number) {
  Sample sample;
  sample.rows = rows;
  sample.cols = cols;
  sample.config.method = QuantMethod::gptq;
  sample.config.place = "'config.json': field 'quantization_config'";
  sample.config.bits = bits;
  sample.config.group_size = group;
  sample.config.zeros_less_one = true;
  const Index per_word = 32 / bits;
  const Index groups = ceil_div(cols, group < 0 ? cols : group);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(cols / per_word * rows), 0);
  for (Index r = 0; r < rows; ++r) {
    for (Index i = 0; i < cols; ++i) {
      words[static_cast<std::size_t>(i / per_word * rows + r)] |=
          static_cast<std::uint32_t>(number(r, i)) << static_cast<unsigned>(i % per_word * bits);
    }
  }
  std::uint32_t zeros = 0;
  for (Index j = 0; j < per_word; ++j)
    zeros |= static_cast<std::uint32_t>(zero) << static_cast<unsigned>(j * bits);
  const Index wide = ceil_div(rows, per_word);
  sample[".qweight"] = tensor_of(DType::i32, {cols / per_word, rows}, words);
  sample[".qzeros"] = tensor_of(DType::i32, {groups, wide},
                                std::vector<std::uint32_t>(static_cast<std::size_t>(groups * wide), zeros));
  sample[".scales"] = tensor_of(DType::f16, {groups, rows},
                                std::vector<F16>(static_cast<std::size_t>(groups * rows), F16(1.0F)));
  return sample;
}

int cycle(Index r, Index i) {
  return static_cast<int>((r + i) % 16);
}

Sample plain_gptq() {
  return gptq(8, 32, 4, 32, 7, cycle);
}

template <class T>
void put(Owned& tensor, std::size_t i, T value) {
  std::memcpy(tensor.bytes.data() + i * sizeof(T), &value, sizeof(T));
}

void expect_bad(Sample sample, std::initializer_list<std::string> parts,
                const std::function<void(Sample&)>& damage) {
  damage(sample);
  expect_error(ErrorCode::bad_tensor, parts, [&] { (void)sample.open(); });
}

}  // namespace

TEST_CASE("zero points of GPTQ: 7 less one, 8 as they are, and labels that are wrong") {
  struct Case {
    int stored;
    bool less_one;
    std::optional<bool> symmetric;
    int zero;
    std::optional<PackedOddity> oddity;
  };
  for (const Case& c :
       {Case{7, true, true, 8, {}}, Case{8, false, true, 8, {}},
        Case{8, true, true, 8, PackedOddity::mislabelled_zeros},
        Case{7, false, true, 8, PackedOddity::mislabelled_zeros},
        Case{8, true, {}, 8, PackedOddity::mislabelled_zeros},
        Case{3, true, true, 8, PackedOddity::ignored_zeros}, Case{3, true, false, 4, {}},
        Case{3, false, false, 3, {}}, Case{3, true, {}, 4, {}}, Case{7, true, false, 8, {}}}) {
    INFO(c.stored << (c.less_one ? " less one" : "") << " zero " << c.zero);
    Sample sample = gptq(8, 32, 4, 32, c.stored, cycle);
    sample.config.zeros_less_one = c.less_one;
    sample.config.symmetric = c.symmetric;
    const UnpackedMatrix made = sample.open();
    for (Index r = 0; r < 8; ++r) {
      for (Index i = 0; i < 32; ++i)
        REQUIRE(decode(made.view, r, i) == static_cast<float>(cycle(r, i) - c.zero));
    }
    for (Index i = 0; i < packed_oddities; ++i) {
      CHECK(made.odd[i] == (c.oddity && static_cast<Index>(*c.oddity) == i));
    }
  }
}

TEST_CASE("zero points of GPTQ of which nobody can tell what they mean are an error") {
  const auto with = [](int stored, bool less_one) {
    Sample sample = gptq(16, 32, 4, 32, stored, cycle);
    sample.config.zeros_less_one = less_one;
    sample.config.symmetric = false;
    return sample;
  };
  expect_bad(with(8, true), {"'model.layers.0.mlp.up_proj.weight'", "ambiguous", "all 8", "'gptq'"},
             [](Sample&) {});
  expect_bad(with(7, false), {"ambiguous", "all 7", "'gptq_v2'"}, [](Sample&) {});
  expect_bad(with(15, true), {"ambiguous", "16 or 0"}, [](Sample&) {});

  // Weights about zero with zero points of the other version: their mean is off by one step.
  std::mt19937 random(5);
  std::normal_distribution<double> spread(9.0, 2.0);
  const auto number = [&](Index, Index) {
    return std::clamp(static_cast<int>(std::lround(spread(random))), 0, 15);
  };
  Sample asymmetric = gptq(64, 128, 4, 32, 9, number);
  asymmetric.config.symmetric = false;
  expect_bad(asymmetric, {"ambiguous", "mean is off by one step", "'gptq_v2'"}, [](Sample&) {});
  asymmetric.config.zeros_less_one = false;
  CHECK(decode(asymmetric.open().view, 0, 0) > -9);
}

TEST_CASE("GPTQ in any size of groups, bits and order") {
  for (const Index bits : {4, 8}) {
    for (const Index group : {Index{32}, Index{64}, Index{128}, Index{256}, Index{16}, Index{-1}}) {
      const Index cols = 320;
      INFO(bits << " bits in groups of " << group);
      const auto number = [&](Index r, Index i) { return static_cast<int>((r * 7 + i * 3) % (1 << bits)); };
      Sample sample = gptq(40, cols, bits, group, (1 << (bits - 1)) - 1, number);
      const Index groups = ceil_div(cols, group < 0 ? cols : group);
      for (Index g = 0; g < groups; ++g) {
        for (Index r = 0; r < 40; ++r) {
          put(sample[".scales"], static_cast<std::size_t>(g * 40 + r),
              F16(0.25F * static_cast<float>(g + 1)));
        }
      }
      const UnpackedMatrix made = sample.open();
      CHECK((made.view.format == Format::f32) == (group == 16));
      CHECK(made.odd[static_cast<std::size_t>(PackedOddity::other_groups)] == (group == 16));
      for (Index r = 0; r < 40; ++r) {
        for (Index i = 0; i < cols; ++i) {
          const auto g = static_cast<float>(group < 0 ? 0 : i / group);
          REQUIRE(decode(made.view, r, i) ==
                  static_cast<float>(number(r, i) - (1 << (bits - 1))) * 0.25F * (g + 1));
        }
      }
    }
  }
  Sample order = gptq(8, 64, 4, 32, 7, cycle);
  std::vector<std::int32_t> group_of;
  for (std::int32_t i = 0; i < 64; ++i) group_of.push_back(1 - i % 2);
  order[".g_idx"] = tensor_of(DType::i32, {64}, group_of);
  for (std::size_t r = 0; r < 8; ++r) put(order[".scales"], r, F16(3.0F));
  const UnpackedMatrix made = order.open();
  CHECK(decode(made.view, 2, 5) == static_cast<float>(7 - 8) * 3.0F);
  CHECK(decode(made.view, 2, 6) == static_cast<float>(8 - 8));
  CHECK(decode(made.view, 2, 8) == static_cast<float>(10 - 8));
}

TEST_CASE("scales that float16 does not hold give float32") {
  Sample sample = plain_gptq();
  std::vector<float> scales(8, 1.0F / 3);
  sample[".scales"] = tensor_of(DType::f32, {1, 8}, scales);
  const UnpackedMatrix made = sample.open();
  CHECK(made.view.format == Format::f32);
  CHECK(made.odd[static_cast<std::size_t>(PackedOddity::other_scales)]);
  CHECK(decode(made.view, 1, 4) == -3 * (1.0F / 3));
  sample[".scales"] = tensor_of(DType::bf16, {1, 8}, std::vector<Bf16>(8, Bf16(0.0126953125F)));
  CHECK(sample.open().view.format == Format::int4);
}

TEST_CASE("AWQ: the order of columns in a word, in numbers and zero points") {
  Sample sample;
  sample.rows = 8;
  sample.cols = 32;
  sample.config.method = QuantMethod::awq;
  sample.config.bits = 4;
  sample.config.group_size = 32;
  sample[".qweight"] = tensor_of(DType::i32, {32, 1}, std::vector<std::uint32_t>(32, 0x76543210U));
  sample[".qzeros"] = tensor_of(DType::i32, {1, 1}, std::vector<std::uint32_t>(1, 0x11111111U));
  sample[".scales"] = tensor_of(DType::f16, {1, 8}, std::vector<F16>(8, F16(1.0F)));
  const std::array<int, 8> numbers{0, 4, 1, 5, 2, 6, 3, 7};
  const UnpackedMatrix ones = sample.open();
  for (Index r = 0; r < 8; ++r) {
    CHECK(decode(ones.view, r, 3) == static_cast<float>(numbers[static_cast<std::size_t>(r)] - 1));
  }
  sample[".qzeros"] = tensor_of(DType::i32, {1, 1}, std::vector<std::uint32_t>(1, 0x76543210U));
  const UnpackedMatrix zeros = sample.open();
  for (Index r = 0; r < 8; ++r) CHECK(decode(zeros.view, r, 9) == 0);
  expect_bad(sample, {".qzeros'", "none"}, [](Sample& s) { s.erase(".qzeros"); });
  expect_bad(sample, {".qweight'", "shape [16, 1]", "shape [32, 1]"}, [](Sample& s) {
    s[".qweight"] = tensor_of(DType::i32, {16, 1}, std::vector<std::uint32_t>(16, 0));
  });
}

namespace {

Sample fp8(Index rows, Index cols, DType dtype) {
  Sample sample;
  sample.rows = rows;
  sample.cols = cols;
  sample.config.method = QuantMethod::fp8;
  sample.config.block_rows = sample.config.block_cols = 128;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * cols), 0x38);  // 1.0
  const Shape shape{ceil_div(rows, 128), ceil_div(cols, 128)};
  const auto count = static_cast<std::size_t>(shape[0] * shape[1]);
  std::vector<float> wide;
  for (std::size_t i = 0; i < count; ++i) wide.push_back(0.5F * static_cast<float>(i + 1));
  std::vector<F16> half;
  std::vector<Bf16> brain;
  for (const float scale : wide) half.emplace_back(scale);
  for (const float scale : wide) brain.emplace_back(scale);
  sample[".weight"] = tensor_of(DType::f8_e4m3, {rows, cols}, codes);
  sample[".weight_scale_inv"] = dtype == DType::f32   ? tensor_of(dtype, shape, wide)
                                : dtype == DType::f16 ? tensor_of(dtype, shape, half)
                                                      : tensor_of(dtype, shape, brain);
  return sample;
}

}  // namespace

TEST_CASE("FP8: a block's scale multiplies, up to its last row and column") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Sample sample = fp8(130, 200, dtype);
    const UnpackedMatrix made = sample.open();
    CHECK((made.view.format == Format::fp8));
    CHECK_FALSE(made.mapped);
    CHECK(decode(made.view, 127, 127) == 0.5F);
    CHECK(decode(made.view, 127, 128) == 1.0F);
    CHECK(decode(made.view, 128, 127) == 1.5F);
    CHECK(decode(made.view, 129, 199) == 2.0F);
  }
  Sample whole = fp8(130, 256, DType::bf16);
  CHECK(whole.open().mapped);
  put(whole[".weight"], 0, std::uint8_t{0x7F});
  CHECK(std::isnan(decode(whole.open().view, 0, 0)));
  const Sample good = fp8(8, 128, DType::f32);
  expect_bad(good, {".weight_scale_inv'", "none"}, [](Sample& s) { s.erase(".weight_scale_inv"); });
  expect_bad(good, {".weight'", "dtype BF16"}, [](Sample& s) {
    s[".weight"] = tensor_of(DType::bf16, {8, 128}, std::vector<Bf16>(8 * 128));
  });
  expect_bad(good, {".weight_scale_inv'", "shape [2, 1]", "shape [1, 1]"}, [](Sample& s) {
    s[".weight_scale_inv"] = tensor_of(DType::f32, {2, 1}, std::vector<float>(2, 1.0F));
  });
  for (const float bad : {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    expect_bad(good, {"scale of row 0, group 0", "a positive number"},
               [&](Sample& s) { put(s[".weight_scale_inv"], 0, bad); });
  }
}

TEST_CASE("wrong packed tensors are one error that names the tensor and both sides") {
  const Sample good = plain_gptq();
  using Values = std::vector<std::uint32_t>;
  expect_bad(good, {"up_proj.scales'", "none", "shape [1, 8]"}, [](Sample& s) { s.erase(".scales"); });
  expect_bad(good, {"up_proj.scales'", "dtype I32", "F16 or BF16 or F32"}, [](Sample& s) {
    s[".scales"] = tensor_of(DType::i32, {1, 8}, Values(8));
  });
  expect_bad(good, {"up_proj.scales'", "shape [2, 8]", "shape [1, 8]"}, [](Sample& s) {
    s[".scales"] = tensor_of(DType::f16, {2, 8}, std::vector<F16>(16));
  });
  expect_bad(good, {"up_proj.qweight'", "shape [8, 8]", "shape [4, 8]"}, [](Sample& s) {
    s[".qweight"] = tensor_of(DType::i32, {8, 8}, Values(64));
  });
  expect_bad(good, {"up_proj.qweight'", "shape [0, 8]"}, [](Sample& s) {
    s[".qweight"] = tensor_of(DType::i32, {0, 8}, Values());
  });
  expect_bad(good, {"up_proj.qweight'", "shape [32]"},
             [](Sample& s) { s[".qweight"] = tensor_of(DType::i32, {32}, Values(32)); });
  expect_bad(good, {"up_proj.qzeros'", "shape [1, 2]", "shape [1, 1]"}, [](Sample& s) {
    s[".qzeros"] = tensor_of(DType::i32, {1, 2}, Values(2));
  });
  expect_bad(good, {"up_proj.qzeros'", "none", "sym is false"}, [](Sample& s) {
    s.erase(".qzeros");
    s.config.symmetric = false;
  });
  expect_bad(good, {"up_proj.g_idx'", "none", "desc_act is true"}, [](Sample& s) {
    s = gptq(8, 64, 4, 32, 7, cycle);
    s.config.act_order = true;
  });
  for (const std::int32_t group : {-1, 1, std::numeric_limits<std::int32_t>::max()}) {
    expect_bad(good, {"the group of column 31", std::to_string(group)}, [&](Sample& s) {
      std::vector<std::int32_t> groups(32, 0);
      groups.back() = group;
      s[".g_idx"] = tensor_of(DType::i32, {32}, groups);
    });
  }
  for (const float scale : {std::numeric_limits<float>::infinity(), std::nanf(""), 1e37F}) {
    expect_bad(good, {"scale of row 3, group 0", "a finite number"}, [&](Sample& s) {
      std::vector<float> scales(8, 1);
      scales[3] = scale;
      s[".scales"] = tensor_of(DType::f32, {1, 8}, scales);
    });
  }
  expect_bad(good, {"up_proj.weight'", "plainly", "one of them"}, [](Sample& s) {
    s[".weight"] = tensor_of(DType::bf16, {8, 32}, std::vector<Bf16>(256));
  });
  expect_bad(good, {"up_proj.qweight'", "a packed matrix", "plain one by the rules of 'config.json'"},
             [](Sample& s) { s.config.rules.push_back({.pattern = "mlp.up_proj", .skips = true}); });
  Sample negative = plain_gptq();
  put(negative[".scales"], 0, F16(-2.0F));
  put(negative[".scales"], 1, F16(0.0F));
  CHECK(decode(negative.open().view, 0, 9) == -2);
  CHECK(decode(negative.open().view, 1, 9) == 0);
}

TEST_CASE("a matrix of our own form says by its sizes what it is") {
  Sample sample;
  sample.rows = 3;
  sample.cols = 200;
  sample.config.method = QuantMethod::own;
  sample[".weight.values"] = tensor_of(DType::u8, {3, 128}, std::vector<std::uint8_t>(3 * 128, 0x99));
  for (const Index groups : {2, 4, 7}) {
    sample[".weight.scales"] =
        tensor_of(DType::f16, {3, groups}, std::vector<F16>(static_cast<std::size_t>(3 * groups), F16(2.0F)));
    const UnpackedMatrix made = sample.open();
    CHECK((made.view.format == Format::int4));
    CHECK(ceil_div(200, made.view.planes.group) == groups);
    CHECK(decode(made.view, 2, 199) == 2.0F);
  }
  const std::string shapes = "expected shape [3, 2] or [3, 4] or [3, 7]";
  expect_bad(sample, {".weight.scales'", "found shape [3, 3]", shapes}, [](Sample& s) {
    s[".weight.scales"] = tensor_of(DType::f16, {3, 3}, std::vector<F16>(9));
  });
  expect_bad(sample, {".weight.scales'", "found shape [21]", shapes},
             [](Sample& s) { s[".weight.scales"] = tensor_of(DType::f16, {21}, std::vector<F16>(21)); });
  expect_bad(sample, {".weight.scales'", "found none", shapes}, [](Sample& s) { s.erase(".weight.scales"); });
  const auto odd_width = [](Sample& s) {
    s[".weight.values"] = tensor_of(DType::u8, {3, 127}, std::vector<std::uint8_t>(3 * 127));
  };
  expect_bad(sample,
             {".weight.values'", "found shape [3, 127]", "shape [3, 256] for int8 or [3, 128] for int4"},
             odd_width);
  sample.config.weights = "int4:64";
  expect_bad(sample,
             {".weight.values'", "found shape [3, 127]",
              "expected shape [3, 128] for int4 in groups of 64, which is 'weights'"},
             odd_width);
  sample.config.weights.clear();
  expect_bad(sample, {".weight.zeros'", "shape [3, 1]"}, [](Sample& s) {
    s[".weight.zeros"] = tensor_of(DType::u8, {3, 1}, std::vector<std::uint8_t>(3));
  });
  for (const Index at : {0, 5, 17, 20}) {  // of words and behind the last whole one
    const Index group = at % 7;
    const std::string place = "row " + std::to_string(at / 7) + ", group " + std::to_string(group);
    expect_bad(sample,
               {"'model.layers.0.mlp.up_proj.weight", "zero point of " + place, "found 16", "0 to 15"},
               [&](Sample& s) {
                 std::vector<std::uint8_t> zeros(21, 15);
                 zeros[static_cast<std::size_t>(at)] = 16;
                 s[".weight.zeros"] = tensor_of(DType::u8, {3, 7}, zeros);
               });
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
      expect_bad(sample,
                 {"up_proj.weight", "scale of " + place, std::isnan(bad) ? "NaN" : "infinity", "finite"},
                 [&](Sample& s) { put(s[".weight.scales"], static_cast<std::size_t>(at), F16(bad)); });
    }
  }
  for (const float good : {65504.0F, -65504.0F, 0.0F}) {
    put(sample[".weight.scales"], 20, F16(good));
    CHECK(decode(sample.open().view, 2, 199) == good);
  }
  sample[".weight.values"] = tensor_of(DType::u8, {3, 256}, std::vector<std::uint8_t>(3 * 256, 130));
  sample[".weight.scales"] = tensor_of(DType::f16, {3, 1}, std::vector<F16>(3, F16(1.0F)));
  CHECK(decode(sample.open().view, 2, 199) == 2.0F);
  expect_bad(sample, {".weight.scales'", shapes + " or [3, 1]"}, [](Sample& s) {
    s[".weight.scales"] = tensor_of(DType::f16, {3, 3}, std::vector<F16>(9));
  });
}
