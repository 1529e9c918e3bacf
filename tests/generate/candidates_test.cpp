// SPDX-License-Identifier: Apache-2.0
//
// The passes over a whole vocabulary, against sorting it: the k largest, the weights, the cut that leaves a
// share of their sum (with ties, with flat and peaked weights, and where a sample of them misleads).
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "catch_any.hpp"
#include "generate/reference_sampler.hpp"

using namespace sampler_test;

namespace {

/// The last id that stays when weights are kept, best first, until their sum reaches the limit.
std::size_t last_kept(const std::vector<float>& weights, double limit) {
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return weights[a] > weights[b]; });
  std::size_t count = 0;
  for (double before = 0; count < order.size() && before < limit; ++count) {
    before += static_cast<double>(weights[order[count]]);
  }
  return order[count - 1];
}

void check_cut(const std::vector<float>& weights, ql::candidates::MassCut& finder, double share) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const std::size_t last = last_kept(weights, share * total);
  const ql::candidates::Cut cut = finder.find(weights, total, share);
  INFO(weights.size() << " weights, the first " << weights[0] << ", share " << share);
  if (share < 0.9999) {
    CHECK(cut.weight == weights[last]);
    CHECK(cut.last_tie == static_cast<Index>(last));
  } else {  // so near to 1 the order of sums decides which of the tiny weights is the last
    CHECK(static_cast<double>(cut.weight) == Approx(static_cast<double>(weights[last])).epsilon(0.01));
  }
}

std::vector<float> weights_of(const std::vector<float>& logits) {
  std::vector<float> weights(logits.size());
  (void)ql::candidates::exp_weights(logits, ql::candidates::maximum(logits).value, 1.0, weights.data());
  return weights;
}

}  // namespace

TEST_CASE("weights are exponentials to float32 accuracy") {
  for (int i = 0; i < 86000; ++i) {
    const auto x = static_cast<float>(-i * 1e-3);
    const std::vector<float> logits = {0.0F, x};
    std::vector<float> weights(2);
    const double total = ql::candidates::exp_weights(logits, 0.0F, 1.0, weights.data());
    const double exact = std::exp(static_cast<double>(x));
    // The argument itself is rounded when it is scaled to base 2, which costs |x| 2^-24.
    REQUIRE(std::abs(static_cast<double>(weights[1]) - exact) <= (3e-7 + 1.3e-7 * std::abs(x)) * exact);
    REQUIRE(weights[0] == 1.0F);
    REQUIRE(std::abs(total - (1 + static_cast<double>(weights[1]))) < 1e-12);
  }
  const std::vector<float> extremes = {0.0F, -infinity, -3e38F, -200.0F};
  std::vector<float> weights(4);
  CHECK(ql::candidates::exp_weights(extremes, 0.0F, 1.0, weights.data()) == 1.0);
  CHECK(weights == std::vector<float>{1, 0, 0, 0});
  CHECK(ql::candidates::exp_weights(extremes, 0.0F, 1e5, weights.data()) == 1.0);
}

TEST_CASE("top finds what sorting finds") {
  std::vector<std::vector<float>> cases = {normal_logits(20000, 1, 1), std::vector<float>(5000, 2.5F)};
  std::vector<float> ascending(9000);
  std::iota(ascending.begin(), ascending.end(), 0.0F);
  cases.push_back(ascending);
  std::vector<float> coarse = normal_logits(10007, 1, 2);  // many ties
  for (float& x : coarse) x = std::round(x * 4);
  cases.push_back(coarse);
  coarse[5] = coarse[17] = -infinity;
  cases.push_back(coarse);
  // Where the first guess of a threshold looks, values are larger than elsewhere, or smaller.
  for (const float there : {10.0F, -10.0F}) {
    std::vector<float> misleading = normal_logits(30000, 1, 3);
    for (std::size_t i = 0; i < 1024; ++i) misleading[i * misleading.size() / 1024] += there;
    cases.push_back(misleading);
  }
  for (const auto& logits : cases) {
    std::vector<ql::candidates::Candidate> sorted;
    for (const float x : logits) sorted.push_back({x, static_cast<std::int32_t>(sorted.size())});
    std::sort(sorted.begin(), sorted.end(), ql::candidates::ranks_before);
    const auto n = static_cast<Index>(logits.size());
    for (const Index k :
         {Index{1}, Index{2}, Index{20}, Index{256}, Index{999}, Index{2000}, Index{4000}, n}) {
      std::vector<ql::candidates::Candidate> best(
          static_cast<std::size_t>(ql::candidates::top_capacity(k, n)));
      ql::candidates::top(logits, k, best.data());
      std::sort(best.begin(), best.begin() + k, ql::candidates::ranks_before);
      bool equal = true;
      for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i)
        equal = equal && best[i].id == sorted[i].id;
      INFO("n " << n << ", k " << k);
      CHECK(equal);
    }
  }
}

TEST_CASE("the mass cut keeps what sorting keeps") {
  std::vector<std::vector<float>> cases;
  for (const float sigma : {0.01F, 1.0F, 3.0F, 8.0F}) cases.push_back(normal_logits(60000, sigma, 3));
  cases.emplace_back(151936, 0.25F);  // flat: 0.9 keeps exactly 136,743 ids, the lowest ones
  cases.push_back(normal_logits(70001, 2, 4));
  for (float& x : cases.back()) x = std::round(x * 2) / 2;  // ties everywhere
  cases.push_back(normal_logits(16383, 1, 5));
  cases.push_back({1.0F});
  cases.push_back({-1.0F, 3.0F, 3.0F, 2.0F, 3.0F});
  for (const auto& logits : cases) {
    const std::vector<float> weights = weights_of(logits);
    ql::candidates::MassCut finder(static_cast<Index>(weights.size()));
    for (const double share : {1e-9, 0.1, 0.5, 0.9, 0.95, 0.999, 0.9999999})
      check_cut(weights, finder, share);
  }
}

TEST_CASE("the mass cut is right where most tokens are masked") {
  std::vector<float> logits = normal_logits(151936, 1, 6);
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (id % 10 != 3) logits[id] = -infinity;
  }
  const std::vector<float> weights = weights_of(logits);
  ql::candidates::MassCut finder(151936);
  for (const double share : {0.1, 0.9, 0.999}) check_cut(weights, finder, share);
}

TEST_CASE("the mass cut is right where a sample of the weights misleads") {
  // Regular places hold weights of the same mean as the others', but quite another distribution.
  const std::vector<float> spread = weights_of(normal_logits(65536, 1, 7));
  const double mean = std::accumulate(spread.begin(), spread.end(), 0.0) / 65536;
  for (const std::size_t stride : {2U, 4U, 8U, 16U}) {
    std::vector<float> weights = spread;
    for (std::size_t i = 0; i < weights.size(); i += stride) weights[i] = static_cast<float>(mean);
    ql::candidates::MassCut finder(65536);
    for (const double share : {0.1, 0.3, 0.6, 0.9, 0.99}) check_cut(weights, finder, share);
  }
}

TEST_CASE("a draw lands on the id that its number points at") {
  std::vector<float> weights(20000, 0.0F);  // in different sections of the walk, with gaps
  const std::vector<std::size_t> ids = {0, 255, 256, 7000, 7001, 19999};
  for (const std::size_t id : ids) weights[id] = 0.5F;
  weights[7000] = 1.0F;
  const auto draw = [&](const ql::candidates::Cut& cut, double uniform) {
    return ql::candidates::draw(weights, cut, uniform);
  };
  const ql::candidates::Cut all;
  const std::vector<Index> in_sevenths = {0, 255, 256, 7000, 7000, 7001, 19999};
  for (std::size_t i = 0; i < 7; ++i) {
    CHECK(draw(all, (static_cast<double>(i) + 0.01) / 7) == in_sevenths[i]);
    CHECK(draw(all, (static_cast<double>(i) + 0.99) / 7) == in_sevenths[i]);
  }
  CHECK(draw(all, 0x1.fffffffffffffp-1) == 19999);
  const ql::candidates::Cut ties{0.5F, 256};  // 7001 and 19999 weigh as much but rank behind
  CHECK(draw(ties, 0.0) == 0);
  CHECK(draw(ties, 0.99) == 7000);
  CHECK(draw(ties, 0.59) == 256);
  CHECK(draw({1.0F, 7000}, 0.5) == 7000);
}
