// SPDX-License-Identifier: Apache-2.0
//
// The values that sampling knows, for a caller's options and for generation_config.json alike: what a file
// may suggest is what a caller may ask for, so a bad file is refused when it is opened and not with the first
// token.
#pragma once

#include <qwenlite/error.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Both ends belong to it.
struct SamplingRange {
  double least = 0;
  double most = 0;
};

/// What each means is said in SamplingOptions.
namespace sampling_ranges {
inline constexpr SamplingRange temperature{0, 100};
inline constexpr SamplingRange top_p{0, 1};
inline constexpr SamplingRange min_p{0, 1};
inline constexpr SamplingRange repetition_penalty{0.01, 100};
inline constexpr SamplingRange presence_penalty{-100, 100};
inline constexpr SamplingRange frequency_penalty{-100, 100};
}  // namespace sampling_ranges

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
