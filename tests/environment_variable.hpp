// SPDX-License-Identifier: Apache-2.0
//
// An environment variable with a value for a while.
#pragma once

#include <cstdlib>

/// Sets the variable while it lives, for this process and for programs it runs.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};
