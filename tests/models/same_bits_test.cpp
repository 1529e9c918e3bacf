// SPDX-License-Identifier: Apache-2.0
//
// The logits of a sequence have the same bits alone or beside others, in any chunks, token by token, after
// cutting back, on any number of threads, and in any cache of the same format.
#include "../../examples/block_cache.hpp"
#include "models/ways.hpp"

namespace ql = qwenlite;
using namespace models_test;

static_assert(ql::KvPolicy<BlockCache>);

namespace {

const std::string checkpoint = "qwen3-tiny";

/// The sizes of that checkpoint as a type.
struct TinyShape : ql::Qwen3Family {
  static constexpr std::string_view name = "TinyShape";
  ql::Fixed<64> hidden_size;
  ql::Fixed<4> num_hidden_layers;
  ql::Fixed<4> num_attention_heads;
  ql::Fixed<2> num_key_value_heads;
  ql::Fixed<32> head_dim;
  ql::Fixed<160> intermediate_size;
  ql::Runtime vocab_size;
};

template <class Network = ql::Model<ql::Qwen3>>
Network open_network(const Way& way, Index chunk = 512, int threads = 1,
                     ql::KvFormat format = ql::KvFormat::bf16) {
  return Network(
      ql::Checkpoint(checkpoint_path(checkpoint)),
      {.threads = threads, .precision = way.precision, .kernels = way.table, .kv = format, .chunk = chunk});
}

}  // namespace

TEST_CASE("logits have the same bits in any chunks, steps and company", "[bits]") {
  const std::vector<int> tokens = random_tokens(100, 1);
  for_each_way([&](const Way& way) {
    const auto whole = open_network(way);
    const Rows expected = at_once(whole, tokens);
    REQUIRE(expected.size() == tokens.size());
    for (const Index chunk : {1, 7, 64}) {
      INFO("chunk " << chunk);
      CHECK(first_difference(at_once(open_network(way, chunk), tokens), expected) == -1);
    }
    for (const Index step : {1, 33}) {
      INFO("step " << step);
      CHECK(first_difference(in_steps(whole, tokens, step), expected) == -1);
    }
    CHECK(first_difference(in_company(whole, tokens, 0), expected) == -1);
    CHECK(first_difference(in_company(whole, tokens, 5), expected) == -1);
    CHECK(first_difference(in_company(open_network(way, 37), tokens, 3), expected) == -1);
  });
}

TEST_CASE("logits have the same bits after cutting back", "[bits]") {
  const std::vector<int> tokens = random_tokens(140, 2);
  const std::vector<int> other = random_tokens(90, 3);
  for_each_way([&](const Way& way) {
    const auto network = open_network(way, 48);
    const Rows expected = at_once(network, tokens);
    for (const Index cut : {0, 1, 63, 64, 100}) {
      INFO("cut " << cut);
      auto session = network.new_session({.max_tokens = 256});
      network.prefill(session, part_of(tokens, 0, cut + 20));
      network.prefill(session, other);
      session.truncate(cut);
      const auto rest = part_of(tokens, cut, 140 - cut);
      const Rows found = copied(network.logits(session, rest, ql::Logits::all));
      CHECK(first_difference(found, Rows(expected.begin() + cut, expected.end())) == -1);
    }
  });
}

TEST_CASE("logits have the same bits on 1, 2 and 5 threads", "[bits][threads]") {
  const std::vector<int> tokens = random_tokens(70, 4);
  for_each_way([&](const Way& way) {
    const Rows expected = at_once(open_network(way), tokens);
    for (const int threads : {2, 5}) {
      INFO(threads << " threads");
      const auto network = open_network(way, 512, threads);
      CHECK(first_difference(at_once(network, tokens), expected) == -1);
      CHECK(first_difference(in_company(network, tokens, 2), expected) == -1);
    }
  });
}

TEST_CASE("logits have the same bits in any cache of the same format", "[bits]") {
  const std::vector<int> tokens = random_tokens(90, 5);
  const ql::KvFormat format = GENERATE(ql::KvFormat::bf16, ql::KvFormat::f32);
  for_each_way([&](const Way& way) {
    const Rows expected = at_once(open_network(way, 512, 1, format), tokens);
    const auto blocks = open_network<ql::Model<ql::Qwen3, BlockCache>>(way, 40, 1, format);
    CHECK(first_difference(at_once(blocks, tokens), expected) == -1);
    CHECK(first_difference(in_steps(blocks, tokens, 30), expected) == -1);

    const auto none = open_network<ql::Model<ql::Qwen3, ql::NoCache>>(way, 40, 1, format);
    CHECK(first_difference(at_once(none, tokens), expected) == -1);
    CHECK(first_difference(in_steps(none, tokens, 30), expected) == -1);
    CHECK(first_difference(in_company(none, tokens, 4), expected) == -1);
    if (format == ql::KvFormat::bf16) {
      const auto fixed = open_network<ql::Model<ql::Qwen3, ql::KvCache<ql::Bf16>>>(way);
      CHECK(first_difference(at_once(fixed, tokens), expected) == -1);
    } else {
      const auto fixed = open_network<ql::Model<ql::Qwen3, ql::KvCache<float>>>(way, 512, 1, format);
      CHECK(first_difference(at_once(fixed, tokens), expected) == -1);
    }
  });
}

TEST_CASE("long sequences have the same bits in prefill and decode", "[bits][long]") {
  const std::vector<int> tokens = random_tokens(1100, 6);  // more than one span of attention
  const std::array<Index, 6> last{1094, 1095, 1096, 1097, 1098, 1099};
  for (const ql::kernels::KernelTable* table : ql::kernels::supported()) {
    INFO(table->name);
    const Way way{table, ql::Precision::exact};
    const auto network = open_network(way);
    auto session = network.new_session({.max_tokens = 1100});
    const Rows expected = copied(network.logits(session, tokens, last));
    session.truncate(1000);
    network.prefill(session, part_of(tokens, 1000, 94));
    Rows found;
    for (Index t = 1094; t < 1100; ++t) {
      found.push_back(copied(network.logits(session, part_of(tokens, t, 1), ql::Logits::last)).front());
    }
    CHECK(first_difference(found, expected) == -1);
  }
}

TEST_CASE("sizes as types or from the file give the same bits", "[bits]") {
  const std::vector<int> tokens = random_tokens(40, 7);
  for_each_way([&](const Way& way) {
    const Rows expected = at_once(open_network(way), tokens);
    CHECK(first_difference(at_once(open_network<ql::Model<TinyShape>>(way), tokens), expected) == -1);
  });
}
