# SPDX-License-Identifier: Apache-2.0
# What zoadam::mpi needs from a consumer's machine.
include(CMakeFindDependencyMacro)
set(MPI_CXX_SKIP_MPICXX ON)
find_dependency(MPI COMPONENTS CXX)
