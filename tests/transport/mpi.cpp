// SPDX-License-Identifier: Apache-2.0
// The transport over MPI, for a launcher with 1 to 4 ranks (ZOADAM_EXPECTED_RANKS says how many).
#include "zoadam/transport/mpi.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#define DOCTEST_CONFIG_IMPLEMENT
#include "transport/suite.hpp"
#include "zoadam/transport/thread.hpp"

namespace {

using namespace transport_suite;
using zoadam::index;

int world_rank() {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// A communicator of the ranks of one colour; freed by every rank after a barrier of the world.
class split_comm {
 public:
  explicit split_comm(int color) { MPI_Comm_split(MPI_COMM_WORLD, color, world_rank(), &comm_); }
  split_comm(split_comm const&) = delete;
  split_comm& operator=(split_comm const&) = delete;
  ~split_comm() {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_free(&comm_);
  }
  operator MPI_Comm() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// Runs on the first n ranks of the world; the others wait. Small pieces, so that messages are cut.
template <index PieceBytes>
struct mpi_harness {
  static constexpr bool failure_is_shared = false;
  static int most_ranks() { return world_size(); }
  template <class Function>
  static void run(int n, milliseconds limit, Function function) {
    bool const member = world_rank() < n;
    split_comm const comm(member ? 0 : 1);
    if (!member) return;
    try {
      zoadam::basic_mpi_transport<PieceBytes> transport(comm, limit);
      CHECK(transport.rank() == world_rank());
      function(transport);
    } catch (std::exception const& failure) {
      FAIL_CHECK("rank ", world_rank(), ": ", failure.what());
    }
  }
};

constexpr index whole = index{1} << 30;
static_assert(std::is_same_v<zoadam::mpi_transport, zoadam::basic_mpi_transport<whole>>);
static_assert(zoadam::transport<zoadam::basic_mpi_transport<1>>);

TEST_CASE_TEMPLATE_INVOKE(transport_suite::every_rank, mpi_harness<whole>, mpi_harness<1000>, mpi_harness<4096>);
TEST_CASE_TEMPLATE_INVOKE(transport_suite::peers, mpi_harness<whole>, mpi_harness<1000>);

TEST_CASE("wrong constructor arguments are refused, and errors name the call and MPI's text") {
  CHECK(outcome_of([] { zoadam::mpi_transport transport(MPI_COMM_NULL); }) == outcome::argument);
  CHECK(outcome_of([] { zoadam::mpi_transport transport(MPI_COMM_SELF, milliseconds(0)); }) == outcome::argument);
  zoadam::mpi_transport longest(MPI_COMM_SELF, milliseconds::max());  // no overflow of the deadline
  CHECK(wrong_bytes_of_rounds(longest, 2, 1) == 0);
  bool thrown = false;
  try {
    zoadam::detail::mpi_check(MPI_ERR_TRUNCATE, "MPI_Recv");
  } catch (zoadam::transport_error const& failure) {
    thrown = true;
    std::string const text = failure.what();
    char expected[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(MPI_ERR_TRUNCATE, expected, &length);
    CHECK(failure.status == MPI_ERR_TRUNCATE);
    CHECK(text.find("MPI_Recv") != std::string::npos);
    CHECK(text.find(std::string(expected, static_cast<std::size_t>(length))) != std::string::npos);
    CHECK(text.find("mpi.cpp:") != std::string::npos);
  }
  CHECK(thrown);
  zoadam::detail::mpi_check(MPI_SUCCESS, "MPI_Recv");
}

TEST_CASE("the caller's communicator keeps its error handler and sees no message") {
  MPI_Errhandler before = MPI_ERRHANDLER_NULL, after = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
  int found = 0;
  {
    zoadam::mpi_transport transport(MPI_COMM_WORLD, patient);
    CHECK(wrong_bytes_of_rounds(transport, 2, 1) == 0);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
  CHECK(found == 0);
  CHECK(before == after);
  CHECK(after == MPI_ERRORS_ARE_FATAL);
  MPI_Errhandler_free(&before);
  MPI_Errhandler_free(&after);
}

TEST_CASE("many transports after one another: communicators are freed") {
  // More than either MPI has communicator ids for (MPICH: 2048).
  for (int i = 0; i < 3000; ++i) {
    zoadam::mpi_transport transport(MPI_COMM_SELF, patient);
    REQUIRE(transport.size() == 1);
  }
}

TEST_CASE("peers: a constructor whose peers do not come ends with a time-out") {
  split_comm const comm(0);
  if (world_rank() == 0)
    CHECK(outcome_of([&] { zoadam::mpi_transport transport(comm, milliseconds(200)); }) == outcome::timeout);
  MPI_Barrier(MPI_COMM_WORLD);
  // The late ones complete the pending duplication; whether they see it or run into their limit is MPI's affair.
  if (world_rank() != 0) {
    outcome const seen = outcome_of([&] {
      zoadam::mpi_transport transport(comm, milliseconds(200));
      std::vector<index> const offsets = offsets_of(equal_lengths(world_size(), 5));
      std::vector<std::byte> send(5), receive(5 * static_cast<std::size_t>(world_size()));
      transport.all_gather(offsets, send.data(), receive.data());
    });
    CHECK((seen == outcome::timeout || seen == outcome::aborted));
  }
}

TEST_CASE("peers: case 22: the bytes equal those of the thread transport") {
  int const n = world_size();
  zoadam::mpi_transport over_mpi(MPI_COMM_WORLD, patient);
  zoadam::thread_group group(n, patient);
  for (kind const which : {kind::all_to_all, kind::all_gather})
    for (int shift = 0; shift < 5; ++shift) {
      std::vector<index> const offsets = offsets_of(uneven_lengths(n, shift));
      auto const bytes_of = [&](auto& transport) {
        std::vector<std::byte> send(static_cast<std::size_t>(offsets.back())), receive(send.size() * 5);
        for (std::size_t k = 0; k < send.size(); ++k)
          send[k] = pattern(transport.rank(), 0, static_cast<index>(k), static_cast<unsigned>(shift));
        call(transport, which, offsets, send.data(), receive.data());
        return receive;
      };
      std::vector<std::vector<std::byte>> over_threads(static_cast<std::size_t>(n));
      std::vector<std::thread> threads;
      std::vector<zoadam::thread_transport> ranks;
      for (int i = 0; i < n; ++i) ranks.push_back(group.rank(i));
      for (std::size_t i = 0; i < ranks.size(); ++i)
        threads.emplace_back([&, i] { over_threads[i] = bytes_of(ranks[i]); });
      for (std::thread& each : threads) each.join();
      CHECK(bytes_of(over_mpi) == over_threads[static_cast<std::size_t>(over_mpi.rank())]);
    }
}

TEST_CASE("peers: case 21: two communicators, a thread for each, random delays, 100 rounds") {
  int const n = world_size(), me = world_rank();
  zoadam::mpi_transport transports[2] = {zoadam::mpi_transport(MPI_COMM_WORLD, patient),
                                         zoadam::mpi_transport(MPI_COMM_WORLD, patient)};
  std::vector<std::thread> threads;
  for (int communicator = 0; communicator < 2; ++communicator)
    threads.emplace_back([&, communicator] {
      try {
        delays delay(static_cast<unsigned>(2 * me + communicator));
        index wrong = 0;
        for (int round = 0; round < 100; ++round) {
          delay.wait();
          wrong += wrong_bytes(transports[communicator], round % 2 == 0 ? kind::all_gather : kind::all_to_all,
                               uneven_lengths(n, round), static_cast<unsigned>(1000 * communicator + round));
        }
        CHECK(wrong == 0);
      } catch (std::exception const& failure) {
        FAIL_CHECK("rank ", me, ": ", failure.what());
      }
    });
  for (std::thread& each : threads) each.join();
}

TEST_CASE("four: case 1: a collective of a subgroup does not wait for the other ranks") {
  int const me = world_rank();
  split_comm const half(me / 2);
  zoadam::mpi_transport transport(half, patient);
  CHECK(transport.size() == 2);
  CHECK(transport.rank() == me % 2);
  int token = 0;
  if (me < 2) {
    CHECK(wrong_bytes_of_rounds(transport, 5, 1) == 0);
    MPI_Send(&token, 1, MPI_INT, me + 2, 0, MPI_COMM_WORLD);
  } else {
    // Ranks 2 and 3 go on only once ranks 0 and 1 are through.
    MPI_Recv(&token, 1, MPI_INT, me - 2, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(transport.bytes_sent() == 0);
    CHECK(wrong_bytes_of_rounds(transport, 5, 2) == 0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int const me = world_rank(), size = world_size();
  // Separate worlds of one rank each would pass most of this.
  char const* const expected = std::getenv("ZOADAM_EXPECTED_RANKS");
  if (expected == nullptr || std::atoi(expected) != size || provided != MPI_THREAD_MULTIPLE) {
    std::fprintf(stderr, "world of %d ranks, ZOADAM_EXPECTED_RANKS is %s, thread level %d\n", size,
                 expected == nullptr ? "not set" : expected, provided);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
  }
  doctest::Context context(argc, argv);
  context.setOption("no-intro", true);
  if (me != 0) context.setOption("minimal", true);  // failures of every rank, the summary of one
  if (size < 2) context.addFilter("test-case-exclude", "peers:*");
  if (size != 4) context.addFilter("test-case-exclude", "four:*");
  int failed = context.run() != 0 ? 1 : 0, any = 1;
  MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return any;
}
