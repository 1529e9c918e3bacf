// SPDX-License-Identifier: Apache-2.0
//
// Quantisation by rounding: each group of a row gets the scale that its largest element asks for, or the one
// that gives the least square error, and each element the nearest number there is. Needs no data, and a row
// depends on nothing but itself.
//
// A scale is rounded to float16 before the elements are, so that they are rounded to what will be computed
// with; so is that of an fp8 block, to bfloat16. Unlike the rest of quantize/, this is included by models/:
// opening a model can quantise it.
#pragma once

#include <span>

#include <qwenlite/kernels/quantised_matrix.hpp>
#include <qwenlite/kernels/table.hpp>
#include <qwenlite/kernels/threads.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// What the elements of a group are rounded to: (u - zero) * scale for u from 0 to the format's largest.
struct GroupRounding {
  F16 scale;
  int zero = 0;
};

/// The rounding of a group of `values`, not of fp8. Symmetric int8: the largest magnitude becomes 127, int4:
/// the element of largest magnitude becomes -8, whatever its sign. Asymmetric: the range, zero included,
/// becomes 0 to the largest number. With `search`, the best of that and of ranges clipped to between 50 % and
/// 97 % of it, by square error.
[[nodiscard]] GroupRounding choose_rounding(std::span<const float> values, const WeightFormat& format,
                                            bool search = false);

/// The stored number that is nearest to `value`.
[[nodiscard]] int nearest(float value, const GroupRounding& rounding, Format format) noexcept;

/// Throws the `bad_tensor` of weights that cannot be quantised.
[[noreturn]] void refuse_to_quantise(const WeightFormat& format);

/// Quantises a stored matrix, row by row on the threads of `executor`. `decode` is decode_row() of a kernel
/// table. Throws `bad_tensor` when an element is not finite, or too large for a scale, and when all are too
/// small for one. fp8 does not search.
[[nodiscard]] QuantisedMatrix round_to_nearest(const WeightView& stored, const WeightFormat& format,
                                               const kernels::KernelTable& table, Executor& executor,
                                               bool search = false);

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/quantize/round_to_nearest-inl.hpp>
#endif
