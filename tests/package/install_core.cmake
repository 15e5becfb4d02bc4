# SPDX-License-Identifier: Apache-2.0
# Configures zoadam without components and installs it: source, build, prefix, compiler.
file(REMOVE_RECURSE ${build} ${prefix})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${source} -B ${build} -G Ninja -DCMAKE_CXX_COMPILER=${compiler}
                        -DZOADAM_MPI=OFF -DZOADAM_CUDA=OFF -DZOADAM_NCCL=OFF
                        -DZOADAM_BUILD_TESTS=OFF -DZOADAM_BUILD_EXAMPLES=OFF -DZOADAM_BUILD_BENCH=OFF
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${build} --prefix ${prefix} COMMAND_ERROR_IS_FATAL ANY)
