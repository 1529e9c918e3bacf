// SPDX-License-Identifier: Apache-2.0
//
// The mixer of a Gated DeltaNet layer as one operation: against the definitions in double, with the same bits
// for any cuts, threads and batch mates, and finite at the ends of its parameters.

#include <array>

#include <qwenlite/cache/delta_state.hpp>
#include <qwenlite/kernels/scalar.hpp>

#include "delta_layer.hpp"
#include "kernel_tables.hpp"

using namespace kernel_tests;
using delta_tests::Layer;
using delta_tests::Part;
using delta_tests::random_cuts;
using qwenlite::DeltaSizes;
using qwenlite::DeltaState;
using qwenlite::Ops;
using qwenlite::ThreadPool;

namespace {

/// All of a sequence, in calls of these lengths.
std::vector<float> outputs(const Ops& ops, const Layer& layer, const std::vector<Index>& cuts) {
  DeltaState<> state({1, layer.sizes});
  std::vector<float> all;
  for (const Index n : cuts) {
    const Index position = state.length();
    const std::vector<float> out =
        delta_tests::run(ops, {Part{&layer, state.open(0, position, n), position, n}});
    state.advance(n);
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

constexpr std::array<DeltaSizes, 5> shapes{DeltaSizes{2, 2, 16, 16, 4}, DeltaSizes{2, 4, 8, 24, 4},
                                           DeltaSizes{1, 3, 40, 17, 2}, DeltaSizes{3, 3, 128, 128, 4},
                                           DeltaSizes{2, 4, 33, 8, 1}};

}  // namespace

TEST_CASE("delta_net: agrees with the definitions in double") {
  for (const DeltaSizes& sizes : shapes) {
    const Layer layer(sizes, 150, 3);
    const std::vector<double> expected = layer.expected();
    for (const KernelTable* t : runnable_tables()) {
      INFO(t->name << ", " << sizes.num_value_heads << " on " << sizes.num_key_heads << " heads of "
                   << sizes.key_head_dim << ", " << sizes.value_head_dim);
      ThreadPool pool(1);
      const std::vector<float> out =
          outputs(Ops(*t, pool, t->default_precision), layer, random_cuts(150, 50, 4));
      REQUIRE(out.size() == expected.size());
      double difference = 0;
      double whole = 0;
      for (std::size_t i = 0; i < out.size(); ++i) {
        const double d = static_cast<double>(out[i]) - expected[i];
        difference += d * d;
        whole += expected[i] * expected[i];
      }
      CHECK(std::sqrt(difference / whole) < 2e-6);
    }
  }
}

TEST_CASE("delta_net: the same bits for any cuts and threads", "[bits][threads]") {
  for (const DeltaSizes& sizes : shapes) {
    const Layer layer(sizes, 140, 5);
    for (const KernelTable* t : runnable_tables()) {
      INFO(t->name << ", " << sizes.key_head_dim << ", " << sizes.value_head_dim);
      ThreadPool one(1);
      const std::vector<float> single =
          outputs(Ops(*t, one, t->default_precision), layer, std::vector<Index>(140, 1));
      for (const int threads : {1, 2, 5}) {
        ThreadPool pool(threads);
        const Ops ops(*t, pool, t->default_precision);
        for (const auto& cuts : {std::vector<Index>{140}, std::vector<Index>{63, 1, 76},
                                 std::vector<Index>{64, 76}, random_cuts(140, 20, 1)}) {
          const std::vector<float> out = outputs(ops, layer, cuts);
          CHECK(same_bits(out.data(), single.data(), static_cast<Index>(out.size())));
        }
      }
    }
  }
}

TEST_CASE("delta_net: a sequence has the same bits alone and among others", "[bits]") {
  const DeltaSizes sizes{2, 4, 24, 16, 4};
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    ThreadPool pool(2);
    const Ops ops(*t, pool, t->default_precision);
    std::vector<Layer> layers;
    for (unsigned i = 0; i < 5; ++i) layers.emplace_back(sizes, 130, 7);  // the same weights ...
    for (unsigned i = 1; i < 5; ++i) layers[i].qkv = random_floats(130 * sizes.channels(), 70 + i);
    std::vector<DeltaState<>> states;
    for (std::size_t i = 0; i < 5; ++i) states.emplace_back(qwenlite::DeltaLayout{1, sizes});
    std::vector<std::vector<float>> together(5);
    for (int round = 0; round < 4; ++round) {  // ... and inputs of their own, in rounds of unlike lengths
      std::vector<Part> parts;
      for (std::size_t i = 0; i < 5; ++i) {
        const Index at = states[i].length();
        const Index n = std::min<Index>(130 - at, i % 2 == 0 ? 1 : 37 + static_cast<Index>(i));
        parts.push_back({&layers[i], states[i].open(0, at, n), at, n});
      }
      const std::vector<float> out = delta_tests::run(ops, parts);
      auto from = out.begin();
      for (std::size_t i = 0; i < 5; ++i) {
        const Index floats = parts[i].count * sizes.value_width();
        together[i].insert(together[i].end(), from, from + floats);
        from += floats;
        states[i].advance(parts[i].count);
      }
    }
    for (std::size_t i = 0; i < 5; ++i) {
      const std::vector<float> alone = outputs(ops, layers[i], {states[i].length()});
      REQUIRE(together[i].size() == alone.size());
      CHECK(same_bits(together[i].data(), alone.data(), static_cast<Index>(alone.size())));
    }
  }
}

TEST_CASE("delta_net: extreme decays and empty keys stay finite") {
  const DeltaSizes sizes{2, 4, 16, 16, 4};
  for (const KernelTable* t : runnable_tables()) {
    ThreadPool pool(1);
    const Ops ops(*t, pool, t->default_precision);
    for (const float A_log : {10.0F, -10.0F, 88.0F}) {
      for (const float bias : {30.0F, -30.0F, 1e4F, -1e4F}) {
        for (const bool empty : {false, true}) {
          INFO(t->name << ", A_log " << A_log << ", dt_bias " << bias << (empty ? ", zero q and k" : ""));
          Layer layer(sizes, 140, 9);
          std::fill(layer.A_log.begin(), layer.A_log.end(), A_log);
          std::fill(layer.dt_bias.begin(), layer.dt_bias.end(), bias);
          for (std::size_t i = 0; i < layer.qkv.size() && empty; ++i) {
            if (static_cast<Index>(i) % sizes.channels() < 2 * sizes.key_width()) layer.qkv[i] = 0;
          }
          const std::vector<float> out = outputs(ops, layer, {100, 40});
          CHECK(std::all_of(out.begin(), out.end(), [](float x) { return std::isfinite(x); }));
          if (empty) CHECK(std::all_of(out.begin(), out.end(), [](float x) { return x == 0; }));
        }
      }
    }
  }
}

TEST_CASE("delta_gates: sigmoid and softplus over the whole range") {
  for (double x = -1e4; x <= 1e4; x += 6.37) {
    const qwenlite::DeltaGates g =
        qwenlite::delta_gates(static_cast<float>(x), static_cast<float>(x), 0.0F, 2.0);
    const double exact = static_cast<double>(static_cast<float>(x));
    CHECK(static_cast<double>(g.beta) == Approx(delta_tests::sigmoid(exact)).epsilon(1e-7).margin(1e-45));
    const double softplus = exact > 700 ? exact : std::log1p(std::exp(exact));
    CHECK(static_cast<double>(g.log_decay) == Approx(-2 * softplus).epsilon(1e-7).margin(1e-45));
  }
  CHECK(qwenlite::delta_gates(0, 1e30F, 0, 1e30).log_decay == -1e6F);
}

TEST_CASE("delta_net: checked against the scalar kernels, it passes, and a faulty kernel is named") {
  const DeltaSizes sizes{2, 4, 24, 16, 4};
  const Layer layer(sizes, 140, 3);
  ThreadPool pool(2);
  for (const KernelTable* t : runnable_tables()) {
    INFO(t->name);
    const std::vector<Index> cuts{1, 70, 69};
    const std::vector<float> plain = outputs(Ops(*t, pool, t->default_precision), layer, cuts);
    const std::vector<float> checked = outputs(Ops(*t, pool, t->default_precision, true), layer, cuts);
    CHECK(same_bits(plain.data(), checked.data(), static_cast<Index>(plain.size())));

    KernelTable faulty = *t;
    faulty.conv1d = [](const qwenlite::kernels::Conv1dArgs& a) {
      qwenlite::kernels::scalar::conv1d(a);
      a.x[a.channels - 1] += 0.01F;
    };
    CHECK_THROWS_WITH(outputs(Ops(faulty, pool, t->default_precision, true), layer, {1}),
                      has_text("QWENLITE_CHECK: convolution") && has_text("token 0"));
    faulty = *t;
    faulty.delta_close = [](const qwenlite::kernels::DeltaCloseArgs& a) {
      qwenlite::kernels::scalar::delta_close(a);
      std::fill_n(a.next, a.value_dim, 0.0F);  // a row of the state is lost
    };
    CHECK_THROWS_WITH(outputs(Ops(faulty, pool, t->default_precision, true), layer, {140}),
                      has_text("QWENLITE_CHECK: delta rule") && has_text("as the scalar kernel has it"));
  }
}

TEST_CASE("delta_net: shapes that do not fit are errors, before anything is written") {
  const DeltaSizes sizes{2, 4, 16, 16, 4};
  ThreadPool pool(1);
  const Ops ops(qwenlite::kernels::scalar::table, pool, Precision::exact);
  const Layer layer(sizes, 10, 9);
  DeltaState<> state({1, sizes});
  Layer narrow = layer;
  narrow.norm.pop_back();
  CHECK_THROWS_WITH(delta_tests::run(ops, {Part{&narrow, state.open(0, 0, 4), 0, 4}}), has_text("weights"));
  for (const DeltaSizes& bad : {DeltaSizes{0, 4, 16, 16, 4}, DeltaSizes{2, 3, 16, 16, 4},
                                DeltaSizes{4, 2, 16, 16, 4}, DeltaSizes{2, 4, -1, 16, 4},
                                DeltaSizes{2, 4, 16, Index{1} << 40U, 4}, DeltaSizes{2, 4, 16, 16, 65}}) {
    CHECK_THROWS_WITH(qwenlite::DeltaScratch(ops, bad, 1), has_text("sizes of a Gated DeltaNet layer"));
  }
  Layer other = layer;
  other.A_log.pop_back();
  CHECK_THROWS_WITH(delta_tests::run(ops, {Part{&other, state.open(0, 0, 4), 0, 4}}), has_text("weights"));
}

TEST_CASE("conv_taps: transposes stored weights of any format") {
  for (const Format format : {Format::bf16, Format::f16, Format::f32}) {
    std::vector<std::byte> stored(5 * 4 * 4);
    const Index row = 4 * qwenlite::element_bytes(format);
    for (Index c = 0; c < 5; ++c) {
      for (Index j = 0; j < 4; ++j) encode(format, static_cast<float>(c * 4 + j), stored.data() + c * row, j);
    }
    const qwenlite::AlignedBuffer taps = qwenlite::conv_taps({stored.data(), 5, 4, format});
    for (Index c = 0; c < 5; ++c) {
      for (Index j = 0; j < 4; ++j) CHECK(taps.floats()[j * 5 + c] == static_cast<float>(c * 4 + j));
    }
  }
}
