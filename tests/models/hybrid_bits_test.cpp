// SPDX-License-Identifier: Apache-2.0
//
// Qwen3.5: the logits of a sequence have the same bits in any chunks (shorter than the convolution, around
// the delta rule's chunk of 64, whole), token by token, beside others, after cutting back to any length, on
// any number of threads, and without any cache.
#include "models/ways.hpp"

namespace ql = qwenlite;
using namespace models_test;

namespace {

using Hybrid = ql::Model<ql::Qwen3_5>;
using Uncached = ql::Model<ql::Qwen3_5, ql::NoCache>;

static_assert(std::is_same_v<Hybrid::State, ql::DeltaState<>> &&
              std::is_same_v<Uncached::State, ql::NoState>);
static_assert(ql::DeltaPolicy<ql::DeltaState<>> && ql::DeltaPolicy<ql::NoState>);
static_assert(!ql::DeltaPolicy<ql::Stateless>);
static_assert(ql::ModelShape<ql::Qwen3_5> && ql::ModelShape<ql::Qwen3_5_0_8B>);

/// The sizes of qwen3.5-tiny as a type.
struct TinyShape : ql::Qwen3_5Family {
  static constexpr std::string_view name = "TinyShape";
  ql::Fixed<64> hidden_size;
  ql::Fixed<8> num_hidden_layers;
  ql::Fixed<4> num_attention_heads;
  ql::Fixed<2> num_key_value_heads;
  ql::Fixed<32> head_dim;
  ql::Fixed<128> intermediate_size;
  ql::Runtime vocab_size;
  ql::Fixed<4> linear_num_key_heads;
  ql::Fixed<4> linear_num_value_heads;
  ql::Fixed<32> linear_key_head_dim;
  ql::Fixed<32> linear_value_head_dim;
  ql::Fixed<4> linear_conv_kernel_dim;
};

template <class Network = Hybrid>
Network open_network(const std::string& name, const Way& way, Index chunk = 512, int threads = 1) {
  return Network(ql::Checkpoint(checkpoint_path(name)),
                 {.threads = threads, .precision = way.precision, .kernels = way.table, .chunk = chunk});
}

/// The rows [n, n + count) of a result.
Rows rows_of(const Rows& all, Index n, Index count) {
  return Rows(all.begin() + n, all.begin() + n + count);
}

void compare_pieces(const std::string& name, const Way& way, bool brief) {
  const std::vector<int> tokens = random_tokens(brief ? 67 : 140, 1);
  const auto whole = open_network(name, way);
  const Rows expected = at_once(whole, tokens);
  REQUIRE(expected.size() == tokens.size());
  for (const Index chunk : {1, 3, 63, 64, 65}) {
    INFO("chunk " << chunk);
    if (chunk != 65 && brief) continue;
    CHECK(first_difference(at_once(open_network(name, way, chunk), tokens), expected) == -1);
  }
  for (const Index step : {1, 2, 65}) {
    INFO("step " << step);
    if (step == 1 && brief) continue;
    CHECK(first_difference(in_steps(whole, tokens, step), expected) == -1);
  }
  if (brief) return;
  CHECK(first_difference(in_company(whole, tokens, 0), expected) == -1);
  CHECK(first_difference(in_company(open_network(name, way, 37), tokens, 3), expected) == -1);
}

void compare_threads(const std::string& name, const Way& way, bool brief) {
  const std::vector<int> tokens = random_tokens(brief ? 20 : 100, 2);
  const Rows expected = at_once(open_network(name, way), tokens);
  for (const int threads : {2, 5}) {
    INFO(threads << " threads");
    const auto network = open_network(name, way, 512, threads);
    CHECK(first_difference(at_once(network, tokens), expected) == -1);
    if (threads == 5) CHECK(first_difference(in_company(network, tokens, 2), expected) == -1);
  }
}

void compare_cuts(const std::string& name, const Way& way, bool brief) {
  const std::vector<int> tokens = random_tokens(203, 3);
  const auto network = open_network(name, way);
  const Rows expected = at_once(network, tokens);
  auto session = network.new_session({.max_tokens = 256});
  for (Index n = 199; n >= 70; n -= brief ? 86 : 1) {
    INFO("cut to " << n);
    if (session.length() > 200) session.truncate(200);
    if (session.length() < 200) {
      network.prefill(session, part_of(tokens, session.length(), 200 - session.length()));
    }
    session.truncate(n);
    REQUIRE(session.length() == n);
    const Rows found = copied(network.logits(session, part_of(tokens, n, 3), ql::Logits::all));
    CHECK(first_difference(found, rows_of(expected, n, 3)) == -1);
  }
  session.truncate(0);
  const Rows found = copied(network.logits(session, part_of(tokens, 0, 2), ql::Logits::all));
  CHECK(first_difference(found, rows_of(expected, 0, 2)) == -1);
}

/// Places anywhere are remembered on the way; then the sequence goes back to each of them, twice.
void compare_snapshots(const std::string& name, const Way& way, bool brief) {
  const std::vector<Index> places =
      brief ? std::vector<Index>{61} : std::vector<Index>{1, 2, 3, 61, 63, 64, 65, 100, 127, 128, 129, 190};
  constexpr Index longest = 70;  // out of the state's own reach
  const Index end = places.back() + longest + 10;
  const std::vector<int> tokens = random_tokens(end, 11);
  const auto network = open_network(name, way);
  const Rows expected = at_once(network, tokens);
  auto session = network.new_session({.max_tokens = end});
  for (const Index place : places) {  // some where the sequence ends, some up to 64 tokens back
    if (session.length() < place) {
      const Index next = std::min(end, place + place % 2 * 60);
      network.prefill(session, part_of(tokens, session.length(), next - session.length()));
    }
    session.remember(place);
  }
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    for (const Index beyond : {longest, Index{3}}) {
      INFO("place " << *place);
      const Index past = *place + longest;
      if (session.length() < past) {
        network.prefill(session, part_of(tokens, session.length(), past - session.length()));
      }
      CHECK(session.truncate(*place) == 0);
      const Rows found = copied(network.logits(session, part_of(tokens, *place, beyond), ql::Logits::all));
      CHECK(first_difference(found, rows_of(expected, *place, beyond)) == -1);
    }
  }
}

}  // namespace

TEST_CASE("Qwen3.5: logits have the same bits in any chunks, steps and company", "[bits]") {
  const std::string name = GENERATE(from_range(hybrid_checkpoints));
  INFO(name);
  for_each_way([&](const Way& way) { compare_pieces(name, way, is_slow(*way.table)); });
}

TEST_CASE("Qwen3.5: logits have the same bits on 1, 2 and 5 threads", "[bits][threads]") {
  const std::string name = GENERATE(from_range(hybrid_checkpoints));
  for_each_way([&](const Way& way) { compare_threads(name, way, is_slow(*way.table)); });
}

TEST_CASE("Qwen3.5: logits have the same bits after cutting back to any of the last 130 tokens",
          "[bits][slow]") {
  const std::string name = GENERATE(from_range(hybrid_checkpoints));
  for_each_way([&](const Way& way) { compare_cuts(name, way, is_slow(*way.table)); });
}

TEST_CASE("Qwen3.5: logits have the same bits after going back to places remembered anywhere", "[bits]") {
  const std::string name = GENERATE(from_range(hybrid_checkpoints));
  for_each_way([&](const Way& way) { compare_snapshots(name, way, is_slow(*way.table)); });
}

TEST_CASE("Qwen3.5: the same bits in every way on emulated AMX too", "[.][thorough]") {
  const std::string name = GENERATE(from_range(hybrid_checkpoints));
  for_each_way([&](const Way& way) {
    if (!is_emulated(*way.table)) return;
    compare_pieces(name, way, false);
    compare_threads(name, way, false);
    compare_cuts(name, way, false);
    compare_snapshots(name, way, false);
  });
}

TEST_CASE("Qwen3.5: walking back one token at a time gives the same bits", "[bits]") {
  const std::vector<int> tokens = random_tokens(150, 4);
  const ql::kernels::KernelTable* table = ql::kernels::supported().back();
  const auto network = open_network("qwen3.5-tiny-gqa", {table, table->default_precision});
  const Rows expected = at_once(network, tokens);
  auto session = network.new_session({.max_tokens = 160});
  network.prefill(session, tokens);
  for (Index n = 149; n >= 20; --n) {
    session.truncate(n);
    const auto row = network.logits(session, part_of(tokens, n, 1));
    REQUIRE(same_bits({row.begin(), row.end()}, expected[static_cast<std::size_t>(n)]));
    session.truncate(n);
  }
}

TEST_CASE("Qwen3.5: logits have the same bits without any cache, and with sizes as types", "[bits]") {
  for_each_way([&](const Way& way) {
    const std::vector<int> tokens = random_tokens(is_slow(*way.table) ? 20 : 80, 5);
    for (const std::string& name : hybrid_checkpoints) {
      const Rows expected = at_once(open_network(name, way), tokens);
      const auto none = open_network<Uncached>(name, way, 40);
      CHECK(first_difference(at_once(none, tokens), expected) == -1);
      CHECK(first_difference(in_steps(none, tokens, 30), expected) == -1);
      if (!is_slow(*way.table)) CHECK(first_difference(in_company(none, tokens, 4), expected) == -1);
    }
    const Rows expected = at_once(open_network("qwen3.5-tiny", way), tokens);
    CHECK(first_difference(at_once(open_network<ql::Model<TinyShape>>("qwen3.5-tiny", way), tokens),
                           expected) == -1);
  });
}

TEST_CASE("Qwen3.5: a state that a failed forward has overwritten is mended by truncate") {
  const ql::kernels::KernelTable* table = ql::kernels::supported().back();
  const auto network = open_network("qwen3.5-tiny", {table, table->default_precision});
  const std::vector<int> tokens = random_tokens(300, 6);
  const Rows expected = at_once(network, tokens);
  auto session = network.new_session({.max_tokens = 300});
  network.prefill(session, part_of(tokens, 0, 70));
  const auto fail = [](std::string_view name, const ql::ConstMatrix<float>&) {
    if (name.ends_with("layers.2.mlp")) throw std::runtime_error("enough");
  };
  CHECK_THROWS_AS(network.trace(session, random_tokens(200, 7), fail), std::runtime_error);
  CHECK(session.length() == 70);
  CHECK_THROWS_WITH(network.logits(session, part_of(tokens, 70, 1)), has_text("truncate"));
  session.truncate(70);
  const Rows found = copied(network.logits(session, part_of(tokens, 70, 10), ql::Logits::all));
  CHECK(first_difference(found, Rows(expected.begin() + 70, expected.begin() + 80)) == -1);
}

TEST_CASE("Qwen3.5: cutting back to remembered places gives the same bits and processes few tokens again",
          "[bits][long]") {
  const std::vector<int> tokens = random_tokens(2300, 10);
  const ql::kernels::KernelTable* table = ql::kernels::supported().back();
  const auto network = open_network("qwen3.5-tiny-gqa", {table, table->default_precision});
  auto whole = network.new_session({.max_tokens = 2304});
  const Rows expected = copied(network.logits(whole, tokens, ql::Logits::all));
  const Index snapshot = (8 * 16 * 16 + 3 * 256) * 4 * 6;  // bytes: states and inputs of six layers
  for (const Index budget : {Index{0}, 2 * snapshot, 64 * snapshot}) {
    INFO("budget " << budget);
    auto session = network.new_session({.max_tokens = 2304, .snapshot_bytes = budget});
    const Index before = session.bytes();
    network.prefill(session, part_of(tokens, 0, 333));
    session.remember();
    network.prefill(session, part_of(tokens, 333, 1967));
    for (const Index n : {2299, 2250, 2111, 1100, 400, 333, 320, 319, 1}) {
      INFO("cut to " << n);
      const Index again = session.truncate(n);
      if (budget > 2 * snapshot) CHECK(again <= (n >= 1344 ? n - 1344 : n >= 333 ? n - 333 : n));
      REQUIRE(session.length() == n);
      const auto row = network.logits(session, part_of(tokens, n, 1));
      CHECK(same_bits({row.begin(), row.end()}, expected[static_cast<std::size_t>(n)]));
    }
    CHECK(session.bytes() == before);
  }
}

TEST_CASE("Qwen3.5: memory is known beforehand, and state does not grow with the context", "[bits]") {
  const Hybrid network(ql::Checkpoint(checkpoint_path("qwen3.5-tiny")), {.threads = 1});
  auto session = network.new_session({.max_tokens = 200});
  const Index before = session.bytes();
  network.prefill(session, random_tokens(150, 8));
  (void)network.logits(session, random_tokens(1, 9));
  CHECK(session.bytes() == before);
  const auto state_bytes = [&](Index max_tokens) {
    const auto empty =
        network.new_session({.max_tokens = max_tokens, .own_scratch = false, .snapshot_bytes = 0});
    return empty.bytes() - empty.kv_capacity_bytes() - max_tokens * static_cast<Index>(sizeof(int));
  };
  CHECK(state_bytes(64) == state_bytes(4096));
  CHECK(state_bytes(64) >= 6 * 2 * 4 * 32 * 32 * 4);  // two states of each of six layers
  CHECK(network.explain({.max_tokens = 64}).session_bytes > state_bytes(64));
}
