// SPDX-License-Identifier: Apache-2.0
// The fused kernels of the aliases over device memory, for the checks of generated code.
#include "zoadam/aliases.hpp"
#include "zoadam/backend/cuda.cuh"
#include "zoadam/transport/cuda_thread.hpp"

namespace {

using namespace zoadam;

template <class Optimizer>
void use(cudaStream_t stream) {
  cuda_thread_group group(1);
  Optimizer o({}, {}, group.rank(0, stream), cuda_backend(stream));
  (void)o.step(0.1).get();
  (void)o.synchronize().get();
}

}  // namespace

void use_all(cudaStream_t stream) {
  use<zero_one_adam<cuda_thread_transport, cuda_backend>>(stream);
  use<onebit_adam<cuda_thread_transport, cuda_backend>>(stream);
  use<adam<cuda_thread_transport, cuda_backend>>(stream);
  use<lamb<cuda_thread_transport, cuda_backend>>(stream);
  use<adafactor<cuda_thread_transport, cuda_backend>>(stream);
  use<sm3<cuda_thread_transport, cuda_backend>>(stream);
  use<zero_one_adam_paper<cuda_thread_transport, cuda_backend>>(stream);
  use<local_adam<cuda_thread_transport, cuda_backend>>(stream);
  use<zero_adam<cuda_thread_transport, cuda_backend>>(stream);
  use<zero_onebit_adam<cuda_thread_transport, cuda_backend>>(stream);
}
