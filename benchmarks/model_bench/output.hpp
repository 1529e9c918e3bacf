// SPDX-License-Identifier: Apache-2.0
//
// A report for people, and for programs. The names in the JSON are an interface: they may be added to.
#pragma once

#include <string>

#include "suite.hpp"

namespace bench {

[[nodiscard]] std::string to_table(const Report& report);
[[nodiscard]] std::string to_json(const Report& report);

}  // namespace bench
