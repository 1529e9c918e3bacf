# SPDX-License-Identifier: Apache-2.0
#
# Installs the headers and what find_package(qwenlite) and pkg-config read. Unless directories are given as
# absolute paths, nothing in it names the place of the installation, so the whole may be moved.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/qwenlite DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  COMPONENT headers FILES_MATCHING PATTERN "*.hpp")
install(TARGETS qwenlite EXPORT qwenlite-targets)
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT headers)

set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/qwenlite")
install(EXPORT qwenlite-targets NAMESPACE qwenlite:: DESTINATION "${package_dir}" COMPONENT headers)
configure_package_config_file(cmake/qwenlite-config.cmake.in
  "${CMAKE_CURRENT_BINARY_DIR}/qwenlite-config.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/qwenlite-config-version.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES cmake/instances.cmake DESTINATION "${package_dir}" COMPONENT headers)
install(DIRECTORY cmake/instances DESTINATION "${package_dir}" COMPONENT headers)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/qwenlite-config.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/qwenlite-config-version.cmake"
  DESTINATION "${package_dir}" COMPONENT headers)

set(pkgconfig_dir "${CMAKE_INSTALL_DATADIR}/pkgconfig")
cmake_path(ABSOLUTE_PATH pkgconfig_dir BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" OUTPUT_VARIABLE pc_place)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY "${pc_place}" OUTPUT_VARIABLE to_prefix)
set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(cmake/qwenlite.pc.in "${CMAKE_CURRENT_BINARY_DIR}/qwenlite.pc" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/qwenlite.pc" DESTINATION "${pkgconfig_dir}" COMPONENT headers)
