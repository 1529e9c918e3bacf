// SPDX-License-Identifier: Apache-2.0
//
// EitherStop: one stop token made of two, such as that of a session and that of a single call.
#pragma once

#include <stop_token>

#include <qwenlite/error.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// A stop token that two others request.
class EitherStop {
 public:
  EitherStop(const std::stop_token& a, const std::stop_token& b)
      : first_(a, Request{&source_}), second_(b, Request{&source_}) {}
  [[nodiscard]] std::stop_token token() const noexcept { return source_.get_token(); }

 private:
  struct Request {
    std::stop_source* source;
    void operator()() const noexcept { source->request_stop(); }
  };
  std::stop_source source_;
  std::stop_callback<Request> first_, second_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
