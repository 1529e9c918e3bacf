// SPDX-License-Identifier: Apache-2.0
//
// Definitions of sampler.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <qwenlite/generate/sampler.hpp>
#include <qwenlite/generate/token_weights.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

QWENLITE_INLINE Sampler::Sampler(const SamplingOptions& options, Index token_count)
    : token_count_(checked(options, token_count)),
      temperature_(options.temperature.value_or(1.0)),
      top_k_(options.top_k.value_or(0)),
      top_p_(options.top_p.value_or(1.0)),
      min_p_(options.min_p.value_or(0.0)),
      seed_(options.seed ? *options.seed : random_seed()),
      bias_(options.logit_bias),
      penalties_(options, token_count),
      edited_(std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(token_count))) {
  if (top_k_ >= token_count) top_k_ = 0;
  if (greedy()) return;
  if (top_k_ > 0) {
    best_.resize(static_cast<std::size_t>(candidates::top_capacity(top_k_, token_count)));
  }
  if (!ranks_all()) {
    weights_.resize(static_cast<std::size_t>(token_count));
    if (top_p_ < 1) mass_cut_.emplace(token_count);
  }
}

QWENLITE_INLINE int Sampler::sample(std::span<const float> logits, Index position) {
  return choose(logits, position, nullptr);
}

QWENLITE_INLINE void Sampler::generated(int token) {
  if (token < 0 || token >= token_count_) {
    throw Error(ErrorCode::bad_argument, "generated token", token, {"an id from 0 to ", token_count_ - 1});
  }
  penalties_.count(token);
}

QWENLITE_INLINE void Sampler::set_generated(std::span<const int> tokens) {
  penalties_.clear();
  for (const int token : tokens) generated(token);
}

QWENLITE_INLINE std::uint64_t Sampler::random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32U | device();
}

QWENLITE_INLINE Index Sampler::checked(const SamplingOptions& options, Index token_count) {
  if (token_count < 1 || token_count > std::numeric_limits<std::int32_t>::max()) {
    throw Error(ErrorCode::bad_argument, "token_count", token_count, "1 to 2147483647");
  }
  options.check(token_count);
  return token_count;
}

QWENLITE_INLINE void Sampler::require_same_count(const TokenMask& mask) const {
  if (mask.token_count() == token_count_) return;
  throw Error(ErrorCode::bad_argument, "mask", {mask.token_count(), " tokens"},
              {token_count_, ", as the sampler has"});
}

QWENLITE_INLINE void Sampler::check_finite(const candidates::Maximum& max, const char* what) {
  if (!max.has_nan && std::isfinite(max.value)) return;
  const char* found = max.has_nan ? "NaN" : max.value > 0 ? "+infinity" : "no finite value";
  throw Error(ErrorCode::numeric, what, found, "finite numbers (-infinity only where a token is masked)");
}

QWENLITE_INLINE int Sampler::choose(std::span<const float> logits, Index position, const TokenMask* mask) {
  if (static_cast<Index>(logits.size()) < token_count_) {
    throw Error(ErrorCode::bad_argument, "logits", {logits.size(), " values"}, {"at least ", token_count_});
  }
  logits = logits.first(static_cast<std::size_t>(token_count_));
  candidates::Maximum max = candidates::maximum(logits);
  check_finite(max, "logits");
  if (mask != nullptr && mask->forced()) return *mask->forced();
  const bool masked = mask != nullptr && mask->bans();
  if (masked || !bias_.empty() || penalties_.pending()) {
    logits = edit(logits, masked ? mask : nullptr);
    max = candidates::maximum(logits);
    check_edited(max);
  }
  if (greedy()) return static_cast<int>(candidates::first_equal(logits, max.value));
  const double uniform = uniform_at(seed_, static_cast<std::uint64_t>(position));
  return ranks_all() ? sample_ranked(logits, max.value, uniform) : sample_dense(logits, max.value, uniform);
}

QWENLITE_INLINE std::span<const float> Sampler::edit(std::span<const float> logits,
                                                     const TokenMask* mask) noexcept {
  const std::span<float> edited(edited_.get(), logits.size());
  std::copy(logits.begin(), logits.end(), edited.begin());
  for (const TokenBias& entry : bias_) {
    edited[static_cast<std::size_t>(entry.token)] += static_cast<float>(entry.bias);
  }
  penalties_.apply(edited);
  if (mask != nullptr) mask->apply(edited);
  return edited;
}

QWENLITE_INLINE void Sampler::check_edited(const candidates::Maximum& max) {
  if (max.value == -std::numeric_limits<float>::infinity() && !max.has_nan) {
    throw Error(ErrorCode::numeric, "tokens to draw from",
                "none: logit bias, penalties and mask ban them all", "at least one");
  }
  check_finite(max, "logits with bias and penalties");
}

QWENLITE_INLINE double Sampler::weight_of(float logit, float max) const noexcept {
  return std::exp((static_cast<double>(logit) - static_cast<double>(max)) / temperature_);
}

QWENLITE_INLINE int Sampler::sample_ranked(std::span<const float> logits, float max,
                                           double uniform) noexcept {
  candidates::top(logits, top_k_, best_.data());
  const std::span<candidates::Candidate> best(best_.data(), static_cast<std::size_t>(top_k_));
  std::sort(best.begin(), best.end(), candidates::ranks_before);
  double total = 0;
  for (const auto& c : best) total += weight_of(c.logit, max);
  double kept = 0;
  std::size_t count = 0;
  for (; count < best.size(); ++count) {
    const double weight = weight_of(best[count].logit, max);
    if (count > 0 && (kept >= top_p_ * total || weight < min_p_ || weight <= 0)) break;
    kept += weight;
  }
  double rest = uniform * kept;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    rest -= weight_of(best[i].logit, max);
    if (rest < 0) return best[i].id;
  }
  return best[count - 1].id;
}

QWENLITE_INLINE int Sampler::sample_dense(std::span<const float> logits, float max, double uniform) noexcept {
  const double total = top_k_ > 0 ? spread_top(logits, max)
                                  : candidates::exp_weights(logits, max, 1 / temperature_, weights_.data());
  candidates::Cut cut;
  if (mass_cut_ && top_p_ <= 0) {
    cut = {1.0F, candidates::first_equal(weights_, 1.0F)};
  } else if (mass_cut_) {
    cut = mass_cut_->find(weights_, total, top_p_);
  }
  const auto least = static_cast<float>(min_p_);
  if (least > cut.weight) cut = {least, token_count_};
  return static_cast<int>(candidates::draw(weights_, cut, uniform));
}

QWENLITE_INLINE double Sampler::spread_top(std::span<const float> logits, float max) noexcept {
  candidates::top(logits, top_k_, best_.data());
  std::fill(weights_.begin(), weights_.end(), 0.0F);
  double total = 0;
  for (Index i = 0; i < top_k_; ++i) {
    const candidates::Candidate& c = best_[static_cast<std::size_t>(i)];
    const auto weight = static_cast<float>(weight_of(c.logit, max));
    weights_[static_cast<std::size_t>(c.id)] = weight;
    total += static_cast<double>(weight);
  }
  return total;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
