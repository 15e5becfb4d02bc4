// SPDX-License-Identifier: Apache-2.0
// The host's side of the CUDA backend: errors, allocators, streams, reports. Kernels are in cuda.cuh.
#pragma once

#include <cuda_runtime.h>

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
  cuda_error(char const* call, cudaError_t native)
      : error(std::string("zoadam: ") + call + ": " + cudaGetErrorName(native) + ": " + cudaGetErrorString(native)),
        status(native) {}
  cudaError_t status;
};

namespace detail {

inline void cuda_check(cudaError_t status, char const* call) {
  if (status != cudaSuccess) throw cuda_error(call, status);
}
#define ZOADAM_CUDA(call) ::zoadam::detail::cuda_check(call, #call)

}  // namespace detail

/// Device memory by cudaMalloc and cudaFree.
struct plain_allocator {
  static void* allocate(std::size_t bytes, cudaStream_t) {
    void* p = nullptr;
    ZOADAM_CUDA(cudaMalloc(&p, bytes));
    return p;
  }
  static void free(void* p, cudaStream_t) noexcept { (void)cudaFree(p); }
};

/// Device memory from the stream-ordered pool of the device.
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

  report_ring() {
    ZOADAM_CUDA(cudaMallocHost(reinterpret_cast<void**>(&arrived_), slots * sizeof(progress)));
    for (cudaEvent_t& each : event_) {
      cudaError_t const status = cudaEventCreateWithFlags(&each, cudaEventDisableTiming);
      if (status != cudaSuccess) {
        release();
        throw cuda_error("cudaEventCreateWithFlags", status);
      }
    }
  }
  report_ring(report_ring const&) = delete;
  report_ring& operator=(report_ring const&) = delete;
  ~report_ring() { release(); }

  /// Sends *from after everything enqueued so far; its number. A failure is the report's, not the step's, which has
  /// been taken.
  index send(progress const* from, cudaStream_t stream) noexcept {
    auto const s = static_cast<std::size_t>(sent_ % slots);
    cudaError_t& status = status_[s];
    status = sent_ >= slots ? cudaEventSynchronize(event_[s]) : cudaSuccess;
    if (status == cudaSuccess)
      status = cudaMemcpyAsync(arrived_ + s, from, sizeof(progress), cudaMemcpyDeviceToHost, stream);
    if (status == cudaSuccess) status = cudaEventRecord(event_[s], stream);
    return sent_++;
  }
  /// Errors: cuda_error, if it could not be sent
  void expect_sent(index number) const { cuda_check(status_[number % slots], "sending the report of a step"); }
  bool kept(index number) const noexcept { return number >= sent_ - slots; }
  cudaEvent_t event(index number) const noexcept { return event_[static_cast<std::size_t>(number % slots)]; }
  progress const& arrived(index number) const noexcept { return arrived_[number % slots]; }

 private:
  void release() noexcept {
    for (cudaEvent_t each : event_) {
      if (each) (void)cudaEventDestroy(each);
    }
    (void)cudaFreeHost(arrived_);
  }
  progress* arrived_ = nullptr;
  cudaEvent_t event_[slots] = {};
  cudaError_t status_[slots] = {};
  index sent_ = 0;
};

}  // namespace detail

/// The report of a step on a device. Valid for the 16 latest calls of its optimizer, and not beyond it.
class [[nodiscard]] cuda_report {
 public:
  cuda_report(step_report known, detail::report_ring& ring, index number) noexcept
      : known_(known), ring_(&ring), number_(number) {}

  /// What the host knew when it enqueued the step; the rest is unset.
  step_report const& known() const noexcept { return known_; }
  /// Whether get() will not wait.
  bool ready() const {
    ring_->expect_sent(number_);
    cudaError_t const status = cudaEventQuery(ring_->event(number_));
    if (status == cudaErrorNotReady) return false;
    ZOADAM_CUDA(status);
    return true;
  }
  /// Waits for the device. Errors: argument_error for a report too old; cuda_error; mismatch_error.
  step_report get() const {
    ZOADAM_EXPECTS(ring_->kept(number_), "cuda_report::get", "the report is too old: 16 are kept");
    ring_->expect_sent(number_);
    ZOADAM_CUDA(cudaEventSynchronize(ring_->event(number_)));
    detail::progress const& now = ring_->arrived(number_);
    detail::expect_same(static_cast<detail::header_field>(now.defect), now.defect_rank);
    return detail::complete(known_, now);
  }

 private:
  step_report known_;
  detail::report_ring* ring_;
  index number_;
};

}  // namespace zoadam
