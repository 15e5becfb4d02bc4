// SPDX-License-Identifier: Apache-2.0
// The smallest program of a consumer of zoadam::mpi.
#include <mpi.h>

#include <cstdio>

#include "zoadam/transport/mpi.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int ranks = 0;
  int rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) std::printf("ranks: %d\n", ranks);
  MPI_Finalize();
}
