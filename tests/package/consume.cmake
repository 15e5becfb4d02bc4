# SPDX-License-Identifier: Apache-2.0
# Configures, builds and runs one consumer: source, consumer, build, prefix, components, expect_error, compiler,
# launcher, settings, mpirun, mpirun_n.
file(REMOVE_RECURSE ${build})
set(configure ${CMAKE_COMMAND} -S ${source}/tests/package/${consumer} -B ${build} -G Ninja
              -DCMAKE_CXX_COMPILER=${compiler} -DCMAKE_CXX_COMPILER_LAUNCHER=${launcher} -DCMAKE_BUILD_TYPE=Release
              -DCMAKE_PREFIX_PATH=${prefix} -DZOADAM_CHECKOUT=${source} -DCONSUMER_COMPONENTS=${components} ${settings})

if(expect_error)
  execute_process(COMMAND ${configure} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  # CMake wraps its messages.
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  if(status EQUAL 0)
    message(FATAL_ERROR "the consumer configured, and must not")
  elseif(NOT text MATCHES "${expect_error}")
    message(FATAL_ERROR "no message matches \"${expect_error}\":\n${text}")
  endif()
  message(STATUS "refused as expected: ${CMAKE_MATCH_0}")
  return()
endif()

execute_process(COMMAND ${configure} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${build} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${build}/minimal COMMAND_ERROR_IS_FATAL ANY)
if(components MATCHES "cuda|nccl")
  execute_process(COMMAND ${build}/minimal_${components} COMMAND_ERROR_IS_FATAL ANY)
elseif(components STREQUAL "mpi")
  string(REPLACE "|" ";" mpirun "${mpirun}")
  execute_process(COMMAND ${mpirun} ${mpirun_n} 2 ${build}/minimal_mpi OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  if(NOT text MATCHES "ranks: 2\n")
    message(FATAL_ERROR "the MPI consumer did not see 2 ranks:\n${text}")
  endif()
endif()
