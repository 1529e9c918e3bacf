// SPDX-License-Identifier: Apache-2.0
//
// Catch2 in either of its two shapes (the single header of v2, the split headers of v3), so that tests
// are written once. The only place in the tree that knows which one is installed.
#pragma once

#include <string>

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

/// Matches a string (or an exception's message, with REQUIRE_THROWS_WITH) that contains `part`.
inline auto has_text(const std::string& part) {
#if __has_include(<catch2/catch_test_macros.hpp>)
  return Catch::Matchers::ContainsSubstring(part);
#else
  return Catch::Matchers::Contains(part);
#endif
}
