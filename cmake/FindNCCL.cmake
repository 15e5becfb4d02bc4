# SPDX-License-Identifier: Apache-2.0
# NCCL: in NCCL_ROOT, beside the CUDA toolkit, as a system package (Debian: libnccl-dev), or as python's wheel
# (nvidia-nccl-cu12, nvidia-nccl-cu13).
#
# Defines NCCL::NCCL, NCCL_FOUND, NCCL_VERSION, NCCL_INCLUDE_DIR and NCCL_LIBRARY; the latter two may be given.
set(_nccl_hints "")
foreach(_path IN LISTS CUDAToolkit_INCLUDE_DIRS CUDAToolkit_LIBRARY_DIR)
  get_filename_component(_path ${_path} DIRECTORY)
  list(APPEND _nccl_hints ${_path})
endforeach()

# Asking python takes a moment: only where nothing else is found, and once.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${_nccl_hints} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${_nccl_hints} PATH_SUFFIXES lib lib64)
if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
  find_program(NCCL_PYTHON NAMES python3)
  mark_as_advanced(NCCL_PYTHON)
  set(_nccl_wheels "")
  if(NCCL_PYTHON)
    execute_process(
      COMMAND ${NCCL_PYTHON} -c
              "import site, sys; print(';'.join([*sys.path, *site.getsitepackages(), site.getusersitepackages()]))"
      OUTPUT_VARIABLE _nccl_wheels ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    list(FILTER _nccl_wheels INCLUDE REGEX "(site|dist)-packages$")
    list(TRANSFORM _nccl_wheels APPEND /nvidia/nccl)
  endif()
  # Header and library of one version: a pair, or nothing of it.
  foreach(_path IN LISTS _nccl_wheels)
    if(EXISTS ${_path}/include/nccl.h AND EXISTS ${_path}/lib/libnccl.so.2)
      set_property(CACHE NCCL_INCLUDE_DIR PROPERTY VALUE ${_path}/include)
      set_property(CACHE NCCL_LIBRARY PROPERTY VALUE ${_path}/lib/libnccl.so.2)
      break()
    endif()
  endforeach()
endif()
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

unset(NCCL_VERSION)
if(NCCL_INCLUDE_DIR AND EXISTS ${NCCL_INCLUDE_DIR}/nccl.h)
  set(_nccl_version "")
  foreach(_part MAJOR MINOR PATCH)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h _line REGEX "^#define NCCL_${_part} +[0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+" _line "${_line}")
    list(APPEND _nccl_version ${_line})
  endforeach()
  list(JOIN _nccl_version "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)

if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL UNKNOWN IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
                                              INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
foreach(_nccl_variable _nccl_hints _nccl_wheels _nccl_version _path _part _line)
  unset(${_nccl_variable})
endforeach()
