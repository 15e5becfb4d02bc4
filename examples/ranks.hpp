// SPDX-License-Identifier: Apache-2.0
// Runs one function on every rank: threads of this process, or the processes that mpirun started.
#pragma once

#include <chrono>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "zoadam/zoadam.hpp"

#ifdef ZOADAM_EXAMPLE_MPI
#include <mpi.h>

#include "zoadam/transport/mpi.hpp"
#endif

namespace example {

/// What a rank brings back: numbers of a fixed layout, and a series of the same length on every rank.
template <class Totals>
struct rank_result {
  static_assert(std::is_trivially_copyable_v<Totals>);
  Totals totals;
  std::vector<float> series;
};

namespace detail {
inline int launcher_says(std::initializer_list<char const*> names, int otherwise) {
  for (char const* name : names) {
    if (char const* const value = std::getenv(name)) return std::atoi(value);
  }
  return otherwise;
}
}  // namespace detail

/// The number of processes that mpirun or mpiexec started (1 without one), and which of them this is.
inline int launched_processes() { return detail::launcher_says({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1); }
inline int launched_rank() { return detail::launcher_says({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0); }

/// Holds MPI open while the program runs, if a launcher started it.
class launch {
 public:
  launch([[maybe_unused]] int* argc, [[maybe_unused]] char*** argv) {
    if (launched_processes() == 1) return;
#ifdef ZOADAM_EXAMPLE_MPI
    if (MPI_Init(argc, argv) != MPI_SUCCESS) throw std::runtime_error("MPI_Init failed");
    open_ = true;
#else
    throw std::runtime_error(
        "started by an MPI launcher, but built without MPI: build with the component mpi "
        "(for devices: and nccl)");
#endif
  }
  launch(launch const&) = delete;
  launch& operator=(launch const&) = delete;
  ~launch() {
#ifdef ZOADAM_EXAMPLE_MPI
    // After a failure peers may be gone, and finalizing would wait for them: see give_up().
    if (open_ && std::uncaught_exceptions() == 0) MPI_Finalize();
#endif
  }

 private:
  [[maybe_unused]] bool open_ = false;
};

/// After a failure: ends the peers too, under a launcher.
inline void give_up() {
#ifdef ZOADAM_EXAMPLE_MPI
  int open = 0, closed = 0;
  if (MPI_Initialized(&open) == MPI_SUCCESS && open != 0 && MPI_Finalized(&closed) == MPI_SUCCESS && closed == 0) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
#endif
}

namespace detail {

/// The exception worth reading: of the rank that failed by itself, not of a peer that noticed.
inline void rethrow_cause(std::vector<std::exception_ptr> const& failures) {
  std::exception_ptr chosen;
  for (std::exception_ptr const& failure : failures) {
    if (!failure) continue;
    try {
      std::rethrow_exception(failure);
    } catch (zoadam::aborted_error const&) {
      if (!chosen) chosen = failure;
    } catch (...) {
      std::rethrow_exception(failure);
    }
  }
  if (chosen) std::rethrow_exception(chosen);
}

}  // namespace detail

/// Calls body(link) on a thread for each link of a group; returns all results in order. All ranks have joined before
/// any runs: a body that fails at once is then seen by its peers.
template <class Totals, class Transport, class Body>
std::vector<rank_result<Totals>> on_threads(std::vector<Transport> links, Body const& body) {
  std::vector<rank_result<Totals>> results(links.size());
  std::vector<std::exception_ptr> failures(links.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < links.size(); ++i) {
      threads.emplace_back([&, i, link = std::move(links[i])]() mutable {
        try {
          results[i] = body(std::move(link));
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
    }
  }
  detail::rethrow_cause(failures);
  return results;
}

#ifdef ZOADAM_EXAMPLE_MPI
/// Calls body(link), of a rank of MPI_COMM_WORLD; returns all results in rank order on rank 0, nothing on the others.
template <class Totals, class Transport, class Body>
std::vector<rank_result<Totals>> on_process(Transport link, Body const& body) {
  int const rank = link.rank(), size = link.size();
  rank_result<Totals> mine = body(std::move(link));
  auto const n = static_cast<std::size_t>(rank == 0 ? size : 0);
  auto const length = static_cast<int>(mine.series.size());
  std::vector<Totals> totals(n);
  std::vector<float> series(n * mine.series.size());
  auto const bytes = static_cast<int>(sizeof(Totals));
  if (MPI_Gather(&mine.totals, bytes, MPI_BYTE, totals.data(), bytes, MPI_BYTE, 0, MPI_COMM_WORLD) != MPI_SUCCESS ||
      MPI_Gather(mine.series.data(), length, MPI_FLOAT, series.data(), length, MPI_FLOAT, 0, MPI_COMM_WORLD) !=
          MPI_SUCCESS) {
    throw std::runtime_error("MPI_Gather failed");
  }
  std::vector<rank_result<Totals>> results(n);
  for (std::size_t i = 0; i < n; ++i) {
    auto const first = series.begin() + static_cast<std::ptrdiff_t>(i) * length;
    results[i] = {totals[i], std::vector<float>(first, first + length)};
  }
  return results;
}
#endif

/// Processes if a launcher started several, else threads.
template <class Totals, class Body>
std::vector<rank_result<Totals>> on_every_rank(int workers, std::chrono::seconds limit, Body const& body) {
#ifdef ZOADAM_EXAMPLE_MPI
  if (launched_processes() > 1) return on_process<Totals>(zoadam::mpi_transport(MPI_COMM_WORLD, limit), body);
#endif
  zoadam::thread_group group(workers, limit);
  std::vector<zoadam::thread_transport> links;
  for (int i = 0; i < workers; ++i) links.push_back(group.rank(i));
  return on_threads<Totals>(std::move(links), body);
}

}  // namespace example
