// SPDX-License-Identifier: Apache-2.0
// The host's side of the CUDA backend: errors, allocators, streams, reports. Kernels are in cuda.cuh.
#pragma once

#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <concepts>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "zoadam/detail/agreement.hpp"
#include "zoadam/error.hpp"
#include "zoadam/options.hpp"

namespace zoadam {

/// A CUDA call failed. `status` is its cudaError_t.
struct cuda_error : error {
  cuda_error(char const* call, cudaError_t native, char const* file = __builtin_FILE(), int line = __builtin_LINE())
      : error(std::string("zoadam: ") + call + ": " + cudaGetErrorName(native) + ": " + cudaGetErrorString(native) +
              " at " + file + ":" + std::to_string(line)),
        status(native) {}
  cudaError_t status;
};

namespace detail {

inline void cuda_check(cudaError_t status, char const* call, char const* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  if (status != cudaSuccess) throw cuda_error(call, status, file, line);
}
/// cudaEventQuery, whose "not ready" is no error: it must not stay behind as the thread's last one, which the
/// caller's own checks of launches would find.
inline cudaError_t event_status(cudaEvent_t event) noexcept {
  cudaError_t const status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) (void)cudaGetLastError();
  return status;
}
/// Whether it is a stream that somebody has created.
inline bool is_created(cudaStream_t stream) noexcept {
  return stream != nullptr && stream != cudaStreamLegacy && stream != cudaStreamPerThread;
}
/// Throws argument_error if work of the current device may not go into the stream. `event`: one of this device.
inline void expect_stream_of_device(cudaEvent_t event, cudaStream_t stream, char const* call) {
  cudaError_t const status = cudaEventRecord(event, stream);
  ZOADAM_EXPECTS(status != cudaErrorInvalidResourceHandle, call, "stream: it is not one of the current device");
  cuda_check(status, "cudaEventRecord");
}
#define ZOADAM_CUDA(call) ::zoadam::detail::cuda_check(call, #call)

}  // namespace detail

/// Device memory by cudaMalloc and cudaFree, which waits for the whole device: destroying an optimizer while a
/// collective of another communicator is pending there can wait for that collective.
struct plain_allocator {
  static void* allocate(std::size_t bytes, cudaStream_t) {
    void* p = nullptr;
    ZOADAM_CUDA(cudaMalloc(&p, bytes));
    return p;
  }
  static void free(void* p, cudaStream_t) noexcept { (void)cudaFree(p); }
};

/// Device memory from the stream-ordered pool of the device, freed in stream order without waiting.
struct pool_allocator {
  static void* allocate(std::size_t bytes, cudaStream_t stream) {
    void* p = nullptr;
    ZOADAM_CUDA(cudaMallocAsync(&p, bytes, stream));
    return p;
  }
  static void free(void* p, cudaStream_t stream) noexcept { (void)cudaFreeAsync(p, stream); }
};

/// allocate(bytes, stream), at least 256-byte aligned; free(p, stream).
template <class Allocator>
concept device_allocator = requires(void* p, std::size_t bytes, cudaStream_t stream) {
  { Allocator::allocate(bytes, stream) } -> std::same_as<void*>;
  { Allocator::free(p, stream) }
  noexcept;
};
static_assert(device_allocator<plain_allocator> && device_allocator<pool_allocator>);

namespace detail {

/// A phase of a step, by name, for profilers.
class phase {
 public:
  explicit phase(char const* name) noexcept { nvtxRangePushA(name); }
  phase(phase const&) = delete;
  phase& operator=(phase const&) = delete;
  ~phase() { nvtxRangePop(); }
};

/// Zeroed device memory, freed on its stream.
template <device_allocator Allocator>
class device_memory {
 public:
  device_memory() = default;
  device_memory(index bytes, cudaStream_t stream) : stream_(stream) {
    if (bytes == 0) return;
    data_ = static_cast<std::byte*>(Allocator::allocate(static_cast<std::size_t>(bytes), stream));
    cudaError_t const status = cudaMemsetAsync(data_, 0, static_cast<std::size_t>(bytes), stream);
    if (status != cudaSuccess) {
      Allocator::free(data_, stream_);
      throw cuda_error("cudaMemsetAsync", status);
    }
  }
  device_memory(device_memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), stream_(other.stream_) {}
  device_memory& operator=(device_memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~device_memory() {
    if (data_) Allocator::free(data_, stream_);
  }
  std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

/// Where reports arrive: pinned memory, one slot per report under way, each with its event.
class report_ring {
 public:
  static constexpr index slots = 16;

  /// For reports of the current device.
  explicit report_ring(cudaStream_t stream) {
    ZOADAM_CUDA(cudaMallocHost(reinterpret_cast<void**>(&arrived_), slots * sizeof(progress)));
    try {
      for (cudaEvent_t& each : event_) ZOADAM_CUDA(cudaEventCreateWithFlags(&each, cudaEventDisableTiming));
      expect_stream_of_device(event_[0], stream, "cuda_backend(stream)");
    } catch (...) {
      release();
      throw;
    }
  }
  report_ring(report_ring const&) = delete;
  report_ring& operator=(report_ring const&) = delete;
  ~report_ring() { release(); }

  /// Sends *from after everything enqueued so far; its number. The step that it reports on has been enqueued and
  /// cannot be called off, so what goes wrong here is thrown by the report, and by the next poll().
  index send(progress const* from, cudaStream_t stream) noexcept {
    // A slot may still be under way: the stream orders its copies, and nobody asks for the older report any more.
    // What that one would have told of a mismatch, all later ones tell too.
    auto const s = static_cast<std::size_t>(sent_ % slots);
    try {
      check(cudaMemcpyAsync(arrived_ + s, from, sizeof(progress), cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
      check(cudaEventRecord(event_[s], stream), "cudaEventRecord");
    } catch (...) {
    }
    return sent_++;
  }
  bool kept(index number) const noexcept { return number >= sent_ - slots; }
  /// Whether wait() will not wait.
  bool ready(index number) const {
    if (failure_) return true;
    cudaError_t const status = event_status(event_[static_cast<std::size_t>(number % slots)]);
    if (status == cudaErrorNotReady) return false;
    check(status, "cudaEventQuery");
    return true;
  }
  /// Waits for a report. Errors: cuda_error, if any call here has failed; mismatch_error.
  progress const& wait(index number) const {
    auto const s = static_cast<std::size_t>(number % slots);
    if (failure_) std::rethrow_exception(failure_);
    check(cudaEventSynchronize(event_[s]), "cudaEventSynchronize");
    return look(number);
  }
  /// Looks at reports that have arrived since the last time, or waits for all. A report that shows a defect is looked
  /// at again. Errors: those of wait().
  void poll(bool all = false) {
    if (failure_) std::rethrow_exception(failure_);
    for (seen_ = kept(seen_) ? seen_ : sent_ - slots; seen_ < sent_ && (all || ready(seen_)); ++seen_) {
      (void)(all ? wait(seen_) : look(seen_));
    }
  }

 private:
  progress const& look(index number) const {
    progress const& arrived = arrived_[static_cast<std::size_t>(number % slots)];
    expect_same(static_cast<header_field>(arrived.defect), arrived.defect_rank);
    return arrived;
  }
  void check(cudaError_t status, char const* call, char const* file = __builtin_FILE(),
             int line = __builtin_LINE()) const {
    if (status == cudaSuccess) return;
    failure_ = std::make_exception_ptr(cuda_error(call, status, file, line));
    std::rethrow_exception(failure_);
  }
  void release() noexcept {
    for (cudaEvent_t each : event_) {
      if (each) (void)cudaEventDestroy(each);
    }
    (void)cudaFreeHost(arrived_);
  }
  progress* arrived_ = nullptr;
  cudaEvent_t event_[slots] = {};
  mutable std::exception_ptr failure_;
  index sent_ = 0, seen_ = 0;
};

}  // namespace detail

/// The report of a step on a device, over a transport whose watch() is a Watch. Valid for the 16 latest calls of its
/// optimizer, and not beyond it.
template <class Watch>
class [[nodiscard]] cuda_report {
 public:
  cuda_report(step_report known, detail::report_ring& ring, index number, Watch transport) noexcept
      : known_(known), ring_(&ring), number_(number), transport_(std::move(transport)) {}

  /// What the host knew when it enqueued the step; the rest is unset.
  step_report const& known() const noexcept { return known_; }
  /// Whether get() will not wait.
  bool ready() const { return ring_->ready(number_); }
  /// Waits for the device. Errors: argument_error for a report too old; transport_error; cuda_error; mismatch_error.
  step_report get() const {
    ZOADAM_EXPECTS(ring_->kept(number_), "cuda_report::get", "the report is too old: 16 are kept");
    step_report const all = detail::complete(known_, ring_->wait(number_));
    transport_.check();  // nothing that a collective given up has left behind counts
    return all;
  }

 private:
  step_report known_;
  detail::report_ring* ring_;
  index number_;
  Watch transport_;
};

}  // namespace zoadam
