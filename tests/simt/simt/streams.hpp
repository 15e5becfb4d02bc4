// SPDX-License-Identifier: Apache-2.0
// Streams, each with a worker thread; markers, events and captures; the end of the world.
#pragma once

#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "memory.hpp"

namespace simt {

/// When workers run what is queued: at once, or not before somebody waits for it (which shows a missing wait).
enum class stream_order { eager, lazy };

/// A position in a stream that others wait for.
struct marker {
  bool done = false;
  CUstream_st* stream = nullptr;
  std::uint64_t position = 0;
  std::chrono::steady_clock::time_point time;
};

struct operation {
  std::function<void()> run;
  bool always = false;  // also on a device that failed
  std::shared_ptr<marker> reached{};
};

struct capture {
  cudaStreamCaptureMode mode;
  std::thread::id owner;
  CUstream_st* origin;
  std::vector<operation> work;  // of all its streams, in the order of the calls
  std::set<CUstream_st*> unjoined;
  bool invalid = false;
};

}  // namespace simt

struct CUstream_st {
  int device = 0;
  unsigned flags = 0;
  std::deque<simt::operation> queue;
  std::uint64_t enqueued = 0, executed = 0, demanded = 0;
  bool closing = false;
  std::condition_variable wake;
  std::thread worker;
  std::shared_ptr<simt::capture> captured_by;
};

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  std::shared_ptr<simt::marker> recorded;
  std::shared_ptr<simt::capture> captured_by;  // last recorded in this capture, on that stream
  CUstream_st* captured_on = nullptr;
};

struct CUgraph_st {
  std::vector<simt::operation> work;
};
struct CUgraphExec_st {
  std::vector<simt::operation> work;
};

namespace simt {

struct stream_map {
  stream_order when = stream_order::eager;
  std::set<CUstream_st*> live;
  std::vector<std::unique_ptr<CUstream_st>> all;  // destroyed ones too: handles stay unique until a reset
  std::set<cudaEvent_t> events;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> executables;
  std::set<std::shared_ptr<capture>> captures;
};
inline stream_map& the_streams() {
  static stream_map& own = *new stream_map;
  return own;
}

inline void demand(CUstream_st& s, std::uint64_t position) {
  if (position <= s.demanded) return;
  s.demanded = position;
  s.wake.notify_all();
}

inline void work(CUstream_st& s) {
  world& w = the_world();
  world_lock lock(w.mutex);
  for (;;) {
    s.wake.wait(lock, [&] {
      if (s.queue.empty()) return s.closing;
      return s.closing || the_streams().when == stream_order::eager || s.executed < s.demanded;
    });
    if (s.queue.empty()) return;
    operation next = std::move(s.queue.front());
    s.queue.pop_front();
    bool const dead = device_of(s.device).fault != cudaSuccess || device_of(s.device).sticky != cudaSuccess;
    lock.unlock();
    if (next.run && (!dead || next.always)) next.run();
    next.run = nullptr;
    lock.lock();
    if (next.reached) {
      next.reached->done = true;
      next.reached->time = std::chrono::steady_clock::now();
    }
    ++s.executed;
    w.progress.notify_all();
  }
}

inline CUstream_st* create_stream(world_lock const&, int device, unsigned flags) {
  auto owned = std::make_unique<CUstream_st>();
  CUstream_st* const s = owned.get();
  s->device = device;
  s->flags = flags;
  the_streams().all.push_back(std::move(owned));
  s->worker = std::thread([s] { work(*s); });
  return s;
}
inline void close_stream(world_lock const&, CUstream_st& s) {
  s.closing = true;
  s.wake.notify_all();
}

inline void push(world_lock const&, CUstream_st& s, operation o) {
  s.queue.push_back(std::move(o));
  ++s.enqueued;
  s.wake.notify_all();
}
inline std::shared_ptr<marker> push_marker(world_lock const& lock, CUstream_st& s) {
  auto m = std::make_shared<marker>();
  m->stream = &s;
  m->position = s.enqueued + 1;
  push(lock, s, {nullptr, false, m});
  return m;
}
inline void wait(world_lock& lock, marker const& m) {
  demand(*m.stream, m.position);
  the_world().progress.wait(lock, [&] { return m.done; });
}
inline void push_wait(world_lock const& lock, CUstream_st& s, std::shared_ptr<marker> m) {
  push(lock, s, {[m] {
         world_lock inner(the_world().mutex);
         wait(inner, *m);
       }});
}
/// Waits for all that is in the stream now.
inline void drain(world_lock& lock, CUstream_st& s) {
  std::uint64_t const position = s.enqueued;
  demand(s, position);
  the_world().progress.wait(lock, [&] { return s.executed >= position; });
}
inline void drain_device(world_lock& lock, int device) {
  for (std::size_t i = 0; i < the_streams().all.size(); ++i)  // others may add streams meanwhile
    if (CUstream_st& s = *the_streams().all[i]; s.device == device) drain(lock, s);
}

/// The stream of a handle, stream 0 included; null, with a violation, where it is destroyed or unknown.
inline CUstream_st* resolve(world_lock const& lock, std::string_view api, cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    ++the_world().default_stream_uses;
    int const device = this_thread().device;
    device_state& d = device_of(device);
    if (d.default_stream == nullptr) d.default_stream = create_stream(lock, device, cudaStreamDefault);
    return d.default_stream;
  }
  if (the_streams().live.contains(handle)) return handle;
  violation(std::string(api) + (handle == cudaStreamPerThread ? ": the per-thread stream is not modelled"
                                                              : ": destroyed or unknown stream"));
  return nullptr;
}

inline cudaError_t refuse_in_capture(std::shared_ptr<capture> const& c, cudaError_t code) {
  if (c->invalid) return cudaErrorStreamCaptureInvalidated;
  c->invalid = true;
  return code;
}

/// Calls that no stream orders, such as cudaMalloc, end a capture that does not allow them.
inline cudaError_t refuse_unordered(world_lock const&) {
  if (this_thread().captures_relaxed) return cudaSuccess;
  for (std::shared_ptr<capture> const& c : the_streams().captures) {
    bool const mine = c->owner == std::this_thread::get_id();
    if (c->mode == cudaStreamCaptureModeGlobal || (c->mode == cudaStreamCaptureModeThreadLocal && mine)) {
      c->invalid = true;
      return cudaErrorStreamCaptureUnsupported;
    }
  }
  return cudaSuccess;
}

/// Puts work into a stream, or into its capture. The default stream and blocking streams wait for each other.
inline cudaError_t enqueue(world_lock const& lock, CUstream_st& s, operation o) {
  if (s.captured_by) {
    if (s.captured_by->invalid) return cudaErrorStreamCaptureInvalidated;
    s.captured_by->work.push_back(std::move(o));
    if (&s != s.captured_by->origin) s.captured_by->unjoined.insert(&s);
    return cudaSuccess;
  }
  CUstream_st* const by_default = device_of(s.device).default_stream;
  if (&s == by_default) {
    for (CUstream_st* other : the_streams().live) {
      if (other->device != s.device || (other->flags & cudaStreamNonBlocking) != 0) continue;
      if (other->captured_by) return refuse_in_capture(other->captured_by, cudaErrorStreamCaptureImplicit);
      if (other->executed < other->enqueued) push_wait(lock, s, push_marker(lock, *other));
    }
  } else if (by_default != nullptr && (s.flags & cudaStreamNonBlocking) == 0 &&
             by_default->executed < by_default->enqueued) {
    push_wait(lock, s, push_marker(lock, *by_default));
  }
  push(lock, s, std::move(o));
  return cudaSuccess;
}

inline void set_stream_order(stream_order when) {
  world_lock const lock(the_world().mutex);
  the_streams().when = when;
  for (CUstream_st* s : the_streams().live) s->wake.notify_all();
}

inline std::vector<std::string> leaks(world_lock const&) {
  std::vector<std::string> found;
  for (auto const& [base, a] : the_memory().live)
    if (!a.freed)
      found.push_back((a.kind == memory::device ? "device memory " : "pinned memory ") +
                      text(reinterpret_cast<void*>(base), a.bytes));
  stream_map const& s = the_streams();
  found.insert(found.end(), s.live.size(), "stream");
  found.insert(found.end(), s.events.size(), "event");
  found.insert(found.end(), s.graphs.size(), "graph");
  found.insert(found.end(), s.executables.size(), "executable graph");
  for (auto const source : the_world().leak_sources) source(found);
  return found;
}
/// What was created and not destroyed: memory, streams, events, graphs, communicators.
inline std::vector<std::string> leaks() {
  world_lock const lock(the_world().mutex);
  return leaks(lock);
}

inline void shut_down(world& w) {
  world_lock lock(w.mutex);
  for (auto const step : w.reset_steps) step();
  stream_map& s = the_streams();
  for (auto const& each : s.all) close_stream(lock, *each);
  lock.unlock();
  for (auto const& each : s.all) each->worker.join();
  lock.lock();
  for (auto const step : w.after_reset) step();
  for (cudaEvent_t each : s.events) delete each;
  for (cudaGraph_t each : s.graphs) delete each;
  for (cudaGraphExec_t each : s.executables) delete each;
  s.live.clear(), s.all.clear(), s.events.clear(), s.graphs.clear(), s.executables.clear(), s.captures.clear();
  s.when = stream_order::eager;
  memory_map& m = the_memory();
  while (!m.live.empty()) release(lock, m.live.begin()->first);
  for (auto const& [base, bytes] : m.held) release_range(base, bytes);
  m.held.clear(), m.freed.clear();
  m.held_bytes = 0;
}

/// A new world with two devices, nothing injected and nothing counted; for when no other thread uses this one.
///
/// @return   leaks and violations of the old one
inline std::vector<std::string> reset() {
  world& w = the_world();
  std::vector<std::string> found;
  {
    world_lock const lock(w.mutex);
    found = leaks(lock);
    for (std::string& each : found) each = "leak: " + each;
  }
  shut_down(w);
  host_thread& t = this_thread();
  if (!t.ranges.empty()) violation("NVTX range " + t.ranges.back() + " is open at a reset");
  t.ranges.clear();
  for (std::string& each : violations()) found.push_back(std::move(each));
  clear_violations();
  world_lock const lock(w.mutex);
  ++w.epoch;
  w.devices.assign(2, device_state{});
  w.driver_error = cudaSuccess;
  w.memory_per_device = std::size_t{1} << 40;
  w.multiprocessors = 4;
  w.cuda = {}, w.nccl = {};
  w.launches.clear();
  w.default_stream_uses = 0;
  w.dynamic_shared_limit.clear();
  set_thread_order(order::in_order);
  return found;
}

}  // namespace simt
