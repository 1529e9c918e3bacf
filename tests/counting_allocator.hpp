// SPDX-License-Identifier: Apache-2.0
//
// Counts every use of operator new of the program. It replaces the operators, so one file of a test program
// includes it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<long> allocations{0};

// Out of line, so that compilers do not see an operator paired with a function of the C library.
[[gnu::noinline]] void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* memory = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

[[gnu::noinline]] void released(void* memory) {
  std::free(memory);
}

constexpr std::size_t plain = alignof(std::max_align_t);

}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes, plain);
}
void* operator new[](std::size_t bytes) {
  return counted(bytes, plain);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return counted(bytes, plain);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  released(memory);
}
void operator delete(void* memory) noexcept {
  released(memory);
}
void operator delete[](void* memory) noexcept {
  released(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  released(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  released(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  released(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  released(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  released(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  released(memory);
}
