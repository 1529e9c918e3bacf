// SPDX-License-Identifier: Apache-2.0
//
// Our matrix products alone against oneDNN's (bf16 weights, float32 results, 512 columns) on the shapes of
// the two models. Ours take float32 activations and weights as they lie in the file; oneDNN gets bf16
// activations and weights that it has reordered to its liking beforehand. Both alternate, each with its
// threads awake and the other's asleep; ratios are medians of pairs.
//
//   matmul_bench [--threads N] [--repeats N] [--json]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>
#include <thread>

#include <qwenlite/kernels/dispatch.hpp>
#include <qwenlite/kernels/ops.hpp>

#include "machine.hpp"
#include "matmul_shapes.hpp"
#include "random_checkpoint.hpp"
#include "roofline.hpp"

namespace {

using bench::Index;
using bench::MatmulShape;
using qwenlite::AlignedBuffer;

constexpr Index columns = 512;
constexpr Index memory_bytes = Index{256} << 20U;  // of weights, so that they do not stay in a cache

/// Ours: packing and product, weights taken in turn from a large buffer.
class Ours {
 public:
  Ours(const qwenlite::Ops& ops, const MatmulShape& shape, const AlignedBuffer& weights)
      : ops_(ops),
        shape_(shape),
        first_(weights.data() + shape.past_line),
        copies_((weights.bytes() - 64) / (shape.rows * shape.in * 2)),
        x_(columns * shape.in * 4),
        y_(columns * shape.rows * 4),
        scratch_(ops, {.tokens = columns, .width = shape.in, .formats = {qwenlite::Format::bf16}}) {
    bench::fill_random(x_.data(), x_.bytes(), 3, {"", qwenlite::DType::f32, {}});
  }

  void run() {
    const qwenlite::ConstMatrix<float> in(x_.floats(), columns, shape_.in, Eigen::OuterStride<>(shape_.in));
    const qwenlite::Matrix<float> out(y_.floats(), columns, shape_.rows, Eigen::OuterStride<>(shape_.rows));
    const std::byte* const at = first_ + next_ * shape_.rows * shape_.in * 2;
    next_ = (next_ + 1) % copies_;
    const qwenlite::Product product{{at, shape_.rows, shape_.in, qwenlite::Format::bf16}, out, false};
    ops_.matmul(ops_.pack(in, nullptr, {qwenlite::Format::bf16}, scratch_), std::span(&product, 1), scratch_);
  }

 private:
  qwenlite::Ops ops_;
  MatmulShape shape_;
  const std::byte* first_;
  Index copies_;
  AlignedBuffer x_;
  AlignedBuffer y_;
  qwenlite::OpsScratch scratch_;
  Index next_ = 0;
};

/// oneDNN's: out[columns, rows] = x[columns, in] * weights[in, rows], weights in the layout it prefers.
class Theirs {
 public:
  Theirs(const MatmulShape& shape, const AlignedBuffer& weights)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using Desc = dnnl::memory::desc;
    using Type = dnnl::memory::data_type;
    using Tag = dnnl::memory::format_tag;
    const Desc x({columns, shape.in}, Type::bf16, Tag::ab);
    const Desc stored({shape.in, shape.rows}, Type::bf16, Tag::ba);
    const Desc any({shape.in, shape.rows}, Type::bf16, Tag::any);
    const Desc y({columns, shape.rows}, Type::f32, Tag::ab);
    const dnnl::matmul::primitive_desc chosen({x, any, y}, engine_);
    matmul_ = dnnl::matmul(chosen);
    x_ = dnnl::memory(x, engine_);
    y_ = dnnl::memory(y, engine_);
    bench::fill_random(static_cast<std::byte*>(x_.get_data_handle()), columns * shape.in * 2, 3,
                       {"", qwenlite::DType::bf16, {}});
    const Index bytes = shape.rows * shape.in * 2;
    for (Index copy = 0; copy < weights.bytes() / bytes; ++copy) {
      dnnl::memory from(stored, engine_, const_cast<std::byte*>(weights.data()) + copy * bytes);
      dnnl::memory to(chosen.weights_desc(), engine_);
      dnnl::reorder(from, to).execute(stream_, from, to);
      weights_.push_back(to);
    }
    stream_.wait();
  }

  void run() {
    matmul_.execute(stream_, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, weights_[next_]}, {DNNL_ARG_DST, y_}});
    stream_.wait();
    next_ = (next_ + 1) % weights_.size();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  dnnl::memory x_;
  dnnl::memory y_;
  std::vector<dnnl::memory> weights_;
  std::size_t next_ = 0;
};

/// One run after another that wakes this side's threads. Those of the other side, which spin for some
/// milliseconds when they are done (OpenMP's do), have gone to sleep by then.
template <class Matmul>
[[nodiscard]] double seconds_of(Matmul& matmul) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  matmul.run();
  const auto start = bench::Clock::now();
  matmul.run();
  return bench::seconds_since(start);
}

/// Medians over the pairs.
struct Line {
  const char* shape;
  double ours_gflop_s;
  double onednn_gflop_s;
  double ratio;
};

[[nodiscard]] Line compare(const qwenlite::Ops& ops, const MatmulShape& shape, const AlignedBuffer& weights,
                           int repeats) {
  Ours ours(ops, shape, weights);
  Theirs theirs(shape, weights);
  std::vector<double> our_speed;
  std::vector<double> their_speed;
  std::vector<double> ratio;
  const double gflop = 2e-9 * static_cast<double>(shape.rows * shape.in * columns);
  for (int repeat = -2; repeat < repeats; ++repeat) {  // two to warm up
    const double a = seconds_of(ours);
    const double b = seconds_of(theirs);
    if (repeat < 0) continue;
    our_speed.push_back(gflop / a);
    their_speed.push_back(gflop / b);
    ratio.push_back(b / a);
  }
  return {shape.name, bench::median(our_speed), bench::median(their_speed), bench::median(ratio)};
}

struct Options {
  int threads = qwenlite::default_thread_count();
  int repeats = 21;
  bool json = false;
};

[[nodiscard]] bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      options.json = true;
      continue;
    }
    const int value = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    if (value < 1) return false;
    if (std::strcmp(argv[i], "--threads") == 0)
      options.threads = value;
    else if (std::strcmp(argv[i], "--repeats") == 0)
      options.repeats = value;
    else
      return false;
    ++i;
  }
  return true;
}

void print(const Options& options, const std::vector<Line>& lines, const bench::Roofline& roof,
           const char* isa) {
  if (!options.json) {
    std::printf("%s, %d threads, %td columns, quietness %.2f; roof %.0f GFLOP/s\n", isa, options.threads,
                columns, roof.quietness, roof.product_gflop_s());
    for (const Line& line : lines) {
      std::printf("%-18s ours %7.0f   oneDNN %7.0f GFLOP/s   ratio %.2f   of roof %.2f\n", line.shape,
                  line.ours_gflop_s, line.onednn_gflop_s, line.ratio,
                  line.ours_gflop_s / roof.product_gflop_s());
    }
    return;
  }
  nlohmann::ordered_json json = {
      {"machine", {{"cpu", bench::this_machine().cpu}}},
      {"isa", isa},
      {"threads", options.threads},
      {"columns", columns},
      {"roof_gflop_s", roof.product_gflop_s()},
      {"quietness", roof.quietness},
      {"onednn", std::to_string(dnnl_version()->major) + "." + std::to_string(dnnl_version()->minor)},
      {"results", nlohmann::ordered_json::array()}};
  for (const Line& line : lines) {
    json["results"].push_back({{"shape", line.shape},
                               {"ours_gflop_s", line.ours_gflop_s},
                               {"onednn_gflop_s", line.onednn_gflop_s},
                               {"ratio", line.ratio}});
  }
  std::printf("%s\n", json.dump(1).c_str());
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: matmul_bench [--threads N] [--repeats N] [--json]\n");
    return 2;
  }
  omp_set_num_threads(options.threads);
  const qwenlite::kernels::KernelTable& table = qwenlite::kernels::active();
  qwenlite::ThreadPool pool(options.threads);
  const qwenlite::Ops ops(table, pool, table.default_precision);
  AlignedBuffer weights(memory_bytes);
  bench::fill_random(weights.data(), weights.bytes(), 5, {"", qwenlite::DType::bf16, {}});
  const bench::ReadMemory memory(Index{1} << 30U);
  bench::RooflineMeter meter(pool, table.name, memory);
  std::vector<bench::Roofline> roof{meter.measure()};
  std::vector<Line> lines;
  for (const MatmulShape& shape : bench::matmul_shapes) {
    lines.push_back(compare(ops, shape, weights, options.repeats));
    roof.push_back(meter.measure());
  }
  print(options, lines, bench::median_of(roof), table.name);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "matmul_bench: %s\n", e.what());
  return 1;
}
