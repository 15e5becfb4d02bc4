# SPDX-License-Identifier: Apache-2.0
# What zoadam::cuda needs from a consumer's machine.
include(CMakeFindDependencyMacro)
find_dependency(CUDAToolkit 12)
