// SPDX-License-Identifier: Apache-2.0
//
// Loops that do nothing but arithmetic, for the peaks of vector units: float32 multiply-adds, dot products of
// int8 and of bf16 from registers, and the same multiply-adds fed from the first-level cache, one load for
// two of them (as the loops of a matrix product are at best). Sixteen independent chains hide the latency.
// Each returns a number that depends on all of its work.
#pragma once

#include <qwenlite/tensor.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace bench {

/// Floats that the loops fed from the first-level cache read again and again: 16 KiB.
inline constexpr qwenlite::Index fed_floats = 4096;

/// A loop: so many rounds (a multiple of 128) of sixteen chains; `memory` [fed_floats], 64-byte aligned, for
/// those that are fed.
using Loop = float (*)(qwenlite::Index rounds, const float* memory);

/// The loops of one instruction set; null where it has none. Operations count a multiply-add as two.
struct PeakLoops {
  Loop fma = nullptr;
  Loop fma_fed = nullptr;
  double fma_operations = 0;  ///< of one round
  Loop int8 = nullptr;
  double int8_operations = 0;
  Loop bf16_dot = nullptr;
  double bf16_dot_operations = 0;
};

#if defined(__x86_64__)

__attribute__((target("avx512f"))) inline float fma_avx512(qwenlite::Index rounds, const float* /*memory*/) {
  __m512 chain[16];
  for (int c = 0; c < 16; ++c) chain[c] = _mm512_set1_ps(0.5F + 0.01F * static_cast<float>(c));
  const __m512 factor = _mm512_set1_ps(0.875F);
  const __m512 summand = _mm512_set1_ps(0.125F);
  for (qwenlite::Index i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < 16; ++c) chain[c] = _mm512_fmadd_ps(chain[c], factor, summand);
  }
  for (int c = 1; c < 16; ++c) chain[0] = _mm512_add_ps(chain[0], chain[c]);
  return _mm512_cvtss_f32(chain[0]);
}

__attribute__((target("avx512f"))) inline float fma_fed_avx512(qwenlite::Index rounds, const float* memory) {
  __m512 chain[16];
  for (int c = 0; c < 16; ++c) chain[c] = _mm512_setzero_ps();
  const __m512 factor = _mm512_set1_ps(0.875F);
  for (qwenlite::Index i = 0; i < rounds; i += 32) {
#pragma GCC unroll 8
    for (const float* p = memory; p < memory + 4096; p += 128) {
#pragma GCC unroll 8
      for (int c = 0; c < 16; c += 2) {
        const __m512 summand = _mm512_load_ps(p + c * 8);
        chain[c] = _mm512_fmadd_ps(chain[c], factor, summand);
        chain[c + 1] = _mm512_fmadd_ps(chain[c + 1], factor, summand);
      }
    }
  }
  for (int c = 1; c < 16; ++c) chain[0] = _mm512_add_ps(chain[0], chain[c]);
  return _mm512_cvtss_f32(chain[0]);
}

__attribute__((target("avx512f,avx512vnni"))) inline float int8_avx512(qwenlite::Index rounds,
                                                                       const float* /*memory*/) {
  __m512i chain[16];
  for (int c = 0; c < 16; ++c) chain[c] = _mm512_set1_epi32(c);
  const __m512i left = _mm512_set1_epi32(0x01020304);
  const __m512i right = _mm512_set1_epi32(0x03FD02FE);
  for (qwenlite::Index i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < 16; ++c) chain[c] = _mm512_dpbusd_epi32(chain[c], left, right);
  }
  for (int c = 1; c < 16; ++c) chain[0] = _mm512_add_epi32(chain[0], chain[c]);
  return static_cast<float>(_mm512_cvtsi512_si32(chain[0]));
}

__attribute__((target("avx512f,avx512bf16"))) inline float bf16_dot_avx512(qwenlite::Index rounds,
                                                                           const float* /*memory*/) {
  __m512 chain[16];
  for (int c = 0; c < 16; ++c) chain[c] = _mm512_set1_ps(0.01F * static_cast<float>(c));
  const __m512i left = _mm512_set1_epi32(0x3F803F00);   // 1 and 0.5
  const __m512i right = _mm512_set1_epi32(0x3F00BF80);  // 0.5 and -1: sums stay small
  for (qwenlite::Index i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < 16; ++c) {
      chain[c] =
          _mm512_dpbf16_ps(chain[c], reinterpret_cast<__m512bh>(left), reinterpret_cast<__m512bh>(right));
    }
  }
  for (int c = 1; c < 16; ++c) chain[0] = _mm512_add_ps(chain[0], chain[c]);
  return _mm512_cvtss_f32(chain[0]);
}

// AVX2 has sixteen registers: twelve chains, counted as such.
__attribute__((target("avx2,fma"))) inline float fma_avx2(qwenlite::Index rounds, const float* /*memory*/) {
  __m256 chain[12];
  for (int c = 0; c < 12; ++c) chain[c] = _mm256_set1_ps(0.5F + 0.01F * static_cast<float>(c));
  const __m256 factor = _mm256_set1_ps(0.875F);
  const __m256 summand = _mm256_set1_ps(0.125F);
  for (qwenlite::Index i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < 12; ++c) chain[c] = _mm256_fmadd_ps(chain[c], factor, summand);
  }
  for (int c = 1; c < 12; ++c) chain[0] = _mm256_add_ps(chain[0], chain[c]);
  return _mm256_cvtss_f32(chain[0]);
}

__attribute__((target("avx2,fma"))) inline float fma_fed_avx2(qwenlite::Index rounds, const float* memory) {
  __m256 chain[12];
  for (int c = 0; c < 12; ++c) chain[c] = _mm256_setzero_ps();
  const __m256 factor = _mm256_set1_ps(0.875F);
  for (qwenlite::Index i = 0; i < rounds; i += 64) {
#pragma GCC unroll 8
    for (const float* p = memory; p < memory + 3072; p += 48) {
#pragma GCC unroll 6
      for (int c = 0; c < 12; c += 2) {
        const __m256 summand = _mm256_load_ps(p + c * 4);
        chain[c] = _mm256_fmadd_ps(chain[c], factor, summand);
        chain[c + 1] = _mm256_fmadd_ps(chain[c + 1], factor, summand);
      }
    }
  }
  for (int c = 1; c < 12; ++c) chain[0] = _mm256_add_ps(chain[0], chain[c]);
  return _mm256_cvtss_f32(chain[0]);
}

#elif defined(__aarch64__)

inline float fma_neon(qwenlite::Index rounds, const float* /*memory*/) {
  float32x4_t chain[16];
  for (int c = 0; c < 16; ++c) chain[c] = vdupq_n_f32(0.001F * static_cast<float>(c));
  const float32x4_t left = vdupq_n_f32(1e-3F);
  const float32x4_t right = vdupq_n_f32(-1e-3F);
  for (qwenlite::Index i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < 16; ++c) chain[c] = vfmaq_f32(chain[c], left, right);
  }
  for (int c = 1; c < 16; ++c) chain[0] = vaddq_f32(chain[0], chain[c]);
  return vgetq_lane_f32(chain[0], 0);
}

inline float fma_fed_neon(qwenlite::Index rounds, const float* memory) {
  float32x4_t chain[16];
  for (int c = 0; c < 16; ++c) chain[c] = vdupq_n_f32(0);
  const float32x4_t right = vdupq_n_f32(-1e-3F);
  for (qwenlite::Index i = 0; i < rounds; i += 128) {
#pragma GCC unroll 8
    for (const float* p = memory; p < memory + 4096; p += 32) {
#pragma GCC unroll 8
      for (int c = 0; c < 16; c += 2) {
        const float32x4_t left = vld1q_f32(p + c * 2);
        chain[c] = vfmaq_f32(chain[c], left, right);
        chain[c + 1] = vfmaq_f32(chain[c + 1], left, right);
      }
    }
  }
  for (int c = 1; c < 16; ++c) chain[0] = vaddq_f32(chain[0], chain[c]);
  return vgetq_lane_f32(chain[0], 0);
}

#endif

/// The loops for a kernel table of that name ("amx" has the vectors of AVX-512).
[[nodiscard]] inline PeakLoops peak_loops(std::string_view isa) {
  PeakLoops loops;
#if defined(__x86_64__)
  if (isa.starts_with("avx512") || isa == "amx") {
    loops = {.fma = fma_avx512, .fma_fed = fma_fed_avx512, .fma_operations = 16 * 16 * 2};
    if (__builtin_cpu_supports("avx512vnni")) {
      loops.int8 = int8_avx512;
      loops.int8_operations = 16 * 64 * 2;
    }
    if (isa == "avx512_bf16") {
      loops.bf16_dot = bf16_dot_avx512;
      loops.bf16_dot_operations = 16 * 32 * 2;
    }
  } else if (isa == "avx2") {
    loops = {.fma = fma_avx2, .fma_fed = fma_fed_avx2, .fma_operations = 12 * 8 * 2};
  }
#elif defined(__aarch64__)
  if (isa != "scalar") loops = {.fma = fma_neon, .fma_fed = fma_fed_neon, .fma_operations = 16 * 4 * 2};
#endif
  return loops;
}

}  // namespace bench
