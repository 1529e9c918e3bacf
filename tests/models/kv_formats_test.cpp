// SPDX-License-Identifier: Apache-2.0
//
// Compressed keys and values in whole networks of both families: the same bits in any chunks, steps, company
// and cache, on any number of threads and after cutting back; and logits near those of uncompressed ones.
#include <cmath>

#include "../../examples/block_cache.hpp"
#include "models/ways.hpp"

namespace ql = qwenlite;
using namespace models_test;

namespace {

using Dense = ql::Model<ql::Qwen3>;
using Hybrid = ql::Model<ql::Qwen3_5>;

constexpr ql::KvFormat compressed[] = {ql::KvFormat::int8, ql::KvFormat::fp8, ql::KvFormat::int4};

template <class Network>
std::string checkpoint_of() {
  return checkpoint_path(std::is_same_v<typename Network::Shape, ql::Qwen3> ? "qwen3-tiny" : "qwen3.5-tiny");
}

template <class Network>
Network open_network(const Way& way, ql::KvFormat format, Index chunk = 512, int threads = 1) {
  return Network(
      ql::Checkpoint(checkpoint_of<Network>()),
      {.threads = threads, .precision = way.precision, .kernels = way.table, .kv = format, .chunk = chunk});
}

template <class Network>
void compare_pieces(const Way& way, ql::KvFormat format) {
  const bool brief = is_slow(*way.table);
  const std::vector<int> tokens = random_tokens(brief ? 67 : 100, 1);
  const auto whole = open_network<Network>(way, format);
  const Rows expected = at_once(whole, tokens);
  for (const Index chunk : {1, 7, 64}) {
    if (brief && chunk != 64) continue;
    INFO("chunk " << chunk);
    CHECK(first_difference(at_once(open_network<Network>(way, format, chunk), tokens), expected) == -1);
  }
  CHECK(first_difference(in_steps(whole, tokens, brief ? 33 : 1), expected) == -1);
  if (!brief) CHECK(first_difference(in_company(whole, tokens, 3), expected) == -1);
  for (const int threads : {2, 5}) {
    INFO(threads << " threads");
    const auto network = open_network<Network>(way, format, 512, threads);
    CHECK(first_difference(at_once(network, tokens), expected) == -1);
  }
}

template <class Network>
void compare_cuts(const Way& way, ql::KvFormat format) {
  const std::vector<int> tokens = random_tokens(140, 2);
  const auto network = open_network<Network>(way, format, 48);
  const Rows expected = at_once(network, tokens);
  for (const Index cut : {1, 64, 100}) {
    if (is_slow(*way.table) && cut != 100) continue;
    INFO("cut " << cut);
    auto session = network.new_session({.max_tokens = 256});
    network.prefill(session, part_of(tokens, 0, cut + 20));
    network.prefill(session, random_tokens(90, 3));
    session.truncate(cut);
    const Rows found =
        copied(network.logits(session, part_of(tokens, cut, std::ssize(tokens) - cut), ql::Logits::all));
    CHECK(first_difference(found, Rows(expected.begin() + cut, expected.end())) == -1);
  }
}

/// The same logits from other caches of the same format.
template <class Network, class Other>
void compare_cache(const Way& way, ql::KvFormat format) {
  const std::vector<int> tokens = random_tokens(is_slow(*way.table) ? 20 : 90, 5);
  const Rows expected = at_once(open_network<Network>(way, format), tokens);
  const auto other = open_network<Other>(way, format, 40);
  CHECK(first_difference(at_once(other, tokens), expected) == -1);
  CHECK(first_difference(in_steps(other, tokens, 30), expected) == -1);
}

/// Root of the mean square of a - b, relative to that of b around its mean.
double distance(const Rows& a, const Rows& b) {
  double error = 0;
  double size = 0;
  for (std::size_t t = 0; t < b.size(); ++t) {
    double mean = 0;
    for (const float x : b[t]) mean += static_cast<double>(x) / static_cast<double>(b[t].size());
    for (std::size_t i = 0; i < b[t].size(); ++i) {
      error += std::pow(static_cast<double>(a[t][i]) - static_cast<double>(b[t][i]), 2);
      size += std::pow(static_cast<double>(b[t][i]) - mean, 2);
    }
  }
  return std::sqrt(error / size);
}

template <class Network>
void compare_with_f32() {
  const std::vector<int> tokens = random_tokens(120, 7);
  const ql::kernels::KernelTable* table = ql::kernels::supported().back();
  const Way way{table, ql::Precision::exact};
  const Rows expected = at_once(open_network<Network>(way, ql::KvFormat::f32), tokens);
  const auto off = [&](ql::KvFormat format) {
    return distance(at_once(open_network<Network>(way, format), tokens), expected);
  };
  const double int8 = off(ql::KvFormat::int8);
  const double fp8 = off(ql::KvFormat::fp8);
  const double int4 = off(ql::KvFormat::int4);
  INFO("int8 " << int8 << ", fp8 " << fp8 << ", int4 " << int4);
  CHECK(int8 > 0);
  CHECK(int8 < 0.02);  // random weights: less robust than trained ones
  CHECK(fp8 < 0.08);
  CHECK(int4 < 0.3);
  CHECK(int8 < fp8);
  CHECK(fp8 < int4);
}

template <class F>
void for_each_format(const F& f) {
  for (const ql::KvFormat format : compressed) {
    INFO(name_of(format));
    f(format);
  }
}

}  // namespace

TEST_CASE("compressed keys and values: the same bits in any chunks, steps, company, on any threads",
          "[bits][threads]") {
  for_each_way([&](const Way& way) {
    for_each_format([&](ql::KvFormat format) {
      compare_pieces<Dense>(way, format);
      compare_pieces<Hybrid>(way, format);
    });
  });
}

TEST_CASE("compressed keys and values: the same bits after cutting back", "[bits]") {
  for_each_way([&](const Way& way) {
    for_each_format([&](ql::KvFormat format) {
      compare_cuts<Dense>(way, format);
      compare_cuts<Hybrid>(way, format);
    });
  });
}

TEST_CASE("compressed keys and values: the same bits in any cache of the format", "[bits]") {
  for_each_way([&](const Way& way) {
    for_each_format([&](ql::KvFormat format) {
      compare_cache<Dense, ql::Model<ql::Qwen3, BlockCache>>(way, format);
      compare_cache<Dense, ql::Model<ql::Qwen3, ql::NoCache>>(way, format);
      compare_cache<Hybrid, ql::Model<ql::Qwen3_5, ql::NoCache>>(way, format);
    });
    compare_cache<Dense, ql::Model<ql::Qwen3, ql::KvCache<ql::Int8>>>(way, ql::KvFormat::int8);
  });
}

TEST_CASE("compressed keys and values: logits are near those of float32 ones") {
  SECTION("Qwen3") {
    compare_with_f32<Dense>();
  }
  SECTION("Qwen3.5") {
    compare_with_f32<Hybrid>();
  }
}

TEST_CASE("compressed keys and values: checked operations pass and change nothing") {
  const std::vector<int> tokens = random_tokens(70, 9);
  for_each_way([&](const Way& way) {
    if (is_slow(*way.table)) return;
    for_each_format([&](ql::KvFormat format) {
      ql::OpenOptions options{.threads = 2, .precision = way.precision, .kernels = way.table, .kv = format};
      const Dense plain(ql::Checkpoint(checkpoint_of<Dense>()), options);
      options.check = true;
      const Dense checked(ql::Checkpoint(checkpoint_of<Dense>()), options);
      Rows found;
      REQUIRE_NOTHROW(found = at_once(checked, tokens));
      CHECK(first_difference(found, at_once(plain, tokens)) == -1);
    });
  });
}

TEST_CASE("compressed keys and values leave the recurrent state as it is, and are told") {
  const ql::kernels::KernelTable* table = ql::kernels::supported().back();
  const Way way{table, table->default_precision};
  const auto bytes = [&](ql::KvFormat format) {
    const auto network = open_network<Hybrid>(way, format);
    const auto session = network.new_session({.max_tokens = 640, .own_scratch = false});
    CHECK(network.explain({.max_tokens = 640}).kv == name_of(format));
    return std::pair(session.kv_capacity_bytes(), session.bytes() - session.kv_capacity_bytes());
  };
  const auto wide = bytes(ql::KvFormat::bf16);
  const auto narrow = bytes(ql::KvFormat::int8);
  CHECK(narrow.second == wide.second);
  CHECK(narrow.first * 64 == wide.first * (32 + 4));  // heads of 32, and a scale
  CHECK(Hybrid(ql::Checkpoint(checkpoint_of<Hybrid>())).kv_format() == ql::KvFormat::bf16);
}
