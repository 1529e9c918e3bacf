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

/// Knows nothing but where it is.
struct FakeState {
  struct Copy {
    Index at = 0;
    [[nodiscard]] Index position() const { return at; }
  };
  Index length = 0;

  [[nodiscard]] bool can_snapshot(Index n) const { return n > 0 && n % 64 == 0 && n <= length; }
  [[nodiscard]] Index snapshot_bytes() const { return 100; }
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
  for (const Index length : {40, 70, 130, 135, 700}) {
    state.length = length;
    snapshots.keep(state, length);
  }
  CHECK(place_for(snapshots, 63) == 0);
  CHECK(place_for(snapshots, 64) == 64);
  CHECK(place_for(snapshots, 127) == 64);
  CHECK(place_for(snapshots, 128) == 128);
  CHECK(place_for(snapshots, 639) == 128);
  CHECK(place_for(snapshots, 5000) == 640);
  snapshots.forget_after(639);
  CHECK(place_for(snapshots, 5000) == 128);
  snapshots.forget_after(0);
  CHECK(place_for(snapshots, 5000) == 0);
}

TEST_CASE("snapshots: unasked every 1,024 tokens, within the budget") {
  FakeState state;
  ql::Snapshots<FakeState> snapshots(state, 450);  // four
  CHECK(snapshots.most_bytes(128) == 200);
  CHECK(snapshots.most_bytes(4096) == 400);
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
  snapshots.keep(state, 640);
  CHECK(place_for(snapshots, 640) == 0);
  CHECK(snapshots.most_bytes(4096) == 0);
}
