# SPDX-License-Identifier: Apache-2.0
#
# Builds and runs a program against qwenlite the way a user would, in a scratch folder with spaces in its name.
#   cmake -DWAY=... -DBUILD=... -DSOURCE=... -DCOMPILER=... -DSCRATCH=... -P check.cmake
# BUILD is a configured build tree of qwenlite (installed from), SOURCE its source tree (copied from). WAY:
#   package        find_package after an installation that was moved
#   compiled       the same, linking qwenlite::instances
#   pkg_config     no CMake: flags from pkg-config after the installation
#   by_hand        no CMake: the command in README.md that links the library compiled by BUILD
#   subdirectory   add_subdirectory in a project whose strict warnings are errors
#   fetch_content  FetchContent of an archive in a project without RTTI
#   no_exceptions  -fno-exceptions must be refused with a clear message
set(place "${SCRATCH}/with spaces ${WAY}")
set(demo_model "${SOURCE}/examples/demo_models/qwen3")
file(REMOVE_RECURSE "${place}")
file(MAKE_DIRECTORY "${place}")

# Installs into PREFIX below `place`, and moves it: nothing may remember where it was.
function(install_moved)
  execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${place}/first" --component headers
    COMMAND_ERROR_IS_FATAL ANY)
  file(RENAME "${place}/first" "${place}/prefix")
endfunction()

# Copies what a user needs of the sources; everything else may as well be absent.
function(copy_sources)
  file(COPY "${SOURCE}/CMakeLists.txt" "${SOURCE}/cmake" "${SOURCE}/include" "${SOURCE}/LICENSE"
    DESTINATION "${place}/qwen lite")
endfunction()

# Configures, builds and runs the project in this folder. Further arguments go to its configuration.
function(build_consumer)
  file(COPY "${CMAKE_CURRENT_LIST_DIR}/" DESTINATION "${place}/consumer")
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${place}/consumer" -B "${place}/build" "-DWAY=${WAY}"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${CMAKE_COMMAND}" --build "${place}/build" COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${place}/build/consumer" "${demo_model}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Compiles a program of README.md with the flags that pkg-config names, as one types it in a shell.
function(build_with_pkg_config)
  find_program(pkg_config pkg-config)
  if(NOT pkg_config)
    message("SKIPPED: pkg-config is not installed (Debian: pkg-config)")
    return()
  endif()
  configure_file("${SOURCE}/examples/hello.cpp" "${place}/hello.cpp" COPYONLY)
  set(ENV{PKG_CONFIG_PATH} "${place}/prefix/share/pkgconfig")
  execute_process(COMMAND sh -ec "pkg-config --print-errors --exists 'qwenlite >= 0.1 qwenlite < 0.2'
    eval \"'${COMPILER}' -std=c++20 hello.cpp $(pkg-config --cflags --libs qwenlite) -o hello\"
    ./hello '${demo_model}'" WORKING_DIRECTORY "${place}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Types the command of README.md, for a program of README.md.
function(build_by_hand)
  file(STRINGS "${SOURCE}/README.md" command REGEX "^g\\+\\+ .*-DQWENLITE_COMPILED program\\.cpp ")
  list(LENGTH command commands)
  if(NOT commands EQUAL 1)
    message(FATAL_ERROR "README.md has ${commands} commands that link the compiled library, expected 1")
  endif()
  if(NOT EXISTS "${BUILD}/libqwenlite_instances.a")
    message("SKIPPED: the target qwenlite_instances has not been built")
    return()
  endif()
  string(REPLACE "build/release/" "'${BUILD}'/" command "${command}")  # first: BUILD and place may contain it
  string(REPLACE "program.cpp" "examples/hello.cpp" command "${command}")
  string(REPLACE "-o program" "-o '${place}/program'" command "${command}")
  string(REGEX REPLACE "^g\\+\\+" "'${COMPILER}'" command "${command}")
  execute_process(COMMAND sh -ec "${command}
    '${place}/program' '${demo_model}'" WORKING_DIRECTORY "${SOURCE}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(refuse_no_exceptions)
  execute_process(COMMAND "${COMPILER}" -std=c++20 -fno-exceptions -fsyntax-only -I "${SOURCE}/include"
    "${SOURCE}/include/qwenlite/error.hpp" RESULT_VARIABLE status ERROR_VARIABLE complaint)
  if(status EQUAL 0 OR NOT complaint MATCHES "error: [^\n]*without -fno-exceptions")
    message(FATAL_ERROR "-fno-exceptions is not refused in clear words: ${status} ${complaint}")
  endif()
endfunction()

if(WAY STREQUAL "package" OR WAY STREQUAL "compiled")
  install_moved()
  build_consumer("-DCMAKE_PREFIX_PATH=${place}/prefix")
elseif(WAY STREQUAL "pkg_config")
  install_moved()
  build_with_pkg_config()
elseif(WAY STREQUAL "by_hand")
  build_by_hand()
elseif(WAY STREQUAL "fetch_content")
  copy_sources()
  execute_process(COMMAND "${CMAKE_COMMAND}" -E tar czf qwenlite.tar.gz "qwen lite"
    WORKING_DIRECTORY "${place}" COMMAND_ERROR_IS_FATAL ANY)
  build_consumer("-DPLACE=${place}/qwenlite.tar.gz")
elseif(WAY STREQUAL "no_exceptions")
  refuse_no_exceptions()
else()
  copy_sources()
  build_consumer("-DPLACE=${place}/qwen lite")
endif()
file(REMOVE_RECURSE "${place}")
