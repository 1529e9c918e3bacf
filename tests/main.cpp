// SPDX-License-Identifier: Apache-2.0
//
// The main function of every test program when Catch2 is v2 (v3 brings its own as a library).
#define CATCH_CONFIG_MAIN
#include "catch_any.hpp"
