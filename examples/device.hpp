// SPDX-License-Identifier: Apache-2.0
// Streams, arrays and kernels of a device, as far as a trainer needs them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "zoadam/backend/cuda.hpp"

namespace example {

/// A stream that does not wait for the default one.
class device_stream {
 public:
  device_stream() { ZOADAM_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  device_stream(device_stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  device_stream& operator=(device_stream&&) = delete;
  ~device_stream() {
    if (stream_) (void)cudaStreamDestroy(stream_);
  }
  operator cudaStream_t() const noexcept { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// n > 0 values of T on the current device. Copies wait for the stream.
template <class T>
class device_array {
 public:
  explicit device_array(int n) : size_(static_cast<std::size_t>(n)) {
    void* p = nullptr;
    ZOADAM_CUDA(cudaMalloc(&p, size_ * sizeof(T)));
    data_.reset(static_cast<T*>(p));
  }
  device_array(std::vector<T> const& values, cudaStream_t stream) : device_array(static_cast<int>(values.size())) {
    put(values, stream);
  }

  T* data() const noexcept { return data_.get(); }
  int size() const noexcept { return static_cast<int>(size_); }
  std::span<T> span() const noexcept { return {data(), size_}; }

  void put(std::vector<T> const& values, cudaStream_t stream) const {
    copy(data(), values.data(), cudaMemcpyHostToDevice, stream);
  }
  std::vector<T> get(cudaStream_t stream) const {
    std::vector<T> values(size_);
    copy(values.data(), data(), cudaMemcpyDeviceToHost, stream);
    return values;
  }

 private:
  void copy(T* to, T const* from, cudaMemcpyKind kind, cudaStream_t stream) const {
    ZOADAM_CUDA(cudaMemcpyAsync(to, from, size_ * sizeof(T), kind, stream));
    ZOADAM_CUDA(cudaStreamSynchronize(stream));
  }
  struct deleter {
    void operator()(T* p) const noexcept { (void)cudaFree(p); }
  };
  std::unique_ptr<T, deleter> data_;
  std::size_t size_;
};

/// Puts a kernel into a stream, with a thread for each of n elements.
template <class... Parameters>
void enqueue(void (*kernel)(Parameters...), int n, cudaStream_t stream,
             std::type_identity_t<Parameters>... arguments) {
  constexpr unsigned threads = 128;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3((static_cast<unsigned>(n) + threads - 1) / threads);
  config.blockDim = dim3(threads);
  config.stream = stream;
  ZOADAM_CUDA(cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace example
