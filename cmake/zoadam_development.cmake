# SPDX-License-Identifier: Apache-2.0
# Helpers for the project's own programs: warnings, instruction sets, third-party packages. Nothing here is exported.
set(CMAKE_CXX_EXTENSIONS OFF)

set(ZOADAM_ISAS native scalar sse2 avx2 avx512)
set(ZOADAM_TEST_ISA native CACHE STRING "Instruction set of tests, examples and benches: ${ZOADAM_ISAS}")
set_property(CACHE ZOADAM_TEST_ISA PROPERTY STRINGS ${ZOADAM_ISAS})
if(NOT ZOADAM_TEST_ISA IN_LIST ZOADAM_ISAS)
  message(FATAL_ERROR "zoadam: ZOADAM_TEST_ISA is '${ZOADAM_TEST_ISA}', must be one of: ${ZOADAM_ISAS}")
endif()

set(ZOADAM_WARNINGS -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)

# Compiler flags that select an instruction set of zoadam.
function(zoadam_isa_flags out isa)
  set(flags_native -march=native)
  set(flags_scalar -DZOADAM_SCALAR)
  set(flags_sse2 -march=x86-64)
  set(flags_avx2 -march=x86-64-v3)
  set(flags_avx512 -march=x86-64-v4)
  set(${out} ${flags_${isa}} PARENT_SCOPE)
endfunction()

# Whether this machine runs an instruction set of zoadam.
function(zoadam_cpu_has out isa)
  set(${out} TRUE PARENT_SCOPE)
  set(need_sse2 sse2)
  set(need_avx2 avx2 fma bmi2 f16c)
  set(need_avx512 avx512f avx512bw avx512vl avx512dq avx512cd)
  if(need_${isa})
    set(cpu "")
    if(EXISTS /proc/cpuinfo)
      file(READ /proc/cpuinfo cpu)
    endif()
    foreach(flag IN LISTS need_${isa})
      if(NOT cpu MATCHES "[ \t]${flag}[ \n]")
        set(${out} FALSE PARENT_SCOPE)
      endif()
    endforeach()
  endif()
endfunction()

zoadam_cpu_has(_runs ${ZOADAM_TEST_ISA})
if(NOT _runs)
  message(FATAL_ERROR "zoadam: ZOADAM_TEST_ISA=${ZOADAM_TEST_ISA}, but this CPU lacks that instruction set")
endif()

# Warnings and instruction set for one of the project's own programs.
function(zoadam_own_program target)
  zoadam_isa_flags(flags ${ZOADAM_TEST_ISA})
  target_compile_options(${target} PRIVATE ${ZOADAM_WARNINGS} ${flags})
endfunction()

# CUDA as a language, where there is a compiler for it.
set(ZOADAM_CUDA_ARCHITECTURES 80 90 CACHE STRING "Compute capabilities of the project's own CUDA programs")
set(ZOADAM_HAS_NVCC FALSE)
if(TARGET zoadam_cuda)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES ${ZOADAM_CUDA_ARCHITECTURES})
    enable_language(CUDA)
    set(ZOADAM_HAS_NVCC TRUE)
  else()
    message(STATUS "zoadam: no nvcc: what needs it is left out")
  endif()
endif()

# Warnings and libraries for one of the project's own CUDA programs.
function(zoadam_own_cuda_program target)
  target_link_libraries(${target} PRIVATE zoadam::cuda Threads::Threads)
  target_compile_options(
    ${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-Werror;all-warnings;-Xcompiler=-Wall,-Wextra,-Wshadow,-Werror>
                      $<$<COMPILE_LANGUAGE:CXX>:${ZOADAM_WARNINGS}>)
endfunction()

# find_package first; then the folder that ZOADAM_THIRD_PARTY names; at the top level, the pinned release of the official
# repository last.
macro(zoadam_find_doctest)
  find_package(doctest CONFIG QUIET)
  if(NOT doctest_FOUND AND EXISTS "$ENV{ZOADAM_THIRD_PARTY}/doctest/doctest.h")
    add_library(doctest::doctest INTERFACE IMPORTED)
    target_include_directories(doctest::doctest INTERFACE $ENV{ZOADAM_THIRD_PARTY})
  elseif(NOT doctest_FOUND AND PROJECT_IS_TOP_LEVEL)
    message(STATUS "zoadam: package doctest is not installed: fetching 2.4.9 from its repository")
    set(DOCTEST_WITH_TESTS OFF)
    include(FetchContent)
    FetchContent_Declare(doctest GIT_REPOSITORY https://github.com/doctest/doctest.git
                         GIT_TAG b7c21ec5ceeadb4951b00396fc1e4642dd347e5f SYSTEM)  # 2.4.9
    FetchContent_MakeAvailable(doctest)
  elseif(NOT doctest_FOUND)
    message(FATAL_ERROR "zoadam: the package doctest is needed and not installed")
  endif()
endmacro()

# What the trainers in examples/ need, as one target.
function(zoadam_find_trainer_packages)
  if(TARGET zoadam_trainer_packages)
    return()
  endif()
  find_package(CLI11 CONFIG REQUIRED)
  find_package(nlohmann_json CONFIG REQUIRED)
  find_path(ZOADAM_CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas openblas-pthread REQUIRED)
  find_library(ZOADAM_CBLAS_LIBRARY openblas PATH_SUFFIXES openblas-pthread REQUIRED)
  mark_as_advanced(ZOADAM_CBLAS_INCLUDE_DIR ZOADAM_CBLAS_LIBRARY)
  add_library(zoadam_trainer_packages INTERFACE)
  target_include_directories(zoadam_trainer_packages SYSTEM INTERFACE ${ZOADAM_CBLAS_INCLUDE_DIR})
  target_link_libraries(zoadam_trainer_packages INTERFACE CLI11::CLI11 nlohmann_json::nlohmann_json
                                                          ${ZOADAM_CBLAS_LIBRARY})
endfunction()

# Thrust for host code, with the headers that need it, as one target; none where there is no Thrust. Every CUDA toolkit
# holds one, beside its other headers or in a folder of theirs.
function(zoadam_find_thrust)
  find_path(ZOADAM_THRUST_INCLUDE_DIR thrust/version.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES cccl)
  mark_as_advanced(ZOADAM_THRUST_INCLUDE_DIR)
  if(NOT ZOADAM_THRUST_INCLUDE_DIR)
    message(STATUS "zoadam: no Thrust: what needs it is left out")
    return()
  endif()
  add_library(zoadam_thrust INTERFACE)
  target_sources(zoadam_thrust INTERFACE FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include
                                         FILES ${_thrust_headers})
  target_link_libraries(zoadam_thrust INTERFACE zoadam::zoadam)
  target_include_directories(zoadam_thrust SYSTEM INTERFACE ${ZOADAM_THRUST_INCLUDE_DIR})
  target_compile_definitions(zoadam_thrust INTERFACE THRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP)
endfunction()
