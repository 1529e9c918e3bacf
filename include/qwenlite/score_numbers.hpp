// SPDX-License-Identifier: Apache-2.0
//
// Score: what scoring a text adds up, and the arithmetic of one token. Everything is summed in double, in
// nats; the logits of a token are looked at as they are, padding of the vocabulary included, as Transformers'
// loss does.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Sums over the tokens that were scored. Those of several texts may be added up.
struct Score {
  Index tokens = 0;  ///< that were scored
  double nll = 0;    ///< sum of -ln p(token)

  // Against the reference model, 0 without one.
  Index compared = 0;        ///< tokens that were scored with both
  double reference_nll = 0;  ///< as nll, of the reference
  double kl = 0;             ///< sum of the divergences KL(reference || model) of the distributions
  Index agreed = 0;          ///< tokens for which both find the same one likeliest

  bool stopped = false;  ///< the progress callback said so: a part of the text is missing

  // Means of them; NaN where nothing was scored or compared.
  [[nodiscard]] double mean_nll() const noexcept { return mean(nll, tokens); }
  [[nodiscard]] double perplexity() const noexcept { return std::exp(mean_nll()); }
  [[nodiscard]] double reference_perplexity() const noexcept {
    return std::exp(mean(reference_nll, compared));
  }
  [[nodiscard]] double mean_kl() const noexcept { return mean(kl, compared); }
  [[nodiscard]] double top1() const noexcept { return mean(static_cast<double>(agreed), compared); }

  Score& operator+=(const Score& other) noexcept {
    tokens += other.tokens;
    nll += other.nll;
    compared += other.compared;
    reference_nll += other.reference_nll;
    kl += other.kl;
    agreed += other.agreed;
    stopped = stopped || other.stopped;
    return *this;
  }

 private:
  [[nodiscard]] static double mean(double sum, Index count) noexcept {
    return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
  }
};

/// The largest logit, and the lowest id that has it.
struct LikeliestToken {
  float logit = -std::numeric_limits<float>::infinity();
  Index id = 0;
};

/// Throws `numeric` when a logit is NaN or +infinity, or all are -infinity.
[[nodiscard]] inline LikeliestToken likeliest(std::span<const float> logits) {
  LikeliestToken best;
  bool broken = false;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    broken = broken || std::isnan(logits[i]);
    if (logits[i] > best.logit) best = {logits[i], static_cast<Index>(i)};
  }
  if (!broken && std::isfinite(best.logit)) return best;
  const char* const found = broken ? "NaN" : best.logit > 0 ? "infinity" : "-infinity only";
  throw Error(ErrorCode::numeric, "logits of the text to score", found, "finite numbers");
}

namespace scoring {

/// ln of the sum of exp(logit), less the largest logit: nothing overflows, and one addend is 1.
[[nodiscard]] inline double log_sum(std::span<const float> logits, double largest) noexcept {
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x} - largest);
  return std::log(sum);
}

/// Adds a token that `logits` [vocab_size] predicted.
inline void add(Score& score, std::span<const float> logits, std::size_t token) {
  const double largest = likeliest(logits).logit;
  score.nll += log_sum(logits, largest) - (double{logits[token]} - largest);
  ++score.tokens;
}

/// Adds a token that both predicted. With p and q the distributions, a and b the logits less the largest,
/// KL = sum p ln(p / q) = (sum exp(a) (a - b)) / (sum exp(a)) - ln sum exp(a) + ln sum exp(b): exactly 0 for
/// equal logits. What p rules out adds nothing; what only q rules out makes it infinite.
inline void add(Score& score, std::span<const float> logits, std::span<const float> reference,
                std::size_t token) {
  const LikeliestToken best = likeliest(logits);
  const LikeliestToken expected = likeliest(reference);
  double sum = 0;
  double reference_sum = 0;
  double cross = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double a = double{reference[i]} - double{expected.logit};
    const double b = double{logits[i]} - double{best.logit};
    const double weight = std::exp(a);
    reference_sum += weight;
    sum += std::exp(b);
    if (weight > 0) cross += weight * (a - b);
  }
  const double log_of_sum = std::log(sum);
  const double log_of_reference = std::log(reference_sum);
  score.nll += log_of_sum - (double{logits[token]} - double{best.logit});
  score.reference_nll += log_of_reference - (double{reference[token]} - double{expected.logit});
  score.kl += std::max(0.0, cross / reference_sum - log_of_reference + log_of_sum);
  score.agreed += best.id == expected.id ? 1 : 0;
  ++score.tokens;
  ++score.compared;
}

}  // namespace scoring
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
