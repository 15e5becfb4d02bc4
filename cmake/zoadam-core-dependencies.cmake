# SPDX-License-Identifier: Apache-2.0
# What zoadam::zoadam needs from a consumer's machine.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
