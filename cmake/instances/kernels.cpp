// SPDX-License-Identifier: Apache-2.0
//
// Definitions of kernels/ for programs that link the target qwenlite_instances.
#include <qwenlite/kernels/checked-inl.hpp>
#include <qwenlite/kernels/checked_delta-inl.hpp>
#include <qwenlite/kernels/cpu_count-inl.hpp>
#include <qwenlite/kernels/dispatch-inl.hpp>
#include <qwenlite/kernels/ops_delta-inl.hpp>
#include <qwenlite/kernels/ops_matmul-inl.hpp>
#include <qwenlite/kernels/threads-inl.hpp>
