// SPDX-License-Identifier: Apache-2.0
//
// The recurrent state of a sequence: cutting back, snapshots, what can be reached when, and policies that
// remember nothing or round. Everything is compared in bits with a sequence that never went another way.

#include <cstring>
#include <limits>
#include <vector>

#include <qwenlite/cache/delta_state.hpp>
#include <qwenlite/kernels/dispatch.hpp>

#include "catch_any.hpp"
#include "kernels/delta_layer.hpp"

namespace ql = qwenlite;
using delta_tests::Layer;
using ql::DeltaSizes;
using ql::DeltaState;
using ql::Index;

static_assert(DeltaState<>::retains && !ql::NoState::retains);
static_assert(!std::is_copy_constructible_v<DeltaState<>> && std::is_move_constructible_v<DeltaState<>>);

namespace {

constexpr DeltaSizes sizes{1, 2, 8, 12, 4};
constexpr Index layers = 2;
constexpr Index total = 330;

/// Two layers with the same inputs for one sequence, and others from position `other` on.
struct Network {
  ql::ThreadPool pool{1};
  ql::Ops ops{ql::kernels::active(), pool, ql::Precision::exact};
  std::vector<Layer> inputs;

  explicit Network(Index other = total) {
    for (unsigned layer = 0; layer < layers; ++layer) {
      inputs.emplace_back(sizes, total, 100 * layer + 1);
      std::vector<float>& qkv = inputs.back().qkv;
      const auto from = static_cast<std::size_t>(other * sizes.channels());
      for (std::size_t i = from; i < qkv.size(); ++i) qkv[i] = -qkv[i] - 0.5F;
    }
  }

  /// The next n tokens through both layers; their outputs, layer after layer.
  template <class State>
  std::vector<float> forward(State& state, Index position, Index n) {
    std::vector<float> all;
    for (Index layer = 0; layer < layers; ++layer) {
      const Layer& input = inputs[static_cast<std::size_t>(layer)];
      const std::vector<float> out =
          delta_tests::run(ops, {{&input, state.open(layer, position, n), position, n}});
      all.insert(all.end(), out.begin(), out.end());
    }
    state.advance(n);
    return all;
  }
  template <class State>
  std::vector<float> forward(State& state, Index n) {
    return forward(state, state.length(), n);
  }
};

/// The next tokens of a sequence that went straight to `position`.
std::vector<float> cold(Network& network, Index position, Index n) {
  DeltaState<> state({layers, sizes});
  if (position > 0) network.forward(state, position);
  return network.forward(state, n);
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("delta state: truncated to any of the last 64 positions, goes on as if it never went further",
          "[bits]") {
  Network network;
  for (const Index length : {1, 3, 63, 64, 65, 100, 127, 128, 129, 192, 200}) {
    for (Index back = 0; back <= std::min<Index>(64, length); ++back) {
      const Index to = length - back;
      Network straying(to);  // what is cut off differs from what follows then
      DeltaState<> state({layers, sizes});
      straying.forward(state, length);
      INFO(length << " tokens truncated to " << to);
      REQUIRE(state.can_truncate(to));
      state.truncate(to);
      CHECK(state.length() == to);
      CHECK(same(network.forward(state, 70), cold(network, to, 70)));
    }
  }
}

TEST_CASE("delta state: truncated again and again, as rejected drafts do", "[bits]") {
  Network network;
  Network straying(0);
  DeltaState<> state({layers, sizes});
  std::mt19937 bits(5);
  std::vector<float> kept;
  while (state.length() < 200) {
    const Index position = state.length();
    straying.forward(state, 1 + static_cast<Index>(bits() % 8U));
    state.truncate(position);
    CHECK(same(network.forward(state, 1), cold(network, position, 1)));
  }
}

TEST_CASE("delta state: what can be reached") {
  Network network;
  DeltaState<> state({layers, sizes});
  CHECK(state.can_truncate(0));
  CHECK_FALSE(state.can_truncate(1));
  CHECK_THROWS_WITH(state.truncate(1), has_text("truncate a recurrent state: found 1, expected 0"));
  network.forward(state, 50);
  CHECK(state.can_truncate(1));
  network.forward(state, 100);
  CHECK(state.reach() == 86);  // the last 64 positions
  CHECK(state.can_truncate(0));
  CHECK_FALSE(state.can_truncate(85));
  CHECK(state.can_truncate(86));
  CHECK(state.can_truncate(150));
  CHECK_FALSE(state.can_truncate(151));
  state.truncate(100);  // the past does not come back
  CHECK(state.reach() == 86);
  CHECK_THROWS_AS(state.truncate(80), ql::Error);
  state.truncate(0);
  CHECK(state.length() == 0);
  CHECK(same(network.forward(state, 20), cold(network, 0, 20)));
  CHECK_THROWS_WITH(state.open(0, 19, 1), has_text("position 19, expected 20"));
  CHECK_THROWS_AS(state.open(layers, 20, 1), ql::Error);
}

TEST_CASE("delta state: snapshot and restore anywhere give the same bits", "[bits]") {
  Network network;
  std::vector<ql::DeltaSnapshot> snapshots;
  DeltaState<> state({layers, sizes});
  const std::vector<Index> places{1, 2, 3, 4, 63, 64, 65, 94, 127, 128, 129, 191, 192, 255, 256, 257};
  std::size_t next = 0;
  for (const Index n : {64, 30, 40, 1, 57, 64, 40}) {  // to 64, 94, 134, 135, 192, 256, 296
    network.forward(state, n);
    for (; next < places.size() && places[next] <= state.length(); ++next) {
      INFO("snapshot at " << places[next] << " of " << state.length());
      REQUIRE(state.can_snapshot(places[next]));
      snapshots.push_back(state.snapshot(places[next]));
      CHECK(snapshots.back().position() == places[next]);
      CHECK(snapshots.back().bytes() == state.snapshot_bytes(places[next]));
      CHECK(snapshots.back().bytes() <= state.most_snapshot_bytes());
    }
  }
  CHECK(snapshots.size() == places.size());
  for (const ql::DeltaSnapshot& snapshot : snapshots) {
    const Index at = snapshot.position();
    for (const Index first : {1, 2, 63, 64, 70}) {
      INFO("snapshot at " << at << ", then " << first);
      DeltaState<> other({layers, sizes});
      Network(0).forward(other, 77);  // another sequence before it
      other.restore(snapshot);
      CHECK(other.length() == at);
      CHECK(other.reach() == at);
      CHECK(other.can_truncate(at));
      CHECK_FALSE(other.can_truncate(at - 1 + (at == 1 ? 2 : 0)));
      const ql::DeltaSnapshot again = other.snapshot(at);
      CHECK(same(network.forward(other, first), cold(network, at, first)));
      other.restore(again);
      CHECK(same(network.forward(other, 3), cold(network, at, 3)));
    }
  }
}

TEST_CASE("delta state: snapshots that cannot be taken or restored are errors") {
  Network network;
  DeltaState<> state({layers, sizes});
  network.forward(state, 200);
  CHECK_FALSE(state.can_snapshot(0));
  CHECK_FALSE(state.can_snapshot(135));  // 65 positions back
  CHECK(state.can_snapshot(136));
  CHECK(state.can_snapshot(200));
  CHECK_THROWS_WITH(state.snapshot(128), has_text("found 128 tokens, expected 136 to 200"));
  CHECK_THROWS_AS(state.snapshot(0), ql::Error);
  CHECK_THROWS_AS(state.snapshot(201), ql::Error);
  const ql::DeltaSnapshot snapshot = state.snapshot(193);
  CHECK_THROWS_AS(DeltaState<>({1, sizes}).restore(snapshot), ql::Error);
  CHECK_THROWS_AS(DeltaState<ql::Bf16>({layers, sizes}).restore(snapshot), ql::Error);
  CHECK_THROWS_AS(state.restore(ql::DeltaSnapshot()), ql::Error);
  ql::DeltaSnapshot moved = state.snapshot(193);
  const ql::DeltaSnapshot taken = std::move(moved);
  CHECK_THROWS_AS(state.restore(moved), ql::Error);  // NOLINT(bugprone-use-after-move)
  state.restore(taken);
}

TEST_CASE("delta state: a forward that failed half-way is noticed") {
  Network network;
  DeltaState<> state({layers, sizes});
  network.forward(state, 200);
  const Index position = state.length();
  delta_tests::run(network.ops, {{&network.inputs[0], state.open(0, position, 3), position, 3}});
  CHECK(same(network.forward(state, 5), cold(network, 200, 5)));  // nothing was lost: it can be repeated
  delta_tests::run(network.ops, {{&network.inputs[0], state.open(0, 205, 100), 205, 100}});
  CHECK_FALSE(state.can_truncate(205));
  CHECK_THROWS_WITH(state.open(0, 205, 1), has_text("truncate to 0"));
  state.truncate(0);
  CHECK(same(network.forward(state, 5), cold(network, 0, 5)));
}

TEST_CASE("delta state: memory is known beforehand") {
  const DeltaSizes real{16, 16, 128, 128, 4};  // of Qwen3.5-0.8B
  const DeltaState<> state({18, real});
  CHECK(state.snapshot_bytes(64) == 18 * (16 * 128 * 128 * 4 + 3 * 6144 * 4));
  CHECK(state.snapshot_bytes(2) == 18 * (2 * (2 * 2048 * 4 + 16 * 8) + 2 * 6144 * 4));
  CHECK(state.snapshot_bytes(74) == state.snapshot_bytes(64) + 18 * 10 * (2 * 2048 * 4 + 16 * 8));
  CHECK(state.most_snapshot_bytes() == state.snapshot_bytes(64 + 63));
  CHECK(state.bytes() ==
        18 * (2 * 16 * 128 * 128 * 4 + 2 * 64 * 2 * 2048 * 4 + 2 * 64 * 16 * 8 + 67 * 6144 * 4));
  CHECK(DeltaState<ql::Bf16>({18, real}).bytes() == state.bytes() - 18 * 16 * 128 * 128 * 4);
  CHECK_THROWS_AS(DeltaState<>({0, real}), ql::Error);
  CHECK_THROWS_AS(DeltaState<>({1, {3, 4, 8, 8, 4}}), ql::Error);
  CHECK_THROWS_WITH(
      DeltaState<>({Index{1} << 16U, {1, Index{1} << 16U, Index{1} << 16U, Index{1} << 16U, 4}}),
      has_text("no memory of that size"));
}

TEST_CASE("no state: recomputing everything, layer by layer and in parts, gives the same bits", "[bits]") {
  Network network;
  DeltaState<> kept({layers, sizes});
  ql::NoState none({layers, sizes});
  Index length = 0;
  for (const Index n : {1, 62, 5, 100}) {
    const std::vector<float> expected = network.forward(kept, n);
    length += n;
    std::vector<float> found;
    for (Index layer = 0; layer < layers; ++layer) {  // all parts of a layer before the next
      const Layer& input = network.inputs[static_cast<std::size_t>(layer)];
      std::vector<float> rows;
      for (Index at = 0; at < length; at += 50) {
        const Index part = std::min<Index>(50, length - at);
        const std::vector<float> out =
            delta_tests::run(network.ops, {{&input, none.open(layer, at, part), at, part}});
        rows.insert(rows.end(), out.begin(), out.end());
      }
      found.insert(found.end(), rows.end() - n * sizes.value_width(), rows.end());
    }
    none.advance(n);
    CHECK(none.length() == 0);
    CHECK(same(found, expected));
  }
}

TEST_CASE("delta state in bf16: rounds states between chunks only, so bits do not depend on cuts", "[bits]") {
  Network network;
  DeltaState<ql::Bf16> whole({layers, sizes});
  const std::vector<float> at_once = network.forward(whole, 200);
  DeltaState<> exact({layers, sizes});
  const std::vector<float> expected = network.forward(exact, 200);
  const auto rows = static_cast<std::size_t>(200 * sizes.value_width());
  double worst = 0;
  for (std::size_t i = 0; i < at_once.size(); ++i) {
    const double difference = std::abs(static_cast<double>(at_once[i]) - static_cast<double>(expected[i]));
    if (i % rows < static_cast<std::size_t>(64 * sizes.value_width())) CHECK(difference == 0);
    worst = std::max(worst, difference);
  }
  CHECK(worst > 0);
  CHECK(worst < 0.1);
  DeltaState<ql::Bf16> cut({layers, sizes});
  std::vector<std::vector<float>> parts;
  for (const Index n : {63, 1, 70, 1, 65}) parts.push_back(network.forward(cut, n));
  std::vector<float> joined;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (const auto& part : parts) {
      const auto half = static_cast<std::ptrdiff_t>(part.size() / layers);
      const auto from = part.begin() + static_cast<std::ptrdiff_t>(layer) * half;
      joined.insert(joined.end(), from, from + half);
    }
  }
  CHECK(same(joined, at_once));
}
