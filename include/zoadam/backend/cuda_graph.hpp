// SPDX-License-Identifier: Apache-2.0
// Steps without an exchange as CUDA graphs: one launch on the host instead of one per kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "zoadam/backend/cuda.hpp"

namespace zoadam {

/// Records the kernels of the first step of each path and replays them afterwards:
///
///     zoadam::step_graphs graphs(stream);
///     auto report = optimizer.step(lr, 1.0, graphs);
///
/// Serves one optimizer, on whose stream it works; numbers that change from step to step are read from device memory.
/// Errors: cuda_error
class step_graphs {
 public:
  explicit step_graphs(cudaStream_t stream) : stream_(stream) {
    ZOADAM_EXPECTS(detail::is_created(stream), "step_graphs(stream)", "the default stream cannot be recorded");
  }
  step_graphs(step_graphs const&) = delete;
  step_graphs& operator=(step_graphs const&) = delete;
  ~step_graphs() {
    for (recording const& each : recordings_) (void)cudaGraphExecDestroy(each.graph);
  }

  template <class Enqueue>
  void operator()(std::uint64_t path, Enqueue const& enqueue) {
    for (recording const& each : recordings_) {
      if (each.path == path) {
        ZOADAM_CUDA(cudaGraphLaunch(each.graph, stream_));
        return;
      }
    }
    record(path, enqueue);
    ZOADAM_CUDA(cudaGraphLaunch(recordings_.back().graph, stream_));
  }

  /// Paths recorded so far.
  index size() const noexcept { return static_cast<index>(recordings_.size()); }

 private:
  struct recording {
    std::uint64_t path;
    cudaGraphExec_t graph;
  };

  template <class Enqueue>
  void record(std::uint64_t path, Enqueue const& enqueue) {
    recordings_.reserve(recordings_.size() + 1);
    ZOADAM_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      (void)cudaStreamEndCapture(stream_, &graph);
      if (graph) (void)cudaGraphDestroy(graph);
      throw;
    }
    ZOADAM_CUDA(cudaStreamEndCapture(stream_, &graph));
    cudaGraphExec_t executable = nullptr;
    std::size_t kernels = 0;
    cudaError_t const counted = cudaGraphGetNodes(graph, nullptr, &kernels);
    cudaError_t const status = counted != cudaSuccess ? counted : cudaGraphInstantiate(&executable, graph, 0);
    cudaError_t const destroyed = cudaGraphDestroy(graph);
    detail::cuda_check(counted, "cudaGraphGetNodes");
    detail::cuda_check(status, "cudaGraphInstantiate");
    recordings_.push_back({path, executable});  // from here on the destructor's
    detail::cuda_check(destroyed, "cudaGraphDestroy");
    ZOADAM_EXPECTS(kernels > 0, "step_graphs", "stream: it is not the optimizer's: nothing was recorded");
  }

  cudaStream_t stream_;
  std::vector<recording> recordings_;
};

}  // namespace zoadam
