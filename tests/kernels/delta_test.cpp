// SPDX-License-Identifier: Apache-2.0
//
// The kernels of Gated DeltaNet layers on every instruction set: the delta rule against its recurrence in
// double, the convolution, and bits that do not depend on how rows come.

#include <limits>

#include "delta_layer.hpp"
#include "kernel_tables.hpp"

using namespace kernel_tests;
using delta_tests::random_cuts;
using delta_tests::Recurrence;
using qwenlite::round_up;
using qwenlite::kernels::chunk_rows;

namespace {

/// Tokens of one head as the kernels take them.
struct Tokens {
  Index count;
  Index key_dim;
  Index value_dim;
  std::vector<float> q, k, v, log_decay, beta;

  Tokens(Index n, Index dk, Index dv, unsigned seed, float decay)
      : count(n),
        key_dim(dk),
        value_dim(dv),
        q(random_floats(n * dk, seed)),
        k(random_floats(n * dk, seed + 1)),
        v(random_floats(n * dv, seed + 2)),
        log_decay(random_floats(n, seed + 3)),
        beta(random_floats(n, seed + 4)) {
    for (float& g : log_decay) g = -decay * std::exp(g);
    for (float& b : beta) b = 1 / (1 + std::exp(-b));
  }
};

/// One head's memory, each array right before an inaccessible page and full of NaN at first, and the kernels
/// on rows of it, chunk by chunk.
class Head {
 public:
  Head(const KernelTable& table, const Tokens& tokens)
      : t_(table),
        tokens_(tokens),
        keys_(floats(tokens.key_dim * chunk_rows)),
        values_(floats(chunk_rows * tokens.value_dim)),
        state_(floats(tokens.key_dim * tokens.value_dim)),
        decay_(floats(2 * chunk_rows)),
        unit_(floats(2 * chunk_rows * tokens.key_dim)),
        scores_(floats(2 * chunk_rows * chunk_rows)),
        factors_(floats(2 * chunk_rows * chunk_rows)),
        weighted_(floats(chunk_rows * tokens.value_dim)),
        v_(floats(chunk_rows * tokens.value_dim)),
        out_(floats(chunk_rows * tokens.value_dim)) {
    for (const GuardedMemory* m : {&keys_, &values_, &state_, &decay_, &unit_, &scores_, &factors_, &out_}) {
      poison(*m);
    }
  }

  /// The next n tokens; appends o to `out`.
  void process(Index n, std::vector<float>& out) {
    while (n > 0) {
      const Index rows = std::min(n, chunk_rows - position_ % chunk_rows);
      process_rows(rows, out);
      position_ += rows;
      n -= rows;
    }
  }
  [[nodiscard]] const float* state() const { return state_.floats(); }

 private:
  static Index floats(Index count) { return count * 4; }
  void poison(const GuardedMemory& m) const {
    // The end of each array, which is what lies before the page.
    const Index count = &m == &decay_ ? 2 * chunk_rows : tokens_.key_dim;
    std::fill_n(m.floats(), count, std::numeric_limits<float>::quiet_NaN());
  }

  void process_rows(Index rows, std::vector<float>& out) {
    const Index first = position_ % chunk_rows;
    const Index dk = tokens_.key_dim;
    const Index dv = tokens_.value_dim;
    t_.delta_keys({.q = tokens_.q.data() + position_ * dk,
                   .k = tokens_.k.data() + position_ * dk,
                   .stride = dk,
                   .first = first,
                   .rows = rows,
                   .key_dim = dk,
                   .keys = keys_.floats(),
                   .unit = unit_.floats(),
                   .scores = scores_.floats()});
    float* const v = reinterpret_cast<float*>(v_.last(floats(rows * dv)));
    float* const o = reinterpret_cast<float*>(out_.last(floats(rows * dv)));
    std::copy_n(tokens_.v.data() + position_ * dv, rows * dv, v);
    const float* const state = position_ < chunk_rows ? nullptr : state_.floats();
    t_.delta_rows({.first = first,
                   .rows = rows,
                   .key_dim = dk,
                   .value_dim = dv,
                   .unit = unit_.floats(),
                   .scores = scores_.floats(),
                   .v = v,
                   .v_stride = dv,
                   .log_decay = tokens_.log_decay.data() + position_,
                   .beta = tokens_.beta.data() + position_,
                   .state = state,
                   .decay = reinterpret_cast<double*>(decay_.data()),
                   .values = values_.floats(),
                   .out = o,
                   .out_stride = dv,
                   .factors = factors_.floats()});
    out.insert(out.end(), o, o + rows * dv);
    if (first + rows < chunk_rows) return;
    t_.delta_close({.key_dim = dk,
                    .value_dim = dv,
                    .keys = keys_.floats(),
                    .values = values_.floats(),
                    .decay = reinterpret_cast<const double*>(decay_.data()),
                    .state = state,
                    .next = state_.floats(),
                    .weighted = weighted_.floats()});
  }

  const KernelTable& t_;
  const Tokens& tokens_;
  GuardedMemory keys_, values_, state_, decay_, unit_, scores_, factors_, weighted_, v_, out_;
  Index position_ = 0;
};

std::vector<float> outputs(const KernelTable& table, const Tokens& tokens, const std::vector<Index>& cuts) {
  Head head(table, tokens);
  std::vector<float> out;
  for (const Index n : cuts) head.process(n, out);
  return out;
}

/// o of all tokens from the recurrence in double, and the state after them.
struct Expected {
  std::vector<double> out;
  std::vector<double> state;

  explicit Expected(const Tokens& t) {
    Recurrence rule(t.key_dim, t.value_dim);
    for (Index i = 0; i < t.count; ++i) {
      const float* const v = t.v.data() + i * t.value_dim;
      const auto at = static_cast<std::size_t>(i);
      const std::vector<double> o =
          rule.step(delta_tests::unit(t.q.data() + i * t.key_dim, t.key_dim,
                                      1 / std::sqrt(static_cast<double>(t.key_dim))),
                    delta_tests::unit(t.k.data() + i * t.key_dim, t.key_dim, 1),
                    std::vector<double>(v, v + t.value_dim), static_cast<double>(t.log_decay[at]),
                    static_cast<double>(t.beta[at]));
      out.insert(out.end(), o.begin(), o.end());
    }
    state = rule.state;
  }
};

double length_of(const double* x, Index size) {
  double squares = 0;
  for (Index i = 0; i < size; ++i) squares += x[i] * x[i];
  return std::sqrt(squares);
}

double distance(const float* found, const double* expected, Index size) {
  std::vector<double> d;
  for (Index i = 0; i < size; ++i) d.push_back(static_cast<double>(found[i]) - expected[i]);
  return length_of(d.data(), size);
}

/// The overall relative error: |found - expected| / |expected| over all `size` numbers of a result at once.
double relative_error(const float* found, const double* expected, Index size) {
  return distance(found, expected, size) / length_of(expected, size);
}

/// The error of the worst token: the largest |found - expected| of a token's `width` numbers, relative to the
/// larger of that token's |expected| and the root mean square of all tokens' |expected|. A token's own length
/// alone is no measure: of a query nearly at right angles to the keys, o is a small difference of large
/// numbers, and any float32 rule is off by the last digits of those.
double worst_token(const std::vector<float>& found, const std::vector<double>& expected, Index width) {
  const auto size = static_cast<Index>(expected.size());
  const double root_mean_square =
      length_of(expected.data(), size) / std::sqrt(static_cast<double>(size / width));
  double worst = 0;
  for (Index i = 0; i < size; i += width) {
    const double length = std::max(root_mean_square, length_of(expected.data() + i, width));
    worst = std::max(worst, distance(found.data() + i, expected.data() + i, width) / length);
  }
  return worst;
}

}  // namespace

TEST_CASE("delta rule: the recurrence in double, over 4096 tokens in three regimes of decay", "[thorough]") {
  constexpr Index count = 4096;
  for (const float decay : {0.0005F, 0.05F, 3.0F}) {
    const Tokens tokens(count, 128, 128, 11, decay);
    const Expected expected(tokens);
    for (const KernelTable* t : runnable_tables()) {
      INFO(t->name << ", decay " << decay);
      Head head(*t, tokens);
      std::vector<float> out;
      for (const Index n : random_cuts(count, 200, 5)) head.process(n, out);
      REQUIRE(out.size() == expected.out.size());
      const double worst = worst_token(out, expected.out, 128);
      const double overall = relative_error(out.data(), expected.out.data(), count * 128);
      const double state = relative_error(head.state(), expected.state.data(), 128 * 128);
      CHECK(worst <= 1e-6);
      CHECK(overall <= 1e-6);
      CHECK(state <= 1e-6);
    }
  }
}

TEST_CASE("delta rule: a token that forgets everything leaves those after it their digits") {
  Tokens tokens(150, 16, 16, 21, 0.01F);
  tokens.log_decay[3] = -40000.0F;
  tokens.log_decay[70] = -1e6F;
  tokens.log_decay[100] = -300.0F;
  const Expected expected(tokens);
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    const std::vector<float> out = outputs(*t, tokens, random_cuts(tokens.count, 40, 6));
    CHECK(worst_token(out, expected.out, 16) <= 1e-6);
  }
}

TEST_CASE("delta rule: odd sizes agree with the recurrence, and any cuts give the bits of single tokens",
          "[bits]") {
  struct Dims {
    Index key;
    Index value;
  };
  for (const Dims d : {Dims{8, 8}, Dims{1, 1}, Dims{17, 40}, Dims{32, 33}, Dims{64, 9}, Dims{128, 128},
                       Dims{100, 136}, Dims{3, 200}}) {
    const Tokens tokens(200, d.key, d.value, 31, 0.05F);
    const Expected expected(tokens);
    for (const KernelTable* t : runnable_tables()) {
      INFO(t->name << ", " << d.key << " by " << d.value);
      const std::vector<float> single = outputs(*t, tokens, std::vector<Index>(200, 1));
      CHECK(relative_error(single.data(), expected.out.data(), 200 * d.value) <= 1e-6);
      for (const auto& cuts :
           {std::vector<Index>{200}, std::vector<Index>{63, 137}, std::vector<Index>{64, 64, 72},
            std::vector<Index>{65, 135}, std::vector<Index>{1, 62, 1, 136}, random_cuts(200, 9, 1),
            random_cuts(200, 30, 2), random_cuts(200, 130, 3)}) {
        const std::vector<float> out = outputs(*t, tokens, cuts);
        CHECK(same_bits(out.data(), single.data(), 200 * d.value));
      }
    }
  }
}

TEST_CASE("delta rule: keys and queries of any length become unit length, zero stays zero") {
  for (const float spread : {1.0F, 1e-2F, 1e-4F, 0.0F}) {
    Tokens tokens(70, 128, 16, 41, 0.1F);
    for (float& x : tokens.q) x *= spread;
    for (float& x : tokens.k) x *= spread;
    const Expected expected(tokens);
    for (const KernelTable* t : runnable_tables()) {
      INFO(t->name << ", spread " << spread);
      const std::vector<float> out = outputs(*t, tokens, {70});
      if (spread > 0) {
        CHECK(relative_error(out.data(), expected.out.data(), 70 * 16) <= 1e-6);
      } else {
        CHECK(out == std::vector<float>(out.size(), 0.0F));
      }
    }
  }
}

TEST_CASE("conv1d: agrees with double, for rows fewer than the kernel too, and within its memory") {
  for (const Index kernel : {1, 2, 4, 7}) {
    for (const Index channels : {1, 7, 16, 24, 33, 128}) {
      const std::vector<float> history = random_floats((kernel - 1) * channels + 1, 51);
      const std::vector<float> taps = random_floats(kernel * channels, 52);
      for (const Index rows : {1, 2, 3, 5, 64}) {
        const std::vector<float> inputs = random_floats(rows * channels, 53);
        for (const KernelTable* t : runnable_tables()) {
          INFO(t->name << ", kernel " << kernel << ", " << channels << " channels, " << rows << " rows");
          const GuardedMemory x(rows * channels * 4);
          std::copy(inputs.begin(), inputs.end(), x.floats());
          t->conv1d({.x = x.floats(),
                     .stride = channels,
                     .rows = rows,
                     .channels = channels,
                     .history = history.data(),
                     .taps = taps.data(),
                     .taps_stride = channels,
                     .kernel = kernel});
          double worst = 0;
          for (Index row = 0; row < rows; ++row) {
            for (Index c = 0; c < channels; ++c) {
              double sum = 0;
              double size = 1e-30;
              for (Index j = 0; j < kernel; ++j) {
                const Index from = row - kernel + 1 + j;
                const auto in =
                    static_cast<std::size_t>((from < 0 ? from + kernel - 1 : from) * channels + c);
                const double term = static_cast<double>(taps[static_cast<std::size_t>(j * channels + c)]) *
                                    static_cast<double>(from < 0 ? history[in] : inputs[in]);
                sum += term;
                size += std::abs(term);
              }
              const double found = static_cast<double>(x.floats()[row * channels + c]);
              worst = std::max(worst, std::abs(found - delta_tests::silu(sum)) / size);
            }
          }
          CHECK(worst < 1e-6);
        }
      }
    }
  }
}
