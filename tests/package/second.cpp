// SPDX-License-Identifier: Apache-2.0
#include <qwenlite/model.hpp>

qwenlite::ErrorCode second_unit(const qwenlite::Error& error);

qwenlite::ErrorCode second_unit(const qwenlite::Error& error) {
  return error.code();
}
