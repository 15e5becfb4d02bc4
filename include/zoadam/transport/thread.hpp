// SPDX-License-Identifier: Apache-2.0
// The transport between threads of one process: every rank reads its peers' buffers.
#pragma once

#include <condition_variable>  // and durations and clocks; <chrono> adds calendars, streams and 0.06 s
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "zoadam/concepts/transport.hpp"
#include "zoadam/config.hpp"
#include "zoadam/error.hpp"
#include "zoadam/transport/single.hpp"

namespace zoadam {

class thread_group;

namespace detail {

/// How a rank takes its peers' messages out of the memory of the process.
struct memory_mover {
  void offer() const noexcept {}  ///< before the others may read this rank's buffer
  void take(memory_mover const&, std::byte const* source, std::byte* target, std::size_t bytes) const noexcept {
    copy_in_memory(source, target, bytes);
  }
  void finish() const noexcept {}                    ///< after this rank has read its peers' buffers
  void settle() const noexcept {}                    ///< instead of that, after something failed: reads no more
  void await(memory_mover const&) const noexcept {}  ///< a peer has read this rank's buffer
};

/// What the ranks of one group share. All of them use one type of Mover, and a mover outlives the group's handles.
class thread_hub {
 public:
  thread_hub(int size, std::chrono::milliseconds time_limit)
      : slots_(static_cast<std::size_t>(size)), time_limit_(time_limit < longest ? time_limit : longest) {}

  int size() const noexcept { return static_cast<int>(slots_.size()); }

  /// A rank that has left may come back only when all have left: a generation of handles ends as a whole, so that a
  /// rank that comes late still learns that an early one is gone.
  void join(int rank) {
    std::lock_guard const lock(mutex_);
    slot& mine = slots_[static_cast<std::size_t>(rank)];
    if (mine.taken && held_ == 0) {
      for (slot& each : slots_) each = slot{};
      arrived_ = 0;
      left_ = false;
      failure_ = failure::none;
    }
    if (mine.taken) {
      fail(failure::aborted);
      throw_argument("thread_group::rank", "rank " + std::to_string(rank) + " is taken");
    }
    mine.taken = true;
    ++held_;
  }

  void leave() noexcept {
    std::lock_guard const lock(mutex_);
    --held_;
    left_ = true;
    changed_.notify_all();
  }

  void abort() noexcept {
    std::lock_guard const lock(mutex_);
    fail(failure::aborted);
  }

  /// Throws if the group has failed; a rank that has left is no failure.
  void check(char const* transport_name) const {
    std::lock_guard const lock(mutex_);
    std::string const name = std::string("zoadam: ") + transport_name + ": ";
    if (failure_ == failure::timed_out)
      throw timeout_error(name + "a peer did not come within " + std::to_string(time_limit_.count()) + " ms");
    if (failure_ == failure::mismatch) throw mismatch_error(name + "the ranks disagree about a call or its sizes");
    if (failure_ == failure::aborted) throw aborted_error(name + "a rank gave up or an earlier call failed");
  }

  template <class Mover>
  void run(collective kind, int rank, std::span<index const> offsets, std::byte const* send, std::byte* receive,
           Mover& mover) {
    auto const deadline = std::chrono::steady_clock::now() + time_limit_;
    std::unique_lock lock(mutex_);
    if (failure_ != failure::none || left_) throw_aborted(kind);
    if (std::string const defect = collective_defect(kind, rank, size(), offsets, send, receive); !defect.empty()) {
      fail(failure::aborted);
      throw argument_error(collective_name("thread_transport", kind) + defect);
    }

    slot& mine = slots_[static_cast<std::size_t>(rank)];
    std::exception_ptr trouble = attempt([&] { mover.offer(); });
    if (trouble) {
      fail(failure::aborted);
      std::rethrow_exception(trouble);
    }
    mine.kind = kind;
    mine.offsets = offsets;
    mine.send = send;
    mine.mover = &mover;
    std::uint64_t const phase = phase_;
    if (++arrived_ == size()) {
      if (!agreed()) fail(failure::mismatch);
      next_phase();
    } else {
      bool const woken =
          changed_.wait_until(lock, deadline, [&] { return phase_ != phase || failure_ != failure::none || left_; });
      if (phase_ == phase) {  // this collective did not start and never will: nobody reads this rank's buffers
        if (!woken) fail(failure::timed_out);
        if (failure_ == failure::timed_out)
          throw timeout_error(collective_name("thread_transport", kind) + "a peer did not come within " +
                              std::to_string(time_limit_.count()) + " ms");
        throw_aborted(kind);
      }
    }
    if (failure_ == failure::mismatch)
      throw mismatch_error(collective_name("thread_transport", kind) +
                           "the ranks disagree about the call or its sizes");
    lock.unlock();

    int const ranks = size();
    trouble = attempt([&] {
      for (int i = 0; i < ranks; ++i) {
        int const from = (rank + i) % ranks;  // not all from the same rank at the same time
        slot const& peer = slots_[static_cast<std::size_t>(from)];
        copy_message(kind, offsets, from, rank, peer.send, receive,
                     [&](std::byte const* source, std::byte* target, std::size_t bytes) {
                       mover.take(*static_cast<Mover const*>(peer.mover), source, target, bytes);
                     });
      }
      mover.finish();
    });
    if (trouble) mover.settle();

    // Peers may still read this rank's buffer. Copies end by themselves, so this wait needs no deadline, and neither
    // an abort nor a departure may cut it short.
    lock.lock();
    if (trouble) fail(failure::aborted);
    if (++arrived_ == ranks) {
      cut_short_ = failure_ != failure::none;
      next_phase();
    } else {
      changed_.wait(lock, [&] { return phase_ != phase + 1; });
    }
    // Who fails here may free the buffers at once, so the order of their use holds for failures, too.
    std::exception_ptr late;
    for (slot const& peer : slots_) {
      std::exception_ptr const failed = attempt([&] { mover.await(*static_cast<Mover const*>(peer.mover)); });
      if (!late) late = failed;
    }
    if (late) fail(failure::aborted);
    if (trouble) std::rethrow_exception(trouble);
    if (cut_short_) throw_aborted(kind);
    if (late) std::rethrow_exception(late);
  }

 private:
  template <class F>
  static std::exception_ptr attempt(F const& f) noexcept {
    try {
      f();
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  enum class failure : unsigned char { none, aborted, timed_out, mismatch };

  struct slot {
    std::span<index const> offsets{};
    std::byte const* send = nullptr;
    void const* mover = nullptr;
    collective kind = collective::all_to_all;
    bool taken = false;
  };

  void fail(failure reason) noexcept {
    if (failure_ == failure::none) failure_ = reason;
    changed_.notify_all();
  }

  void next_phase() noexcept {
    arrived_ = 0;
    ++phase_;
    changed_.notify_all();
  }

  bool agreed() const noexcept {
    slot const& first = slots_[0];
    for (slot const& each : slots_) {
      if (each.kind != first.kind) return false;
      for (std::size_t i = 0; i < first.offsets.size(); ++i)
        if (each.offsets[i] != first.offsets[i]) return false;
    }
    return true;
  }

  [[noreturn]] void throw_aborted(collective kind) const {
    throw aborted_error(collective_name("thread_transport", kind) + (failure_ != failure::none
                                                                         ? "a rank gave up or an earlier call failed"
                                                                         : "a rank has left the group"));
  }

  static constexpr std::chrono::milliseconds longest = std::chrono::hours(24 * 365);  // a deadline must not overflow

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<slot> slots_;
  std::chrono::milliseconds time_limit_;
  std::uint64_t phase_ = 0;
  int arrived_ = 0;
  int held_ = 0;
  bool left_ = false;
  bool cut_short_ = false;  // the verdict on the last collective, the same for all of its ranks
  failure failure_ = failure::none;
};

}  // namespace detail

/// One rank of a thread_group. Used by one thread at a time; destroying it tells the peers that this rank is gone.
///
/// Errors:     mismatch_error on every rank when ranks call different collectives or with different offsets;
///             timeout_error when a peer does not come within the time limit; aborted_error when a peer has called
///             abort(), failed or is gone; argument_error for offsets or buffers that are wrong by themselves (the
///             peers get aborted_error). After any of these every call throws.
/// Collective: every rank, in the same order; the buffers may be reused when the call returns. An all-gather may be
/// in
///             place (send == receive + offsets[rank()]).
/// Execution:  one copy per message, by the receiver; waiting threads sleep
class thread_transport {
 public:
  thread_transport(thread_transport&& other) noexcept
      : hub_(std::move(other.hub_)), rank_(other.rank_), sent_(std::exchange(other.sent_, 0)) {}
  thread_transport& operator=(thread_transport&& other) noexcept {
    if (this != &other) {
      leave();
      hub_ = std::move(other.hub_);
      rank_ = other.rank_;
      sent_ = std::exchange(other.sent_, 0);
    }
    return *this;
  }
  ~thread_transport() { leave(); }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return hub_ ? hub_->size() : 0; }

  void all_to_all(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    run(detail::collective::all_to_all, offsets, send, receive);
  }
  void all_gather(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    run(detail::collective::all_gather, offsets, send, receive);
  }

  void abort() noexcept {
    if (hub_) hub_->abort();
  }

  index bytes_sent() const noexcept { return sent_; }

 private:
  friend class thread_group;
  thread_transport(std::shared_ptr<detail::thread_hub> hub, int rank) noexcept : hub_(std::move(hub)), rank_(rank) {}

  void run(detail::collective kind, std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    if (!hub_)
      throw argument_error(detail::collective_name("thread_transport", kind) + "the transport was moved from");
    static detail::memory_mover mover;
    hub_->run(kind, rank_, offsets, send, receive, mover);
    sent_ += detail::bytes_to_peers(kind, offsets, rank_);
  }

  void leave() noexcept {
    if (hub_) hub_->leave();
  }

  std::shared_ptr<detail::thread_hub> hub_;
  int rank_;
  index sent_ = 0;
};

static_assert(transport<thread_transport>);

/// n ranks within this process, one thread each.
///
///     zoadam::thread_group group(4);
///     // in thread i:
///     zoadam::thread_transport ranks = group.rank(i);
///
/// The handles keep what they share alive; the group may be destroyed before them. When all handles are gone, the
/// group hands out fresh ones, also after an abort.
///
/// Errors: argument_error for n < 1, a time limit that is not positive, a rank out of range, or a rank that is taken
///         (that one also aborts the group: two threads believe to be the same rank)
class thread_group {
 public:
  explicit thread_group(int size, std::chrono::milliseconds time_limit = std::chrono::seconds(60)) {
    ZOADAM_EXPECTS(size >= 1, "thread_group", "size must be at least 1");
    ZOADAM_EXPECTS(time_limit.count() > 0, "thread_group", "time_limit must be positive");
    hub_ = std::make_shared<detail::thread_hub>(size, time_limit);
  }

  int size() const noexcept { return hub_->size(); }

  /// The handle of rank i. Threads may call it at the same time.
  thread_transport rank(int i) {
    ZOADAM_EXPECTS(i >= 0 && i < size(), "thread_group::rank", "the rank must be in [0, size())");
    hub_->join(i);
    return thread_transport(hub_, i);
  }

 private:
  std::shared_ptr<detail::thread_hub> hub_;
};

}  // namespace zoadam
