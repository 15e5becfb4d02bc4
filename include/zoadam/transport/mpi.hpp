// SPDX-License-Identifier: Apache-2.0
// The transport over MPI: point-to-point messages with a deadline.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "zoadam/concepts/transport.hpp"
#include "zoadam/config.hpp"
#include "zoadam/error.hpp"
#include "zoadam/transport/single.hpp"

namespace zoadam {
namespace detail {

/// Throws "zoadam: mpi_transport: MPI_Isend failed: <text of MPI> (status 15) at file:line" unless all is well.
inline void mpi_check(int status, char const* call, char const* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  if (MPI_Error_string(status, text, &length) != MPI_SUCCESS) length = 0;
  throw transport_error(std::string("zoadam: mpi_transport: ") + call +
                            " failed: " + (length > 0 ? text : "unknown error") + " (status " +
                            std::to_string(status) + ") at " + file + ":" + std::to_string(line),
                        status);
}

/// Waits between polls: yields at first, then sleeps, because ranks may share cores.
class mpi_poll_clock {
 public:
  explicit mpi_poll_clock(std::chrono::milliseconds limit) : limit_(limit) {}

  void progressed() { start_ = std::chrono::steady_clock::now(); }

  /// False once the limit has passed without progress.
  bool wait() {
    auto const waited = std::chrono::steady_clock::now() - start_;
    slow_ = waited > std::chrono::milliseconds(2);
    if (slow_)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    else
      std::this_thread::yield();
    return waited <= limit_;
  }

  /// Whether the peers are late enough to look for what went wrong with them.
  bool slow() const noexcept { return slow_; }

 private:
  std::chrono::milliseconds limit_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool slow_ = false;
};

/// What moves with a transport.
struct mpi_state {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 0;    // 0: moved from
  int round = 0;   // of the running collective, modulo a few
  int hashes = 1;  // tags offer this many
  bool aborted = false;
  std::chrono::milliseconds time_limit{};
  index sent = 0;
};

}  // namespace detail

/// Ranks of an MPI communicator; a subgroup is fine. The constructor duplicates it.
/// Use `mpi_transport`; PieceBytes is a parameter so that tests can cut small messages.
///
/// A message travels in pieces of at most PieceBytes, so that no count passes the int of MPI. The tag of a piece
/// holds a counter and a hash of the collective and its offsets: ranks that disagree see foreign tags and throw.
///
/// Errors:     transport_error with the native status, MPI's text, the call and the place; mismatch_error when a
///             peer runs another collective or other sizes; timeout_error after `time_limit` without progress;
///             aborted_error after abort() here or on a peer; argument_error. After any of these every call throws,
///             and the peers are told. Requests that were pending then are leaked, for neither a dead peer nor a late
///             one may be waited for: keep the buffers of the failed call allocated while MPI is in use, and do not
///             finalize MPI when a peer has died. The launcher must let the survivors live (Open MPI:
///             --enable-recovery; MPICH: -disable-auto-cleanup, see tests/transport/mpi_killed_peer.cpp).
/// Collective: constructor, all_to_all, all_gather: every rank, in the same order. The destructor frees the
///             communicator unless the transport has failed, an exception is passing, or MPI is finalized. The
///             buffers may be reused when a call returns; an all-gather may be in place.
/// Execution:  one thread at a time; several transports in several threads need MPI_THREAD_MULTIPLE
template <index PieceBytes>
class basic_mpi_transport {
  static_assert(PieceBytes > 0 && PieceBytes <= 2147483647, "a piece must fit MPI's int count");

 public:
  explicit basic_mpi_transport(MPI_Comm comm, std::chrono::milliseconds time_limit = std::chrono::seconds(60)) {
    int flag = 0;
    detail::mpi_check(MPI_Initialized(&flag), "MPI_Initialized");
    ZOADAM_EXPECTS(flag != 0, "mpi_transport", "MPI is not initialized");
    detail::mpi_check(MPI_Finalized(&flag), "MPI_Finalized");
    ZOADAM_EXPECTS(flag == 0, "mpi_transport", "MPI is finalized");
    ZOADAM_EXPECTS(comm != MPI_COMM_NULL, "mpi_transport", "comm must not be MPI_COMM_NULL");
    ZOADAM_EXPECTS(time_limit.count() > 0, "mpi_transport", "time_limit must be positive");
    detail::mpi_check(MPI_Comm_test_inter(comm, &flag), "MPI_Comm_test_inter");
    ZOADAM_EXPECTS(flag == 0, "mpi_transport", "comm must not be an inter-communicator");
    constexpr std::chrono::milliseconds longest = std::chrono::hours(24 * 365);  // a sum of times must not overflow
    state_.time_limit = time_limit < longest ? time_limit : longest;
    duplicate(comm);
  }

  basic_mpi_transport(basic_mpi_transport&& other) noexcept : state_(std::exchange(other.state_, {})) {}
  basic_mpi_transport& operator=(basic_mpi_transport&& other) noexcept {
    if (this != &other) {
      release();
      state_ = std::exchange(other.state_, {});
      exceptions_ = std::uncaught_exceptions();
    }
    return *this;
  }
  ~basic_mpi_transport() { release(); }

  int rank() const noexcept { return state_.rank; }
  int size() const noexcept { return state_.size; }

  void all_to_all(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    run(detail::collective::all_to_all, offsets, send, receive);
  }
  void all_gather(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    run(detail::collective::all_gather, offsets, send, receive);
  }

  /// Peers that wait in a collective see it within milliseconds, others at their next one that has to wait.
  void abort() noexcept {
    if (state_.aborted || state_.size == 0) return;
    state_.aborted = true;
    if (!usable()) return;
    // Best effort, statuses included: a peer that cannot be told runs into its time limit.
    for (int peer = 0; peer < state_.size; ++peer) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (peer != state_.rank &&
          MPI_Isend(nullptr, 0, MPI_BYTE, peer, state_.round, state_.comm, &request) == MPI_SUCCESS)
        static_cast<void>(MPI_Request_free(&request));
    }
  }

  index bytes_sent() const noexcept { return state_.sent; }

 private:
  // Peers are at most one collective apart. A tag modulo `rounds` is the sender's round; tags below `rounds` tell of
  // an abort in that round, so that a collective which one rank has completed is completed by all.
  static constexpr int rounds = 4;

  struct incoming {
    int peer;
    int bytes;
  };

  void duplicate(MPI_Comm comm) {
    // The errors of the duplication itself are raised on `comm`: borrow its handler for that long.
    MPI_Errhandler previous = MPI_ERRHANDLER_NULL;
    detail::mpi_check(MPI_Comm_get_errhandler(comm, &previous), "MPI_Comm_get_errhandler");
    detail::mpi_check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    // On the heap: a duplication that never ends is leaked, and may still write here.
    auto copy = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
    MPI_Request request = MPI_REQUEST_NULL;
    detail::mpi_poll_clock waiting(state_.time_limit);
    int done = 0;
    int status = MPI_Comm_idup(comm, copy.get(), &request);
    while (status == MPI_SUCCESS && done == 0) {
      status = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done == 0 && !waiting.wait()) break;
    }
    if (status == MPI_SUCCESS && done != 0)
      state_.comm = *copy;
    else
      static_cast<void>(copy.release());
    int const restored = MPI_Comm_set_errhandler(comm, previous);
    int const freed = MPI_Errhandler_free(&previous);
    detail::mpi_check(status, "MPI_Comm_idup");
    if (done == 0)
      throw timeout_error("zoadam: mpi_transport: a peer did not come to the constructor within " + limit_text());
    detail::mpi_check(restored, "MPI_Comm_set_errhandler");
    detail::mpi_check(freed, "MPI_Errhandler_free");

    detail::mpi_check(MPI_Comm_set_errhandler(state_.comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    detail::mpi_check(MPI_Comm_rank(state_.comm, &state_.rank), "MPI_Comm_rank");
    detail::mpi_check(MPI_Comm_size(state_.comm, &state_.size), "MPI_Comm_size");
    int* bound = nullptr;
    int found = 0;
    detail::mpi_check(MPI_Comm_get_attr(state_.comm, MPI_TAG_UB, &bound, &found), "MPI_Comm_get_attr");
    // The largest tag is rounds * hashes + rounds - 1; the standard grants 32767.
    state_.hashes = ((found != 0 ? *bound : 32767) - (rounds - 1)) / rounds;
  }

  static bool usable() noexcept {
    int finalized = 0;
    return MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0;
  }

  std::string limit_text() const { return std::to_string(state_.time_limit.count()) + " ms"; }

  template <class Error>
  [[noreturn]] static void fail(detail::collective kind, std::string const& text) {
    throw Error(detail::collective_name("mpi_transport", kind) + text);
  }

  [[noreturn]] static void fail_mismatch(detail::collective kind, int peer) {
    fail<mismatch_error>(kind, "rank " + std::to_string(peer) + " disagrees about the call or its sizes");
  }

  int tag_of(detail::collective kind, std::span<index const> offsets) const noexcept {
    std::uint64_t hash = kind == detail::collective::all_to_all ? 0x9e3779b97f4a7c15u : 0xc2b2ae3d27d4eb4fu;
    for (index const offset : offsets) {
      hash = (hash ^ static_cast<std::uint64_t>(offset)) * 0xff51afd7ed558ccdu;
      hash ^= hash >> 32;
    }
    return state_.round + rounds * (1 + static_cast<int>(hash % static_cast<std::uint64_t>(state_.hashes)));
  }

  void run(detail::collective kind, std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    if (state_.aborted) fail<aborted_error>(kind, "a rank gave up or an earlier call failed");
    if (std::string const defect = detail::collective_defect(kind, state_.rank, state_.size, offsets, send, receive);
        !defect.empty()) {
      abort();
      fail<argument_error>(kind, defect);
    }
    int const tag = tag_of(kind, offsets);
    requests_.clear();
    incoming_.clear();
    try {
      start(kind, offsets, send, receive, tag);
      complete(kind, tag);
    } catch (...) {
      abandon();
      throw;
    }
    state_.round = (state_.round + 1) % rounds;
    state_.sent += detail::bytes_to_peers(kind, offsets, state_.rank);
  }

  void start(detail::collective kind, std::span<index const> offsets, std::byte const* send, std::byte* receive,
             int tag) {
    int const me = state_.rank, size = state_.size;
    for (int i = 1; i < size; ++i) {
      int const peer = (me + size - i) % size;
      index const first = detail::receive_offset(kind, offsets, peer, me);
      for_each_piece(detail::pair_bytes(kind, offsets, peer, me), [&](index at, int bytes) {
        std::byte* const target = bytes > 0 ? receive + first + at : nullptr;
        incoming_.push_back({peer, bytes});
        requests_.push_back(MPI_REQUEST_NULL);
        detail::mpi_check(MPI_Irecv(target, bytes, MPI_BYTE, peer, tag, state_.comm, &requests_.back()), "MPI_Irecv");
      });
    }
    for (int i = 1; i < size; ++i) {
      int const peer = (me + i) % size;
      index const first = detail::send_offset(kind, offsets, peer);
      for_each_piece(detail::pair_bytes(kind, offsets, me, peer), [&](index at, int bytes) {
        std::byte const* const source = bytes > 0 ? send + first + at : nullptr;
        requests_.push_back(MPI_REQUEST_NULL);
        detail::mpi_check(MPI_Isend(source, bytes, MPI_BYTE, peer, tag, state_.comm, &requests_.back()), "MPI_Isend");
      });
    }
    detail::copy_message(kind, offsets, me, me, send, receive, detail::copy_in_memory);
  }

  /// An empty message travels too: it shows that the peer takes part and agrees.
  template <class Function>
  static void for_each_piece(index bytes, Function function) {
    index at = 0;
    do {
      index const piece = bytes - at < PieceBytes ? bytes - at : PieceBytes;
      function(at, static_cast<int>(piece));
      at += piece;
    } while (at < bytes);
  }

  void complete(detail::collective kind, int tag) {
    detail::mpi_poll_clock waiting(state_.time_limit);
    for (std::size_t pending = requests_.size(); pending > 0;) {
      bool progress = false;
      for (std::size_t i = 0; i < requests_.size(); ++i) {
        if (requests_[i] == MPI_REQUEST_NULL || !finished(kind, i)) continue;
        --pending;
        progress = true;
      }
      if (progress) {
        waiting.progressed();
      } else {
        if (waiting.slow()) look_for_trouble(kind, tag);
        if (!waiting.wait()) fail<timeout_error>(kind, "no peer made progress within " + limit_text());
      }
    }
  }

  /// One request at a time: a failed call on several (MPI_Testsome) is raised on the world, where it is fatal.
  bool finished(detail::collective kind, std::size_t i) {
    bool const received = i < incoming_.size();
    int done = 0, error_class = MPI_SUCCESS, bytes = 0;
    MPI_Status status;
    int const result = MPI_Test(&requests_[i], &done, &status);
    if (result != MPI_SUCCESS) {
      detail::mpi_check(MPI_Error_class(result, &error_class), "MPI_Error_class");
      if (received && error_class == MPI_ERR_TRUNCATE) fail_mismatch(kind, incoming_[i].peer);
      detail::mpi_check(result, received ? "MPI_Test after MPI_Irecv" : "MPI_Test after MPI_Isend");
    }
    if (done == 0 || !received) return done != 0;
    detail::mpi_check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    if (bytes != incoming_[i].bytes) fail_mismatch(kind, incoming_[i].peer);
    return true;
  }

  /// Late peers may have given up, or be in another collective: then their message lies here under another tag.
  void look_for_trouble(detail::collective kind, int tag) {
    int found = 0, quitter = -1;
    MPI_Status status;
    for (int const round : {state_.round, (state_.round + rounds - 1) % rounds}) {
      detail::mpi_check(MPI_Iprobe(MPI_ANY_SOURCE, round, state_.comm, &found, &status), "MPI_Iprobe");
      if (found != 0) quitter = status.MPI_SOURCE;
    }
    // A peer that gave up because of a mismatch has sent its message before: report the cause.
    for (std::size_t i = 0; i < incoming_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      detail::mpi_check(MPI_Iprobe(incoming_[i].peer, MPI_ANY_TAG, state_.comm, &found, &status), "MPI_Iprobe");
      // The next round's message may be here already; one of this round would have been matched.
      if (found != 0 && status.MPI_TAG >= rounds && status.MPI_TAG != tag && status.MPI_TAG % rounds == state_.round)
        fail_mismatch(kind, incoming_[i].peer);
    }
    if (quitter >= 0) fail<aborted_error>(kind, "rank " + std::to_string(quitter) + " gave up");
  }

  /// Gives up on what is pending. Receives that no message has reached are withdrawn, so that a late peer does not
  /// write into a buffer that the caller may free; the rest is leaked.
  void abandon() noexcept {
    abort();
    for (std::size_t i = 0; i < incoming_.size() && i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      int done = 0;
      if (MPI_Cancel(&requests_[i]) == MPI_SUCCESS)
        static_cast<void>(MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE));
    }
    requests_.clear();
    incoming_.clear();
  }

  void release() noexcept {
    if (state_.size == 0) return;
    // A rank that leaves alone, by an exception, must neither wait for its peers nor let them wait.
    if (std::uncaught_exceptions() > exceptions_) abort();
    if (!state_.aborted && usable()) static_cast<void>(MPI_Comm_free(&state_.comm));  // a destructor cannot report
    state_ = {};
  }

  detail::mpi_state state_;
  int exceptions_ = std::uncaught_exceptions();
  // Receives first, in the order of incoming_; then sends. Kept between calls to save allocations.
  std::vector<MPI_Request> requests_;
  std::vector<incoming> incoming_;
};

using mpi_transport = basic_mpi_transport<index{1} << 30>;

static_assert(transport<mpi_transport>);

}  // namespace zoadam
