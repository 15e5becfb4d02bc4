# SPDX-License-Identifier: Apache-2.0
# Install rules: headers and one export set per component, so that a component's dependencies stay its own.
include(CMakePackageConfigHelpers)

# The package holds no compiled code: it lives where no architecture matters.
set(ZOADAM_PACKAGE_DIR ${CMAKE_INSTALL_DATADIR}/cmake/zoadam)

foreach(target IN LISTS ZOADAM_COMPONENT_TARGETS)
  string(REPLACE "zoadam_" "" component ${target})
  if(component STREQUAL "zoadam")
    set(component core)
  endif()
  set(_file_set "")
  get_target_property(_sets ${target} INTERFACE_HEADER_SETS)
  if(_sets)
    foreach(set IN LISTS _sets)
      list(APPEND _file_set FILE_SET ${set} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    endforeach()
  endif()
  install(TARGETS ${target} EXPORT zoadam-${component} ${_file_set})
  install(EXPORT zoadam-${component} NAMESPACE zoadam:: DESTINATION ${ZOADAM_PACKAGE_DIR})
  if(EXISTS ${PROJECT_SOURCE_DIR}/cmake/zoadam-${component}-dependencies.cmake)
    install(FILES cmake/zoadam-${component}-dependencies.cmake DESTINATION ${ZOADAM_PACKAGE_DIR})
  endif()
endforeach()
if(TARGET zoadam_nccl)
  install(FILES cmake/FindNCCL.cmake DESTINATION ${ZOADAM_PACKAGE_DIR})
endif()

configure_package_config_file(cmake/zoadam-config.cmake.in zoadam-config.cmake
                              INSTALL_DESTINATION ${ZOADAM_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO
                              NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(zoadam-config-version.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/zoadam-config.cmake ${PROJECT_BINARY_DIR}/zoadam-config-version.cmake
        DESTINATION ${ZOADAM_PACKAGE_DIR})
