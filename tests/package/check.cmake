# Builds and runs the project in this folder against qwenlite, in a scratch folder with spaces in its name.
#   cmake -DWAY=package|subdirectory -DBUILD=... -DSOURCE=... -DCOMPILER=... -DSCRATCH=... -P check.cmake
# BUILD is a configured build tree of qwenlite (installed from), SOURCE its source tree (added from).
set(place "${SCRATCH}/with spaces ${WAY}")
file(REMOVE_RECURSE "${place}")
file(MAKE_DIRECTORY "${place}")

if(WAY STREQUAL "package")
  execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${place}/prefix" --component headers
    COMMAND_ERROR_IS_FATAL ANY)
  # The consumer sees the installed copy alone.
  set(how "-DCMAKE_PREFIX_PATH=${place}/prefix")
else()
  file(COPY "${SOURCE}/CMakeLists.txt" "${SOURCE}/cmake" "${SOURCE}/include" "${SOURCE}/LICENSE"
    DESTINATION "${place}/qwen lite")
  set(how "-DQWENLITE_AS_SUBDIRECTORY=${place}/qwen lite")
endif()

file(COPY "${CMAKE_CURRENT_LIST_DIR}/" DESTINATION "${place}/consumer")
execute_process(COMMAND "${CMAKE_COMMAND}" -S "${place}/consumer" -B "${place}/build" "${how}"
  "-DCMAKE_CXX_COMPILER=${COMPILER}" -DCMAKE_BUILD_TYPE=Debug COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${place}/build" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${place}/build/consumer" COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE "${place}")
