# SPDX-License-Identifier: Apache-2.0
#
# Settings of our own programs (tests, examples, benchmarks). Nothing here reaches a user's targets.

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# No -m flag: kernels choose their instruction set at run time.
set(QWENLITE_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wswitch-enum -Werror)

add_library(qwenlite_own_flags INTERFACE)
target_compile_options(qwenlite_own_flags INTERFACE ${QWENLITE_WARNINGS})
if(QWENLITE_SANITIZE)
  target_compile_options(qwenlite_own_flags INTERFACE
    -fsanitize=${QWENLITE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(qwenlite_own_flags INTERFACE -fsanitize=${QWENLITE_SANITIZE})
endif()

# Programs of ours share one compiled copy of the library.
if(PROJECT_IS_TOP_LEVEL)
  target_link_libraries(qwenlite_instances PRIVATE qwenlite_own_flags)
endif()

# Adds a program made of the given sources that uses the library under our own warnings. With HEADER_ONLY
# first it compiles the library itself, as a program does that links nothing; but not for sanitizers, which
# take minutes for all kernels and would see the same code again.
function(qwenlite_add_program name)
  set(library qwenlite::instances)
  if(ARGV1 STREQUAL "HEADER_ONLY")
    list(POP_FRONT ARGN)
    if(NOT QWENLITE_SANITIZE)
      set(library qwenlite::qwenlite)
    endif()
  endif()
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE ${library} qwenlite_own_flags)
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
endfunction()
