// SPDX-License-Identifier: Apache-2.0
// Streams and arrays of a device, for tests.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <span>
#include <vector>

#include "zoadam/backend/cuda.hpp"

namespace suite {

/// A stream that does not wait for the default one.
class device_stream {
 public:
  device_stream() { ZOADAM_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  device_stream(device_stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  device_stream& operator=(device_stream const&) = delete;
  ~device_stream() {
    if (stream_) (void)cudaStreamDestroy(stream_);
  }
  operator cudaStream_t() const noexcept { return stream_; }
  void wait() const { ZOADAM_CUDA(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// n values of T on the device, `shift` elements behind the beginning of an allocation. Copies wait; they go through
/// the stream given, or through the default one.
template <class T>
class device_array {
 public:
  explicit device_array(std::size_t n, std::size_t shift = 0) : size_(n), shift_(shift) {
    void* p = nullptr;
    ZOADAM_CUDA(cudaMalloc(&p, (n + shift + 1) * sizeof(T)));
    data_.reset(static_cast<T*>(p));
  }
  std::span<T> span() const noexcept { return {data_.get() + shift_, size_}; }
  std::size_t size() const noexcept { return size_; }
  void put(T const* from, cudaStream_t stream = nullptr) const {
    copy(span().data(), from, cudaMemcpyHostToDevice, stream);
  }
  std::vector<T> get(cudaStream_t stream = nullptr) const {
    std::vector<T> all(size_);
    copy(all.data(), span().data(), cudaMemcpyDeviceToHost, stream);
    return all;
  }

 private:
  void copy(void* to, void const* from, cudaMemcpyKind kind, cudaStream_t stream) const {
    if (size_ == 0) return;
    ZOADAM_CUDA(cudaMemcpyAsync(to, from, size_ * sizeof(T), kind, stream));
    ZOADAM_CUDA(cudaStreamSynchronize(stream));
  }
  struct deleter {
    void operator()(T* p) const noexcept { (void)cudaFree(p); }
  };
  std::size_t size_, shift_;
  std::unique_ptr<T, deleter> data_;
};

}  // namespace suite
