# SPDX-License-Identifier: Apache-2.0
# Helpers that register tests. Paths are relative to tests/, a test's name is its path with dots.
set(ZOADAM_TEST_TIMEOUT 300)

# Set in every test: one BLAS thread per rank.
set(ZOADAM_TEST_ENVIRONMENT OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1)

function(_zoadam_test_name out path)
  string(REGEX REPLACE "\\.cpp$" "" name ${path})
  string(REPLACE "/" "." name ${name})
  set(${out} ${name} PARENT_SCOPE)
endfunction()

# zoadam_add_program(<target> SOURCES <files...> [LIBRARIES <targets...>]): a doctest program; the library's main is
# taken only by programs without one.
function(zoadam_add_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${target} ${arg_SOURCES})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE ZOADAM_CONFORMANCE_DIR="${PROJECT_SOURCE_DIR}/tests/conformance/cases")
  target_link_libraries(${target} PRIVATE zoadam::zoadam ${arg_LIBRARIES} nlohmann_json::nlohmann_json
                                          zoadam_doctest_main)
  zoadam_own_program(${target})
  if(ZOADAM_TEST_UNSANITIZED AND target MATCHES "${ZOADAM_TEST_UNSANITIZED}")
    target_compile_options(${target} PRIVATE -fno-sanitize=all)
  endif()
endfunction()

# zoadam_add_test(<path>... [NAME <name>] [LIBRARIES <targets...>]): one program and one test.
function(zoadam_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "LIBRARIES")
  set(sources ${arg_UNPARSED_ARGUMENTS})
  if(NOT arg_NAME)
    list(GET sources 0 first)
    _zoadam_test_name(arg_NAME ${first})
  endif()
  list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/tests/)
  zoadam_add_program(test.${arg_NAME} SOURCES ${sources} LIBRARIES ${arg_LIBRARIES})
  add_test(NAME ${arg_NAME} COMMAND test.${arg_NAME} --no-intro=true --no-colors=true)
  # A program without a test case must not pass.
  set_tests_properties(${arg_NAME} PROPERTIES TIMEOUT ${ZOADAM_TEST_TIMEOUT} ENVIRONMENT "${ZOADAM_TEST_ENVIRONMENT}"
                                              FAIL_REGULAR_EXPRESSION "test cases: +0 ")
endfunction()

# Launcher flags: Open MPI refuses root and more ranks than cores unless told; others need nothing.
if(TARGET zoadam::mpi)
  execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE _launcher ERROR_VARIABLE _launcher)
  set(ZOADAM_MPIRUN ${MPIEXEC_EXECUTABLE})
  # What makes the launcher let the others live when one rank is killed. MPICH's signals the survivors' process
  # groups in spite of its option: setsid takes them out of its reach.
  set(ZOADAM_MPIRUN_RECOVERY -disable-auto-cleanup)
  set(ZOADAM_MPIRUN_RECOVERY_WRAPPER setsid -w)
  if(_launcher MATCHES "Open MPI|OpenRTE|open-mpi")
    list(APPEND ZOADAM_MPIRUN --allow-run-as-root --oversubscribe --bind-to none)
    set(ZOADAM_MPIRUN_RECOVERY --enable-recovery)
    set(ZOADAM_MPIRUN_RECOVERY_WRAPPER "")
  endif()
endif()

function(_zoadam_add_mpi_program out path)
  _zoadam_test_name(name ${path})
  string(REGEX REPLACE "^mpi\\." "" name ${name})
  zoadam_add_program(test.mpi.${name} SOURCES ${PROJECT_SOURCE_DIR}/tests/${path} LIBRARIES zoadam::mpi ${ARGN})
  add_dependencies(zoadam_mpi_tests test.mpi.${name})
  set(${out} mpi.${name} PARENT_SCOPE)
endfunction()

function(_zoadam_set_mpi_properties name ranks)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ZOADAM_TEST_TIMEOUT} PROCESSORS ${ranks} LABELS mpi
                       ENVIRONMENT "${ZOADAM_TEST_ENVIRONMENT};ZOADAM_EXPECTED_RANKS=${ranks}")
endfunction()

# zoadam_add_mpi_run(<test> <target> RANKS <k> [ARGS <args...>]): a program under the launcher. It compares
# ZOADAM_EXPECTED_RANKS with the size of its world, so that k separate worlds of one rank cannot pass.
function(zoadam_add_mpi_run name target)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "RANKS" "ARGS")
  add_test(NAME ${name} COMMAND ${ZOADAM_MPIRUN} ${MPIEXEC_NUMPROC_FLAG} ${arg_RANKS} $<TARGET_FILE:${target}>
                                ${arg_ARGS})
  _zoadam_set_mpi_properties(${name} ${arg_RANKS})
endfunction()

# zoadam_add_mpi_test(<path> [RANKS <k>...] [LIBRARIES <targets...>]): tests mpi.<name>.np<k>, for 1 to 4 ranks.
function(zoadam_add_mpi_test path)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "RANKS;LIBRARIES")
  if(NOT arg_RANKS)
    set(arg_RANKS 1 2 3 4)
  endif()
  _zoadam_add_mpi_program(name ${path} ${arg_LIBRARIES})
  foreach(ranks IN LISTS arg_RANKS)
    zoadam_add_mpi_run(${name}.np${ranks} test.${name} RANKS ${ranks} ARGS --no-colors=true)
  endforeach()
endfunction()

# zoadam_add_killed_peer_test(<path> RANKS <k>): a program whose last rank is killed; all others must report it.
function(zoadam_add_killed_peer_test path)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "RANKS" "")
  _zoadam_add_mpi_program(name ${path})
  add_test(NAME ${name} COMMAND bash ${PROJECT_SOURCE_DIR}/cmake/killed_peer.sh ${arg_RANKS} ${ZOADAM_MPIRUN}
                                ${ZOADAM_MPIRUN_RECOVERY} ${MPIEXEC_NUMPROC_FLAG} ${arg_RANKS}
                                ${ZOADAM_MPIRUN_RECOVERY_WRAPPER} $<TARGET_FILE:test.${name}>)
  _zoadam_set_mpi_properties(${name} ${arg_RANKS})
endfunction()

# One source built many ways, every build printing the same lines.
#
# zoadam_add_bits_variant(<matrix> <label> SOURCE <file> COMPILER <name> ISA <isa> [FLAGS <flags...>] [ARGS <args...>]
#                         [MPI_RANKS <k>] [REUSE <label>])
#   compiles SOURCE with COMPILER (an MPI build where MPI_RANKS is given, run by the launcher; rank 0 prints).
#   REUSE takes the executable of an earlier variant and runs it with these ARGS.
# zoadam_add_bits_test(<matrix>)
#   one test that runs every variant which this CPU can run, compares what they print, and names the others.
function(zoadam_add_bits_variant matrix label)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "SOURCE;COMPILER;ISA;MPI_RANKS;REUSE" "FLAGS;ARGS")
  set(dir ${CMAKE_CURRENT_BINARY_DIR}/bits)
  file(MAKE_DIRECTORY ${dir})
  if(arg_REUSE)
    set(exe ${dir}/${matrix}.${arg_REUSE})
  else()
    set(exe ${dir}/${matrix}.${label})
    get_filename_component(source ${arg_SOURCE} ABSOLUTE)
    zoadam_isa_flags(isa_flags ${arg_ISA})
    set(flags -std=c++20 ${ZOADAM_WARNINGS} ${arg_FLAGS} ${isa_flags} -pthread)
    set(includes -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/tests)
    set(libraries "")
    if(arg_MPI_RANKS)
      list(APPEND flags -DZOADAM_BITS_MPI=1)
      foreach(path IN LISTS MPI_CXX_INCLUDE_DIRS)
        list(APPEND includes -isystem ${path})
      endforeach()
      list(TRANSFORM MPI_CXX_COMPILE_DEFINITIONS PREPEND -D OUTPUT_VARIABLE definitions)
      list(APPEND flags ${definitions})
      list(APPEND libraries ${MPI_CXX_LIBRARIES})
    endif()
    add_custom_command(
      OUTPUT ${exe}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${arg_COMPILER} ${flags} ${includes} -MD -MT ${exe} -MF ${exe}.d -c
              -o ${exe}.o ${source}
      COMMAND ${arg_COMPILER} ${flags} -o ${exe} ${exe}.o ${libraries}
      DEPENDS ${source} DEPFILE ${exe}.d
      COMMENT "Building ${matrix}.${label}" VERBATIM)
    set_property(GLOBAL APPEND PROPERTY zoadam_bits_${matrix}_programs ${exe})
  endif()
  set(command ${exe} ${arg_ARGS})
  if(arg_MPI_RANKS)
    set(command ${ZOADAM_MPIRUN} ${MPIEXEC_NUMPROC_FLAG} ${arg_MPI_RANKS} ${command})
  endif()
  zoadam_cpu_has(runs ${arg_ISA})
  if(NOT runs)
    set(command "-")
  endif()
  list(JOIN command " " command)
  set_property(GLOBAL APPEND PROPERTY zoadam_bits_${matrix}_lines "${label}\t${arg_ISA}\t${command}\n")
endfunction()

function(zoadam_add_bits_test matrix)
  get_property(programs GLOBAL PROPERTY zoadam_bits_${matrix}_programs)
  get_property(lines GLOBAL PROPERTY zoadam_bits_${matrix}_lines)
  list(JOIN lines "" lines)
  set(manifest ${CMAKE_CURRENT_BINARY_DIR}/bits/${matrix}.tsv)
  file(CONFIGURE OUTPUT ${manifest} CONTENT "${lines}" @ONLY)
  add_custom_target(bits.${matrix} ALL DEPENDS ${programs})
  add_test(NAME bits.${matrix} COMMAND bash ${PROJECT_SOURCE_DIR}/cmake/compare_bits.sh ${manifest})
  set_tests_properties(bits.${matrix} PROPERTIES TIMEOUT 900 PROCESSORS 4
                       ENVIRONMENT "${ZOADAM_TEST_ENVIRONMENT}")
endfunction()
