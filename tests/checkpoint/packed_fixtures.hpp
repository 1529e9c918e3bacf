// SPDX-License-Identifier: Apache-2.0
//
// Packed matrices, from the fixtures or made in memory, and what they unpack to.
#pragma once

#include <memory>
#include <utility>

#include <qwenlite/checkpoint/packed_unpack.hpp>

#include "checkpoint/fixtures.hpp"

namespace fixtures {

inline fs::path packed_fixture(const std::string& name) {
  return fs::path(QWENLITE_TEST_DATA) / "quantised" / name;
}

/// The packed tensors of an opened checkpoint, which must outlive them.
inline qwenlite::PackedTensors packed_of(const qwenlite::Checkpoint& files) {
  return {std::shared_ptr<const qwenlite::TensorFiles>(std::shared_ptr<void>(), &files.tensors()),
          files.config().quantisation};
}

/// Runs all tasks of an unpacking, the last first.
inline qwenlite::UnpackedMatrix unpack(const qwenlite::PackedMatrix& matrix, bool plainly = false) {
  qwenlite::Unpacking unpacking(matrix, plainly);
  std::vector<std::byte> scratch(static_cast<std::size_t>(unpacking.scratch_bytes()), std::byte{0xAA});
  for (qwenlite::Index i = unpacking.tasks(); i-- > 0;) unpacking.run(i, scratch.data());
  return unpacking.take();
}

/// Index of the first element whose bits differ from those of a float32 tensor, or -1.
inline qwenlite::Index first_difference(const qwenlite::WeightView& made,
                                        const qwenlite::TensorView& expected) {
  for (qwenlite::Index i = 0; i < made.rows * made.cols; ++i) {
    float want = 0;
    std::memcpy(&want, expected.data + 4 * i, 4);
    const float got = decode(made, i / made.cols, i % made.cols);
    if (std::memcmp(&got, &want, 4) != 0 && !(got == 0 && want == 0)) return i;
  }
  return -1;
}

}  // namespace fixtures
