// SPDX-License-Identifier: Apache-2.0
// One rank is killed in the middle of training; the others must get an exception within the time limit and go their
// way without MPI. Prints "survivor <rank> of <size>: <exception>" once for each survivor.
//
//   Open MPI:  mpirun --enable-recovery -np 3 mpi_killed_peer
//   MPICH:     mpiexec.hydra -disable-auto-cleanup -np 3 setsid -w mpi_killed_peer
//
// (The launcher of MPICH 4.0 signals and often kills the process groups of the survivors in spite of its option;
// setsid takes them out of its reach.) The launcher's exit status tells of the killed rank; the lines are the result.
#include "zoadam/transport/mpi.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) return 1;
  constexpr std::chrono::seconds limit(3);
  zoadam::mpi_transport transport(MPI_COMM_WORLD, limit);
  int const size = transport.size(), me = transport.rank();
  char const* const expected = std::getenv("ZOADAM_EXPECTED_RANKS");
  if (size < 2 || (expected != nullptr && std::atoi(expected) != size)) {
    std::fprintf(stderr, "world of %d ranks\n", size);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

  // A large message as well: its transfer needs both sides, and the victim dies before it takes part.
  constexpr zoadam::index small = 1000, large = 4000000;
  int exit_status = 1;
  auto start = std::chrono::steady_clock::now();
  try {
    for (int round = 0; round < 20; ++round) {
      std::vector<zoadam::index> offsets{0};
      for (int j = 0; j < size; ++j) offsets.push_back(offsets.back() + (round < 10 ? small : large));
      std::vector<std::byte> send(static_cast<std::size_t>(offsets.back())), receive(send.size());
      if (round == 10 && me == size - 1) std::raise(SIGKILL);
      start = std::chrono::steady_clock::now();
      transport.all_to_all(offsets, send.data(), receive.data());
    }
    std::fprintf(stderr, "rank %d: all rounds succeeded without the killed peer\n", me);
  } catch (zoadam::transport_error const& failure) {
    auto const waited = std::chrono::steady_clock::now() - start;
    bool refused = false;
    try {
      std::vector<zoadam::index> const empty(static_cast<std::size_t>(size) + 1, 0);
      transport.all_gather(empty, nullptr, nullptr);
    } catch (zoadam::aborted_error const&) {
      refused = true;
    }
    if (waited < 2 * limit && refused) {
      std::printf("survivor %d of %d: %s\n", me, size, failure.what());
      exit_status = 0;
    } else {
      std::fprintf(stderr, "rank %d: late, or not out of use: %s\n", me, failure.what());
    }
  }
  std::fflush(nullptr);
  _exit(exit_status);  // no MPI_Finalize: it would wait for the dead
}
