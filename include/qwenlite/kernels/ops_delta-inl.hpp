// SPDX-License-Identifier: Apache-2.0
//
// Definitions of ops_delta.hpp: what one task does with the rows of its heads.
#pragma once

#include <algorithm>
#include <cmath>

#include <qwenlite/kernels/ops_delta.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

QWENLITE_INLINE void DeltaSizes::check() const {
  constexpr Index most = Index{1} << 16U;
  const bool sound = num_key_heads > 0 && num_value_heads > 0 && key_head_dim > 0 && value_head_dim > 0 &&
                     conv_kernel_dim > 0 && num_key_heads <= most && num_value_heads <= most &&
                     key_head_dim <= most && value_head_dim <= most && conv_kernel_dim <= block_positions &&
                     num_value_heads % num_key_heads == 0;
  if (sound) return;
  throw Error(ErrorCode::bad_argument, "sizes of a Gated DeltaNet layer",
              {num_key_heads, " key heads of ", key_head_dim, ", ", num_value_heads, " value heads of ",
               value_head_dim, ", convolution of ", conv_kernel_dim},
              "positive numbers, key heads dividing value heads, a convolution of at most 64");
}

QWENLITE_INLINE DeltaGates delta_gates(float b, float a, float dt_bias, double rate) noexcept {
  const double x = static_cast<double>(a) + static_cast<double>(dt_bias);
  const double softplus = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
  constexpr double forgets_all = -1e6;
  return {.beta = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(b)))),
          .log_decay = static_cast<float>(std::max(-rate * softplus, forgets_all))};
}

QWENLITE_INLINE AlignedBuffer conv_taps(const WeightView& weight) {
  AlignedBuffer taps(weight.rows * weight.cols * 4);
  for (Index c = 0; c < weight.rows; ++c) {
    for (Index j = 0; j < weight.cols; ++j) {
      taps.floats()[j * weight.rows + c] = decode(weight.format, weight.row(c), j);
    }
  }
  return taps;
}

namespace kernels {

/// Where the arrays of one task's scratch memory begin, in floats.
struct DeltaScratchLayout {
  Index floats = 0;     // of all
  Index unit;           // [2][64][key_dim]
  Index scores;         // [2][64][64]
  Index factors;        // [2][64][64]
  Index weighted;       // [64][value_dim]
  Index state;          // [key_dim][value_dim], of states that are not stored as float32
  Index beta;           // [64]
  Index log_decay;      // [64]
  Index history[2][3];  // [kernel - 1][channels of q, k or v], now and after the next rows

  explicit DeltaScratchLayout(const DeltaSizes& s)
      : unit(take(2 * chunk_rows * s.key_head_dim)),
        scores(take(2 * chunk_rows * chunk_rows)),
        factors(take(2 * chunk_rows * chunk_rows)),
        weighted(take(chunk_rows * s.value_head_dim)),
        state(take(s.key_head_dim * s.value_head_dim)),
        beta(take(chunk_rows)),
        log_decay(take(chunk_rows)) {
    for (auto& strips : history) {
      strips[0] = take((s.conv_kernel_dim - 1) * s.key_head_dim);
      strips[1] = take((s.conv_kernel_dim - 1) * s.key_head_dim);
      strips[2] = take((s.conv_kernel_dim - 1) * s.group() * s.value_head_dim);
    }
  }

 private:
  Index take(Index count) {
    const Index start = floats;
    floats += round_up(count, 16);
    return start;
  }
};

/// What all tasks of a call share.
struct DeltaCall {
  const KernelTable& table;
  const DeltaSizes& sizes;
  const DeltaWeights& weights;
  const DeltaActivations& activations;
};

/// One task: a key head of a piece and the value heads that read it.
class DeltaHead {
 public:
  DeltaHead(const DeltaCall& call, const DeltaPiece& piece, Index key_head, float* memory)
      : call_(call),
        sizes_(call.sizes),
        piece_(piece),
        key_head_(key_head),
        memory_(memory),
        layout_(call.sizes),
        strips_{{key_head * sizes_.key_head_dim, sizes_.key_head_dim},
                {sizes_.key_width() + key_head * sizes_.key_head_dim, sizes_.key_head_dim},
                {2 * sizes_.key_width() + key_head * sizes_.group() * sizes_.value_head_dim,
                 sizes_.group() * sizes_.value_head_dim}} {}

  void run() {
    for (int strip = 0; strip < 3; ++strip) recall_inputs(strip);
    const Index end = piece_.position + piece_.count;
    for (Index position = piece_.position; position < end;) {
      const Run run{.position = position,
                    .first = position % chunk_rows,
                    .rows = std::min(chunk_rows - position % chunk_rows, end - position),
                    .row = piece_.row + position - piece_.position};
      for (int strip = 0; strip < 3; ++strip) convolve(run, strip);
      std::swap(history_, next_history_);
      find_scores(run);
      for (Index g = 0; g < sizes_.group(); ++g) apply_rule(run, key_head_ * sizes_.group() + g);
      position += run.rows;
    }
  }

 private:
  /// Rows of the piece that lie in one chunk.
  struct Run {
    Index position;  // of its first row in the sequence
    Index first;     // its first row within the chunk
    Index rows;
    Index row;  // its first row in the activations

    [[nodiscard]] Index place() const noexcept { return position / chunk_rows % 2; }
  };

  /// Channels of this task: of q, of k or of v.
  struct Strip {
    Index channel;
    Index width;
  };

  [[nodiscard]] float* remembered(int strip, Index position) const noexcept {
    return piece_.memory.conv + position % sizes_.conv_rows() * sizes_.channels() + strips_[strip].channel;
  }
  [[nodiscard]] float* channels(const Run& run, int strip) const noexcept {
    const Matrix<float>& qkv = call_.activations.qkv;
    return const_cast<float*>(qkv.data()) + run.row * qkv.outerStride() + strips_[strip].channel;
  }
  [[nodiscard]] static std::size_t bytes_of(Index floats) noexcept {
    return static_cast<std::size_t>(floats) * sizeof(float);
  }

  /// The inputs of the convolution before the piece; zeros stand before the sequence.
  void recall_inputs(int strip) const noexcept {
    const Index width = strips_[strip].width;
    for (Index j = 0; j < sizes_.conv_kernel_dim - 1; ++j) {
      const Index position = piece_.position - sizes_.conv_kernel_dim + 1 + j;
      float* const to = memory_ + layout_.history[history_][strip] + j * width;
      if (position < 0) {
        std::fill_n(to, width, 0.0F);
      } else {
        std::memcpy(to, remembered(strip, position), bytes_of(width));
      }
    }
  }

  /// Convolves one strip of a run, after its inputs are stored for later calls and for the next run.
  void convolve(const Run& run, int strip) const noexcept {
    const Index width = strips_[strip].width;
    const Index stride = call_.activations.qkv.outerStride();
    float* const x = channels(run, strip);
    const float* const history = memory_ + layout_.history[history_][strip];
    const Index kept = std::max(run.position, piece_.position + piece_.count - sizes_.conv_rows());
    for (Index p = kept; p < run.position + run.rows; ++p) {
      std::memcpy(remembered(strip, p), x + (p - run.position) * stride, bytes_of(width));
    }
    const Index before = sizes_.conv_kernel_dim - 1;
    for (Index j = 0; j < before; ++j) {
      const Index from = run.rows - before + j;
      std::memcpy(memory_ + layout_.history[next_history_][strip] + j * width,
                  from < 0 ? history + (from + before) * width : x + from * stride, bytes_of(width));
    }
    call_.table.conv1d({.x = x,
                        .stride = stride,
                        .rows = run.rows,
                        .channels = width,
                        .history = history,
                        .taps = call_.weights.taps + strips_[strip].channel,
                        .taps_stride = sizes_.channels(),
                        .kernel = sizes_.conv_kernel_dim});
  }

  [[nodiscard]] float* keys(const Run& run) const noexcept {
    const Index head = run.place() * sizes_.num_key_heads + key_head_;
    return piece_.memory.keys + head * sizes_.key_head_dim * chunk_rows;
  }

  void find_scores(const Run& run) const noexcept {
    call_.table.delta_keys({.q = channels(run, 0),
                            .k = channels(run, 1),
                            .stride = call_.activations.qkv.outerStride(),
                            .first = run.first,
                            .rows = run.rows,
                            .key_dim = sizes_.key_head_dim,
                            .keys = keys(run),
                            .unit = memory_ + layout_.unit,
                            .scores = memory_ + layout_.scores});
  }

  void find_gates(const Run& run, Index head) const noexcept {
    const DeltaWeights& w = call_.weights;
    const ConstMatrix<float>& a = call_.activations.a;
    const ConstMatrix<float>& b = call_.activations.b;
    const double rate = std::exp(static_cast<double>(decode(w.A_log.format, w.A_log.data, head)));
    const float bias = decode(w.dt_bias.format, w.dt_bias.data, head);
    for (Index r = 0; r < run.rows; ++r) {
      const DeltaGates gates = delta_gates(b.data()[(run.row + r) * b.outerStride() + head],
                                           a.data()[(run.row + r) * a.outerStride() + head], bias, rate);
      memory_[layout_.beta + r] = gates.beta;
      memory_[layout_.log_decay + r] = gates.log_decay;
    }
  }

  [[nodiscard]] std::byte* stored_state(Index place, Index head) const noexcept {
    const Index number =
        (place * sizes_.num_value_heads + head) * sizes_.key_head_dim * sizes_.value_head_dim;
    return piece_.memory.state + number * element_bytes(piece_.memory.state_format);
  }

  /// The state at the start of the run's chunk as float32; null where it is zero.
  [[nodiscard]] const float* state(const Run& run, Index head) const noexcept {
    if (run.position < chunk_rows) return nullptr;
    const std::byte* const stored = stored_state(run.place(), head);
    if (piece_.memory.state_format == Format::f32) return reinterpret_cast<const float*>(stored);
    float* const wide = memory_ + layout_.state;
    call_.table.decode_row(piece_.memory.state_format, stored, sizes_.key_head_dim * sizes_.value_head_dim,
                           wide);
    return wide;
  }

  void apply_rule(const Run& run, Index head) const noexcept {
    find_gates(run, head);
    const Index width = sizes_.value_head_dim;
    const Index number = run.place() * sizes_.num_value_heads + head;
    const Matrix<float>& out = call_.activations.out;
    const DeltaRowsArgs rule{
        .first = run.first,
        .rows = run.rows,
        .key_dim = sizes_.key_head_dim,
        .value_dim = width,
        .unit = memory_ + layout_.unit,
        .scores = memory_ + layout_.scores,
        .v = channels(run, 2) + (head - key_head_ * sizes_.group()) * width,
        .v_stride = call_.activations.qkv.outerStride(),
        .log_decay = memory_ + layout_.log_decay,
        .beta = memory_ + layout_.beta,
        .state = state(run, head),
        .decay = piece_.memory.decay + number * chunk_rows,
        .values = piece_.memory.values + number * chunk_rows * width,
        .out = const_cast<float*>(out.data()) + run.row * out.outerStride() + head * width,
        .out_stride = out.outerStride(),
        .factors = memory_ + layout_.factors};
    call_.table.delta_rows(rule);
    if (run.first + run.rows == chunk_rows) close_chunk(run, head, rule);
    const ConstMatrix<float>& z = call_.activations.z;
    for (Index r = 0; r < run.rows; ++r) {
      float* const o = rule.out + r * rule.out_stride;
      call_.table.rms_norm(o, call_.weights.norm.weight, call_.weights.norm.epsilon, o);
      call_.table.silu_mul(z.data() + (run.row + r) * z.outerStride() + head * width, o, o, width);
    }
  }

  void close_chunk(const Run& run, Index head, const DeltaRowsArgs& rule) const noexcept {
    std::byte* const stored = stored_state(1 - run.place(), head);
    const bool wide = piece_.memory.state_format == Format::f32;
    float* const next = wide ? reinterpret_cast<float*>(stored) : memory_ + layout_.state;
    call_.table.delta_close({.key_dim = rule.key_dim,
                             .value_dim = rule.value_dim,
                             .keys = keys(run),
                             .values = rule.values,
                             .decay = rule.decay,
                             .state = rule.state,
                             .next = next,
                             .weighted = memory_ + layout_.weighted});
    if (wide) return;
    for (Index i = 0; i < rule.key_dim * rule.value_dim; ++i) {
      const Bf16 rounded(next[i]);
      std::memcpy(stored + i * 2, &rounded, 2);
    }
  }

  const DeltaCall& call_;
  const DeltaSizes& sizes_;
  const DeltaPiece& piece_;
  Index key_head_;
  float* memory_;
  DeltaScratchLayout layout_;
  Strip strips_[3];
  int history_ = 0;
  int next_history_ = 1;
};

/// Throws unless all shapes fit the sizes.
inline void check_shapes(const DeltaSizes& sizes, const DeltaWeights& weights, const DeltaActivations& x) {
  const Index tokens = x.qkv.rows();
  require(x.qkv.cols() == sizes.channels() && x.z.cols() == sizes.value_width() &&
              x.out.cols() == sizes.value_width() && x.a.cols() == sizes.num_value_heads &&
              x.b.cols() == sizes.num_value_heads && x.z.rows() == tokens && x.out.rows() == tokens &&
              x.a.rows() == tokens && x.b.rows() == tokens,
          "delta_net: shapes of the activations do not fit together");
  require(weights.taps != nullptr && weights.A_log.size == sizes.num_value_heads &&
              weights.dt_bias.size == sizes.num_value_heads &&
              weights.norm.weight.size == sizes.value_head_dim,
          "delta_net: shapes of the weights do not fit the layer's sizes");
}

}  // namespace kernels

QWENLITE_INLINE DeltaScratch::DeltaScratch(const Ops& ops, const DeltaSizes& sizes, Index pieces)
    : sizes_(sizes) {
  sizes.check();
  worker_floats_ = kernels::DeltaScratchLayout(sizes).floats;
  workers_ = AlignedBuffer(worker_floats_ * ops.executor().concurrency() * 4);
  pieces_.reserve(static_cast<std::size_t>(pieces));
}

QWENLITE_INLINE void delta_net(const Ops& ops, const DeltaWeights& weights,
                               const DeltaActivations& activations, DeltaScratch& scratch) {
  if (ops.checked()) return kernels::checked::delta_net(ops.unchecked(), weights, activations, scratch);
  const DeltaSizes& sizes = scratch.sizes_;
  kernels::check_shapes(sizes, weights, activations);
  for (const DeltaPiece& p : scratch.pieces_) {
    require(p.row >= 0 && p.count >= 0 && p.position >= 0 && p.row + p.count <= activations.qkv.rows(),
            "delta_net: a piece outside the activations");
  }
  const kernels::DeltaCall call{ops.table(), sizes, weights, activations};
  auto task = [&](Index i, int worker) {
    const DeltaPiece& piece = scratch.pieces_[static_cast<std::size_t>(i / sizes.num_key_heads)];
    float* const memory = scratch.workers_.floats() + worker * scratch.worker_floats_;
    kernels::DeltaHead(call, piece, i % sizes.num_key_heads, memory).run();
  };
  const auto pieces = static_cast<Index>(scratch.pieces_.size());
  ops.executor().run(pieces * sizes.num_key_heads, TaskRef(task));
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
