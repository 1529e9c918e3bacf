# Installs the headers and the package files that find_package(qwenlite) reads.
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
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/qwenlite-config.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/qwenlite-config-version.cmake"
  DESTINATION "${package_dir}" COMPONENT headers)
