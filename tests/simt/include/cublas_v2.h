// SPDX-License-Identifier: Apache-2.0
// Found instead of cuBLAS's header of this name: what the examples use of it, as kernels of the shim.
#pragma once

#include <cuda_runtime.h>

typedef enum {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13
} cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef enum { CUBLAS_DEFAULT_MATH = 0, CUBLAS_PEDANTIC_MATH = 2 } cublasMath_t;

struct cublasContext {
  cudaStream_t stream = nullptr;
};
typedef cublasContext* cublasHandle_t;

namespace simt {

/// Columns lie one behind the other. A thread per element of c.
inline void sgemm_kernel(bool ta, bool tb, int m, int n, int k, float alpha, float const* a, int lda, float const* b,
                         int ldb, float beta, float* c, int ldc) {
  int const at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), i = at % m, j = at / m;
  if (j >= n) return;
  float sum = 0;
  for (int p = 0; p < k; ++p) sum += (ta ? a[p + i * lda] : a[i + p * lda]) * (tb ? b[j + p * ldb] : b[p + j * ldb]);
  float& out = c[i + j * ldc];
  out = alpha * sum + (beta == 0 ? 0 : beta * out);
}

}  // namespace simt

inline char const* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "failure";
}
inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }

inline cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                                  int n, int k, float const* alpha, float const* a, int lda, float const* b, int ldb,
                                  float const* beta, float* c, int ldc) {
  bool const ta = transa == CUBLAS_OP_T, tb = transb == CUBLAS_OP_T;
  if (m < 1 || n < 1 || k < 1 || lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m)
    return CUBLAS_STATUS_INVALID_VALUE;
  unsigned const blocks = (static_cast<unsigned>(m) * static_cast<unsigned>(n) + 127) / 128;
  cudaError_t const status = simt::launch(simt::sgemm_kernel, blocks, 128, 0, handle->stream, ta, tb, m, n, k, *alpha,
                                          a, lda, b, ldb, *beta, c, ldc);
  return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
