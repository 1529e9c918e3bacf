// SPDX-License-Identifier: Apache-2.0
//
// Places of the prompt that a session is told to remember: each while it still can, with the prompt cut no
// more than that takes.
#include "catch_any.hpp"
#include "generate/fake_model.hpp"

using namespace generate_test;

namespace {

/// Remembers places up to 64 tokens back.
struct RememberingSession : FakeSession {
  bool useful = true;
  Ids places = {};
  void remember(Index n) {
    REQUIRE(n <= length());
    REQUIRE(n >= length() - 64);
    places.push_back(static_cast<int>(n));
  }
  [[nodiscard]] bool remembers() const { return useful; }
};

struct Result {
  std::vector<std::size_t> pieces;
  Ids places;
};
Result run_with(std::vector<Index> places, Index piece, bool useful = true) {
  const FakeModel model;
  RememberingSession session;
  session.limit = 2000;
  session.useful = useful;
  session.seen = Ids(10, 1);
  (void)run(model, session, Ids(600, 1),
            {.max_new_tokens = 1, .prefill_piece = piece, .remember_after = std::move(places)});
  return {model.pieces, session.places};
}

using Pieces = std::vector<std::size_t>;

}  // namespace

TEST_CASE("places near the end of a piece cost no cut") {
  const Result found = run_with({536, 600}, 600);
  CHECK(found.pieces == Pieces{600});
  CHECK(found.places == Ids{546, 610});
}

TEST_CASE("a piece ends 64 tokens after a place at the latest") {
  const Result found = run_with({100, 130, 535, 596}, 600);
  CHECK(found.pieces == Pieces{164, 435, 1});
  CHECK(found.places == Ids{110, 140, 545, 606});
}

TEST_CASE("places and pieces together") {
  const Result found = run_with({256, 300, 590}, 256);
  CHECK(found.pieces == Pieces{256, 108, 236});
  CHECK(found.places == Ids{266, 310, 600});
}

TEST_CASE("places outside the prompt are left out, and none cut it where remembering is of no use") {
  const Result found = run_with({-5, 0, 601}, 600);
  CHECK(found.pieces == Pieces{600});
  CHECK(found.places.empty());
  CHECK(run_with({100}, 600, false).pieces == Pieces{600});
}
