// SPDX-License-Identifier: Apache-2.0
//
// Whether a sanitizer watches the tests and the programs that they run.
#pragma once

#ifdef QWENLITE_SANITIZED
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif
