# SPDX-License-Identifier: Apache-2.0
#
# Checks of the sources, of the package and of how the library behaves in a user's build, each registered
# as a test. They need python3; those that need more skip themselves, visibly, where it is missing.

find_package(Python3 COMPONENTS Interpreter QUIET)
if(NOT Python3_FOUND)
  message(WARNING "qwenlite: python3 not found, so the checks of the sources are not run")
  return()
endif()

set(check_dir "${PROJECT_SOURCE_DIR}/cmake")
set(include_dir "${PROJECT_SOURCE_DIR}/include")
set(system_dirs "")
foreach(needed Eigen3::Eigen nlohmann_json::nlohmann_json)
  get_target_property(dirs ${needed} INTERFACE_INCLUDE_DIRECTORIES)
  foreach(dir IN LISTS dirs)
    if(NOT dir STREQUAL "/usr/include" AND NOT dir MATCHES "^\\$")
      list(APPEND system_dirs --system "${dir}")
    endif()
  endforeach()
endforeach()

# Adds the test check.<name>, running a python script; exit status 77 means skipped.
function(qwenlite_add_check name)
  add_test(NAME check.${name} COMMAND "${Python3_EXECUTABLE}" -B ${ARGN})
  set_tests_properties(check.${name} PROPERTIES LABELS checks SKIP_RETURN_CODE 77)
endfunction()

# ---------------------------------------------------------------------------------------- sources

qwenlite_add_check(layers "${check_dir}/check_layers.py" "${include_dir}")
qwenlite_add_check(sources "${check_dir}/check_sources.py" "${PROJECT_SOURCE_DIR}")
qwenlite_add_check(format "${check_dir}/check_format.py" "${PROJECT_SOURCE_DIR}")
qwenlite_add_check(readme "${check_dir}/check_readme.py" "${PROJECT_SOURCE_DIR}")
foreach(name layers sources format readme headers)
  qwenlite_add_check(${name}.can_fail "${check_dir}/check_${name}.py" --self-test)
endforeach()

# The demo model's training can emit none of the questions that it is judged by.
set(demo_questions "${PROJECT_SOURCE_DIR}/examples/demo_models/training/questions.py")
qwenlite_add_check(held_out "${demo_questions}" --check "${PROJECT_SOURCE_DIR}/tests/data/demo/questions.json")
qwenlite_add_check(held_out.can_fail "${demo_questions}" --self-test)

# ----------------------------------------------------------------------------- in a user's build

qwenlite_add_check(headers "${check_dir}/check_headers.py" "${include_dir}" ${system_dirs})
set_tests_properties(check.headers PROPERTIES PROCESSORS 2)

set(tiny_checkpoint "${PROJECT_SOURCE_DIR}/tests/data/checkpoints/qwen3-tiny")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  foreach(compiler g++ clang++)
    qwenlite_add_check(mixed_flags.${compiler} "${PROJECT_SOURCE_DIR}/tests/mixed_flags/check.py"
      --compiler ${compiler} --include "${include_dir}" ${system_dirs} --checkpoint "${tiny_checkpoint}")
  endforeach()
endif()

foreach(way package compiled pkg_config by_hand subdirectory fetch_content no_exceptions)
  add_test(NAME check.consumer.${way} COMMAND "${CMAKE_COMMAND}" -DWAY=${way} "-DBUILD=${PROJECT_BINARY_DIR}"
    "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DSCRATCH=${CMAKE_CURRENT_BINARY_DIR}"
    -P "${PROJECT_SOURCE_DIR}/tests/package/check.cmake")
  set_tests_properties(check.consumer.${way} PROPERTIES LABELS checks SKIP_REGULAR_EXPRESSION "SKIPPED: ")
endforeach()

# Reports (in the test's output) how long a user waits for the smallest whole program.
list(TRANSFORM system_dirs REPLACE "^--system$" "-isystem" OUTPUT_VARIABLE system_flags)
add_test(NAME check.hello_compile_time COMMAND "${CMAKE_COMMAND}" -E time "${CMAKE_CXX_COMPILER}" -std=c++20 -O2
  -I "${include_dir}" ${system_flags} -c "${PROJECT_SOURCE_DIR}/examples/hello.cpp"
  -o "${CMAKE_CURRENT_BINARY_DIR}/hello.o")
set_tests_properties(check.hello_compile_time PROPERTIES LABELS checks RUN_SERIAL ON)

# --------------------------------------------------------------------------------- in a terminal

if(TARGET chat)
  get_target_property(with_readline chat QWENLITE_READLINE)
  set(session "${PROJECT_SOURCE_DIR}/tests/examples/terminal_session.py" --chat $<TARGET_FILE:chat>)
  if(NOT with_readline)
    list(APPEND session --no-readline)
  endif()
  qwenlite_add_check(terminal ${session})
endif()

# ------------------------------------------------------------------------- on a CPU without AVX

# No instruction of a stronger set may leave its region: a binary that runs here runs there too. Cases that
# take long, and those that only compare ways of computing the same, are left out: emulation is slow.
# So are those that count the threads and the memory of their process, which the emulator shares.
find_program(QWENLITE_QEMU qemu-x86_64)
if(QWENLITE_QEMU AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(REMOVE_ITEM test_programs test_examples)  # its child processes would not be emulated
  foreach(program IN LISTS test_programs)
    string(REPLACE "test_" "nehalem." name ${program})
    add_test(NAME ${name} COMMAND "${QWENLITE_QEMU}" -cpu Nehalem $<TARGET_FILE:${program}>
      "~[slow]~[bits]~[thorough]~[process]")
    set_tests_properties(${name} PROPERTIES LABELS slow TIMEOUT 3600)
  endforeach()
else()
  message(STATUS "qwenlite: qemu-x86_64 not found, no run on an emulated CPU without AVX (Debian: qemu-user)")
endif()
