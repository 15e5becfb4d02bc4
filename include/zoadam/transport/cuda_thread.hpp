// SPDX-License-Identifier: Apache-2.0
// The transport between threads of one process whose buffers lie on devices; several ranks may share one device.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "zoadam/backend/cuda.hpp"
#include "zoadam/transport/thread.hpp"

namespace zoadam {
namespace detail {

/// Copies on this rank's stream, ordered by events; no thread waits for a device.
class stream_mover {
 public:
  stream_mover() = default;
  stream_mover(stream_mover const&) = delete;
  stream_mover& operator=(stream_mover const&) = delete;
  ~stream_mover() { release(); }

  void open(cudaStream_t stream) {
    release();
    stream_ = stream;
    for (cudaEvent_t* each : {&offered_, &finished_}) {
      ZOADAM_CUDA(cudaEventCreateWithFlags(each, cudaEventDisableTiming));
    }
    expect_stream_of_device(offered_, stream, "cuda_thread_group::rank");
  }
  cudaStream_t stream() const noexcept { return stream_; }

  void offer() const { ZOADAM_CUDA(cudaEventRecord(offered_, stream_)); }
  void take(stream_mover const& peer, std::byte const* source, std::byte* target, std::size_t bytes) const {
    if (&peer != this) ZOADAM_CUDA(cudaStreamWaitEvent(stream_, peer.offered_, 0));
    ZOADAM_CUDA(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, stream_));
  }
  void finish() const { ZOADAM_CUDA(cudaEventRecord(finished_, stream_)); }
  void settle() const noexcept { (void)cudaStreamSynchronize(stream_); }
  void await(stream_mover const& peer) const {
    if (&peer == this) return;
    cudaError_t const status = cudaStreamWaitEvent(stream_, peer.finished_, 0);
    if (status == cudaSuccess) return;
    (void)cudaEventSynchronize(peer.finished_);
    throw cuda_error("cudaStreamWaitEvent", status);
  }

 private:
  void release() noexcept {
    for (cudaEvent_t* each : {&offered_, &finished_}) {
      if (*each) (void)cudaEventDestroy(*each);
      *each = nullptr;
    }
  }
  cudaStream_t stream_ = nullptr;
  cudaEvent_t offered_ = nullptr, finished_ = nullptr;
};

struct cuda_thread_hub {
  cuda_thread_hub(int size, std::chrono::milliseconds time_limit)
      : hub(size, time_limit), movers(static_cast<std::size_t>(size)) {}
  thread_hub hub;
  std::vector<stream_mover> movers;
};

}  // namespace detail

/// Tells whether a group has failed, also when the transport was moved or is gone.
///
/// Execution: any thread
class cuda_thread_watch {
 public:
  explicit cuda_thread_watch(std::shared_ptr<detail::cuda_thread_hub const> shared) noexcept
      : shared_(std::move(shared)) {}

  /// Errors: timeout_error, mismatch_error or aborted_error, if the group has failed
  void check() const { shared_->hub.check("cuda_thread_transport"); }

 private:
  std::shared_ptr<detail::cuda_thread_hub const> shared_;
};

/// One rank of a cuda_thread_group: thread_transport over device memory, on a stream.
///
/// Errors:    those of thread_transport, and cuda_error
/// Execution: one copy per message, on the receiver's stream; threads meet on the host, devices are not waited for
class cuda_thread_transport {
 public:
  cuda_thread_transport(cuda_thread_transport&& other) noexcept
      : shared_(std::move(other.shared_)), rank_(other.rank_), sent_(std::exchange(other.sent_, 0)) {}
  cuda_thread_transport& operator=(cuda_thread_transport&& other) noexcept {
    if (this != &other) {
      leave();
      shared_ = std::move(other.shared_);
      rank_ = other.rank_;
      sent_ = std::exchange(other.sent_, 0);
    }
    return *this;
  }
  ~cuda_thread_transport() { leave(); }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return shared_ ? shared_->hub.size() : 0; }
  cudaStream_t stream() const noexcept { return shared_ ? mover().stream() : nullptr; }

  void all_to_all(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    run(detail::collective::all_to_all, offsets, send, receive);
  }
  void all_gather(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    run(detail::collective::all_gather, offsets, send, receive);
  }

  void abort() noexcept {
    if (shared_) shared_->hub.abort();
  }
  /// Errors: those of the watch
  void check() const {
    if (shared_) shared_->hub.check("cuda_thread_transport");
  }
  /// Errors: argument_error if the transport was moved from
  cuda_thread_watch watch() const {
    ZOADAM_EXPECTS(shared_ != nullptr, "cuda_thread_transport::watch", "the transport was moved from");
    return cuda_thread_watch(shared_);
  }
  index bytes_sent() const noexcept { return sent_; }

 private:
  friend class cuda_thread_group;
  cuda_thread_transport(std::shared_ptr<detail::cuda_thread_hub> shared, int rank) noexcept
      : shared_(std::move(shared)), rank_(rank) {}

  detail::stream_mover& mover() const noexcept { return shared_->movers[static_cast<std::size_t>(rank_)]; }
  void run(detail::collective kind, std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    if (!shared_)
      throw argument_error(detail::collective_name("cuda_thread_transport", kind) + "the transport was moved from");
    detail::phase const range(kind == detail::collective::all_to_all ? "zoadam: all_to_all" : "zoadam: all_gather");
    shared_->hub.run(kind, rank_, offsets, send, receive, mover());
    sent_ += detail::bytes_to_peers(kind, offsets, rank_);
  }
  void leave() noexcept {
    if (shared_) shared_->hub.leave();
  }

  std::shared_ptr<detail::cuda_thread_hub> shared_;
  int rank_;
  index sent_ = 0;
};
static_assert(transport<cuda_thread_transport>);

/// n ranks within this process, a thread and a stream each; see thread_group.
class cuda_thread_group {
 public:
  explicit cuda_thread_group(int size, std::chrono::milliseconds time_limit = std::chrono::seconds(60)) {
    ZOADAM_EXPECTS(size >= 1, "cuda_thread_group", "size must be at least 1");
    ZOADAM_EXPECTS(time_limit.count() > 0, "cuda_thread_group", "time_limit must be positive");
    shared_ = std::make_shared<detail::cuda_thread_hub>(size, time_limit);
  }
  int size() const noexcept { return shared_->hub.size(); }

  /// The handle of rank i, whose buffers lie on the current device and are used on `stream`.
  cuda_thread_transport rank(int i, cudaStream_t stream) {
    ZOADAM_EXPECTS(i >= 0 && i < size(), "cuda_thread_group::rank", "the rank must be in [0, size())");
    ZOADAM_EXPECTS(detail::is_created(stream), "cuda_thread_group::rank",
                   "stream: the default stream serializes; create one");
    shared_->hub.join(i);
    cuda_thread_transport handle(shared_, i);
    handle.mover().open(stream);
    return handle;
  }

 private:
  std::shared_ptr<detail::cuda_thread_hub> shared_;
};

}  // namespace zoadam
