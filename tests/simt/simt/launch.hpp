// SPDX-License-Identifier: Apache-2.0
// Launches kernels.
#pragma once

#include <cxxabi.h>
#include <dlfcn.h>

#include <tuple>
#include <type_traits>

#include "streams.hpp"

#define SIMT_ENTER                                \
  simt::world_lock lock(simt::the_world().mutex); \
  if (cudaError_t const refused = simt::enter(lock, __func__); refused != cudaSuccess) return simt::leave(refused)

namespace simt {

inline constexpr std::size_t default_dynamic_shared = 48 * 1024;
inline constexpr std::size_t most_dynamic_shared = 227 * 1024;

/// A kernel's symbol where the program exports it, its address otherwise.
inline std::string symbol(void const* kernel) {
  std::string name = text(kernel, 0).substr(0, text(kernel, 0).find(' '));
  Dl_info info{};
  if (dladdr(kernel, &info) != 0 && info.dli_sname != nullptr && info.dli_saddr == kernel) {
    int status = 0;
    char* const readable = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
    name = readable != nullptr ? readable : info.dli_sname;
    std::free(readable);
  }
  return name;
}
/// The innermost NVTX range, as the end of a text.
inline std::string in_range() {
  std::vector<std::string> const& ranges = this_thread().ranges;
  return ranges.empty() ? "" : " in range " + ranges.back();
}
/// A symbol without return type, namespaces, template arguments and parameters.
inline std::string plain_name(std::string const& symbol) {
  std::string const front = symbol.substr(0, symbol.find_first_of("<("));
  return front.substr(front.find_last_of(": ") + 1);
}

inline cudaError_t check_shape(world_lock const&, grid_shape const& g, void const* kernel, int device) {
  bool const block_fits = g.block.x > 0 && g.block.y > 0 && g.block.z > 0 && g.block.x <= 1024 && g.block.y <= 1024 &&
                          g.block.z <= 64 && std::size_t{g.block.x} * g.block.y * g.block.z <= 1024;
  bool const grid_fits = g.grid.x > 0 && g.grid.y > 0 && g.grid.z > 0 && g.grid.x <= 0x7fffffffu &&
                         g.grid.y <= 65535 && g.grid.z <= 65535;
  if (!block_fits || !grid_fits) return cudaErrorInvalidConfiguration;
  auto const& limits = the_world().dynamic_shared_limit;
  auto const limit = limits.find({kernel, device});
  return g.shared_bytes <= (limit == limits.end() ? default_dynamic_shared : limit->second) ? cudaSuccess
                                                                                            : cudaErrorInvalidValue;
}

/// Puts a kernel into a stream, arguments copied by value. Injected failures know it as cudaLaunchKernel.
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                   cudaStream_t stream, Arguments&&... arguments) {
  using values = std::tuple<std::remove_cv_t<Parameters>...>;
  static_assert(!(std::is_reference_v<Parameters> || ...), "a kernel's parameters are values");
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "a kernel's parameters are copied as bytes");
  static_assert(sizeof(values) <= 32764, "more parameters than a kernel may have");
  world_lock lock(the_world().mutex);
  if (cudaError_t const refused = enter(lock, "cudaLaunchKernel"); refused != cudaSuccess) return leave(refused);
  void const* const address = reinterpret_cast<void const*>(kernel);
  grid_shape const shape{grid, block, dynamic_shared_bytes};
  CUstream_st* const s = resolve(lock, "cudaLaunchKernel", stream);
  if (s == nullptr) return leave(cudaErrorInvalidResourceHandle);
  std::string const known_as = symbol(address), name = "kernel " + known_as + in_range();
  if (s->device != this_thread().device) {
    violation(name + ": launched into a stream of another device than the current one");
    return leave(cudaErrorInvalidResourceHandle);
  }
  if (cudaError_t const wrong = check_shape(lock, shape, address, s->device); wrong != cudaSuccess)
    return leave(wrong);
  if (this_thread().uncounted == 0) ++the_world().launches[plain_name(known_as) + in_range()];
  struct packed {
    void (*function)(Parameters...);
    values bound;
  };
  packed const p{kernel, values(static_cast<std::remove_cv_t<Parameters>>(std::forward<Arguments>(arguments))...)};
  auto const check = [&](auto const& each) {
    using type = std::remove_cvref_t<decltype(each)>;
    type words = each;  // what lies in its padding is nobody's pointer
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&words);
    constexpr bool known = true;
#else
    constexpr bool known = std::has_unique_object_representations_v<type>;
#endif
    if constexpr (known) check_arguments(lock, name, &words, sizeof words);
    if constexpr (std::is_pointer_v<type> && !std::is_function_v<std::remove_pointer_t<type>>)
      check_pointer(lock, name, s->device, each);
  };
  std::apply([&](auto const&... each) { (check(each), ...); }, p.bound);
  operation run{[p, shape, name, device = s->device] {
    auto const call = [](void const* raw) {
      auto const& own = *static_cast<packed const*>(raw);
      std::apply(own.function, own.bound);
    };
    std::optional<device_fault> const fault = executor::of_this_thread().run(shape, call, &p);
    if (!fault) return;
    world_lock const inner(the_world().mutex);
    record_fault(inner, device, fault->code, name + " " + fault->what);
  }};
  return leave(enqueue(lock, *s, std::move(run)));
}

}  // namespace simt

/// Attributes are not known here.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t const* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  if (config->numAttrs != 0) return simt::leave(cudaErrorNotSupported);
  return simt::launch(kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream,
                      std::forward<Arguments>(arguments)...);
}

inline cudaError_t cudaFuncSetAttribute(void const* func, cudaFuncAttribute attr, int value) {
  SIMT_ENTER;
  if (attr == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
  if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<std::size_t>(value) > simt::most_dynamic_shared)
    return simt::leave(cudaErrorInvalidValue);
  simt::the_world().dynamic_shared_limit[{func, simt::this_thread().device}] = static_cast<std::size_t>(value);
  return cudaSuccess;
}
template <class T>
cudaError_t cudaFuncSetAttribute(T* func, cudaFuncAttribute attr, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<void const*>(func), attr, value);
}

inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attr, void const* func) {
  SIMT_ENTER;
  auto const& limits = simt::the_world().dynamic_shared_limit;
  auto const limit = limits.find({func, simt::this_thread().device});
  *attr = {};
  attr->maxThreadsPerBlock = 1024;
  attr->numRegs = 32;
  attr->maxDynamicSharedSizeBytes =
      static_cast<int>(limit == limits.end() ? simt::default_dynamic_shared : limit->second);
  return cudaSuccess;
}
template <class T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attr, T* func) {
  return cudaFuncGetAttributes(attr, reinterpret_cast<void const*>(func));
}

inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, void const* func, int blockSize,
                                                                 std::size_t dynamicSMemSize) {
  SIMT_ENTER;
  *numBlocks = 0;
  if (blockSize <= 0) return simt::leave(cudaErrorInvalidValue);
  simt::grid_shape const shape{1, static_cast<unsigned>(blockSize), dynamicSMemSize};
  if (simt::check_shape(lock, shape, func, simt::this_thread().device) != cudaSuccess) return cudaSuccess;
  std::size_t const by_memory = std::size_t{228 * 1024} / (dynamicSMemSize + 1024);
  *numBlocks = std::min({32, 2048 / ((blockSize + 31) / 32 * 32), static_cast<int>(by_memory)});
  return cudaSuccess;
}
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, T* func, int blockSize,
                                                          std::size_t dynamicSMemSize) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks, reinterpret_cast<void const*>(func), blockSize,
                                                       dynamicSMemSize);
}
