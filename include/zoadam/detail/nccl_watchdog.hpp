// SPDX-License-Identifier: Apache-2.0
// Who waits for NCCL, so that no caller does: a thread that gives a communicator up when a collective does not end.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "zoadam/backend/cuda.hpp"
#include "zoadam/error.hpp"

namespace zoadam::detail {

/// Throws "zoadam: nccl_transport: ncclSend: <text of NCCL> (<last error>)" unless all is well.
inline void nccl_check(ncclResult_t status, char const* call, ncclComm_t comm) {
  if (status == ncclSuccess) return;
  std::string text = std::string("zoadam: nccl_transport: ") + call + ": " + ncclGetErrorString(status);
  char const* const last = ncclGetLastError(comm);
  if (last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
  throw transport_error(text, static_cast<int>(status));
}

/// Why a communicator was given up. Shared by a transport, its watchdog and its watches.
class nccl_verdict {
 public:
  enum class cause : unsigned char { none, aborted, timed_out, nccl, cuda };

  /// `call`: of CUDA, a literal.
  void set(cause why, std::string text, int status, char const* call) {
    std::lock_guard const lock(mutex_);
    why_ = why;
    text_ = std::move(text);
    status_ = status;
    call_ = call;
  }
  bool given() const {
    std::lock_guard const lock(mutex_);
    return why_ != cause::none;
  }
  /// Throws what it says; a new exception each time, since watches live on several threads.
  void check() const {
    std::lock_guard const lock(mutex_);
    switch (why_) {
      case cause::none:
        return;
      case cause::aborted:
        throw aborted_error(text_);
      case cause::timed_out:
        throw timeout_error(text_);
      case cause::nccl:
        throw transport_error(text_, status_);
      case cause::cuda:
        throw cuda_error(call_, static_cast<cudaError_t>(status_));
    }
  }

 private:
  mutable std::mutex mutex_;
  cause why_ = cause::none;
  std::string text_;
  int status_ = 0;
  char const* call_ = "";
};

/// Watches the collectives of one rank: begin(), the calls of one collective, end().
///
/// NCCL wants one thread at a time on a communicator. So the thread asks it for errors only outside of
/// begin() ... end(), and under the mutex; it aborts outside of them too, and begin() and end() throw when there is a
/// verdict. The one exception is a rank that has been between begin() and end() for the whole limit: it is stuck in
/// NCCL (connections are set up at first use), and nothing else would free it.
class nccl_watchdog {
 public:
  using clock = std::chrono::steady_clock;
  using cause = nccl_verdict::cause;

  nccl_watchdog(ncclComm_t comm, cudaStream_t stream, std::chrono::milliseconds limit)
      : comm_(comm), stream_(stream), limit_(limit) {}
  nccl_watchdog(nccl_watchdog const&) = delete;
  nccl_watchdog& operator=(nccl_watchdog const&) = delete;
  ~nccl_watchdog() {
    {
      std::lock_guard const lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    // Unwinding frees buffers, which waits for the device: it must not wait for a collective that will not end.
    if (std::uncaught_exceptions() > exceptions_ && unfinished())
      give_up(cause::aborted, "zoadam: nccl_transport: left by an exception while a collective was under way");
    for (cudaEvent_t each : events_) (void)cudaEventDestroy(each);
  }

  ncclComm_t comm() const noexcept { return comm_; }
  cudaStream_t stream() const noexcept { return stream_; }
  /// Once the communicator is known to be well; before that nothing aborts it.
  void arm(int device) noexcept {
    device_ = device;
    exceptions_ = std::uncaught_exceptions();
  }
  std::shared_ptr<nccl_verdict const> verdict() const noexcept { return verdict_; }

  /// Before the calls of a collective.
  void begin() {
    {
      std::lock_guard const lock(mutex_);
      verdict_->check();
      if (!thread_.joinable()) start();
      inside_ = true;
      entered_ = clock::now();
      if (pending_.size() == most_pending) {  // the newest stands for one more
        current_ = pending_.back();
        pending_.pop_back();
        current_.collectives += 1;
      } else if (!free_.empty()) {
        current_ = free_.back();
        free_.pop_back();
      } else {
        current_ = {};
      }
    }
    changed_.notify_all();
    if (current_.done == nullptr) create_events();
    if (current_.collectives == 1) ZOADAM_CUDA(cudaEventRecord(current_.reached, stream_));
  }
  /// After them.
  void end() {
    ZOADAM_CUDA(cudaEventRecord(current_.done, stream_));
    std::lock_guard const lock(mutex_);
    verdict_->check();
    inside_ = false;
    pending_.push_back(current_);
  }

  /// Waits until NCCL has done what `call` asked of a non-blocking communicator.
  /// Errors: timeout_error; transport_error; what the verdict says
  void wait_ready(char const* call) {
    for (auto const deadline = clock::now() + limit_;;) {
      ncclResult_t state = ncclSuccess;
      {
        std::lock_guard const lock(mutex_);
        verdict_->check();
        nccl_check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
      }
      if (state != ncclInProgress) return nccl_check(state, call, comm_);
      if (clock::now() > deadline)
        throw timeout_error(std::string("zoadam: nccl_transport: ") + call + " did not end within " + limit_text());
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  /// For the caller, who ends a collective by it: aborts the communicator, unless the thread does.
  void give_up(cause why, std::string text, int status = 0) noexcept {
    {
      std::lock_guard const lock(mutex_);
      inside_ = false;
      if (verdict_->given()) why = cause::none;
      if (why != cause::none) verdict_->set(why, std::move(text), status, "");
    }
    changed_.notify_all();
    if (why != cause::none) (void)ncclCommAbort(comm_);  // whatever it says, the communicator is gone
  }

 private:
  static constexpr std::size_t most_pending = 64;
  static constexpr std::chrono::milliseconds poll_interval{2};

  /// Where the stream begins and ends a collective, or several from the newest place on.
  struct place {
    cudaEvent_t reached = nullptr, done = nullptr;
    int collectives = 1;
  };

  void start() {
    try {
      thread_ = std::thread([this] { watch(); });
    } catch (std::system_error const& e) {
      throw transport_error(std::string("zoadam: nccl_transport: no thread for the watchdog: ") + e.what());
    }
  }

  /// Events belong to the device that is current when they are made.
  void create_events() {
    int current = device_;
    ZOADAM_CUDA(cudaGetDevice(&current));
    if (current != device_) ZOADAM_CUDA(cudaSetDevice(device_));
    cudaError_t status = cudaSuccess;
    for (cudaEvent_t* each : {&current_.reached, &current_.done}) {
      if (status == cudaSuccess) status = cudaEventCreateWithFlags(each, cudaEventDisableTiming);
      if (status == cudaSuccess) events_.push_back(*each);
    }
    if (current != device_) ZOADAM_CUDA(cudaSetDevice(current));
    cuda_check(status, "cudaEventCreateWithFlags");
  }

  bool unfinished() const noexcept {
    for (place const& each : pending_)
      if (event_status(each.done) != cudaSuccess) return true;
    return false;
  }

  std::string limit_text() const { return std::to_string(limit_.count()) + " ms"; }

  // ---- the thread ----

  void watch() {
    // Asking for events must not disturb a capture on another thread of the trainer.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaError_t const set = cudaSetDevice(device_), exchanged = cudaThreadExchangeStreamCaptureMode(&mode);
    std::unique_lock lock(mutex_);
    if (set != cudaSuccess) fail(lock, set, "cudaSetDevice");
    if (exchanged != cudaSuccess) fail(lock, exchanged, "cudaThreadExchangeStreamCaptureMode");
    while (!stop_ && !verdict_->given()) {
      if (!inside_ && pending_.empty()) {
        changed_.wait(lock);
      } else if (!look(lock)) {
        changed_.wait_for(lock, poll_interval);
      }
    }
  }

  /// Gives the communicator up, with the lock held at the beginning and at the end.
  void give_up(std::unique_lock<std::mutex>& lock, cause why, std::string text, int status, char const* call) {
    if (verdict_->given()) return;
    verdict_->set(why, std::move(text), status, call);
    changed_.wait_until(lock, entered_ + limit_, [this] { return !inside_; });
    lock.unlock();
    (void)ncclCommAbort(comm_);
    lock.lock();
  }
  void time_out(std::unique_lock<std::mutex>& lock) {
    give_up(lock, cause::timed_out, "zoadam: nccl_transport: a peer did not come within " + limit_text(), 0, "");
  }
  void fail(std::unique_lock<std::mutex>& lock, cudaError_t status, char const* call) {
    give_up(lock, cause::cuda, "", static_cast<int>(status), call);
  }

  /// Looks at the caller, NCCL and the oldest collective. Whether to look again at once.
  bool look(std::unique_lock<std::mutex>& lock) {
    if (inside_) {
      if (clock::now() - entered_ > limit_) time_out(lock);
    } else {
      ncclResult_t state = ncclSuccess;
      ncclResult_t const asked = ncclCommGetAsyncError(comm_, &state);
      if (asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress)) {
        try {
          nccl_check(asked, "ncclCommGetAsyncError", comm_);
          nccl_check(state, "a collective", comm_);
        } catch (transport_error const& e) {
          give_up(lock, cause::nccl, e.what(), e.status, "");
        }
        return true;
      }
    }
    if (pending_.empty()) return false;
    place const oldest = pending_.front();  // only this thread takes it out
    lock.unlock();
    cudaError_t status = reached_ ? cudaSuccess : cudaEventQuery(oldest.reached);
    if (status == cudaSuccess) {
      if (!reached_) since_ = clock::now();
      reached_ = true;
      status = cudaEventQuery(oldest.done);
    }
    lock.lock();
    if (status == cudaSuccess) {
      pending_.pop_front();
      free_.push_back({oldest.reached, oldest.done});
      reached_ = false;
    } else if (status != cudaErrorNotReady) {
      fail(lock, status, "cudaEventQuery, asking whether a collective has ended");
    } else if (reached_ && !inside_ && clock::now() - since_ > limit_ * oldest.collectives) {
      time_out(lock);
    }
    return status == cudaSuccess;
  }

  ncclComm_t comm_;
  cudaStream_t stream_;
  std::chrono::milliseconds limit_;
  int device_ = 0;
  int exceptions_ = std::numeric_limits<int>::max();
  std::shared_ptr<nccl_verdict> verdict_ = std::make_shared<nccl_verdict>();

  // The caller's.
  place current_;
  std::vector<cudaEvent_t> events_;  // all of them
  std::thread thread_;

  // The thread's.
  bool reached_ = false;     // the oldest collective, by the stream
  clock::time_point since_;  // when that was seen

  std::mutex mutex_;  // guards the rest, and the communicator outside of begin() ... end()
  std::condition_variable changed_;
  std::deque<place> pending_;
  std::vector<place> free_;
  bool inside_ = false;  // the caller is between begin() and end()
  clock::time_point entered_;
  bool stop_ = false;
};

}  // namespace zoadam::detail
