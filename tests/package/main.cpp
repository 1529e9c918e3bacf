// SPDX-License-Identifier: Apache-2.0
//
// Two units of one program include the whole library: everything in it must be inline, and both must see
// the same library.
#include <qwenlite/model.hpp>

qwenlite::ErrorCode second_unit(const qwenlite::Error& error);

int main() {
  const qwenlite::Error error(qwenlite::ErrorCode::cancelled, "passed between units");
  return second_unit(error) == qwenlite::ErrorCode::cancelled ? 0 : 1;
}
