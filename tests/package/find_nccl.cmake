# SPDX-License-Identifier: Apache-2.0
# cmake -D source=... -D build=... -P find_nccl.cmake: FindNCCL in trees laid out as the toolkit's, Debian's and the
# wheel's, and in trees that lack a half.
file(REMOVE_RECURSE ${build})
find_program(ninja NAMES ninja REQUIRED)

function(make_tree header library version)
  string(REPLACE "." ";" version ${version})
  if(header)
    list(GET version 0 major)
    list(GET version 1 minor)
    list(GET version 2 patch)
    file(WRITE ${build}/${header}/nccl.h
         "#define NCCL_MAJOR ${major}\n#define NCCL_MINOR ${minor}\n#define NCCL_PATCH ${patch}\n")
  endif()
  if(library)
    file(WRITE ${build}/${library} "")
  endif()
endfunction()

# A python that knows two folders of packages.
file(WRITE ${build}/python "#!/bin/sh\necho '${build}/none/site-packages;${build}/wheel/site-packages'\n")
file(CHMOD ${build}/python PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)

# expect(<name> <expected text> <setting>...): nothing of this machine is looked at.
function(expect name text)
  execute_process(COMMAND ${CMAKE_COMMAND} -G Ninja -D CMAKE_MAKE_PROGRAM=${ninja} -S ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/find_nccl -B ${build}/${name}
                          -D modules=${source}/cmake -D NCCL_PYTHON=${build}/python
                          -D CMAKE_LIBRARY_ARCHITECTURE=x86_64-linux-gnu -D CMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF
                          -D CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF ${ARGN}
                  OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${name}: ${output}")
  endif()
  file(READ ${build}/${name}/found found)
  if(NOT found STREQUAL text)
    message(FATAL_ERROR "${name}: found '${found}', not '${text}'")
  endif()
  message(STATUS "${name}: ${found}")
endfunction()

make_tree(toolkit/include toolkit/lib64/libnccl.so.2 2.20.5)
expect(toolkit "TRUE 2.20.5 ${build}/toolkit/include ${build}/toolkit/lib64/libnccl.so.2"
       -D CUDAToolkit_INCLUDE_DIRS=${build}/toolkit/include -D CUDAToolkit_LIBRARY_DIR=${build}/toolkit/lib64)

make_tree(debian/usr/include debian/usr/lib/x86_64-linux-gnu/libnccl.so 2.18.1)
expect(debian "TRUE 2.18.1 ${build}/debian/usr/include ${build}/debian/usr/lib/x86_64-linux-gnu/libnccl.so"
       -D CMAKE_PREFIX_PATH=${build}/debian/usr)
expect(root "TRUE 2.20.5 ${build}/toolkit/include ${build}/toolkit/lib64/libnccl.so.2" -D NCCL_ROOT=${build}/toolkit)

# A half is nothing, and no library of another version completes it.
make_tree(half/include "" 2.19.3)
make_tree("" wheel/site-packages/nvidia/nccl/lib/libnccl.so.2 2.19.3)
expect(half "FALSE 2.19.3 ${build}/half/include NCCL_LIBRARY-NOTFOUND" -D CMAKE_PREFIX_PATH=${build}/half)
expect(nothing "FALSE  NCCL_INCLUDE_DIR-NOTFOUND NCCL_LIBRARY-NOTFOUND")

make_tree(wheel/site-packages/nvidia/nccl/include "" 2.27.3)
set(_wheel ${build}/wheel/site-packages/nvidia/nccl)
expect(wheel "TRUE 2.27.3 ${_wheel}/include ${_wheel}/lib/libnccl.so.2")
expect(wheel_completes_no_half "TRUE 2.27.3 ${_wheel}/include ${_wheel}/lib/libnccl.so.2"
       -D CMAKE_PREFIX_PATH=${build}/half)
