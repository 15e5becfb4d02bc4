// SPDX-License-Identifier: Apache-2.0
// Runs all ranks of a case over one transport and brings their records together.
#pragma once

#include "rank.hpp"

#include <cstddef>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace conformance {

inline record run_rank(test_case const& c, any_transport link) {
  switch (c.groups) {
    case grouping::whole:
      return run_rank<zoadam::whole>(c, std::move(link));
    case grouping::tensor:
      return run_rank<zoadam::per_tensor>(c, std::move(link));
    case grouping::block:
      break;
  }
  switch (c.block) {
    case 32:
      return run_rank<zoadam::block<32>>(c, std::move(link));
    case 64:
      return run_rank<zoadam::block<64>>(c, std::move(link));
    case 256:
      return run_rank<zoadam::block<256>>(c, std::move(link));
    default:
      break;
  }
  throw unsupported_case("no such composition: blocks of " + std::to_string(c.block));
}

inline std::vector<record> run_single(test_case const& c) {
  return {run_rank(c, any_transport(zoadam::single_transport{}))};
}

/// One thread per rank. Throws the error of the rank that failed by itself, if one did.
inline std::vector<record> run_threads(test_case const& c) {
  auto const n = static_cast<std::size_t>(c.workers);
  std::vector<record> records(n);
  std::vector<std::exception_ptr> own(n), caused(n);
  zoadam::thread_group group(c.workers);
  {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < n; ++i) {
      threads.emplace_back([&, i] {
        try {
          records[i] = run_rank(c, any_transport(group.rank(static_cast<int>(i))));
        } catch (zoadam::transport_error const&) {
          caused[i] = std::current_exception();
        } catch (...) {
          own[i] = std::current_exception();
        }
      });
    }
    for (auto& each : threads) each.join();
  }
  for (auto const* errors : {&own, &caused})
    for (auto const& error : *errors)
      if (error) std::rethrow_exception(error);
  return records;
}

#if ZOADAM_CONFORMANCE_MPI

/// This process is one rank of MPI_COMM_WORLD. All records come back on rank 0, its own one on others. An error on
/// one rank is an error on all.
inline std::vector<record> run_mpi(test_case const& c) {
  int me = 0, ranks = 0;
  zoadam::detail::mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &me), "MPI_Comm_rank");
  zoadam::detail::mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "MPI_Comm_size");

  record mine;
  std::string error;
  try {
    mine = run_rank(c, any_transport(zoadam::mpi_transport(MPI_COMM_WORLD)));
  } catch (std::exception const& reason) {
    error = reason.what();
  }
  // Everybody learns the error of the last rank that has one.
  int const failed = error.empty() ? -1 : me;
  int teller = -1;
  zoadam::detail::mpi_check(MPI_Allreduce(&failed, &teller, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD), "MPI_Allreduce");
  if (teller >= 0) {
    char text[512] = "";
    std::snprintf(text, sizeof text, "rank %d: %s", me, error.c_str());
    zoadam::detail::mpi_check(MPI_Bcast(text, sizeof text, MPI_CHAR, teller, MPI_COMM_WORLD), "MPI_Bcast");
    throw std::runtime_error(text);
  }

  // The lists are as long on every rank: one buffer, in the order of their names.
  std::vector<float> packed;
  for (auto const& [name, values] : mine.values) packed.insert(packed.end(), values.begin(), values.end());
  std::vector<float> all(me == 0 ? packed.size() * static_cast<std::size_t>(ranks) : 0);
  int const count = static_cast<int>(packed.size());
  zoadam::detail::mpi_check(
      MPI_Gather(packed.data(), count, MPI_FLOAT, all.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD), "MPI_Gather");
  if (me != 0) return {mine};

  std::vector<record> records(static_cast<std::size_t>(ranks), mine);
  auto from = all.begin();
  for (auto& each : records) {
    for (auto& [name, values] : each.values) {
      auto const end = from + static_cast<std::ptrdiff_t>(values.size());
      values.assign(from, end);
      from = end;
    }
  }
  return records;
}

#endif

}  // namespace conformance
