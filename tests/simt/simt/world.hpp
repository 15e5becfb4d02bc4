// SPDX-License-Identifier: Apache-2.0
// State of the fake machine that is neither memory nor streams: devices, errors, call counts, injected failures,
// violations.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "block.hpp"

namespace simt {

struct device_state {
  cudaError_t fault = cudaSuccess;   // from asynchronous work, not yet reported
  cudaError_t sticky = cudaSuccess;  // reported; every call returns it
  std::size_t used = 0;
  CUstream_st* default_stream = nullptr;
};

struct injection {
  std::string api;  // empty: any
  int countdown;
  int code;
};

/// Calls of one API family (CUDA or NCCL), and which of them fail.
struct call_log {
  std::map<std::string, std::size_t, std::less<>> by_name;
  std::size_t total = 0;
  std::vector<injection> injections;

  /// Counts a call; the code that it must fail with, or 0.
  int enter(std::string_view api) {
    ++by_name[std::string(api)];
    ++total;
    int code = 0;
    std::erase_if(injections, [&](injection& each) {
      if ((!each.api.empty() && each.api != api) || --each.countdown > 0) return false;
      code = each.code;
      return true;
    });
    return code;
  }
};

/// Everything is guarded by mutex. Work runs without it; `progress` says that some work ended.
struct world {
  std::mutex mutex;
  std::condition_variable progress;
  std::uint64_t epoch = 1;
  bool ending = false;  // the program ends; what threads kept is gone
  std::vector<device_state> devices{std::vector<device_state>(2)};
  cudaError_t driver_error = cudaSuccess;
  std::size_t memory_per_device = std::size_t{1} << 40;
  int multiprocessors = 4;
  call_log cuda, nccl;
  std::map<std::string, std::size_t> launches;  // by kernel and NVTX range
  std::size_t default_stream_uses = 0;
  std::map<std::pair<void const*, int>, std::size_t> dynamic_shared_limit;  // kernel and device

  // What an extension (NCCL) adds to leaks and to a reset.
  std::vector<void (*)(std::vector<std::string>&)> leak_sources;
  std::vector<void (*)()> reset_steps, after_reset;  // before and after the workers end

  // A mutex of its own: violations are found with and without the other one.
  std::mutex log_mutex;
  std::vector<std::string> violations;
};

void shut_down(world& w);  // in streams.hpp

inline world& the_world() {
  struct holder {
    world w;
    ~holder() {
      w.ending = true;
      shut_down(w);
    }
  };
  static holder own;
  return own.w;
}

using world_lock = std::unique_lock<std::mutex>;

inline void violation(std::string what) {
  world& w = the_world();
  std::lock_guard const lock(w.log_mutex);
  w.violations.push_back(std::move(what));
}

/// What the runtime keeps per host thread. A reset makes it new.
struct host_thread {
  std::uint64_t epoch = 0;
  int device = 0;
  cudaError_t last_error = cudaSuccess;
  bool in_host_function = false;
  int uncounted = 0;
  bool captures_relaxed = false;    // captures of others do not keep it from unordered calls
  std::vector<std::string> ranges;  // open NVTX ranges

  ~host_thread() {
    if (!ranges.empty()) violation("a thread ends inside of NVTX range " + ranges.back());
  }
};

inline host_thread& this_thread() {
  the_world();  // outlives the threads' state
  static thread_local host_thread own;
  return own;
}
inline host_thread& this_thread(world_lock const&) {
  host_thread& t = this_thread();
  if (std::uint64_t const epoch = the_world().epoch; t.epoch != epoch) {
    t.epoch = epoch;
    t.device = 0;
    t.last_error = cudaSuccess;
    t.captures_relaxed = false;
  }
  return t;
}

/// Start of every API call.
///
/// @return   the error to return at once: injected, no driver, no device, not allowed in a host function, or sticky
inline cudaError_t enter(world_lock const& lock, std::string_view api, bool releases = false) {
  world& w = the_world();
  host_thread const& t = this_thread(lock);
  if (t.uncounted == 0) {
    if (int const code = w.cuda.enter(api); code != 0) return static_cast<cudaError_t>(code);
  }
  if (w.driver_error != cudaSuccess) return w.driver_error;
  if (w.devices.empty()) return cudaErrorNoDevice;
  if (t.in_host_function) {
    violation(std::string(api) + " called by a function of cudaLaunchHostFunc");
    return cudaErrorNotPermitted;
  }
  // A dead device still lets go of what it held, so that cleaning up after an error leaks nothing here.
  return releases ? cudaSuccess : w.devices[static_cast<std::size_t>(t.device)].sticky;
}

/// End of a call: remembers an error for cudaGetLastError.
inline cudaError_t leave(cudaError_t code) {
  if (code != cudaSuccess) this_thread().last_error = code;
  return code;
}

inline device_state& device_of(int device) { return the_world().devices[static_cast<std::size_t>(device)]; }

/// A synchronizing call turns what asynchronous work did wrong into the sticky error.
inline cudaError_t observe(world_lock const&, int device) {
  device_state& d = device_of(device);
  if (d.sticky == cudaSuccess) d.sticky = d.fault;
  return d.sticky;
}

inline void record_fault(world_lock const&, int device, cudaError_t code, std::string what) {
  device_state& d = device_of(device);
  if (d.fault == cudaSuccess) d.fault = code;
  violation("device fault: " + std::move(what));
}

// What tests call.

inline std::vector<std::string> violations() {
  world& w = the_world();
  std::lock_guard const lock(w.log_mutex);
  return w.violations;
}
inline void clear_violations() {
  world& w = the_world();
  std::lock_guard const lock(w.log_mutex);
  w.violations.clear();
}
/// Throws std::runtime_error that lists all violations, device faults included.
inline void expect_clean() {
  std::string all;
  for (std::string const& each : violations()) all += "\n  " + each;
  if (!all.empty()) throw std::runtime_error("simt violations:" + all);
}

/// The nth call from now (1 is the next) of this API, of any if empty, returns code without acting.
inline void fail_call(std::string_view api, int nth, int code) {
  world_lock const lock(the_world().mutex);
  the_world().cuda.injections.push_back({std::string(api), nth, code});
}
inline void fail_nccl(std::string_view api, int nth, int code) {
  world_lock const lock(the_world().mutex);
  the_world().nccl.injections.push_back({std::string(api), nth, code});
}
/// While it lives, calls of this thread are not counted and meet no injected failure: they are the test's own.
struct uncounted {
  uncounted() { ++this_thread().uncounted; }
  uncounted(uncounted const&) = delete;
  uncounted& operator=(uncounted const&) = delete;
  ~uncounted() { --this_thread().uncounted; }
};
/// Injected failures that no call has met.
inline std::size_t pending_failures() {
  world_lock const lock(the_world().mutex);
  return the_world().cuda.injections.size() + the_world().nccl.injections.size();
}
inline std::size_t calls() {
  world_lock const lock(the_world().mutex);
  return the_world().cuda.total;
}
inline std::size_t calls(std::string_view api) {
  world_lock const lock(the_world().mutex);
  auto const& names = api.starts_with("nccl") ? the_world().nccl.by_name : the_world().cuda.by_name;
  auto const found = names.find(api);
  return found == names.end() ? 0 : found->second;
}
inline std::size_t nccl_calls() {
  world_lock const lock(the_world().mutex);
  return the_world().nccl.total;
}
inline std::map<std::string, std::size_t, std::less<>> calls_by_name() {
  world_lock const lock(the_world().mutex);
  auto all = the_world().cuda.by_name;
  for (auto const& each : the_world().nccl.by_name) all.insert(each);
  return all;
}
/// Launches that succeeded: by the kernel's plain name where the program exports it, then " in range " and the
/// innermost NVTX range, if any. Counted when enqueued or captured.
inline std::map<std::string, std::size_t> launches() {
  world_lock const lock(the_world().mutex);
  return the_world().launches;
}
inline std::size_t default_stream_uses() {
  world_lock const lock(the_world().mutex);
  return the_world().default_stream_uses;
}
/// Only before anything was created.
inline void set_device_count(int n) {
  world_lock const lock(the_world().mutex);
  the_world().devices.assign(static_cast<std::size_t>(n), device_state{});
}
/// Every call returns code, such as cudaErrorInsufficientDriver; cudaSuccess ends that.
inline void set_driver_error(cudaError_t code) {
  world_lock const lock(the_world().mutex);
  the_world().driver_error = code;
}
inline void set_device_memory(std::size_t bytes) {
  world_lock const lock(the_world().mutex);
  the_world().memory_per_device = bytes;
}
inline void set_multiprocessors(int n) {
  world_lock const lock(the_world().mutex);
  the_world().multiprocessors = n;
}
/// As if asynchronous work on the device had failed, such as with cudaErrorECCUncorrectable.
inline void break_device(int device, cudaError_t code) {
  world_lock const lock(the_world().mutex);
  the_world().devices.at(static_cast<std::size_t>(device)).fault = code;
}

}  // namespace simt
