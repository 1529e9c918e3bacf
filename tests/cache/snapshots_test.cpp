// SPDX-License-Identifier: Apache-2.0
//
// Snapshots: which places are kept within a budget, and which one a state goes back to.
#include <qwenlite/cache/delta_state.hpp>
#include <qwenlite/cache/snapshots.hpp>
#include <qwenlite/cache/stateless.hpp>

#include "catch_any.hpp"

namespace ql = qwenlite;
using ql::Index;

namespace {

/// Knows nothing but where it is. A copy takes 100 bytes, and one more for each token past a multiple of 64.
struct FakeState {
  struct Copy {
    Index at = 0;
    [[nodiscard]] Index position() const { return at; }
  };
  Index length = 0;

  [[nodiscard]] bool can_snapshot(Index n) const { return n > 0 && n >= length - 64 && n <= length; }
  [[nodiscard]] Index snapshot_bytes(Index n) const { return 100 + n % 64; }
  [[nodiscard]] Index most_snapshot_bytes() const { return 163; }
  [[nodiscard]] Copy snapshot(Index n) const { return {n}; }
  void restore(const Copy& copy) { length = copy.at; }
};

static_assert(ql::SnapshotPolicy<FakeState> && ql::SnapshotPolicy<ql::DeltaState<>>);
static_assert(!ql::SnapshotPolicy<ql::NoState> && !ql::SnapshotPolicy<ql::Stateless>);

/// Where a state of `length` comes to when it is taken back to n; 0: nowhere.
Index place_for(const ql::Snapshots<FakeState>& snapshots, Index n) {
  FakeState state{1 << 20};
  const Index place = snapshots.restore(state, n);
  if (place > 0) CHECK(state.length == place);
  if (place == 0) CHECK(state.length == 1 << 20);
  return place;
}

}  // namespace

TEST_CASE("snapshots: the last one that is not too far on") {
  FakeState state;
  ql::Snapshots<FakeState> snapshots(state, 1000);
  const auto keep = [&](Index n, Index length) {
    state.length = length;
    snapshots.keep(state, n, length);
  };
  keep(40, 40);
  keep(64, 70);
  keep(130, 135);
  CHECK(snapshots.bytes() == 140 + 100 + 102);
  keep(130, 135);  // is there
  keep(70, 135);   // the state cannot
  keep(0, 10);
  CHECK(snapshots.bytes() == 140 + 100 + 102);
  keep(650, 700);
  CHECK(place_for(snapshots, 39) == 0);
  CHECK(place_for(snapshots, 63) == 40);
  CHECK(place_for(snapshots, 64) == 64);
  CHECK(place_for(snapshots, 129) == 64);
  CHECK(place_for(snapshots, 130) == 130);
  CHECK(place_for(snapshots, 649) == 130);
  CHECK(place_for(snapshots, 5000) == 650);
  snapshots.forget_after(state, 649);
  CHECK(place_for(snapshots, 5000) == 130);
  CHECK(snapshots.bytes() == 140 + 100 + 102);
  snapshots.forget_after(state, 0);
  CHECK(place_for(snapshots, 5000) == 0);
  CHECK(snapshots.bytes() == 0);
}

TEST_CASE("snapshots: large ones take the place of several, and recent places stay dense") {
  FakeState state;
  ql::Snapshots<FakeState> snapshots(state, 500);
  for (Index n = 64; n <= 64 * 40; n += 64) {
    state.length = n + 50;
    snapshots.keep(state, n, n + 50);
    snapshots.keep(state, n + 50, n + 50);
    CHECK(snapshots.bytes() <= 500);
    CHECK(place_for(snapshots, n + 50) == n + 50);  // the newest is never given up for itself
    CHECK(place_for(snapshots, n + 49) > n + 49 - 128);
  }
}

TEST_CASE("snapshots: unasked every 1,024 tokens, within the budget") {
  FakeState state;
  ql::Snapshots<FakeState> snapshots(state, 450);  // four
  CHECK(snapshots.most_bytes(2) == 326);
  CHECK(snapshots.most_bytes(4096) == 450);
  for (Index length = 1; length <= 16384; ++length) {
    state.length = length;
    snapshots.keep_now_and_then(state, length);
  }
  CHECK(place_for(snapshots, 16384) == 16384);
  CHECK(place_for(snapshots, 16383) == 15360);
  Index places = 0;
  for (Index n = 16384; n > 0; ++places) {
    const Index place = place_for(snapshots, n);
    if (place == 0) break;
    CHECK(place % 1024 == 0);
    n = place - 1;
  }
  CHECK(places == 4);
  CHECK(place_for(snapshots, 12288) > 0);  // old places are not all given up
}

TEST_CASE("snapshots: none without room for one") {
  FakeState state{640};
  ql::Snapshots<FakeState> snapshots(state, 99);
  snapshots.keep(state, 640, 640);
  CHECK(place_for(snapshots, 640) == 0);
  CHECK(snapshots.bytes() == 0);
}
