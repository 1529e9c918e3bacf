// SPDX-License-Identifier: Apache-2.0
//
// The sampler against a plain reference that sorts the whole vocabulary: which tokens are kept, how often
// each is drawn, what happens at ties, with masked ids, with broken logits and with hostile options.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <qwenlite/generate/sampler.hpp>

#include "catch_any.hpp"

namespace ql = qwenlite;
using ql::Index;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<float> normal_logits(std::size_t n, float sigma, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0F, sigma);
  std::vector<float> logits(n);
  for (float& x : logits) x = normal(engine);
  return logits;
}

/// Probability of every id by the definition: sort, cut, normalise.
std::vector<double> reference(const std::vector<float>& logits, const ql::SamplingOptions& options) {
  const double temperature = options.temperature.value_or(1);
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  const auto weight = [&](std::size_t id) {
    return std::exp((static_cast<double>(logits[id]) - static_cast<double>(logits[order[0]])) / temperature);
  };
  const auto k = static_cast<std::size_t>(options.top_k.value_or(0));
  if (k > 0 && k < order.size()) order.resize(k);
  double total = 0;
  for (const auto id : order) total += weight(id);
  std::vector<double> probability(logits.size(), 0.0);
  double before = 0;
  for (const auto id : order) {
    const bool first = id == order[0];
    if (!first && before >= options.top_p.value_or(1) * total) break;
    before += weight(id);
    if (first || weight(id) >= options.min_p.value_or(0)) probability[id] = weight(id);
  }
  const double kept = std::accumulate(probability.begin(), probability.end(), 0.0);
  for (double& p : probability) p /= kept;
  return probability;
}

/// Draws `count` tokens and compares their counts with the reference: no token that must not occur, and a
/// chi-squared statistic within five standard deviations of its mean.
void check_distribution(const std::vector<float>& logits, ql::SamplingOptions options, int count = 60000) {
  options.seed = 20240607;
  ql::Sampler sampler(options, static_cast<Index>(logits.size()));
  std::vector<double> seen(logits.size(), 0.0);
  for (int i = 0; i < count; ++i) seen[static_cast<std::size_t>(sampler.sample(logits, i))] += 1;
  const std::vector<double> expected = reference(logits, options);
  double statistic = 0;
  double bins = 0;
  double rare_expected = 0;  // ids too rare for a bin of their own share one
  double rare_seen = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double e = expected[id] * count;
    if (e <= 0) {
      INFO("id " << id);
      CHECK(seen[id] == 0);
    } else if (e < 10) {
      rare_expected += e;
      rare_seen += seen[id];
    } else {
      statistic += (seen[id] - e) * (seen[id] - e) / e;
      bins += 1;
    }
  }
  if (rare_expected >= 10) {
    statistic += (rare_seen - rare_expected) * (rare_seen - rare_expected) / rare_expected;
    bins += 1;
  }
  const double freedom = bins - 1;
  INFO("chi-squared " << statistic << " for " << freedom << " degrees of freedom");
  CHECK(statistic < freedom + 5 * std::sqrt(2 * freedom) + 5);
}

}  // namespace

TEST_CASE("philox gives the published numbers") {
  using Words = std::array<std::uint32_t, 4>;
  CHECK(ql::philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint32_t ones = 0xffffffff;
  CHECK(ql::philox({ones, ones, ones, ones}, {ones, ones}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(ql::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform numbers are spread over [0, 1)") {
  double sum = 0;
  int low = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double u = ql::uniform_at(7, i);
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    sum += u;
    low += u < 0.1 ? 1 : 0;
  }
  CHECK(std::abs(sum / 100000 - 0.5) < 0.005);
  CHECK(std::abs(low - 10000) < 500);
  CHECK(ql::uniform_at(1, std::uint64_t{1} << 32U) != ql::uniform_at(1, 0));
  CHECK(ql::uniform_at(std::uint64_t{1} << 32U, 5) != ql::uniform_at(0, 5));
}

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
  for (const auto& logits : cases) {
    std::vector<ql::candidates::Candidate> sorted;
    for (const float x : logits) sorted.push_back({x, static_cast<std::int32_t>(sorted.size())});
    std::sort(sorted.begin(), sorted.end(), ql::candidates::ranks_before);
    const auto n = static_cast<Index>(logits.size());
    for (const Index k : {Index{1}, Index{2}, Index{20}, Index{999}, Index{4000}, n}) {
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
  for (const float sigma : {0.01F, 1.0F, 8.0F}) cases.push_back(normal_logits(60000, sigma, 3));
  cases.emplace_back(151936, 0.25F);  // flat: 0.9 keeps exactly 136,743 ids, the lowest ones
  cases.push_back(normal_logits(70001, 2, 4));
  for (float& x : cases.back()) x = std::round(x * 2) / 2;  // ties everywhere
  cases.push_back({1.0F});
  cases.push_back({-1.0F, 3.0F, 3.0F, 2.0F, 3.0F});
  for (const auto& logits : cases) {
    const auto n = static_cast<Index>(logits.size());
    std::vector<float> weights(logits.size());
    const float max = ql::candidates::maximum(logits).value;
    const double total = ql::candidates::exp_weights(logits, max, 1.0, weights.data());
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return weights[a] > weights[b]; });
    ql::candidates::MassCut finder(n);
    for (const double share : {1e-9, 0.1, 0.5, 0.9, 0.95, 0.999, 0.9999999}) {
      std::size_t count = 0;
      for (double before = 0; count < order.size() && before < share * total; ++count) {
        before += static_cast<double>(weights[order[count]]);
      }
      const ql::candidates::Cut cut = finder.find(weights, total, share);
      const std::size_t last = order[count - 1];
      INFO("n " << n << ", first logit " << logits[0] << ", share " << share << ", kept " << count);
      if (share < 0.9999) {
        CHECK(cut.weight == weights[last]);
        CHECK(cut.last_tie == static_cast<Index>(last));
      } else {  // so near to 1 the order of sums decides which of the tiny weights is the last
        CHECK(static_cast<double>(cut.weight) == Approx(static_cast<double>(weights[last])).epsilon(0.01));
      }
    }
  }
}

TEST_CASE("draws follow the distribution") {
  const std::vector<float> small = normal_logits(60, 1.5F, 5);
  const std::vector<float> large = normal_logits(3001, 1.0F, 6);
  SECTION("plain") {
    check_distribution(small, {.temperature = 1.0});
  }
  SECTION("hot") {
    check_distribution(small, {.temperature = 2.5});
  }
  SECTION("cold") {
    check_distribution(small, {.temperature = 0.4});
  }
  SECTION("top_k") {
    check_distribution(small, {.temperature = 0.8, .top_k = 7});
  }
  SECTION("top_p") {
    check_distribution(small, {.temperature = 1.0, .top_p = 0.7});
  }
  SECTION("min_p") {
    check_distribution(small, {.temperature = 1.0, .min_p = 0.2});
  }
  SECTION("top_k and top_p") {
    check_distribution(small, {.temperature = 1.2, .top_k = 20, .top_p = 0.8});
  }
  SECTION("all") {
    check_distribution(small, {.temperature = 1.5, .top_k = 30, .top_p = 0.95, .min_p = 0.1});
  }
  SECTION("top_p then min_p") {
    check_distribution(small, {.temperature = 2.0, .top_p = 0.9, .min_p = 0.3});
  }
  SECTION("large, plain") {
    check_distribution(large, {.temperature = 1.0});
  }
  SECTION("large, top_p") {
    check_distribution(large, {.temperature = 1.0, .top_p = 0.9}, 25000);
  }
  SECTION("large, top_k beyond sorting") {
    check_distribution(large, {.temperature = 1.0, .top_k = 2000, .top_p = 0.95}, 15000);
  }
  SECTION("ties") {
    std::vector<float> tied(100);
    for (std::size_t i = 0; i < tied.size(); ++i) tied[i] = static_cast<float>(i % 4);
    check_distribution(tied, {.temperature = 1.0, .top_k = 30});
    check_distribution(tied, {.temperature = 1.0, .top_p = 0.75});
  }
  SECTION("masked logits") {
    std::vector<float> masked = small;
    for (std::size_t i = 0; i < masked.size(); i += 3) masked[i] = -infinity;
    check_distribution(masked, {.temperature = 1.0});
    check_distribution(masked, {.temperature = 1.0, .top_k = 55, .top_p = 0.99});
  }
}

TEST_CASE("greedy takes the largest logit, the lowest id at ties") {
  std::vector<float> logits = normal_logits(151936, 1, 7);
  logits[70001] = logits[70002] = logits[150000] = 50.0F;
  ql::Sampler greedy({.temperature = 0.0}, 151936);
  CHECK(greedy.sample(logits, 0) == 70001);
  logits[3] = 50.0F;
  CHECK(greedy.sample(logits, 1) == 3);
  CHECK(ql::Sampler({.temperature = 1e-9}, 151936).sample(logits, 0) == 3);
  CHECK(ql::Sampler({.temperature = 5.0, .top_k = 1}, 151936).sample(logits, 0) == 3);
  CHECK(ql::Sampler({.temperature = 5.0, .top_p = 0.0}, 151936).sample(logits, 0) == 3);
  CHECK(ql::Sampler({.temperature = 5.0, .top_k = 50, .top_p = 0.0}, 151936).sample(logits, 0) == 3);
  const std::vector<float> one = {-4.0F};
  CHECK(ql::Sampler({.temperature = 0.0}, 1).sample(one, 0) == 0);
  CHECK(ql::Sampler({.temperature = 1.0, .top_p = 0.5}, 1).sample(one, 0) == 0);
}

TEST_CASE("ids without text are never chosen") {
  std::vector<float> logits = normal_logits(1000, 1, 8);
  for (std::size_t id = 900; id < 1000; ++id) logits[id] = 30;
  for (const ql::SamplingOptions& options :
       {ql::SamplingOptions{.temperature = 0.0}, ql::SamplingOptions{.temperature = 3.0, .seed = 1},
        ql::SamplingOptions{.temperature = 3.0, .top_k = 40, .seed = 1},
        ql::SamplingOptions{.temperature = 3.0, .top_p = 0.99, .seed = 1}}) {
    ql::Sampler sampler(options, 900);
    std::set<int> seen;
    for (Index i = 0; i < 500; ++i) seen.insert(sampler.sample(logits, i));
    CHECK(*seen.rbegin() < 900);
    CHECK((options.temperature == 0.0 || seen.size() > 10));
  }
  logits[950] = std::numeric_limits<float>::quiet_NaN();  // nor looked at
  CHECK(ql::Sampler({.temperature = 0.0}, 900).sample(logits, 0) < 900);
}

TEST_CASE("a draw depends on seed and position alone") {
  const std::vector<float> logits = normal_logits(5000, 1, 9);
  for (const ql::SamplingOptions& options :
       {ql::SamplingOptions{.temperature = 1.0, .seed = 42}, ql::SamplingOptions{.top_p = 0.9, .seed = 42},
        ql::SamplingOptions{.top_k = 100, .seed = 42}}) {
    ql::Sampler first(options, 5000);
    ql::Sampler second(options, 5000);
    std::vector<int> forward;
    for (Index i = 0; i < 50; ++i) forward.push_back(first.sample(logits, i));
    for (Index i = 50; i-- > 0;) CHECK(second.sample(logits, i) == forward[static_cast<std::size_t>(i)]);
    CHECK(std::set<int>(forward.begin(), forward.end()).size() > 20);
  }
  ql::Sampler unseeded({.temperature = 1.0}, 5000);
  ql::Sampler again({.temperature = 1.0, .seed = unseeded.seed()}, 5000);
  for (Index i = 0; i < 20; ++i) CHECK(unseeded.sample(logits, i) == again.sample(logits, i));
  CHECK(ql::Sampler({.temperature = 1.0}, 5000).seed() != unseeded.seed());
}

TEST_CASE("broken logits are an error") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto message = [](std::vector<float> logits, const ql::SamplingOptions& options) -> std::string {
    try {
      (void)ql::Sampler(options, static_cast<Index>(logits.size())).sample(logits, 0);
    } catch (const ql::Error& e) {
      CHECK(e.code() == ql::ErrorCode::numeric);
      return e.what();
    }
    return "no error";
  };
  for (const ql::SamplingOptions& options :
       {ql::SamplingOptions{.temperature = 0.0}, ql::SamplingOptions{.temperature = 1.0},
        ql::SamplingOptions{.temperature = 1.0, .top_k = 4}, ql::SamplingOptions{.top_p = 0.5}}) {
    for (std::size_t at : {0U, 5U, 13U, 18U}) {
      std::vector<float> logits(19, 1.0F);
      logits[at] = nan;
      CHECK(message(logits, options).find("NaN") != std::string::npos);
      logits[at] = infinity;
      CHECK(message(logits, options).find("+infinity") != std::string::npos);
    }
    CHECK(message(std::vector<float>(19, -infinity), options).find("no finite") != std::string::npos);
  }
  ql::Sampler sampler({}, 20);
  CHECK_THROWS_AS(sampler.sample(std::vector<float>(19, 0.0F), 0), ql::Error);
}

TEST_CASE("hostile options are errors that name the option") {
  const auto rejected = [](const ql::SamplingOptions& options, const std::string& name) {
    try {
      ql::Sampler sampler(options, 100);
    } catch (const ql::Error& e) {
      const std::string what = e.what();
      return e.code() == ql::ErrorCode::bad_argument && what.rfind(name + ": found ", 0) == 0 &&
             what.find("expected") != std::string::npos;
    }
    return false;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {-1.0, -1e-9, nan, inf, -inf, 1e9, 1e308}) {
    INFO("value " << bad);
    CHECK(rejected({.temperature = bad}, "temperature"));
    CHECK(rejected({.top_p = bad}, "top_p"));
    CHECK(rejected({.min_p = bad}, "min_p"));
  }
  CHECK(rejected({.top_p = 1.0000001}, "top_p"));
  CHECK(rejected({.top_k = -1}, "top_k"));
  CHECK(rejected({.top_k = std::numeric_limits<Index>::min()}, "top_k"));
  CHECK_THROWS_AS(ql::Sampler({}, 0), ql::Error);
  CHECK_THROWS_AS(ql::Sampler({}, -5), ql::Error);

  const std::vector<float> logits = normal_logits(100, 1, 10);  // extreme but legal
  for (const ql::SamplingOptions& options :
       {ql::SamplingOptions{.temperature = 100.0}, ql::SamplingOptions{.temperature = 1e-5},
        ql::SamplingOptions{.temperature = 1e-300}, ql::SamplingOptions{.top_k = 0},
        ql::SamplingOptions{.top_k = std::numeric_limits<Index>::max()}, ql::SamplingOptions{.top_p = 1e-300},
        ql::SamplingOptions{.top_p = 1.0}, ql::SamplingOptions{.min_p = 1.0},
        ql::SamplingOptions{.top_p = 0.999999999999}, ql::SamplingOptions{.min_p = 1e-300}}) {
    ql::Sampler sampler(options, 100);
    const int id = sampler.sample(logits, 3);
    CHECK(id >= 0);
    CHECK(id < 100);
  }
}

TEST_CASE("fields that are not set come from the defaults") {
  struct {
    std::optional<float> temperature = 0.5F;
    std::optional<int> top_k = 20;
    std::optional<float> top_p;
    std::optional<float> min_p = 0.25F;
  } defaults;
  const ql::SamplingOptions merged = ql::SamplingOptions{.top_k = 3, .seed = 9}.or_else(defaults);
  CHECK(merged.temperature == 0.5);
  CHECK(merged.top_k == Index{3});
  CHECK(!merged.top_p.has_value());
  CHECK(merged.min_p == 0.25);
  CHECK(merged.seed == std::uint64_t{9});

  struct {
    std::optional<bool> do_sample = false;
    std::optional<float> temperature = 0.6F;
    std::optional<int> top_k;
    std::optional<float> top_p;
    std::optional<float> min_p;
  } fixed;
  CHECK(ql::SamplingOptions{}.or_else(fixed).temperature == 0.0);
  CHECK(ql::SamplingOptions{.temperature = 1.0}.or_else(fixed).temperature == 1.0);
}
