# SPDX-License-Identifier: Apache-2.0
#
# qwenlite_instances: the non-template parts of the library and the networks of AnyModel, compiled once with
# the flags of whoever builds it. A program that links it compiles in a fraction of the time; nothing else
# changes. It is built only when something links it.
#
# Included by the project itself, and by the installed package in the project that finds it.
if(NOT TARGET qwenlite_instances)
  file(GLOB instances "${CMAKE_CURRENT_LIST_DIR}/instances/*.cpp")
  add_library(qwenlite_instances STATIC EXCLUDE_FROM_ALL ${instances})
  add_library(qwenlite::instances ALIAS qwenlite_instances)
  target_compile_definitions(qwenlite_instances PUBLIC QWENLITE_COMPILED)
  target_link_libraries(qwenlite_instances PUBLIC qwenlite::qwenlite)
  set_target_properties(qwenlite_instances PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
endif()
