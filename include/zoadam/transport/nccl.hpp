// SPDX-License-Identifier: Apache-2.0
// The transport over NCCL: one rank per device, on a stream, with a time limit.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "zoadam/backend/cuda.hpp"
#include "zoadam/concepts/transport.hpp"
#include "zoadam/config.hpp"
#include "zoadam/detail/nccl_watchdog.hpp"
#include "zoadam/error.hpp"
#include "zoadam/transport/single.hpp"

namespace zoadam {
namespace detail {

/// The device of a stream. CUDA before 12.8 cannot say it: there the current device has to be that of the stream.
template <class Stream>
int device_of_stream(Stream stream) {
  int device = 0;
  if constexpr (requires { cudaStreamGetDevice(stream, &device); }) {
    cuda_check(cudaStreamGetDevice(stream, &device), "cudaStreamGetDevice");
  } else {
    cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  }
  return device;
}

}  // namespace detail

/// Tells whether the communicator of a transport was given up, also when the transport was moved or is gone.
///
/// Execution: any thread
class nccl_watch {
 public:
  explicit nccl_watch(std::shared_ptr<detail::nccl_verdict const> verdict) noexcept : verdict_(std::move(verdict)) {}

  /// Errors: why it was given up: timeout_error, transport_error, aborted_error or cuda_error
  void check() const { verdict_->check(); }
  /// Whether it was. A communicator that was given up is aborted: do not destroy it. Final when the transport is
  /// gone.
  bool failed() const { return verdict_->given(); }

 private:
  std::shared_ptr<detail::nccl_verdict const> verdict_;
};

/// A rank of an NCCL communicator.
///
/// Owns:       nothing that is given to it. Communicator and stream are the user's, must outlive the transport, and
///             are not used by others while a collective is called. A communicator on which something failed is
///             aborted, by which NCCL frees it: do not use or destroy it any more; watch().failed() tells.
/// Errors:     argument_error, and where it is thrown by the constructor the communicator stays as it was;
///             transport_error with the ncclResult_t, the call and NCCL's text; cuda_error; timeout_error;
///             aborted_error after abort() here. After any of these every call throws. Since collectives are
///             asynchronous, failures of peers and time-outs are thrown by check(), by the watch, and by the next
///             collective; work that the stream holds behind a given up collective still runs, on unspecified bytes.
///             Peers see a rank that gave up as an NCCL error (over a network) or by their own time limit. Ranks that
///             disagree on sizes are not told apart from ranks that are late.
/// Time limit: from when this rank's stream reaches the collective to its end; a call that sets up connections may
///             wait for peers inside of NCCL, for at most the limit. Prefer a communicator with config.blocking = 0:
///             NCCL then waits nowhere, while the abort of a blocking one interrupts a call on another thread.
/// Collective: all_to_all, all_gather: every rank, in the same order, neither inside of an NCCL group nor in a stream
///             capture. Buffers are device memory, used in stream order; an all-gather may be in place.
/// Execution:  one thread at a time. The host waits for no device; a thread of the transport, which starts with the
///             first collective, looks every 2 ms while one is under way. The destructor stops it and waits for no
///             collective: those that are pending are given up if it runs because of an exception, and are nobody's
///             to watch otherwise.
class nccl_transport {
 public:
  /// @param comm        may be still in its initialization, which is then waited for
  /// @param stream      of the communicator's device; not a default stream
  /// @param time_limit  > 0
  nccl_transport(ncclComm_t comm, cudaStream_t stream,
                 std::chrono::milliseconds time_limit = std::chrono::seconds(60)) {
    ZOADAM_EXPECTS(comm != nullptr, "nccl_transport(comm)", "comm must not be null");
    ZOADAM_EXPECTS(detail::is_created(stream), "nccl_transport(stream)",
                   "stream: a default stream serializes; create one");
    ZOADAM_EXPECTS(time_limit.count() > 0, "nccl_transport(time_limit)", "time_limit must be positive");
    constexpr std::chrono::milliseconds longest = std::chrono::hours(24 * 365);  // a sum of times must not overflow
    state_ = std::make_unique<state>(comm, stream, time_limit < longest ? time_limit : longest);
    state_->watchdog.wait_ready("the initialization of the communicator");
    int device = 0;
    detail::nccl_check(ncclCommUserRank(comm, &state_->rank), "ncclCommUserRank", comm);
    detail::nccl_check(ncclCommCount(comm, &state_->size), "ncclCommCount", comm);
    detail::nccl_check(ncclCommCuDevice(comm, &device), "ncclCommCuDevice", comm);
    int const streams = detail::device_of_stream(stream);
    ZOADAM_EXPECTS(
        device == streams, "nccl_transport(stream)",
        "stream belongs to device " + std::to_string(streams) + ", comm to device " + std::to_string(device));
    state_->watchdog.arm(device);
  }

  int rank() const noexcept { return state_ ? state_->rank : 0; }
  int size() const noexcept { return state_ ? state_->size : 0; }
  cudaStream_t stream() const noexcept { return state_ ? state_->watchdog.stream() : nullptr; }

  void all_to_all(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    run(detail::collective::all_to_all, offsets, send, receive);
  }
  void all_gather(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    run(detail::collective::all_gather, offsets, send, receive);
  }

  /// Frees this rank's stream from what is pending; what it would have received is unspecified.
  void abort() noexcept {
    if (state_)
      state_->watchdog.give_up(detail::nccl_verdict::cause::aborted, "zoadam: nccl_transport: aborted here");
  }

  /// Errors: why the communicator was given up, if it was.
  void check() const {
    if (state_) state_->watchdog.verdict()->check();
  }
  /// Errors: argument_error if the transport was moved from
  nccl_watch watch() const {
    ZOADAM_EXPECTS(state_ != nullptr, "nccl_transport::watch", "the transport was moved from");
    return nccl_watch(state_->watchdog.verdict());
  }

  index bytes_sent() const noexcept { return state_ ? state_->sent : 0; }

 private:
  using cause = detail::nccl_verdict::cause;

  struct state {
    state(ncclComm_t comm, cudaStream_t stream, std::chrono::milliseconds limit) : watchdog(comm, stream, limit) {}
    int rank = 0, size = 0;
    index sent = 0;
    detail::nccl_watchdog watchdog;
  };

  void run(detail::collective kind, std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    if (!state_)
      throw argument_error(detail::collective_name("nccl_transport", kind) + "the transport was moved from");
    check();
    detail::phase const range(kind == detail::collective::all_to_all ? "zoadam: all_to_all" : "zoadam: all_gather");
    int const me = state_->rank, ranks = state_->size;
    if (std::string const defect = detail::collective_defect(kind, me, ranks, offsets, send, receive);
        !defect.empty()) {
      std::string const text = detail::collective_name("nccl_transport", kind) + defect;
      state_->watchdog.give_up(cause::aborted, text);
      throw argument_error(text);
    }
    try {
      start(kind, offsets, send, receive);
    } catch (timeout_error const& e) {
      state_->watchdog.give_up(cause::timed_out, e.what());
      throw;
    } catch (transport_error const& e) {
      state_->watchdog.give_up(cause::nccl, e.what(), e.status);
      throw;
    } catch (std::exception const& e) {
      state_->watchdog.give_up(cause::aborted,
                               std::string("zoadam: nccl_transport: an earlier call failed: ") + e.what());
      throw;
    }
    state_->sent += detail::bytes_to_peers(kind, offsets, me);
  }

  void start(detail::collective kind, std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    detail::nccl_watchdog& watchdog = state_->watchdog;
    bool const travels = state_->size > 1 && offsets.back() > offsets.front();
    bool const even = kind == detail::collective::all_gather && travels && equal_messages(offsets);
    if (!even) {
      detail::copy_message(
          kind, offsets, state_->rank, state_->rank, send, receive,
          [&](std::byte const* source, std::byte* target, std::size_t bytes) {
            ZOADAM_CUDA(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, watchdog.stream()));
          });
    }
    if (!travels) return;
    watchdog.begin();
    if (even) {
      auto const bytes = static_cast<std::size_t>(detail::message_bytes(offsets, state_->rank));
      expect("ncclAllGather",
             ncclAllGather(send, receive + offsets.front(), bytes, ncclInt8, watchdog.comm(), watchdog.stream()));
    } else {
      exchange(kind, offsets, send, receive);
    }
    watchdog.end();
  }

  void exchange(detail::collective kind, std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    ncclComm_t const comm = state_->watchdog.comm();
    cudaStream_t const stream = state_->watchdog.stream();
    int const me = state_->rank, ranks = state_->size;
    detail::nccl_check(ncclGroupStart(), "ncclGroupStart", comm);
    char const* call = "ncclGroupEnd";
    ncclResult_t failed = ncclSuccess;
    auto const still_well = [&](ncclResult_t result, char const* name) {
      if (result == ncclSuccess || result == ncclInProgress) return true;
      failed = result;
      call = name;
      return false;
    };
    for (int i = 1; i < ranks; ++i) {
      int const to = (me + i) % ranks, from = (me + ranks - i) % ranks;  // not all to the same rank at a time
      auto const out = static_cast<std::size_t>(detail::pair_bytes(kind, offsets, me, to));
      auto const in = static_cast<std::size_t>(detail::pair_bytes(kind, offsets, from, me));
      std::byte const* const source = send + (out > 0 ? detail::send_offset(kind, offsets, to) : 0);
      std::byte* const target = receive + (in > 0 ? detail::receive_offset(kind, offsets, from, me) : 0);
      if (out > 0 && !still_well(ncclSend(source, out, ncclInt8, to, comm, stream), "ncclSend")) break;
      if (in > 0 && !still_well(ncclRecv(target, in, ncclInt8, from, comm, stream), "ncclRecv")) break;
    }
    ncclResult_t const ended = ncclGroupEnd();  // a group is ended whatever happened in it
    expect(call, failed != ncclSuccess ? failed : ended);
  }

  /// The end of a call; a non-blocking communicator may still be at it.
  void expect(char const* call, ncclResult_t result) {
    if (result == ncclInProgress) return state_->watchdog.wait_ready(call);
    detail::nccl_check(result, call, state_->watchdog.comm());
  }

  static bool equal_messages(std::span<index const> offsets) noexcept {
    index const first = offsets[1] - offsets[0];
    for (std::size_t i = 1; i + 1 < offsets.size(); ++i)
      if (offsets[i + 1] - offsets[i] != first) return false;
    return true;
  }

  std::unique_ptr<state> state_;
};

static_assert(transport<nccl_transport>);

}  // namespace zoadam
