// SPDX-License-Identifier: Apache-2.0
// CUDA runtime API: streams, events and graphs.
#pragma once

#include "runtime_memory.hpp"

#define SIMT_RESOLVE(s, handle)                                   \
  CUstream_st* const s = simt::resolve(lock, __func__, (handle)); \
  if (s == nullptr) return simt::leave(cudaErrorInvalidResourceHandle)
#define SIMT_CHECK_HANDLE(known, handle, kind)                                 \
  if (!simt::the_streams().known.contains(handle)) {                           \
    simt::violation(std::string(__func__) + ": destroyed or unknown " + kind); \
    return simt::leave(cudaErrorInvalidResourceHandle);                        \
  }

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned flags) {
  SIMT_ENTER;
  if (pStream == nullptr || flags > cudaStreamNonBlocking) return simt::leave(cudaErrorInvalidValue);
  *pStream = simt::create_stream(lock, simt::this_thread().device, flags);
  simt::the_streams().live.insert(*pStream);
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreate(cudaStream_t* pStream) {
  SIMT_ENTER;
  if (pStream == nullptr) return simt::leave(cudaErrorInvalidValue);
  *pStream = simt::create_stream(lock, simt::this_thread().device, cudaStreamDefault);
  simt::the_streams().live.insert(*pStream);
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  SIMT_ENTER_RELEASE;
  SIMT_CHECK_HANDLE(live, stream, "stream")
  if (stream->captured_by) {
    stream->captured_by->invalid = true;
    simt::the_streams().captures.erase(stream->captured_by);
    stream->captured_by = nullptr;
  }
  simt::the_streams().live.erase(stream);
  simt::close_stream(lock, *stream);
  return simt::leave(simt::device_of(stream->device).sticky);
}
inline cudaError_t cudaStreamGetDevice(cudaStream_t hStream, int* device) {
  SIMT_ENTER;
  SIMT_RESOLVE(s, hStream);
  *device = s->device;
  return cudaSuccess;
}
inline cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned* flags) {
  SIMT_ENTER;
  SIMT_RESOLVE(s, hStream);
  *flags = s->flags;
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  SIMT_ENTER;
  SIMT_RESOLVE(s, stream);
  if (s->captured_by) return simt::leave(simt::refuse_in_capture(s->captured_by, cudaErrorStreamCaptureUnsupported));
  simt::drain(lock, *s);
  return simt::leave(simt::observe(lock, s->device));
}
inline cudaError_t cudaStreamQuery(cudaStream_t stream) {
  SIMT_ENTER;
  SIMT_RESOLVE(s, stream);
  if (s->captured_by) return simt::leave(simt::refuse_in_capture(s->captured_by, cudaErrorStreamCaptureUnsupported));
  simt::demand(*s, s->enqueued);
  if (cudaError_t const sticky = simt::observe(lock, s->device); sticky != cudaSuccess) return simt::leave(sticky);
  return simt::leave(s->executed < s->enqueued ? cudaErrorNotReady : cudaSuccess);
}
inline cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  SIMT_ENTER;
  SIMT_RESOLVE(s, stream);
  auto const call = [fn, userData] {
    simt::this_thread().in_host_function = true;
    fn(userData);
    simt::this_thread().in_host_function = false;
  };
  return simt::leave(simt::enqueue(lock, *s, {call}));
}

namespace simt {
inline cudaError_t create_event(world_lock const&, cudaEvent_t* event, unsigned flags) {
  if (event == nullptr || flags > 7) return leave(cudaErrorInvalidValue);
  *event = new CUevent_st;
  (*event)->device = this_thread().device;
  (*event)->flags = flags;
  the_streams().events.insert(*event);
  return cudaSuccess;
}
}  // namespace simt

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  SIMT_ENTER;
  return simt::create_event(lock, event, flags);
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags) {
  return cudaEventCreateWithFlags(event, flags);
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  SIMT_ENTER;
  return simt::create_event(lock, event, cudaEventDefault);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  SIMT_ENTER_RELEASE;
  SIMT_CHECK_HANDLE(events, event, "event")
  int const device = event->device;
  simt::the_streams().events.erase(event);
  delete event;
  return simt::leave(simt::device_of(device).sticky);
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr) {
  SIMT_ENTER;
  SIMT_CHECK_HANDLE(events, event, "event")
  SIMT_RESOLVE(s, stream);
  if (event->device != s->device) {
    simt::violation("cudaEventRecord: the event is of another device than the stream");
    return simt::leave(cudaErrorInvalidResourceHandle);
  }
  event->captured_by = s->captured_by;
  event->captured_on = s;
  if (s->captured_by) return simt::leave(s->captured_by->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
  cudaError_t const result = simt::enqueue(lock, *s, {[] {}});  // orders the default stream
  if (result == cudaSuccess) event->recorded = simt::push_marker(lock, *s);
  return simt::leave(result);
}
inline cudaError_t cudaEventQuery(cudaEvent_t event) {
  SIMT_ENTER;
  SIMT_CHECK_HANDLE(events, event, "event")
  if (event->captured_by) return simt::leave(cudaErrorCapturedEvent);
  if (cudaError_t const refused = simt::refuse_unordered(lock); refused != cudaSuccess) return simt::leave(refused);
  if (cudaError_t const sticky = simt::observe(lock, event->device); sticky != cudaSuccess)
    return simt::leave(sticky);
  if (!event->recorded || event->recorded->done) return cudaSuccess;
  simt::demand(*event->recorded->stream, event->recorded->position);
  return simt::leave(cudaErrorNotReady);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  SIMT_ENTER;
  SIMT_CHECK_HANDLE(events, event, "event")
  if (event->captured_by)
    return simt::leave(simt::refuse_in_capture(event->captured_by, cudaErrorStreamCaptureUnsupported));
  int const device = event->device;
  if (auto const m = event->recorded) simt::wait(lock, *m);
  return simt::leave(simt::observe(lock, device));
}
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  SIMT_ENTER;
  SIMT_CHECK_HANDLE(events, start, "event")
  SIMT_CHECK_HANDLE(events, end, "event")
  if (!start->recorded || !end->recorded || ((start->flags | end->flags) & cudaEventDisableTiming) != 0)
    return simt::leave(cudaErrorInvalidResourceHandle);
  if (!start->recorded->done || !end->recorded->done) return simt::leave(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(end->recorded->time - start->recorded->time).count();
  return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned = 0) {
  SIMT_ENTER;
  SIMT_CHECK_HANDLE(events, event, "event")
  SIMT_RESOLVE(s, stream);
  if (event->captured_by) {
    if (s->captured_by && s->captured_by != event->captured_by) return simt::leave(cudaErrorStreamCaptureMerge);
    if (event->captured_by->invalid) return simt::leave(cudaErrorStreamCaptureInvalidated);
    s->captured_by = event->captured_by;  // a fork, or a join
    s->captured_by->unjoined.erase(event->captured_on);
    if (s != s->captured_by->origin) s->captured_by->unjoined.insert(s);
    return cudaSuccess;
  }
  if (s->captured_by)
    return simt::leave(event->recorded ? simt::refuse_in_capture(s->captured_by, cudaErrorStreamCaptureIsolation)
                                       : cudaSuccess);
  if (!event->recorded) return cudaSuccess;
  return simt::leave(simt::enqueue(lock, *s, {[m = event->recorded] {
                                     simt::world_lock inner(simt::the_world().mutex);
                                     simt::wait(inner, *m);
                                   }}));
}

inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  SIMT_ENTER;
  SIMT_RESOLVE(s, stream);
  if (s == simt::device_of(s->device).default_stream) return simt::leave(cudaErrorStreamCaptureUnsupported);
  if (s->captured_by) return simt::leave(cudaErrorIllegalState);
  s->captured_by = std::make_shared<simt::capture>();
  s->captured_by->mode = mode;
  s->captured_by->owner = std::this_thread::get_id();
  s->captured_by->origin = s;
  simt::the_streams().captures.insert(s->captured_by);
  return cudaSuccess;
}
// Only whether the mode is relaxed has a meaning here.
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  SIMT_ENTER;
  bool const relaxed = *mode == cudaStreamCaptureModeRelaxed;
  *mode = simt::this_thread().captures_relaxed ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeGlobal;
  simt::this_thread().captures_relaxed = relaxed;
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  SIMT_ENTER;
  SIMT_RESOLVE(s, stream);
  *pGraph = nullptr;
  std::shared_ptr<simt::capture> const c = s->captured_by;
  if (!c) return simt::leave(cudaErrorIllegalState);
  if (c->origin != s) return simt::leave(cudaErrorStreamCaptureUnmatched);
  if (c->mode != cudaStreamCaptureModeRelaxed && c->owner != std::this_thread::get_id())
    return simt::leave(cudaErrorStreamCaptureWrongThread);
  simt::the_streams().captures.erase(c);
  for (CUstream_st* each : simt::the_streams().live)
    if (each->captured_by == c) each->captured_by = nullptr;
  for (cudaEvent_t each : simt::the_streams().events)
    if (each->captured_by == c) each->recorded = nullptr, each->captured_by = nullptr;
  if (c->invalid) return simt::leave(cudaErrorStreamCaptureInvalidated);
  if (!c->unjoined.empty()) return simt::leave(cudaErrorStreamCaptureUnjoined);
  *pGraph = new CUgraph_st{std::move(c->work)};
  simt::the_streams().graphs.insert(*pGraph);
  return cudaSuccess;
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* pCaptureStatus) {
  SIMT_ENTER;
  SIMT_RESOLVE(s, stream);
  *pCaptureStatus = !s->captured_by           ? cudaStreamCaptureStatusNone
                    : s->captured_by->invalid ? cudaStreamCaptureStatusInvalidated
                                              : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph, unsigned long long = 0) {
  SIMT_ENTER;
  SIMT_CHECK_HANDLE(graphs, graph, "graph")
  *pGraphExec = new CUgraphExec_st{graph->work};
  simt::the_streams().executables.insert(*pGraphExec);
  return cudaSuccess;
}
inline cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* numNodes) {
  SIMT_ENTER;
  SIMT_CHECK_HANDLE(graphs, graph, "graph")
  if (nodes != nullptr) return simt::leave(cudaErrorNotSupported);
  *numNodes = graph->work.size();
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  SIMT_ENTER;
  SIMT_CHECK_HANDLE(executables, graphExec, "executable graph")
  SIMT_RESOLVE(s, stream);
  for (simt::operation const& each : graphExec->work)
    if (cudaError_t const result = simt::enqueue(lock, *s, each); result != cudaSuccess) return simt::leave(result);
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  SIMT_ENTER_RELEASE;
  SIMT_CHECK_HANDLE(executables, graphExec, "executable graph")
  simt::the_streams().executables.erase(graphExec);
  delete graphExec;
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  SIMT_ENTER_RELEASE;
  SIMT_CHECK_HANDLE(graphs, graph, "graph")
  simt::the_streams().graphs.erase(graph);
  delete graph;
  return cudaSuccess;
}
