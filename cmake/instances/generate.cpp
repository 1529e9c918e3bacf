// SPDX-License-Identifier: Apache-2.0
//
// Definitions of generate/ for programs that link the target qwenlite_instances.
#include <qwenlite/generate/sampler-inl.hpp>
