// SPDX-License-Identifier: Apache-2.0
// Products of matrices that lie row by row, by cuBLAS.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace example {

class cublas_gemm {
 public:
  explicit cublas_gemm(cudaStream_t stream) {
    cublasHandle_t handle = nullptr;
    check(cublasCreate(&handle), "cublasCreate");
    handle_.reset(handle);
    check(cublasSetStream(handle, stream), "cublasSetStream");
    // Float32 throughout and one algorithm for one shape: a run can be repeated bit by bit.
    check(cublasSetMathMode(handle, CUBLAS_PEDANTIC_MATH), "cublasSetMathMode");
  }

  /// See mlp.
  void operator()(bool transpose_a, bool transpose_b, int m, int n, int k, float const* a, float const* b,
                  float* c) const {
    // cuBLAS reads columns where these matrices have rows, which transposes all three: c' = b' a'.
    float const one = 1, zero = 0;
    check(cublasSgemm(handle_.get(), transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                      n, m, k, &one, b, transpose_b ? k : n, a, transpose_a ? m : k, &zero, c, n),
          "cublasSgemm");
  }

 private:
  static void check(cublasStatus_t status, char const* call) {
    if (status != CUBLAS_STATUS_SUCCESS) {
      throw std::runtime_error(std::string(call) + ": " + cublasGetStatusString(status));
    }
  }
  struct deleter {
    void operator()(cublasHandle_t handle) const noexcept { (void)cublasDestroy(handle); }
  };
  std::unique_ptr<cublasContext, deleter> handle_;
};

}  // namespace example
