// SPDX-License-Identifier: Apache-2.0
// Kernels of the CUDA backend. Element formulas and the work on one lane are those of the CPU; see
// detail/element.hpp.
//
// A block of 128 threads works on one tile: what shares a scale, or up to 2048 elements. Thread t loads elements
// 4t..4t+3 of each row of 512; partial sum k of a tile is thread k's. What shares a scale and is larger is summed
// while it is computed, 2048 elements by one thread block, and encoded by another kernel.
#pragma once

#include <cuda_runtime.h>

#include "zoadam/backend/cuda_types.hpp"
#include "zoadam/detail/element.hpp"
#include "zoadam/lane/half.hpp"
#include "zoadam/lane/sum.hpp"

namespace zoadam::detail {

// ---- memory ----

ZOADAM_INLINE bool aligned_to(void const* p, std::size_t bytes) noexcept {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

/// Tells the compiler that p points to device memory, as far as it can be told.
template <class T>
__device__ inline T* in_device_memory(T* p) {
#if defined(__CUDA_ARCH__)
  __builtin_assume(__isGlobal(p));
#endif
  return p;
}

/// Elements [0, n) at p, n <= 4; the others are +0. Whole quads of 16-byte alignment are one access.
__device__ inline void load_quad(float const* p, int n, f32 (&to)[quad]) {
  p = in_device_memory(p);
  if (n == quad && aligned_to(p, 16)) {
    float4 const v = *reinterpret_cast<float4 const*>(p);
    to[0] = f32(v.x), to[1] = f32(v.y), to[2] = f32(v.z), to[3] = f32(v.w);
  } else {
    for (int j = 0; j < quad; ++j) to[j] = f32(j < n ? p[j] : 0.0f);
  }
}
__device__ inline void store_quad(f32 const (&from)[quad], float* p, int n) {
  p = in_device_memory(p);
  if (n == quad && aligned_to(p, 16)) {
#if defined(__CUDA_ARCH__)  // the compiler may tear a vector store into four
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(p)), "f"(from[0].v), "f"(from[1].v), "f"(from[2].v), "f"(from[3].v)
                 : "memory");
#else
    *reinterpret_cast<float4*>(p) = make_float4(from[0].v, from[1].v, from[2].v, from[3].v);
#endif
  } else {
    for (int j = 0; j < quad; ++j) {
      if (j < n) p[j] = from[j].v;
    }
  }
}
/// Whole quads of shared memory, at multiples of 16 bytes, and parts of them anywhere.
__device__ inline void load_shared(float const* p, f32 (&to)[quad]) {
  float4 const v = *reinterpret_cast<float4 const*>(p);
  to[0] = f32(v.x), to[1] = f32(v.y), to[2] = f32(v.z), to[3] = f32(v.w);
}
__device__ inline void store_shared(f32 const (&from)[quad], float* p) {
  *reinterpret_cast<float4*>(p) = make_float4(from[0].v, from[1].v, from[2].v, from[3].v);
}
__device__ inline void store_shared(f32 const (&from)[quad], float* base, int at, int n) {
  if (n == quad && at % quad == 0) return store_shared(from, base + at);
  for (int j = 0; j < quad; ++j) {
    if (j < n) base[at + j] = from[j].v;
  }
}
template <class Half>
__device__ inline void load_half_quad(Half const* p, int n, f32 (&to)[quad]) {
  p = in_device_memory(p);
  if (n == quad && aligned_to(p, 8)) {
    ushort4 const v = *reinterpret_cast<ushort4 const*>(p);
    to[0] = f32(to_float(Half{v.x})), to[1] = f32(to_float(Half{v.y}));
    to[2] = f32(to_float(Half{v.z})), to[3] = f32(to_float(Half{v.w}));
  } else {
    for (int j = 0; j < quad; ++j) to[j] = f32(j < n ? to_float(p[j]) : 0.0f);
  }
}
template <class Half>
__device__ inline void store_half_quad(f32 const (&from)[quad], Half* p, int n) {
  auto const bits = [&](int j) { return to_half<Half>(from[j].v).bits; };
  p = in_device_memory(p);
  if (n == quad && aligned_to(p, 8)) {
#if defined(__CUDA_ARCH__)  // as above
    asm volatile("st.global.v4.u16 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(p)), "h"(bits(0)), "h"(bits(1)), "h"(bits(2)), "h"(bits(3))
                 : "memory");
#else
    *reinterpret_cast<ushort4*>(p) = make_ushort4(bits(0), bits(1), bits(2), bits(3));
#endif
  } else {
    for (int j = 0; j < quad; ++j) {
      if (j < n) p[j].bits = bits(j);
    }
  }
}
/// Rounds n elements from flat position i of one tensor into its working copy, if it has one.
__device__ inline void store_working(device_tensor const& t, index i, int n, f32 const (&from)[quad]) {
  index const at = i - t.first;
  if (!t.working) return;
  if (t.working_type == dtype::bfloat16) {
    store_half_quad(from, static_cast<bfloat16*>(t.working) + at, n);
  } else {
    store_half_quad(from, static_cast<float16*>(t.working) + at, n);
  }
}
/// Gradient of n elements from flat position i of one tensor.
__device__ inline void load_gradient(device_tensor const& t, bool missing, index i, int n, f32 (&to)[quad]) {
  index const at = i - t.first;
  if (missing || !t.gradient) {
    for (f32& each : to) each = f32(0.0f);
  } else if (t.type == dtype::float32) {
    load_quad(static_cast<float const*>(t.gradient) + at, n, to);
  } else if (t.type == dtype::bfloat16) {
    load_half_quad(static_cast<bfloat16 const*>(t.gradient) + at, n, to);
  } else {
    load_half_quad(static_cast<float16 const*>(t.gradient) + at, n, to);
  }
}

__device__ inline float load_float(std::byte const* p) { return *reinterpret_cast<float const*>(p); }

// ---- codes ----

/// Codes of n elements from element `at` of a payload. One-bit codes lie in 32-bit words, wider ones one after
/// another.
template <class Quantizer>
__device__ inline void load_codes(std::byte const* payload, index at, int n, std::uint32_t (&code)[quad]) {
  if constexpr (Quantizer::code_bits == 0) {
    for (std::uint32_t& each : code) each = 0;
  } else if constexpr (Quantizer::code_bits == 1) {
    std::uint32_t const* const words = reinterpret_cast<std::uint32_t const*>(payload);
    index const word = at / 32;
    int const shift = static_cast<int>(at % 32);
    std::uint32_t bits = words[word] >> shift;
    if (shift + n > 32) bits |= words[word + 1] << (32 - shift);
    for (int j = 0; j < quad; ++j) code[j] = j < n ? (bits >> j) & 1u : 0u;
  } else if constexpr (Quantizer::code_bits == 16) {
    std::uint16_t const* const p = reinterpret_cast<std::uint16_t const*>(payload) + at;
    if (n == quad && aligned_to(p, 8)) {
      ushort4 const v = *reinterpret_cast<ushort4 const*>(p);
      code[0] = v.x, code[1] = v.y, code[2] = v.z, code[3] = v.w;
    } else {
      for (int j = 0; j < quad; ++j) code[j] = j < n ? p[j] : 0u;
    }
  } else {
    std::uint32_t const* const p = reinterpret_cast<std::uint32_t const*>(payload) + at;
    if (n == quad && aligned_to(p, 16)) {
      uint4 const v = *reinterpret_cast<uint4 const*>(p);
      code[0] = v.x, code[1] = v.y, code[2] = v.z, code[3] = v.w;
    } else {
      for (int j = 0; j < quad; ++j) code[j] = j < n ? p[j] : 0u;
    }
  }
}

/// Writes the codes of a thread's quad at element `at` of a payload; all lanes of the warp call it together, `at`
/// being 4 times the lane plus a multiple of 128.
template <class Quantizer>
__device__ inline void store_codes(std::byte* payload, index at, int n, std::uint32_t const (&code)[quad]) {
  if constexpr (Quantizer::code_bits == 0) {
    return;
  } else if constexpr (Quantizer::code_bits == 1) {
    std::uint32_t word = 0;
    for (int j = 0; j < quad; ++j) word |= (j < n ? code[j] : 0u) << j;
    word <<= at % 32;
    for (int stride = 1; stride < 8; stride *= 2) word |= __shfl_xor_sync(all_lanes, word, stride);
    if (at % 32 == 0 && n > 0) reinterpret_cast<std::uint32_t*>(payload)[at / 32] = word;
  } else if constexpr (Quantizer::code_bits == 16) {
    std::uint16_t* const p = reinterpret_cast<std::uint16_t*>(payload) + at;
    if (n == quad && aligned_to(p, 8)) {
      auto const bits = [&](int j) { return static_cast<std::uint16_t>(code[j]); };
      *reinterpret_cast<ushort4*>(p) = make_ushort4(bits(0), bits(1), bits(2), bits(3));
    } else {
      for (int j = 0; j < quad; ++j) {
        if (j < n) p[j] = static_cast<std::uint16_t>(code[j]);
      }
    }
  } else {
    std::uint32_t* const p = reinterpret_cast<std::uint32_t*>(payload) + at;
    if (n == quad && aligned_to(p, 16)) {
      *reinterpret_cast<uint4*>(p) = make_uint4(code[0], code[1], code[2], code[3]);
    } else {
      for (int j = 0; j < quad; ++j) {
        if (j < n) p[j] = code[j];
      }
    }
  }
}

// ---- sums over a block of threads ----

/// Sum of 4 neighbouring partial sums per lane over the warp, in the order of every sum.
__device__ inline f32 warp_sum(f32 const (&partial)[quad]) {
  f32 sum = (partial[0] + partial[1]) + (partial[2] + partial[3]);
  for (int stride = 1; stride < 32; stride *= 2) sum = sum + f32(__shfl_xor_sync(all_lanes, sum.v, stride));
  return sum;
}
__device__ inline int warp_count(int count) {
  for (int stride = 1; stride < 32; stride *= 2) count += __shfl_xor_sync(all_lanes, count, stride);
  return count;
}

/// Sum of a partial sum per thread; `scratch`: one float per warp.
__device__ inline f32 threads_sum(f32 sum, float* scratch) {
  int const k = static_cast<int>(threadIdx.x);
  for (int stride = 1; stride < 32; stride *= 2) sum = sum + f32(__shfl_xor_sync(all_lanes, sum.v, stride));
  if (k % 32 == 0) scratch[k / 32] = sum.v;
  __syncthreads();
  f32 const total = (f32(scratch[0]) + f32(scratch[1])) + (f32(scratch[2]) + f32(scratch[3]));
  __syncthreads();
  return total;
}
/// Sum of the terms of n values in shared memory, n <= 2048; `scratch`: one float per warp.
template <class Term>
__device__ inline f32 tile_sum_shared(float const* c, int n, float* scratch) {
  f32 sum(0.0f);
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(sum_partials)) {
    sum = sum + Term{}(f32(c[i]));
  }
  return threads_sum(sum, scratch);
}

/// The largest of n floats and +0, by all threads of a block; `scratch`: one float per thread.
__device__ inline f32 max_shared(float const* c, index n, float* scratch) {
  int const k = static_cast<int>(threadIdx.x);
  f32 most(0.0f);
  for (index i = k; i < n; i += static_cast<index>(blockDim.x)) most = max(f32(c[i]), most);
  for (int stride = 1; stride < 32; stride *= 2) most = max(f32(__shfl_xor_sync(all_lanes, most.v, stride)), most);
  if (k % 32 == 0) scratch[k / 32] = most.v;
  __syncthreads();
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) most = max(f32(scratch[w]), most);
  __syncthreads();
  return most;
}

/// The same scheme in float64 over n floats, by a block of 128 threads.
using pairwise_memory = double[sum_partials];
__device__ inline double pairwise_sum_shared(float const* sums, index n, pairwise_memory& scratch) {
  int const k = static_cast<int>(threadIdx.x);
  f64 mine(0.0);
  for (index i = k; i < n; i += sum_partials) mine = mine + f64(f32(sums[i]));
  scratch[k] = mine.v;
  for (int stride = 1; stride < static_cast<int>(sum_partials); stride *= 2) {
    __syncthreads();
    if (k % (2 * stride) == 0) scratch[k] = (f64(scratch[k]) + f64(scratch[k + stride])).v;
  }
  __syncthreads();
  double const total = scratch[0];
  __syncthreads();
  return total;
}

// ---- sparse blocks ----

/// The threads of a block as a team; see detail/team.hpp.
struct block_team {
  struct memory {
    pairwise_memory sums;
    int counts[tile_threads];
  };
  memory* shared;

  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  ZOADAM_HOST_DEVICE static constexpr int size() { return tile_threads; }
  __device__ void sync() const { __syncthreads(); }
  __device__ int total(int mine) const {
    mine = warp_count(mine);
    if (rank() % 32 == 0) shared->counts[rank() / 32] = mine;
    __syncthreads();
    int sum = 0;
    for (int warp = 0; warp < tile_threads / 32; ++warp) sum += shared->counts[warp];
    __syncthreads();
    return sum;
  }
  __device__ int before(int mine) const {
    shared->counts[rank()] = mine;
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < rank(); ++i) sum += shared->counts[i];
    __syncthreads();
    return sum;
  }
  __device__ int count_above(float const* c, int n, std::uint32_t bits) const {
    int count = 0;
    for (int i = rank(); i < n; i += size()) count += exceeds(f32(c[i]), bits).v;
    return total(count);
  }
  __device__ double sum(float const* x, int n) const {
    __syncthreads();
    return pairwise_sum_shared(x, n, shared->sums);
  }
};

/// What a sparse quantizer needs besides the values of a tile.
template <class Quantizer>
struct encoder_memory {};
template <sparse Quantizer>
struct encoder_memory<Quantizer> {
  static_assert(tile_of<Quantizer> <= 4096,
                "zoadam: the CUDA backend keeps the blocks of a sparse quantizer in shared memory, which holds 4096 "
                "elements of each message; use a smaller block");
  block_team::memory team;
  typename Quantizer::picks picks;
};

/// Elements that a tile of Quantizer, or of none, has at most, in full rows.
template <class Quantizer>
inline constexpr index tile_capacity = (tile_of<Quantizer> + sum_partials - 1) / sum_partials* sum_partials;

/// Starts a tile in shared memory with zeros, up to whole quads. All threads; a barrier must follow.
__device__ inline void clear_shared(float* dense, int count) {
  __syncthreads();  // the tile before may be in use
  for (int i = static_cast<int>(threadIdx.x); i < (count + quad - 1) / quad * quad; i += tile_threads)
    dense[i] = 0.0f;
}
/// Elements [skip, skip + n) of a sparse payload, which is that of a block of `length`. All threads.
template <class Quantizer>
__device__ inline void scatter_shared(std::byte const* payload, index length, index skip, int n, float* dense) {
  int const room = Quantizer::room(length);
  for (int j = static_cast<int>(threadIdx.x); j < room; j += tile_threads) {
    auto const each = Quantizer::decode(payload, j);
    index const at = each.position - skip;
    if (at >= 0 && at < n) dense[at] = each.value;
  }
}

// ---- tiles that are encoded as soon as they are computed ----

/// What a tile keeps in shared memory until its scale is known.
template <class Quantizer>
struct tile_memory : encoder_memory<Quantizer> {
  static_assert(tile_of<Quantizer> <= 8192,
                "zoadam: the CUDA backend keeps a block in shared memory, which holds 8192 elements; use a smaller "
                "block, per_tensor or whole");
  static constexpr index capacity = tile_capacity<Quantizer>;
  alignas(16) float c[capacity];
  alignas(16) float limit[capacity];
  float sums[4];
  float scale;
  float warp[tile_threads / 32];
  int active[tile_threads / 32];
};
/// What a block of a group larger than a tile keeps there until it is summed.
struct block_memory {
  alignas(16) float c[sum_block];
  float warp[tile_threads / 32];
  int active[tile_threads / 32];
};

/// Shared memory of a kernel that feeds a quantizer.
template <class Quantizer>
using memory_of = std::conditional_t<single_pass<Quantizer>, tile_memory<Quantizer>, block_memory>;
template <class Quantizer>
inline constexpr std::size_t memory_bytes = sizeof(memory_of<Quantizer>);
template <>
inline constexpr std::size_t memory_bytes<void> = 0;

/// The same with `Count` tiles of a sparse message behind it.
template <class Memory, class Quantizer, int Count>
struct dense_memory {
  Memory other;
  alignas(16) float tile[Count][tile_capacity<Quantizer>];
};

/// The launch gives sizeof(T) bytes, which the PTX says in a comment, since the compiler counts no dynamic memory.
template <class T>
__device__ inline T* shared_memory() {
#if defined(ZOADAM_SIMT)
  return reinterpret_cast<T*>(simt::dynamic_shared());
#else
  extern __shared__ __align__(16) unsigned char zoadam_shared_memory[];
#if defined(__CUDA_ARCH__)
  asm volatile("// shared memory: %0 bytes" : : "n"(sizeof(T)));
#endif
  return reinterpret_cast<T*>(zoadam_shared_memory);
#endif
}

/// All threads: the scale of a tile whose values lie in shared memory.
template <class Quantizer>
__device__ inline float tile_scale(tile_memory<Quantizer>& m, int count, int active) {
  using norm = typename Quantizer::norm;
  active = warp_count(active);
  if (threadIdx.x % 32 == 0) m.active[threadIdx.x / 32] = active;
  __syncthreads();
  int blocks = 0;
  for (int i = 0; i < count; i += static_cast<int>(sum_block), ++blocks) {
    int const n = count - i < static_cast<int>(sum_block) ? count - i : static_cast<int>(sum_block);
    f32 const sum = tile_sum_shared<typename norm::term>(m.c + i, n, m.warp);
    if (threadIdx.x == 0) m.sums[blocks] = sum.v;
  }
  if (threadIdx.x == 0) {  // a division in float64 is a call: registers of one thread are enough
    index const all = index{m.active[0]} + m.active[1] + m.active[2] + m.active[3];
    f64 p[4];  // the first partial sums of the scheme over blocks; the others are +0
    for (int b = 0; b < 4; ++b) p[b] = f64(0.0) + f64(f32(b < blocks ? m.sums[b] : 0.0f));
    m.scale = norm::scale(((p[0] + p[1]) + (p[2] + p[3])).v, all);
  }
  __syncthreads();
  return m.scale;
}

/// All threads: the sum of block b, whose values lie in shared memory.
template <class Norm>
__device__ inline void finish_block(block_memory& m, device_sums const& to, index b, int active) {
  device_sum_block const& block = to.blocks[b];
  active = warp_count(active);
  if (threadIdx.x % 32 == 0) m.active[threadIdx.x / 32] = active;
  __syncthreads();
  int const all = m.active[0] + m.active[1] + m.active[2] + m.active[3];
  f32 const sum = tile_sum_shared<typename Norm::term>(m.c, block.count, m.warp);
  if (threadIdx.x == 0) {
    to.sums[b] = sum.v;
    atomicAdd(&to.actives[block.group], static_cast<unsigned long long>(all));
  }
}

/// All threads: encodes a tile and keeps its error. value(e, n, c, limit) fetches a quad.
template <class Quantizer, bounds Bounds, class Values>
__device__ inline void encode_tile(Values const& values, int count, float scale, std::byte* payload, index at,
                                   float* error) {
  for (int row = 0; row < count; row += quad * tile_threads) {
    int const e = row + quad * static_cast<int>(threadIdx.x);
    int const n = e >= count ? 0 : count - e < quad ? count - e : quad;
    f32 c[quad], limit[quad], kept[quad];
    for (int j = 0; j < quad; ++j) c[j] = limit[j] = f32(0.0f);
    std::uint32_t code[quad];
    if (n > 0) values(e, n, c, limit);
    for (int j = 0; j < quad; ++j) {
      code[j] = Quantizer::code(c[j]);
      if constexpr (Quantizer::compensated) {
        kept[j] = residual<Bounds>(c[j], Quantizer::value(code[j], f32(scale)), limit[j]);
      }
    }
    store_codes<Quantizer>(payload, at + e, n, code);
    if constexpr (Quantizer::compensated) {
      if (n > 0) store_quad(kept, error + e, n);
    }
  }
}

/// The same for a sparse quantizer; values and limits of the tile lie in shared memory.
template <class Quantizer, bounds Bounds>
__device__ inline void encode_sparse_tile(tile_memory<Quantizer>& m, int count, std::byte* payload,
                                          [[maybe_unused]] float* error) {
  __syncthreads();
  Quantizer::encode(block_team{&m.team}, m.c, count, payload, m.picks);
  if constexpr (Quantizer::compensated) {
    for (int e = quad * static_cast<int>(threadIdx.x); e < count; e += quad * tile_threads) {
      f32 c[quad], limit[quad], kept[quad];
      load_shared(m.c + e, c);
      if constexpr (Bounds != bounds::none) load_shared(m.limit + e, limit);
      for (int j = 0; j < quad; ++j) kept[j] = residual<Bounds>(c[j], f32(0.0f), limit[j]);
      store_quad(kept, error + e, count - e < quad ? count - e : quad);
    }
    __syncthreads();
    for (int j = static_cast<int>(threadIdx.x); j < m.picks.count; j += tile_threads) {
      int const i = m.picks.position[j];
      f32 limit(0.0f);
      if constexpr (Bounds != bounds::none) limit = f32(m.limit[i]);
      error[i] = residual<Bounds>(f32(m.picks.value[j]), f32(m.picks.decoded[j]), limit).v;
    }
  }
}

/// All threads: run(tile) on every tile of a kernel that feeds Quantizer. Where its groups are larger than a tile,
/// run() leaves the values of a block in shared memory, and returns how many are active; they are summed if `sends`.
template <class Quantizer, class Arguments, class Run>
__device__ inline void run_tiles(Arguments const& a, [[maybe_unused]] bool sends, Run const& run) {
  if constexpr (std::is_void_v<Quantizer> || single_pass<Quantizer>) {
    for (index t = blockIdx.x; t < a.tile_count; t += gridDim.x) (void)run(a.tiles[t]);
  } else {
    for (index b = blockIdx.x; b < a.sums.block_count; b += gridDim.x) {
      device_sum_block const& block = a.sums.blocks[b];
      int active = 0;
      for (index t = block.tile; t < block.tile + block.tiles; ++t) active += run(a.tiles[t]);
      if (sends) finish_block<typename Quantizer::norm>(*shared_memory<block_memory>(), a.sums, b, active);
    }
  }
}

// ---- segments ----

template <class Fields>
struct segment_arguments {
  registers<float*, typename Fields::tags> field;
  device_tensor const* tensors;
  coefficients<float> const* group;
  progress* now;
  device_tile const* tiles;
  index tile_count;
  // the exchange before
  device_cut in;
  std::byte const* in_messages;
  // the exchange after
  std::byte* out_messages;
  float* carry;
  float* block_sums;  ///< of a tensor_reduction: one per tile and result
  device_sums sums;   ///< where groups are larger than a tile
  registers<slice_list, slices_of<typename Fields::tags>> slices;
  float* slice_maxima;
};

/// The least of the values of the slices that element e of a tensor lies in.
__device__ inline f32 least_of_slices(slice_list const& slices, float const* values, int tensor, index e) {
  f32 least(0.0f);
  index const first = slices.begin[tensor], last = slices.begin[tensor + 1];
  for (index s = first; s < last; ++s) {
    placed_slicing const& each = slices.all[s];
    f32 const value(values[each.first + each.slice_of(e)]);
    least = s == first ? value : min(value, least);
  }
  return least;
}
/// The maxima over its slices take in the term, no less than +0, of element e of a tensor.
__device__ inline void raise_maxima(slice_list const& slices, float* maxima, int tensor, index e, f32 term) {
  for (index s = slices.begin[tensor]; s < slices.begin[tensor + 1]; ++s) {
    placed_slicing const& each = slices.all[s];
    // Floats that are not negative are in the order of their bits.
    atomicMax(reinterpret_cast<unsigned*>(maxima + each.first + each.slice_of(e)),
              __builtin_bit_cast(unsigned, term.v));
  }
}

template <class Quantizer>
__device__ inline void receive_part(device_piece const& p, std::byte const* messages, index i, int n,
                                    f32 (&to)[quad]) {
  std::uint32_t code[quad];
  load_codes<Quantizer>(messages + p.payload, i - p.first, n, code);
  float scale = 0;
  if constexpr (Quantizer::has_scale) scale = load_float(messages + p.scale);
  for (int j = 0; j < quad; ++j) to[j] = Quantizer::value(code[j], f32(scale));
}
/// The piece that holds flat position i.
__device__ inline device_piece const* find_piece(device_cut const& cut, int tensor, index i) {
  device_region const r = cut.regions[cut.per_tensor ? tensor : 0];
  return cut.pieces + r.piece + (i - r.first) / r.width;
}
/// Decodes n elements from flat position i, which lies in *p or in a piece behind it; so may the others.
template <class Quantizer>
__device__ inline void receive_quad(device_piece const* p, std::byte const* messages, index i, int n,
                                    f32 (&to)[quad]) {
  while (i >= p->last) ++p;
  if (i + n <= p->last) {
    receive_part<Quantizer>(*p, messages, i, n, to);
  } else {
    for (int j = 0; j < quad; ++j) {
      f32 one[quad] = {f32(0.0f), f32(0.0f), f32(0.0f), f32(0.0f)};
      while (j < n && i + j >= p->last) ++p;
      if (j < n) receive_part<Quantizer>(*p, messages, i + j, 1, one);
      to[j] = one[0];
    }
  }
}

/// Terms of a tile for a tensor_reduction.
template <class Segment>
struct term_memory {
  alignas(16) float terms[size_of<typename Segment::send::results>][tile_size];
  float warp[tile_threads / 32];
};
struct no_memory {};
template <class Segment, class Up>
using segment_memory = std::conditional_t<is_reducing<typename Segment::send>, term_memory<Segment>,
                                          std::conditional_t<std::is_void_v<Up>, no_memory, memory_of<Up>>>;
template <class Segment, class Down, class Up>
inline constexpr std::size_t segment_memory_bytes = [] {
  if constexpr (sparse<Down>)
    return sizeof(dense_memory<segment_memory<Segment, Up>, Up, 1>);
  else if constexpr (is_reducing<typename Segment::send>)
    return sizeof(term_memory<Segment>);
  else
    return memory_bytes<Up>;
}();
template <class Up, class Down>
inline constexpr std::size_t owner_memory_bytes = [] {
  if constexpr (sparse<Up>)
    return sizeof(dense_memory<memory_of<Down>, Down, 2>);
  else
    return memory_bytes<Down>;
}();

/// How many of the values that wait in shared memory for the sum of their block are active, as far as this thread
/// counts.
template <class Segment, class Down, class Up, class Fields>
__device__ int run_segment_tile(segment_arguments<Fields> const& a, device_tile const& tile,
                                [[maybe_unused]] float* dense) {
  using lanes = element<f32, Segment>;
  using send = typename Segment::send;
  constexpr bool sends = lanes::sends;
  constexpr bool compensated = [] {
    if constexpr (std::is_void_v<Up>)
      return false;
    else
      return Up::compensated;
  }();
  // A division of 64-bit numbers is a call: early, while few registers are in use.
  [[maybe_unused]] device_piece const* piece = nullptr;
  if constexpr (lanes::receives) piece = find_piece(a.in, tile.tensor, tile.first);
  device_tensor const& tensor = a.tensors[tile.tensor];
  coefficients<f32> const k = a.group[tensor.group].template as<f32>();
  bool const missing = a.now->bad != 0;

  registers<float*, typename Segment::all> p;
  for_each_tag(typename Segment::all{}, [&](auto tag) {
    using tag_type = decltype(tag);
    if constexpr (std::is_same_v<tag_type, at::parameter_t>) {
      p[tag] = tensor.parameter ? tensor.parameter + (tile.first - tensor.first) : nullptr;
    } else if constexpr (is_tensor_scalar<tag_type>) {
      p[tag] = a.field[tag] + tile.tensor;
    } else if constexpr (is_slice_value<tag_type>) {
      p[tag] = a.field[tag];
    } else if constexpr (!std::is_same_v<tag_type, at::gradient_t> && !is_transient<tag_type>) {
      p[tag] = a.field[tag] + tile.first;
    }
  });
  registers<f32, typename Segment::scalars> scalar;
  for_each_tag(typename Segment::scalars{}, [&](auto tag) { scalar[tag] = f32(*p[tag]); });
  // Values that a scale has to wait for stay in shared memory, and in the carry where the group is larger than a
  // tile.
  [[maybe_unused]] memory_of<Up>* shared = nullptr;
  if constexpr (sends) shared = shared_memory<memory_of<Up>>();
  if constexpr (sparse<Down>) {
    clear_shared(dense, tile.count);
    __syncthreads();
    for (;; ++piece) {
      index const first = tile.first > piece->first ? tile.first : piece->first;
      index const end = tile.first + tile.count;
      scatter_shared<Down>(a.in_messages + piece->payload, piece->last - piece->first, first - piece->first,
                           static_cast<int>((piece->last < end ? piece->last : end) - first),
                           dense + (first - tile.first));
      if (piece->last >= end) break;
    }
    __syncthreads();
  }

  int active = 0;
  int waiting = 0;
  for (int e = quad * static_cast<int>(threadIdx.x); e < tile.count; e += quad * tile_threads) {
    int const n = tile.count - e < quad ? tile.count - e : quad;
    lanes x[quad];
    for_each_tag(typename Segment::loads{}, [&](auto tag) {
      f32 v[quad];
      if constexpr (std::is_same_v<decltype(tag), at::gradient_t>) {
        load_gradient(tensor, missing, tile.first + e, n, v);
      } else if constexpr (is_slice_value<decltype(tag)>) {
        for (int j = 0; j < quad; ++j) {
          v[j] = j < n ? least_of_slices(a.slices[tag], p[tag], tile.tensor, tile.first - tensor.first + e + j)
                       : f32(0.0f);
        }
      } else {
        load_quad(p[tag] + e, n, v);
      }
      for (int j = 0; j < quad; ++j) x[j].r[tag] = v[j];
    });
    for_each_tag(typename Segment::scalars{}, [&](auto tag) {
      for (int j = 0; j < quad; ++j) x[j].r[tag] = scalar[tag];
    });
    f32 received[quad], error[quad];
    if constexpr (sparse<Down>) {
      load_shared(dense + e, received);
    } else if constexpr (lanes::receives) {
      receive_quad<Down>(piece, a.in_messages, tile.first + e, n, received);
    }
    if constexpr (compensated) {
      load_quad(a.carry + tile.first + e, n, error);
      for (f32& each : error) each = compensation<Up>(each);
    }
    for (int j = 0; j < quad; ++j) x[j].template run<compensated>(received[j], error[j], k);

    if constexpr (sends) {
      f32 value[quad], limit[quad];
      for (int j = 0; j < quad; ++j) {
        if constexpr (send::masked) {
          active += j < n && x[j].leaving.v;
          waiting += j < n && x[j].waiting.v;
        }
        value[j] = x[j].value;
        if constexpr (bounded<send> && single_pass<Up>) {
          x[j].find_limit(k);
          limit[j] = x[j].limit;
        }
      }
      if constexpr (single_pass<Up>) {
        store_shared(value, shared->c + e);
        if constexpr (bounded<send>) store_shared(limit, shared->limit + e);
      } else {
        store_shared(value, shared->c, static_cast<int>(tile.at % sum_block) + e, n);
        store_quad(value, a.carry + tile.first + e, n);
      }
    }
    if constexpr (is_slice_reducing<send>) {
      for (int j = 0; j < n; ++j) {
        registers<f32, typename send::results> out;
        send::formula::terms(x[j].r, out, k);
        for_each_tag(typename send::slices{}, [&](auto tag) {
          raise_maxima(a.slices[tag], a.slice_maxima, tile.tensor, tile.first - tensor.first + e + j,
                       out[typename send::term{}]);
        });
      }
    }
    if constexpr (is_reducing<send>) {
      registers<f32, typename send::results> term[quad];
      for (int j = 0; j < quad; ++j) send::formula::terms(x[j].r, term[j], k);
      float* to = shared_memory<term_memory<Segment>>()->terms[0] + e;
      for_each_tag(typename send::results{}, [&](auto tag) {
        f32 v[quad];
        for (int j = 0; j < quad; ++j) v[j] = term[j][tag];
        store_shared(v, to);
        to += tile_size;
      });
    }
    for_each_tag(typename Segment::stores{}, [&](auto tag) {
      f32 v[quad];
      bool whole = true;
      bool mine[quad];
      for (int j = 0; j < quad; ++j) {
        v[j] = x[j].r[tag];
        mine[j] = true;
        if constexpr (lanes::template partly<decltype(tag)>) mine[j] = x[j].stored(tag).v;
        whole = whole && (mine[j] || j >= n);
      }
      if constexpr (std::is_same_v<decltype(tag), at::parameter_t>) {
        static_assert(!lanes::template partly<at::parameter_t>, "working copies are written whole");
        store_working(tensor, tile.first + e, n, v);
        // Where owners have the masters, a tensor may have nothing but a working copy.
        if (view<Fields>::has_master && !tensor.parameter) return;
      }
      if (whole) {
        store_quad(v, p[tag] + e, n);
      } else {
        for (int j = 0; j < quad; ++j) {
          if (j < n && mine[j]) p[tag][e + j] = v[j].v;
        }
      }
    });
  }
  if constexpr (sends) {
    if constexpr (send::masked) {
      waiting = warp_count(waiting);
      if (threadIdx.x % 32 == 0 && waiting > 0) {
        atomicAdd(reinterpret_cast<unsigned long long*>(&a.now->waiting), static_cast<unsigned long long>(waiting));
      }
    }
    if constexpr (!send::masked) active = threadIdx.x == 0 ? tile.count : 0;
    if constexpr (sparse<Up>) {
      encode_sparse_tile<Up, bounds_of<send>>(*shared, tile.count, a.out_messages + tile.payload,
                                              compensated ? a.carry + tile.first : nullptr);
      __syncthreads();
    } else if constexpr (single_pass<Up>) {
      float scale = 0;
      if constexpr (Up::has_scale) {
        scale = tile_scale(*shared, tile.count, active);
        if (threadIdx.x == 0) *reinterpret_cast<float*>(a.out_messages + tile.scale) = scale;
      }
      auto const values = [&](int e, int, f32(&c)[quad], [[maybe_unused]] f32(&limit)[quad]) {
        load_shared(shared->c + e, c);
        if constexpr (bounded<send>) load_shared(shared->limit + e, limit);
      };
      encode_tile<Up, bounds_of<send>>(values, tile.count, scale, a.out_messages + tile.payload, tile.at,
                                       compensated ? a.carry + tile.first : nullptr);
      __syncthreads();  // the next tile uses the same memory
    }
  }
  if constexpr (is_reducing<send>) {
    using formula = typename send::formula;
    term_memory<Segment>& m = *shared_memory<term_memory<Segment>>();
    index const tile_index = &tile - a.tiles;
    __syncthreads();
    index which = 0;
    auto const put = [&](f32 result) {
      if (threadIdx.x == 0) a.block_sums[which * a.tile_count + tile_index] = result.v;
      ++which;
    };
    for_each_tag(typename formula::sums{},
                 [&](auto) { put(tile_sum_shared<plain_term>(m.terms[which], tile.count, m.warp)); });
    for_each_tag(typename formula::maxima{}, [&](auto) { put(max_shared(m.terms[which], tile.count, m.warp)); });
  }
  return active;
}

/// Optional: a message that may be missing, by what the step has learnt.
template <class Segment, class Down, bool OptionalIn, class Up, bool OptionalOut, class Fields>
__global__ void __launch_bounds__(tile_threads, 1) segment_kernel(segment_arguments<Fields> a) {
  if (a.now->defect != 0) return;
  bool const receives = !OptionalIn || a.now->contributions != 0;
  bool const sends = !OptionalOut || a.now->bad == 0;
  float* dense = nullptr;  // a tile of a sparse message
  if constexpr (sparse<Down>) dense = shared_memory<dense_memory<segment_memory<Segment, Up>, Up, 1>>()->tile[0];
  run_tiles<Up>(a, sends, [&](device_tile const& tile) {
    if (receives && sends) return run_segment_tile<Segment, Down, Up>(a, tile, dense);
    if (sends) {
      if constexpr (OptionalIn) return run_segment_tile<typename Segment::without_receive, void, Up>(a, tile, dense);
    } else if (receives) {
      if constexpr (OptionalOut) return run_segment_tile<typename Segment::without_send, Down, void>(a, tile, dense);
    } else {
      if constexpr (OptionalIn && OptionalOut) {
        return run_segment_tile<typename Segment::without_send::without_receive, void, void>(a, tile, dense);
      }
    }
    return 0;
  });
}

// ---- slices ----

/// The term of flat position i of a tensor, at the end of a segment that stores nothing.
template <class Segment, class Down, class Fields>
__device__ f32 slice_term(segment_arguments<Fields> const& a, int t, index i) {
  using send = typename Segment::send;
  device_tensor const& tensor = a.tensors[t];
  coefficients<f32> const k = a.group[tensor.group].template as<f32>();
  element<f32, Segment> x;
  for_each_tag(typename Segment::loads{}, [&](auto tag) {
    f32 v[quad];
    if constexpr (std::is_same_v<decltype(tag), at::gradient_t>) {
      load_gradient(tensor, a.now->bad != 0, i, 1, v);
    } else if constexpr (std::is_same_v<decltype(tag), at::parameter_t>) {
      load_quad(tensor.parameter + (i - tensor.first), 1, v);
    } else {
      load_quad(a.field[tag] + i, 1, v);
    }
    x.r[tag] = v[0];
  });
  for_each_tag(typename Segment::scalars{}, [&](auto tag) { x.r[tag] = f32(a.field[tag][t]); });
  f32 received[quad] = {f32(0.0f), f32(0.0f), f32(0.0f), f32(0.0f)};
  if constexpr (element<f32, Segment>::receives) {
    receive_quad<Down>(find_piece(a.in, t, i), a.in_messages, i, 1, received);
  }
  x.template run<false>(received[0], f32(0.0f), k);
  registers<f32, typename send::results> out;
  send::formula::terms(x.r, out, k);
  return out[typename send::term{}];
}

/// The slicing that value v of a field belongs to.
__device__ inline placed_slicing const& find_slicing(slice_list const& slices, index v) {
  index low = 0, high = slices.count;
  while (high - low > 1) {
    index const middle = low + (high - low) / 2;
    (slices.all[middle].first <= v ? low : high) = middle;
  }
  return slices.all[low];
}
template <class Formula, class Fields>
__device__ inline void finish_slice(segment_arguments<Fields> const& a, placed_slicing const& s, float& value,
                                    f64 result, Formula const& formula) {
  coefficients<f32> const k = a.group[a.tensors[s.tensor].group].template as<f32>();
  value = formula.finish(result, f64(static_cast<double>(s.size())), f32(value), k).v;
}

struct slice_memory {
  pairwise_memory blocks;
  float warp[tile_threads / 32];
};
/// All threads: the sum of a slice's terms, in the order of every sum.
template <class Segment, class Down, class Fields>
__device__ f64 slice_sum(segment_arguments<Fields> const& a, placed_slicing const& s, index slice) {
  slice_memory& m = *shared_memory<slice_memory>();
  int const thread = static_cast<int>(threadIdx.x);
  index const first = a.tensors[s.tensor].first, n = s.size();
  m.blocks[thread] = 0;
  for (index b = 0; b < n; b += sum_block) {
    index const end = n < b + sum_block ? n : b + sum_block;
    f32 sum(0.0f);
    for (index k = b + thread; k < end; k += sum_partials) {
      sum = sum + slice_term<Segment, Down>(a, static_cast<int>(s.tensor), first + s.element(slice, k));
    }
    sum = threads_sum(sum, m.warp);
    if (thread == b / sum_block % sum_partials) m.blocks[thread] = (f64(m.blocks[thread]) + f64(sum)).v;
  }
  for (int stride = 1; stride < static_cast<int>(sum_partials); stride *= 2) {
    __syncthreads();
    if (thread % (2 * stride) == 0) m.blocks[thread] = (f64(m.blocks[thread]) + f64(m.blocks[thread + stride])).v;
  }
  __syncthreads();
  double const total = m.blocks[0];
  __syncthreads();
  return f64(total);
}

/// A thread block per slice.
template <class Segment, class Down, bool OptionalIn, class Tag, class Formula, class Fields>
__global__ void __launch_bounds__(tile_threads) slice_sums_kernel(segment_arguments<Fields> a, Formula formula) {
  if (a.now->defect != 0) return;
  slice_list const& slices = a.slices[Tag{}];
  for (index v = blockIdx.x; v < slices.values; v += gridDim.x) {
    placed_slicing const& s = find_slicing(slices, v);
    f64 sum(0.0);
    if (OptionalIn && a.now->contributions == 0) {
      if constexpr (OptionalIn) sum = slice_sum<typename Segment::without_receive, void>(a, s, v - s.first);
    } else {
      sum = slice_sum<Segment, Down>(a, s, v - s.first);
    }
    if (threadIdx.x == 0) finish_slice(a, s, a.field[Tag{}][v], sum, formula);
  }
}
/// A thread per slice.
template <class Tag, class Formula, class Fields>
__global__ void __launch_bounds__(tile_threads) slice_maxima_kernel(segment_arguments<Fields> a, Formula formula) {
  if (a.now->defect != 0) return;
  slice_list const& slices = a.slices[Tag{}];
  for (index v = static_cast<index>(blockIdx.x) * blockDim.x + threadIdx.x; v < slices.values;
       v += static_cast<index>(gridDim.x) * blockDim.x) {
    finish_slice(a, find_slicing(slices, v), a.field[Tag{}][v], f64(f32(a.slice_maxima[v])), formula);
  }
}

// ---- the owner's side ----

template <class Fields>
struct owner_arguments {
  registers<float*, typename Fields::tags> field;
  device_tensor const* tensors;
  coefficients<float> const* group;
  progress* now;
  unsigned char const* contributes;
  device_tile const* tiles;
  index tile_count;
  int ranks;
  index stride;  ///< bytes of a rank's message
  std::byte const* received;
  std::byte* message;
  float* carry;
  device_sums sums;  ///< where groups are larger than a tile
};

/// Where an owner's formula finds its value of a tile's first element.
template <class Tag, class Fields>
__device__ float* owner_place(owner_arguments<Fields> const& a, device_tile const& tile) {
  if constexpr (!std::is_same_v<Tag, at::parameter_t>) {
    return a.field[Tag{}] + (view<Fields>::template at_owner<Tag> ? tile.own : tile.first);
  } else if constexpr (view<Fields>::has_master) {
    return a.field[at::master] + tile.own;
  } else {
    device_tensor const& tensor = a.tensors[tile.tensor];
    return tensor.parameter + (tile.first - tensor.first);
  }
}

/// Bounds of a quad.
template <class Form, class Fields>
__device__ void begin_quad(owner_arguments<Fields> const& a, index i, int n, coefficients<f32> const& k,
                           owner_element<f32, Form> (&x)[quad]) {
  registers<f32, typename Form::bound_reads> b[quad];
  for_each_tag(typename Form::bound_reads{}, [&](auto tag) {
    f32 v[quad];
    load_quad(a.field[tag] + i, n, v);
    for (int j = 0; j < quad; ++j) b[j][tag] = v[j];
  });
  for (int j = 0; j < quad; ++j) x[j].begin(b[j], k);
}

/// All threads: the sum over the contributing ranks' sparse messages, each bounded.
template <class Form, class Up, class Fields>
__device__ void sum_sparse_tile(owner_arguments<Fields> const& a, device_tile const& tile, coefficients<f32> const& k,
                                float* dense, float* sum) {
  clear_shared(sum, tile.count);
  bool first = true;
  for (int rank = 0; rank < a.ranks; ++rank) {
    if (!a.contributes[rank]) continue;
    clear_shared(dense, tile.count);
    __syncthreads();
    scatter_shared<Up>(a.received + rank * a.stride + tile.from_payload, tile.count, 0, tile.count, dense);
    __syncthreads();
    for (int e = quad * static_cast<int>(threadIdx.x); e < tile.count; e += quad * tile_threads) {
      owner_element<f32, Form> x[quad];
      if constexpr (bounded<Form>) {
        begin_quad(a, tile.first + e, tile.count - e < quad ? tile.count - e : quad, k, x);
      }
      f32 value[quad], before[quad];
      load_shared(dense + e, value);
      load_shared(sum + e, before);
      for (int j = 0; j < quad; ++j) {
        value[j] = x[j].bounded_value(value[j]);
        if (!first) value[j] = before[j] + value[j];
      }
      store_shared(value, sum + e);
    }
    first = false;
  }
  __syncthreads();
}

template <class Form, class Up, class Down, class Fields>
__global__ void __launch_bounds__(tile_threads) owner_kernel(owner_arguments<Fields> a) {
  int const contributions = a.now->contributions;
  bool const nobody = contributions == 0;
  if (a.now->defect != 0 || (nobody && !Form::unconditional)) return;
  // Dividing by a power of two is multiplying by its inverse, bit by bit.
  bool const exact_inverse = (contributions & (contributions - 1)) == 0;
  f32 const divisor(nobody ? 1.0f : static_cast<float>(contributions));
  f32 const inverse = f32(1.0f) / divisor;
  memory_of<Down>* const shared = shared_memory<memory_of<Down>>();
  [[maybe_unused]] dense_memory<memory_of<Down>, Down, 2>* dense = nullptr;
  if constexpr (sparse<Up>) dense = shared_memory<dense_memory<memory_of<Down>, Down, 2>>();

  run_tiles<Down>(a, true, [&](device_tile const& tile) {
    coefficients<f32> const k = a.group[a.tensors[tile.tensor].group].template as<f32>();
    int active = 0;
    if constexpr (sparse<Up>) sum_sparse_tile<Form, Up>(a, tile, k, dense->tile[0], dense->tile[1]);
    for (int e = quad * static_cast<int>(threadIdx.x); e < tile.count; e += quad * tile_threads) {
      int const n = tile.count - e < quad ? tile.count - e : quad;
      owner_element<f32, Form> x[quad];
      if constexpr (bounded<Form>) {
        begin_quad(a, tile.first + e, n, k, x);
        f32 limit[quad];
        for (int j = 0; j < quad; ++j) {
          limit[j] = x[j].limit;
          if constexpr (Form::masked) active += j < n && x[j].active.v;
        }
        if constexpr (single_pass<Down>) store_shared(limit, shared->limit + e);
      }
      f32 sum[quad] = {f32(0.0f), f32(0.0f), f32(0.0f), f32(0.0f)};
      if constexpr (sparse<Up>) {
        load_shared(dense->tile[1] + e, sum);
      } else {
        bool first = true;
        for (int rank = 0; rank < a.ranks; ++rank) {
          if (!a.contributes[rank]) continue;
          std::byte const* const message = a.received + rank * a.stride;
          float scale = 0;
          if constexpr (Up::has_scale) scale = load_float(message + tile.from_scale);
          std::uint32_t code[quad];
          load_codes<Up>(message + tile.from_payload, tile.at + e, n, code);
          for (int j = 0; j < quad; ++j) {
            f32 const value = x[j].bounded_value(Up::value(code[j], f32(scale)));
            sum[j] = first ? value : sum[j] + value;
          }
          first = false;
        }
      }
      using own_tags = unite<typename Form::own_reads, typename Form::own_writes>;
      registers<f32, own_tags> r[quad];
      for_each_tag(typename Form::own_reads{}, [&](auto tag) {
        f32 v[quad];
        load_quad(owner_place<decltype(tag)>(a, tile) + e, n, v);
        for (int j = 0; j < quad; ++j) r[j][tag] = v[j];
      });
      f32 error[quad], value[quad];
      if constexpr (Down::compensated) {
        load_quad(a.carry + tile.own + e, n, error);
        for (f32& each : error) each = compensation<Down>(each);
      }
      for (int j = 0; j < quad; ++j) {
        f32 const mean = exact_inverse ? sum[j] * inverse : sum[j] / divisor;
        value[j] = x[j].template finish<Down::compensated>(r[j], mean, nobody, error[j], k);
      }
      if constexpr (single_pass<Down>) {
        store_shared(value, shared->c + e);
      } else {
        store_shared(value, shared->c, static_cast<int>(tile.at % sum_block) + e, n);
        store_quad(value, a.carry + tile.own + e, n);
      }
      for_each_tag(typename Form::own_writes{}, [&](auto tag) {
        f32 v[quad];
        for (int j = 0; j < quad; ++j) v[j] = r[j][tag];
        store_quad(v, owner_place<decltype(tag)>(a, tile) + e, n);
      });
    }
    if constexpr (!Form::masked) active = threadIdx.x == 0 ? tile.count : 0;
    if constexpr (sparse<Down>) {
      encode_sparse_tile<Down, bounds_of<Form>>(*shared, tile.count, a.message + tile.payload,
                                                Down::compensated ? a.carry + tile.own : nullptr);
      __syncthreads();
    } else if constexpr (single_pass<Down>) {
      float scale = 0;
      if constexpr (Down::has_scale) {
        scale = tile_scale(*shared, tile.count, active);
        if (threadIdx.x == 0) *reinterpret_cast<float*>(a.message + tile.scale) = scale;
      } else {
        __syncthreads();
      }
      auto const values = [&](int e, int, f32(&c)[quad], [[maybe_unused]] f32(&limit)[quad]) {
        load_shared(shared->c + e, c);
        if constexpr (bounded<Form>) load_shared(shared->limit + e, limit);
      };
      encode_tile<Down, bounds_of<Form>>(values, tile.count, scale, a.message + tile.payload, tile.at,
                                         Down::compensated ? a.carry + tile.own : nullptr);
      __syncthreads();
    }
    return active;
  });
}

// ---- groups larger than a tile, once their blocks are summed: their scales, then their codes ----

template <class Fields>
struct group_arguments {
  registers<float*, typename Fields::tags> field;
  device_tensor const* tensors;
  coefficients<float> const* coefficient;
  progress* now;
  bool optional_up, optional_down;  ///< nothing to do if this worker's gradient is bad, or if nobody contributed
  device_sums sums;
  index const* first_block;  ///< of each group, and the end
  index group_count;
  device_tile const* tiles;
  index tile_count;
  float* scales;  ///< one per group
  std::byte* messages;
  float* carry;

  __device__ bool idle() const {
    return now->defect != 0 || (optional_up && now->bad != 0) || (optional_down && now->contributions == 0);
  }
};

template <class Quantizer, class Fields>
__global__ void __launch_bounds__(tile_threads) group_scales_kernel(group_arguments<Fields> a) {
  if (a.idle()) return;
  pairwise_memory& scratch = *shared_memory<pairwise_memory>();
  for (index g = blockIdx.x; g < a.group_count; g += gridDim.x) {
    index const first = a.first_block[g], n = a.first_block[g + 1] - first;
    double const sum = pairwise_sum_shared(a.sums.sums + first, n, scratch);
    if (threadIdx.x == 0) {
      a.scales[g] = Quantizer::norm::scale(sum, static_cast<index>(a.sums.actives[g]));
      a.sums.actives[g] = 0;
    }
  }
}

template <class Form, class Quantizer, class Fields>
__global__ void __launch_bounds__(tile_threads) group_codes_kernel(group_arguments<Fields> a) {
  if (a.idle()) return;
  for (index t = blockIdx.x; t < a.tile_count; t += gridDim.x) {
    device_tile const& tile = a.tiles[t];
    float const scale = a.scales[tile.group];
    if (tile.at == 0 && threadIdx.x == 0) *reinterpret_cast<float*>(a.messages + tile.scale) = scale;
    auto const values = [&](int e, int n, f32(&c)[quad], f32(&limit)[quad]) {
      load_quad(a.carry + tile.own + e, n, c);
      if constexpr (bounded<Form>) {
        registers<f32, typename Form::bound_reads> r[quad];
        for_each_tag(typename Form::bound_reads{}, [&](auto tag) {
          f32 v[quad];
          load_quad(a.field[tag] + tile.first + e, n, v);
          for (int j = 0; j < quad; ++j) r[j][tag] = v[j];
        });
        // A tile of a large group may lie in several tensors.
        int tensor = tile.tensor;
        for (int j = 0; j < quad; ++j) {
          while (j < n && tile.first + e + j >= a.tensors[tensor].last) ++tensor;
          limit[j] = bound<Form>(r[j], a.coefficient[a.tensors[tensor].group].template as<f32>());
        }
      }
    };
    encode_tile<Quantizer, bounds_of<Form>>(values, tile.count, scale, a.messages + tile.payload, tile.at,
                                            Quantizer::compensated ? a.carry + tile.own : nullptr);
  }
}

}  // namespace zoadam::detail
