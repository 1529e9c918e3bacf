// SPDX-License-Identifier: Apache-2.0
//
// The programs' progress bar: on terminals only, not before half a second, and gone at the end.
#include "../../examples/programs/progress_bar.hpp"

#include <sstream>
#include <thread>

#include "catch_any.hpp"

namespace {

void past_the_first_half_second() {
  std::this_thread::sleep_for(std::chrono::milliseconds(550));
}

}  // namespace

TEST_CASE("a progress bar appears after a while and is erased") {
  std::ostringstream out;
  {
    programs::ProgressBar bar(out, true);
    bar.show(1, 100, " quantising");
    CHECK(out.str().empty());
    past_the_first_half_second();
    bar.show(50, 100, " quantising 50 of 100 MB");
    CHECK_THAT(out.str(), has_text("#.") && has_text("] quantising 50 of 100 MB"));
    CHECK(out.str().front() == '\r');
    CHECK(out.str().find('\n') == std::string::npos);
    out.str("");
  }
  CHECK(out.str() == "\r\x1b[K");

  out.str("");
  programs::ProgressBar bar(out, true);
  past_the_first_half_second();
  bar.update(12, 300);
  CHECK_THAT(out.str(), has_text(" reading 12 of 300 tokens"));
  bar.update(300, 300);
  CHECK(out.str().ends_with("\r\x1b[K"));
  bar.start();
  out.str("");
  bar.update(1, 2);
  CHECK(out.str().empty());
}

TEST_CASE("there is no progress bar where there is no terminal") {
  std::ostringstream out;
  {
    programs::ProgressBar bar(out, false);
    past_the_first_half_second();
    bar.update(1, 2);
  }
  CHECK(out.str().empty());
}
