# SPDX-License-Identifier: Apache-2.0
# What zoadam::nccl needs from a consumer's machine. It links zoadam::cuda.
include(CMakeFindDependencyMacro)
include(${CMAKE_CURRENT_LIST_DIR}/zoadam-cuda-dependencies.cmake)
list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})
find_dependency(NCCL 2.14)
list(REMOVE_ITEM CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})
if(NOT TARGET zoadam::cuda)
  include(${CMAKE_CURRENT_LIST_DIR}/zoadam-cuda.cmake)
endif()
