// SPDX-License-Identifier: Apache-2.0
//
// AMX instructions in software, for tests on CPUs without them: a SIGILL handler decodes the instruction the
// CPU refused, executes it on tile registers kept per thread, and steps over it, so that the very code of
// kernels/amx.hpp runs. It also refuses what hardware refuses: bad configurations and operands that do not
// fit each other.
//
// Call ensure_amx() in every test case that runs AMX code: test frameworks put back their own signal
// handlers between cases. The handler allocates nothing and takes no lock.
#pragma once

#include <qwenlite/kernels/dispatch.hpp>

#if defined(__x86_64__) && defined(__linux__)

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <immintrin.h>
#include <ucontext.h>
#include <unistd.h>

#include <qwenlite/kernels/amx_tiles.hpp>
#include <qwenlite/kernels/process.hpp>

namespace amx_emulator {

/// The tile registers of one thread. Palette 0: not configured.
struct TileFile {
  std::uint8_t palette = 0;
  std::uint16_t row_bytes[8] = {};
  std::uint8_t rows[8] = {};
  std::uint8_t data[8][16][64] = {};
};
constinit inline thread_local TileFile tiles{};

/// Instructions executed by this thread.
constinit inline thread_local long executed = 0;

/// Where the signal went before; instructions that are not ours still go there.
constinit inline struct sigaction previous {};

[[noreturn]] inline void fail(const char* why) {
  const char prefix[] = "amx emulator: ";
  if (write(2, prefix, sizeof(prefix) - 1) < 0 || write(2, why, std::strlen(why)) < 0 ||
      write(2, "\n", 1) < 0) {
    std::abort();
  }
  std::abort();
}

// --------------------------------------------------------------------------------------- decoding

/// A VEX-encoded instruction with its memory operand resolved.
struct Instruction {
  unsigned prefix = 0;  ///< 0 none, 1 66, 2 F3, 3 F2
  unsigned opcode = 0;
  bool memory = false;
  unsigned reg = 0;  ///< ModRM.reg
  unsigned rm = 0;   ///< ModRM.rm when it is a register
  unsigned vvvv = 0;
  std::uintptr_t address = 0;  ///< base + displacement (plus the index, for ldtilecfg's plain operand)
  std::intptr_t stride = 0;    ///< index << scale
  int length = 0;
};

inline std::intptr_t general_register(const greg_t* regs, unsigned number) {
  static constexpr int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<std::intptr_t>(regs[order[number]]);
}

inline std::int32_t displacement(const std::uint8_t* p, int bytes) {
  if (bytes == 0) return 0;
  if (bytes == 1) return static_cast<std::int8_t>(*p);
  std::int32_t value;
  std::memcpy(&value, p, 4);
  return value;
}

/// Resolves ModRM (at p) and what follows it. `extend_x` and `extend_b` are the VEX register extensions.
inline void decode_operand(const greg_t* regs, const std::uint8_t* p, bool extend_x, bool extend_b,
                           Instruction& in) {
  const std::uint8_t* start = p;
  const unsigned mode = *p >> 6U;
  const unsigned rm = *p & 7U;
  ++p;
  in.memory = mode != 3;
  if (!in.memory) {
    in.rm = rm | (extend_b ? 8U : 0U);
    in.length += 1;
    return;
  }
  std::intptr_t base = 0;
  int displacement_bytes = mode == 1 ? 1 : mode == 2 ? 4 : 0;
  bool from_next_instruction = false;
  if (rm == 4) {  // SIB
    const unsigned index = (*p >> 3U & 7U) | (extend_x ? 8U : 0U);
    const unsigned base_register = *p & 7U;
    if (index != 4) in.stride = general_register(regs, index) * (std::intptr_t{1} << (*p >> 6U));
    if (base_register == 5 && mode == 0) {
      displacement_bytes = 4;
    } else {
      base = general_register(regs, base_register | (extend_b ? 8U : 0U));
    }
    ++p;
  } else if (rm == 5 && mode == 0) {
    displacement_bytes = 4;
    from_next_instruction = true;
  } else {
    base = general_register(regs, rm | (extend_b ? 8U : 0U));
  }
  base += displacement(p, displacement_bytes);
  p += displacement_bytes;
  in.length += static_cast<int>(p - start);
  if (from_next_instruction) base += static_cast<std::intptr_t>(regs[REG_RIP]) + in.length;
  in.address = static_cast<std::uintptr_t>(base);
}

/// Decodes a three-byte VEX instruction of the 0F38 map with W = 0 and 128 bits; false for all others.
inline bool decode(const greg_t* regs, Instruction& in) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(regs[REG_RIP]);
  if (p[0] != 0xC4 || (p[1] & 0x1FU) != 2 || (p[2] & 0x84U) != 0) return false;
  in.prefix = p[2] & 3U;
  in.vvvv = ~(p[2] >> 3U) & 0xFU;
  in.opcode = p[3];
  if (in.opcode != 0x49 && in.opcode != 0x4B && in.opcode != 0x5C) return false;
  in.reg = (p[4] >> 3U & 7U) | ((p[1] & 0x80U) == 0 ? 8U : 0U);
  in.length = 4;
  decode_operand(regs, p + 4, (p[1] & 0x40U) == 0, (p[1] & 0x20U) == 0, in);
  return true;
}

// -------------------------------------------------------------------------------------- execution

inline void require_tile(unsigned tile) {
  if (tiles.palette == 0) fail("a tile instruction without a configuration");
  if (tile > 7) fail("tile register out of range");
}

inline void load_config(const void* memory) {
  qwenlite::kernels::amx::TileConfig config;
  std::memcpy(&config, memory, sizeof(config));
  tiles = TileFile{};
  if (config.palette > 1 || config.start_row != 0) fail("unknown palette or start row");
  for (const std::uint8_t byte : config.reserved) {
    if (byte != 0) fail("reserved bytes of the configuration are not zero");
  }
  tiles.palette = config.palette;
  for (int i = 0; i < 16; ++i) {
    const unsigned row_bytes = config.row_bytes[i];
    const unsigned rows = config.rows[i];
    if (rows > 16 || row_bytes > 64 || (rows == 0) != (row_bytes == 0)) fail("rows or bytes out of range");
    if (i >= 8 && rows != 0) fail("more than eight tiles configured");
    if (i >= 8 || config.palette == 0) continue;
    tiles.row_bytes[i] = static_cast<std::uint16_t>(row_bytes);
    tiles.rows[i] = static_cast<std::uint8_t>(rows);
  }
}

inline void load_tile(unsigned tile, std::uintptr_t address, std::intptr_t stride) {
  require_tile(tile);
  if (tiles.rows[tile] == 0) fail("load of a tile without rows");
  std::memset(tiles.data[tile], 0, sizeof(tiles.data[tile]));
  for (unsigned r = 0; r < tiles.rows[tile]; ++r) {
    std::memcpy(tiles.data[tile][r], reinterpret_cast<const void*>(address), tiles.row_bytes[tile]);
    address += static_cast<std::uintptr_t>(stride);
  }
}

inline void store_tile(unsigned tile, std::uintptr_t address, std::intptr_t stride) {
  require_tile(tile);
  if (tiles.rows[tile] == 0) fail("store of a tile without rows");
  for (unsigned r = 0; r < tiles.rows[tile]; ++r) {
    std::memcpy(reinterpret_cast<void*>(address), tiles.data[tile][r], tiles.row_bytes[tile]);
    address += static_cast<std::uintptr_t>(stride);
  }
}

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,fma")
#endif

/// The arithmetic of tdpbf16ps: for each element the sums of the even and of the odd products, each a chain
/// of fused multiply-adds over the pairs in order, then even + odd, then added to the destination.
[[gnu::noinline]] inline void multiply_rows(unsigned sum, unsigned left, unsigned right) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
  for (unsigned m = 0; m < tiles.rows[sum]; ++m) {
    __m512 even = _mm512_setzero_ps();
    __m512 odd = _mm512_setzero_ps();
    for (unsigned k = 0; k < tiles.row_bytes[left] / 4U; ++k) {
      std::int32_t pair;
      std::memcpy(&pair, &tiles.data[left][m][k * 4], 4);
      const __m512i a = _mm512_set1_epi32(pair);
      const __m512i b = _mm512_loadu_si512(tiles.data[right][k]);
      even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, a, 16)),
                             _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, b, 16)), even);
      odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a, upper)),
                            _mm512_castsi512_ps(_mm512_and_si512(b, upper)), odd);
    }
    std::uint8_t* row = tiles.data[sum][m];
    _mm512_storeu_ps(row, _mm512_add_ps(_mm512_loadu_ps(row), _mm512_add_ps(even, odd)));
    std::memset(row + tiles.row_bytes[sum], 0, 64U - tiles.row_bytes[sum]);
  }
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

inline void multiply(unsigned sum, unsigned left, unsigned right) {
  require_tile(sum);
  require_tile(left);
  require_tile(right);
  if (sum == left || sum == right || left == right) fail("the same tile twice in a product");
  if (tiles.rows[sum] == 0 || tiles.rows[sum] != tiles.rows[left] ||
      tiles.row_bytes[sum] != tiles.row_bytes[right] || tiles.row_bytes[left] != tiles.rows[right] * 4 ||
      tiles.row_bytes[sum] % 4 != 0) {
    fail("tiles of a product do not fit each other");
  }
  const unsigned before = _mm_getcsr();
  _mm_setcsr(0x9FC0);  // round to nearest even, denormals are zero on both sides, no exceptions
  multiply_rows(sum, left, right);
  _mm_setcsr(before);
  const std::size_t used = tiles.rows[sum];
  std::memset(tiles.data[sum][used], 0, (16 - used) * 64);
}

/// Executes one decoded instruction; false if it is none of AMX.
inline bool execute(const Instruction& in) {
  const unsigned key = in.opcode << 8U | in.prefix << 4U | (in.memory ? 1U : 0U);
  switch (key) {
    case 0x4901:
      load_config(reinterpret_cast<const void*>(in.address + static_cast<std::uintptr_t>(in.stride)));
      break;
    case 0x4900: tiles = TileFile{}; break;  // tilerelease
    case 0x4930:
      require_tile(in.reg);
      std::memset(tiles.data[in.reg], 0, sizeof(tiles.data[in.reg]));
      break;
    case 0x4B31:  // tileloadd
    case 0x4B11:  // tileloaddt1
      load_tile(in.reg, in.address, in.stride);
      break;
    case 0x4B21: store_tile(in.reg, in.address, in.stride); break;
    case 0x5C20: multiply(in.reg, in.rm, in.vvvv); break;
    default: return false;
  }
  ++executed;
  return true;
}

inline void on_illegal_instruction(int signal, siginfo_t* info, void* context) {
  greg_t* regs = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  Instruction in;
  if (decode(regs, in) && execute(in)) {
    regs[REG_RIP] += in.length;
    return;
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
    std::signal(SIGILL, SIG_DFL);  // the instruction is refused again, and the process ends
  } else {
    previous.sa_handler(signal);
  }
}

inline void install() {
  struct sigaction current {};
  sigaction(SIGILL, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_illegal_instruction) return;
  previous = current;
  struct sigaction ours {};
  ours.sa_sigaction = on_illegal_instruction;
  ours.sa_flags = SA_SIGINFO;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGILL, &ours, nullptr);
}

}  // namespace amx_emulator

/// True when the AMX kernels run in hardware here.
inline bool hardware_amx() {
  static const bool here = qwenlite::kernels::probe_cpu().amx && qwenlite::kernels::amx::request_permission();
  return here;
}

/// Makes the AMX table callable in this process, in hardware or emulated; false where the CPU also lacks the
/// AVX-512 that the AMX kernels need beside the tiles.
inline bool ensure_amx() {
  if (hardware_amx()) return true;
  if (!qwenlite::kernels::probe_cpu().avx512 || __builtin_cpu_supports("avx512bf16") == 0) return false;
  amx_emulator::install();
  return true;
}

#else

inline bool hardware_amx() {
  return false;
}
inline bool ensure_amx() {
  return false;
}

#endif
