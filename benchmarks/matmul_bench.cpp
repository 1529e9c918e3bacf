// SPDX-License-Identifier: Apache-2.0
//
// Our matrix products against oneDNN's (bf16 weights, float32 results, 512 columns) on the shapes of the two
// models, in two ways:
//   alone  nothing but the product: both have their input in bf16 and in the order they like, and oneDNN its
//          weights too. Ours take weights as they lie in the file, as always.
//   whole  from float32 activations and the file's weights to results: what a layer has to do.
// Both engines alternate, each with its threads awake and the other's asleep; ratios are medians of pairs.
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

enum class Work { alone, whole };

/// Ours, weights taken in turn from a large buffer.
class Ours {
 public:
  Ours(const qwenlite::Ops& ops, const MatmulShape& shape, const AlignedBuffer& weights, Work work)
      : ops_(ops),
        shape_(shape),
        work_(work),
        first_(weights.data() + shape.past_line),
        copies_((weights.bytes() - 64) / (shape.rows * shape.in * 2)),
        x_(columns * shape.in * 4),
        y_(columns * shape.rows * 4),
        scratch_(ops, {.tokens = columns, .width = shape.in, .formats = {qwenlite::Format::bf16}}) {
    bench::fill_random(x_.data(), x_.bytes(), 3, {"", qwenlite::DType::f32, {}});
    packed_ = pack();
  }

  void run() {
    if (work_ == Work::whole) packed_ = pack();
    const qwenlite::Matrix<float> out(y_.floats(), columns, shape_.rows, Eigen::OuterStride<>(shape_.rows));
    const std::byte* const at = first_ + next_ * shape_.rows * shape_.in * 2;
    next_ = (next_ + 1) % copies_;
    const qwenlite::Product product{{at, shape_.rows, shape_.in, qwenlite::Format::bf16}, out, false};
    ops_.matmul(packed_, std::span(&product, 1), scratch_);
  }

 private:
  [[nodiscard]] qwenlite::Packed pack() {
    const qwenlite::ConstMatrix<float> in(x_.floats(), columns, shape_.in, Eigen::OuterStride<>(shape_.in));
    return ops_.pack(in, nullptr, {qwenlite::Format::bf16}, scratch_);
  }

  qwenlite::Ops ops_;
  MatmulShape shape_;
  Work work_;
  const std::byte* first_;
  Index copies_;
  AlignedBuffer x_;
  AlignedBuffer y_;
  qwenlite::OpsScratch scratch_;
  qwenlite::Packed packed_;
  Index next_ = 0;
};

/// oneDNN's: out[columns, rows] = x[columns, in] * weights[in, rows].
class Theirs {
 public:
  Theirs(const MatmulShape& shape, const AlignedBuffer& weights, Work work)
      : work_(work), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const Desc read({columns, shape.in}, Type::f32, Tag::ab);
    const Desc x({columns, shape.in}, Type::bf16, Tag::ab);
    const Desc stored({shape.in, shape.rows}, Type::bf16, Tag::ba);
    const Desc liked({shape.in, shape.rows}, Type::bf16, Tag::any);
    const Desc y({columns, shape.rows}, Type::f32, Tag::ab);
    const dnnl::matmul::primitive_desc chosen({x, work == Work::whole ? stored : liked, y}, engine_);
    matmul_ = dnnl::matmul(chosen);
    read_ = dnnl::memory(read, engine_);
    x_ = dnnl::memory(x, engine_);
    y_ = dnnl::memory(y, engine_);
    bench::fill_random(static_cast<std::byte*>(read_.get_data_handle()), columns * shape.in * 4, 3,
                       {"", qwenlite::DType::f32, {}});
    round_ = dnnl::reorder(read_, x_);
    round_.execute(stream_, read_, x_);
    const Index bytes = shape.rows * shape.in * 2;
    for (Index copy = 0; copy < (weights.bytes() - 64) / bytes; ++copy) {
      std::byte* const at = const_cast<std::byte*>(weights.data()) + shape.past_line + copy * bytes;
      weights_.push_back(laid_out(dnnl::memory(stored, engine_, at), chosen.weights_desc()));
    }
    stream_.wait();
  }

  void run() {
    if (work_ == Work::whole) round_.execute(stream_, read_, x_);
    matmul_.execute(stream_, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, weights_[next_]}, {DNNL_ARG_DST, y_}});
    stream_.wait();
    next_ = (next_ + 1) % weights_.size();
  }

 private:
  using Desc = dnnl::memory::desc;
  using Type = dnnl::memory::data_type;
  using Tag = dnnl::memory::format_tag;

  /// The file's own memory, or a copy in the layout that oneDNN has chosen.
  [[nodiscard]] dnnl::memory laid_out(dnnl::memory from, const Desc& layout) {
    if (work_ == Work::whole) return from;
    dnnl::memory to(layout, engine_);
    dnnl::reorder(from, to).execute(stream_, from, to);
    return to;
  }

  Work work_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  dnnl::reorder round_;
  dnnl::memory read_;
  dnnl::memory x_;
  dnnl::memory y_;
  std::vector<dnnl::memory> weights_;
  std::size_t next_ = 0;
};

/// Seconds of one run, out of several after others that wake this side's threads and let the system spread
/// them over the cores. The other side's threads, which spin for some milliseconds when they are done
/// (OpenMP's do), have gone to sleep by then.
template <class Matmul>
[[nodiscard]] double seconds_of(Matmul& matmul) {
  constexpr int warm_up_runs = 10;
  constexpr int timed_runs = 5;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (int i = 0; i < warm_up_runs; ++i) matmul.run();
  const auto start = bench::Clock::now();
  for (int i = 0; i < timed_runs; ++i) matmul.run();
  return bench::seconds_since(start) / timed_runs;
}

/// Medians over the pairs.
struct Figures {
  double ours_gflop_s;
  double onednn_gflop_s;
  double ratio;
};

struct Line {
  const char* shape;
  Figures alone;
  Figures whole;
};

[[nodiscard]] Figures compare(const qwenlite::Ops& ops, const MatmulShape& shape,
                              const AlignedBuffer& weights, Work work, int repeats) {
  Ours ours(ops, shape, weights, work);
  Theirs theirs(shape, weights, work);
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
  return {bench::median(our_speed), bench::median(their_speed), bench::median(ratio)};
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

[[nodiscard]] nlohmann::ordered_json json_of(const Figures& figures) {
  return {{"ours_gflop_s", figures.ours_gflop_s},
          {"onednn_gflop_s", figures.onednn_gflop_s},
          {"ratio", figures.ratio}};
}

void print(const Options& options, const std::vector<Line>& lines, const bench::Roofline& roof,
           const char* isa) {
  if (!options.json) {
    std::printf("%s, %d threads, %td columns, quietness %.2f; roof %.0f GFLOP/s\n", isa, options.threads,
                columns, roof.quietness, roof.product_gflop_s());
    std::printf("%-18s %31s   %31s\n", "GFLOP/s", "product alone", "from float32 and the file");
    std::printf("%-18s %8s %8s %6s %6s   %8s %8s %6s\n", "", "ours", "oneDNN", "ratio", "roof", "ours",
                "oneDNN", "ratio");
    for (const Line& line : lines) {
      std::printf("%-18s %8.0f %8.0f %6.2f %6.2f   %8.0f %8.0f %6.2f\n", line.shape, line.alone.ours_gflop_s,
                  line.alone.onednn_gflop_s, line.alone.ratio,
                  line.alone.ours_gflop_s / roof.product_gflop_s(), line.whole.ours_gflop_s,
                  line.whole.onednn_gflop_s, line.whole.ratio);
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
    json["results"].push_back(
        {{"shape", line.shape}, {"alone", json_of(line.alone)}, {"whole", json_of(line.whole)}});
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
    lines.push_back({shape.name, compare(ops, shape, weights, Work::alone, options.repeats),
                     compare(ops, shape, weights, Work::whole, options.repeats)});
    roof.push_back(meter.measure());
  }
  print(options, lines, bench::median_of(roof), table.name);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "matmul_bench: %s\n", e.what());
  return 1;
}
