// SPDX-License-Identifier: Apache-2.0
//
// The clock, what is said about repeated measurements (the middle value, and how far they lie apart), and
// what keeps a compiler from removing the work that is measured.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace bench {

using Clock = std::chrono::steady_clock;

[[nodiscard]] inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Middle value of the samples; 0 when there are none.
[[nodiscard]] inline double median(std::vector<double> samples) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  return n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
}

/// (largest - smallest) / median; 0 when there are none.
[[nodiscard]] inline double spread(const std::vector<double>& samples) {
  if (samples.empty()) return 0;
  const auto [least, most] = std::minmax_element(samples.begin(), samples.end());
  return (*most - *least) / median(samples);
}

/// Makes the compiler compute `value`.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

}  // namespace bench
