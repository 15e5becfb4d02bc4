// SPDX-License-Identifier: Apache-2.0
// Small kernels of the CUDA backend: numbers of a step, message headers, reductions over all elements, and scalars of
// tensors. Those without parameters are templates too: a kernel cannot be inline.
#pragma once

#include "zoadam/backend/cuda_kernels.cuh"

namespace zoadam::detail {

// ---- numbers of a step: one block; see detail/progress.hpp ----

template <int = 0>
__global__ void start_kernel(progress* now) {
  *now = progress{};
}

/// Numbers of up to 64 parameter groups, by value: they reach the device in the order of the stream.
struct numbers_chunk {
  static constexpr int capacity = 64;
  group_numbers each[capacity];
};
template <int = 0>
__global__ void learn_missing_kernel(progress* now, progress const* from, bool alone) {
  learn_missing(*now, *from, alone);
}
template <int = 0>
__global__ void begin_kernel(progress* now, double gradient_scale, group_numbers* numbers, numbers_chunk chunk,
                             index first, int count) {
  int const i = static_cast<int>(threadIdx.x);
  if (i < count) numbers[first + i] = chunk.each[i];
  if (i == 0 && first == 0) begin_step(*now, gradient_scale);
}

template <int = 0>
__global__ void refresh_kernel(progress* now, hyper_numbers hyper, group_numbers const* numbers,
                               coefficients<float>* group, index groups, advance when) {
  if (now->defect != 0) return;
  if (threadIdx.x == 0) advance_moments(*now, hyper, when);
  __syncthreads();
  for (index g = threadIdx.x; g < groups; g += blockDim.x) group[g] = coefficients_now(*now, hyper, numbers[g]);
}

// ---- headers: one block, a thread per message ----

__device__ inline message_header load_header(std::byte const* from) {
  message_header h;
  for (int i = 0; i < static_cast<int>(header_bytes) / 4; ++i) {
    reinterpret_cast<std::uint32_t*>(&h)[i] = reinterpret_cast<std::uint32_t const*>(from)[i];
  }
  return h;
}
__device__ inline void store_header(std::byte* to, message_header const& h) {
  for (int i = 0; i < static_cast<int>(header_bytes) / 4; ++i) {
    reinterpret_cast<std::uint32_t*>(to)[i] = reinterpret_cast<std::uint32_t const*>(&h)[i];
  }
}

template <int = 0>
__global__ void headers_up_kernel(progress const* now, message_header mine, bool carries_gradient,
                                  index const* offsets, int ranks, std::byte* messages) {
  message_header const h = header_up(mine, *now, carries_gradient);
  for (int j = static_cast<int>(threadIdx.x); j < ranks; j += static_cast<int>(blockDim.x)) {
    store_header(messages + offsets[j], h);
  }
}
template <int = 0>
__global__ void header_down_kernel(progress const* now, message_header mine, std::byte* message) {
  store_header(message, header_down(mine, *now));
}

__device__ inline void note(progress& now, header_field what, int rank) {
  if (now.defect != 0 || what == header_field::none) return;
  now.defect = static_cast<std::int32_t>(what);
  now.defect_rank = rank;
}
/// One thread, rank by rank: the first defect counts.
template <int = 0>
__global__ void read_headers_up_kernel(progress* now, unsigned char* contributes, message_header mine, int ranks,
                                       index stride, std::byte const* messages) {
  begin_headers_up(*now);
  for (int i = 0; i < ranks; ++i) {
    note(*now, take_header_up(*now, contributes[i], load_header(messages + i * stride), mine), i);
  }
  end_headers_up(*now, mine);
}
template <int = 0>
__global__ void read_headers_down_kernel(progress* now, message_header mine, index const* offsets, int ranks,
                                         std::byte const* messages) {
  for (int j = 0; j < ranks; ++j) {
    note(*now, check_header_down(*now, load_header(messages + offsets[j]), mine), j);
  }
}

// ---- reductions over all elements, in blocks of 2048 flat positions, a warp each ----

__device__ inline int tensor_at(device_tensor const* tensors, int count, index i) {
  int low = 0, high = count;
  while (high - low > 1) {
    int const middle = low + (high - low) / 2;
    (tensors[middle].first <= i ? low : high) = middle;
  }
  return low;
}

/// term(tensor, i, n, out) gives n terms from flat position i, within one tensor, and +0 for the rest of the quad.
template <class Term>
__device__ inline void sum_blocks(device_tensor const* tensors, int tensor_count, index elements, float* sums,
                                  Term const& term) {
  int const lane = static_cast<int>(threadIdx.x % 32);
  index const blocks = (elements + sum_block - 1) / sum_block;
  index const warps = static_cast<index>(gridDim.x) * (blockDim.x / 32);
  for (index b = static_cast<index>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32; b < blocks; b += warps) {
    index const begin = b * sum_block;
    index const end = begin + sum_block < elements ? begin + sum_block : elements;
    f32 partial[quad] = {f32(0.0f), f32(0.0f), f32(0.0f), f32(0.0f)};
    int t = tensor_at(tensors, tensor_count, begin + quad * lane < end ? begin + quad * lane : begin);
    for (index i = begin + quad * lane; i < end; i += sum_partials) {
      int const n = end - i < quad ? static_cast<int>(end - i) : quad;
      if (i >= tensors[t].last) t = tensor_at(tensors, tensor_count, i);
      f32 terms[quad];
      if (i + n <= tensors[t].last) {
        term(tensors[t], i, n, terms);
      } else {
        for (int j = 0; j < quad; ++j) {
          f32 one[quad] = {f32(0.0f), f32(0.0f), f32(0.0f), f32(0.0f)};
          if (j < n) term(tensors[tensor_at(tensors, tensor_count, i + j)], i + j, 1, one);
          terms[j] = one[0];
        }
      }
      for (int j = 0; j < quad; ++j) partial[j] = partial[j] + terms[j];
    }
    f32 const sum = warp_sum(partial);
    if (lane == 0) sums[b] = sum.v;
  }
}

/// Squares of the scaled gradient; notes a NaN, or a magnitude beyond 2^56.
template <int = 0>
__global__ void __launch_bounds__(tile_threads)
    gradient_kernel(device_tensor const* tensors, int tensor_count, index elements, progress* now, float* sums) {
  f32 const scale(f64(now->gradient_scale).to_float());
  constexpr std::uint32_t largest = 0x5b800000u;  // 2^56
  bool bad = false;
  sum_blocks(tensors, tensor_count, elements, sums, [&](device_tensor const& t, index i, int n, f32(&terms)[quad]) {
    f32 g[quad];
    load_gradient(t, false, i, n, g);
    for (int j = 0; j < quad; ++j) {
      f32 const scaled = scale * g[j];
      bad = bad || exceeds(scaled, largest).v;
      terms[j] = scaled * scaled;
    }
  });
  if (bad) atomicOr(&now->bad, 1);
}
template <int = 0>
__global__ void __launch_bounds__(tile_threads)
    judge_kernel(progress* now, float const* sums, index blocks, double max_norm) {
  double const squares = pairwise_sum_shared(sums, blocks, *shared_memory<pairwise_memory>());
  if (threadIdx.x == 0) judge_gradient(*now, now->bad != 0, squares, max_norm);
}

template <class Formula, class Fields>
__global__ void __launch_bounds__(tile_threads)
    reduce_kernel(registers<float*, typename Fields::tags> field, device_tensor const* tensors, int tensor_count,
                  coefficients<float> const* group, index elements, float* sums) {
  sum_blocks(tensors, tensor_count, elements, sums, [&](device_tensor const& t, index i, int n, f32(&terms)[quad]) {
    registers<f32, typename Formula::reads> r[quad];
    for_each_tag(typename Formula::reads{}, [&](auto tag) {
      f32 v[quad];
      load_quad(field[tag] + i, n, v);
      for (int j = 0; j < quad; ++j) r[j][tag] = v[j];
    });
    coefficients<f32> const k = group[t.group].template as<f32>();
    for (int j = 0; j < quad; ++j) terms[j] = abs(Formula::term(r[j], k));
  });
}
template <int = 0>
__global__ void __launch_bounds__(tile_threads) total_kernel(float const* sums, index blocks, double* total) {
  double const sum = pairwise_sum_shared(sums, blocks, *shared_memory<pairwise_memory>());
  if (threadIdx.x == 0) *total = sum;
}

// ---- scalars of tensors ----

template <class Fields>
struct scalar_arguments {
  registers<float*, typename Fields::tags> field;
  device_tensor const* tensors;
  coefficients<float> const* group;
  progress const* now;
  float const* block_sums;
  index tensor_count;
  index filled;  ///< tensors that are not empty
  index blocks;
};

/// A thread block per tensor.
template <class Formula, class Fields>
__global__ void __launch_bounds__(tile_threads) finish_kernel(scalar_arguments<Fields> a, Formula formula) {
  if (a.now->defect != 0) return;
  pairwise_memory& scratch = *shared_memory<pairwise_memory>();
  for (index t = blockIdx.x; t < a.tensor_count; t += gridDim.x) {
    device_tensor const& tensor = a.tensors[t];
    registers<f64, typename reducing<Formula>::results> all;
    float const* from = a.block_sums + tensor.first_block;
    index const n = tensor.last_block - tensor.first_block;
    for_each_tag(typename Formula::sums{}, [&](auto tag) {
      all[tag] = f64(pairwise_sum_shared(from, n, scratch));
      from += a.blocks;
    });
    for_each_tag(typename Formula::maxima{}, [&](auto tag) {
      all[tag] = f64(max_shared(from, n, reinterpret_cast<float*>(scratch)));
      from += a.blocks;
    });
    if (threadIdx.x != 0) continue;
    f64 const elements(static_cast<double>(tensor.last - tensor.first));
    update_scalars<typename Formula::scalars>(a.field, t, a.group[tensor.group], [&](auto& scalars, auto const& k) {
      formula.finish(all, elements, scalars, k);
    });
  }
}

/// One thread block.
template <class Formula, class Fields>
__global__ void __launch_bounds__(tile_threads) unite_kernel(scalar_arguments<Fields> a, Formula formula) {
  if (a.now->defect != 0) return;
  using united = typename Formula::united;
  registers<f64, united> all;
  for_each_tag(united{}, [&](auto tag) {
    all[tag] = f64(pairwise_sum_shared(a.field[tag], a.tensor_count, *shared_memory<pairwise_memory>()));
  });
  f64 const filled(static_cast<double>(a.filled));
  for (index t = threadIdx.x; t < a.tensor_count; t += blockDim.x) {
    update_scalars<typename Formula::scalars>(
        a.field, t, a.group[a.tensors[t].group],
        [&](auto& scalars, auto const& k) { formula.unite(all, filled, scalars, k); });
  }
}

template <class Half>
__global__ void __launch_bounds__(tile_threads) widen_kernel(Half const* from, float* to, index n) {
  for (index i = static_cast<index>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += static_cast<index>(gridDim.x) * blockDim.x) {
    to[i] = to_float(from[i]);
  }
}
template <class Half>
__global__ void __launch_bounds__(tile_threads) narrow_kernel(float const* from, Half* to, index n) {
  for (index i = static_cast<index>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += static_cast<index>(gridDim.x) * blockDim.x) {
    to[i].bits = to_half<Half>(from[i]).bits;
  }
}

/// Adds the hash of n values, as float32, from flat position `at` to *hash; integers, so the order does not matter.
template <class Element>
__global__ void __launch_bounds__(tile_threads)
    hash_kernel(Element const* x, index n, index at, unsigned long long* hash) {
  unsigned long long sum = 0;
  for (index i = static_cast<index>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += static_cast<index>(gridDim.x) * blockDim.x) {
    sum += hash_of_element(__builtin_bit_cast(std::uint32_t, to_float(x[i])), at + i);
  }
  if (sum != 0) atomicAdd(hash, sum);
}

}  // namespace zoadam::detail
