// SPDX-License-Identifier: Apache-2.0
//
// What the kernel tests share: the tables this process can run (AMX also by emulation), memory that ends at
// an inaccessible page, stored weights in every format, and comparison of bits.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "amx_emulator.hpp"
#include "catch_any.hpp"

namespace kernel_tests {

using qwenlite::Bf16;
using qwenlite::F16;
using qwenlite::Format;
using qwenlite::Index;
using qwenlite::Precision;
using qwenlite::kernels::KernelTable;

/// The instruction set for whose sake the whole process is emulated, or null: emulation is slow, and others
/// have runs of their own.
inline const char* emulated_isa() {
  return std::getenv("QWENLITE_EMULATED_ISA");
}

/// A table of this program by its name, whether or not the CPU can run it. Tests that named the kernels' own
/// headers instead would compile the kernels once more each.
inline const KernelTable& compiled_table(std::string_view name) {
  for (const KernelTable* t : qwenlite::kernels::compiled()) {
    if (t->name == name) return *t;
  }
  throw std::runtime_error("no kernels of that name");
}

/// Every table that can run here, weakest first; of those with AVX-512's vectors the strongest, as the others
/// do what it does at `exact` precision, but for products of int8 activations. Says loudly when AMX cannot.
inline std::vector<const KernelTable*> runnable_tables() {
  if (emulated_isa() != nullptr) return {&qwenlite::kernels::by_name(emulated_isa())};
  const auto supported = qwenlite::kernels::supported();
  std::vector<const KernelTable*> tables;
  for (const KernelTable* t : supported) {
    const std::string_view name = t->name;
    if (name == "avx512_vnni" || name == "avx512_bf16") tables.pop_back();  // avx512, avx512_vnni
    tables.push_back(t);
  }
#if defined(__x86_64__)
  if (!ensure_amx()) {
    WARN("SKIPPED: AMX kernels (neither AMX nor the AVX-512 that emulation needs)");
  } else if (std::strcmp(tables.back()->name, "amx") != 0) {
    tables.push_back(&compiled_table("amx"));
  }
#endif
  return tables;
}

/// Those and the others with AVX-512's vectors, for products of int8 activations.
inline std::vector<const KernelTable*> all_tables() {
  std::vector<const KernelTable*> tables = runnable_tables();
  if (emulated_isa() != nullptr) return tables;
  for (const KernelTable* t : qwenlite::kernels::supported()) {
    if (std::find(tables.begin(), tables.end(), t) == tables.end()) tables.push_back(t);
  }
  return tables;
}

/// Packs x [columns][in] by sixteen columns at a time, each divided by its root mean square if there is a
/// norm.
inline void pack_columns(const KernelTable& t, const std::vector<float>& x, Index in,
                         const qwenlite::VectorView& norm, qwenlite::kernels::PackLayout layout,
                         std::byte* out) {
  const Index columns = std::ssize(x) / in;
  for (Index first = 0; first < columns; first += 16) {
    t.pack({.x = x.data(),
            .x_stride = in,
            .in = in,
            .first = first,
            .last = std::min(columns, first + 16),
            .norm_weight = norm,
            .epsilon = 1e-6F,
            .layout = layout,
            .out = out});
  }
}

/// Zeroed memory whose last byte lies right before an inaccessible page, so that reading or writing past it
/// ends the test program. `spare` bytes are left between the data and that page.
class GuardedMemory {
 public:
  explicit GuardedMemory(Index bytes, Index spare = 0) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t used = (static_cast<std::size_t>(bytes + spare) + page - 1) / page * page;
    size_ = used + page;
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
    memory_ = static_cast<std::byte*>(memory);
    if (mprotect(memory_ + used, page, PROT_NONE) != 0) throw std::runtime_error("mprotect failed");
    data_ = memory_ + used - bytes - spare;
  }
  ~GuardedMemory() { munmap(memory_, size_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] float* floats() const { return reinterpret_cast<float*>(data_); }

  /// The last `bytes` of it, for tests that use the same memory again and again.
  [[nodiscard]] std::byte* last(Index bytes) const {
    if (bytes > bytes_) throw std::runtime_error("a guarded memory is too small for its test");
    return data_ + bytes_ - bytes;
  }

 private:
  std::byte* memory_ = nullptr;
  std::byte* data_ = nullptr;
  Index bytes_ = 0;
  std::size_t size_ = 0;
};

/// Writes `value` as element i of a stored row.
inline void encode(Format format, float value, std::byte* row, Index i) {
  switch (format) {
    case Format::bf16: {
      const Bf16 stored(value);
      std::memcpy(row + i * 2, &stored, 2);
      return;
    }
    case Format::f16: {
      const F16 stored(value);
      std::memcpy(row + i * 2, &stored, 2);
      return;
    }
    case Format::f32: std::memcpy(row + i * 4, &value, 4); return;
    case Format::int8:
    case Format::int4:
    case Format::fp8: break;
  }
  throw std::runtime_error("quantised rows are not written element by element");
}

inline float round_to_bf16(float value) {
  return static_cast<float>(Bf16(value));
}

inline std::vector<float> random_floats(Index count, unsigned seed, float spread = 1.0F) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = normal(bits);
  return values;
}

inline bool same_bits(const float* a, const float* b, Index count) {
  return std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(float)) == 0;
}

}  // namespace kernel_tests
