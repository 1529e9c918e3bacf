// SPDX-License-Identifier: Apache-2.0
//
// A function of the user that takes one of the library's objects. Declared here for both units: it may
// be linked only when they were compiled with the same flags.
#pragma once

#include <qwenlite/checkpoint/checkpoint.hpp>

int take(const qwenlite::Checkpoint& files);
