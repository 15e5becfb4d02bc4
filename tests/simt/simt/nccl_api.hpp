// SPDX-License-Identifier: Apache-2.0
// NCCL's functions.
#pragma once

#include "nccl_world.hpp"

#define SIMT_ENTER_NCCL                                                                      \
  simt::world_lock lock(simt::the_world().mutex);                                            \
  if (ncclResult_t const refused = simt::enter_nccl(lock, __func__); refused != ncclSuccess) \
  return simt::fail(refused)
#define SIMT_COMMUNICATOR(comm)                                                                  \
  if (ncclResult_t const wrong = simt::check_communicator(__func__, comm); wrong != ncclSuccess) \
  return simt::fail(wrong)

inline char const* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    case ncclNumResults:
      break;
  }
  return "unknown result code";
}

namespace simt {

inline ncclResult_t enter_nccl(world_lock const& lock, char const* api) {
  world& w = the_world();
  host_thread const& t = this_thread(lock);
  nccl_group& group = this_group();
  if (group.epoch != w.epoch) {
    if (group.depth > 0) violation("a group was open at a reset: ncclGroupEnd is missing");
    group.depth = 0;
    group.error = ncclSuccess;
    group.batches.clear(), group.fresh.clear();
    group.epoch = w.epoch;
  }
  if (int const code = w.nccl.enter(api); code != 0) return static_cast<ncclResult_t>(code);
  if (t.in_host_function) {
    violation(std::string(api) + " called by a function of cudaLaunchHostFunc");
    return ncclInvalidUsage;
  }
  return ncclSuccess;
}
inline ncclResult_t check_devices(world_lock const&) {
  world const& w = the_world();
  if (w.driver_error != cudaSuccess || w.devices.empty()) return ncclUnhandledCudaError;
  return device_of(this_thread().device).sticky == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
/// End of a call that failed; a group that is open fails as a whole.
inline ncclResult_t fail(ncclResult_t code) {
  nccl_group& group = this_group();
  if (group.depth > 0 && group.error == ncclSuccess && code != ncclInProgress) group.error = code;
  if (code != ncclInProgress) group.last_error = ncclGetErrorString(code);
  return code;
}
inline ncclResult_t check_communicator(char const* api, ncclComm_t c) {
  if (c == nullptr) return ncclInvalidArgument;
  if (the_nccl().live.contains(c)) return ncclSuccess;
  violation(std::string(api) + ": destroyed, aborted or unknown communicator");
  return ncclInvalidArgument;
}
/// A communicator whose ranks have met, for calls that need all of them.
inline ncclResult_t check_ready(char const* api, ncclComm_t c) {
  if (ncclResult_t const wrong = check_communicator(api, c); wrong != ncclSuccess) return wrong;
  if (!c->ranks || c->ranks->state != ncclSuccess) return ncclInvalidArgument;
  if (c->busy > 0) violation(std::string(api) + ": the communicator is still busy with an earlier call");
  if (!c->finalized) return ncclSuccess;
  violation(std::string(api) + ": finalized communicator");
  return ncclInvalidUsage;
}

inline ncclResult_t start(world_lock const& lock, batch b) {
  ncclComm_t const c = b.comm;
  CUstream_st& s = *b.stream;
  // Operations of one communicator run in the order of the calls, whatever their streams.
  if (!s.captured_by && c->last && !c->last->done && c->last->stream != &s) push_wait(lock, s, c->last);
  if (enqueue(lock, s, {[b = std::move(b)] { run_batch(b); }}) != cudaSuccess) return ncclUnhandledCudaError;
  if (!s.captured_by) {
    c->last = push_marker(lock, s);
    if (c->ranks->blocked > 0) demand(s, s.enqueued);
  }
  if (c->blocking) return ncclSuccess;
  c->busy = 3;
  return ncclInProgress;
}

/// Checks one operation and starts it, or puts it into the open group.
inline ncclResult_t submit(world_lock const& lock, char const* api, ncclComm_t c, cudaStream_t handle,
                           ncclDataType_t type, int peer, std::vector<task> tasks) {
  nccl_group& group = this_group();
  if (ncclResult_t const wrong = check_ready(api, c); wrong != ncclSuccess) return wrong;
  if (type < 0 || type >= ncclNumTypes || peer < 0 || peer >= c->ranks->size) return ncclInvalidArgument;
  if (device_of(c->device).sticky != cudaSuccess) return ncclUnhandledCudaError;
  CUstream_st* const s = resolve(lock, api, handle);
  if (s == nullptr) return ncclUnhandledCudaError;
  if (s->device != c->device) {
    violation(std::string(api) + ": a stream of another device than the communicator's");
    return ncclInvalidUsage;
  }
  for (task const& t : tasks) {
    if (t.count == 0) continue;
    void const* const data = t.sends ? t.from : t.to;
    memory const kind = classify(lock, api, data, t.count * bytes_of(type));
    if (kind == memory::pageable) violation(std::string(api) + ": pageable host memory");
    if (kind == memory::pageable || kind == memory::invalid) return ncclInvalidArgument;
    if (kind == memory::device && find_allocation(lock, data)->device != c->device)
      violation(std::string(api) + ": memory of another device than the communicator's");
  }
  if (c->in_group_of != std::thread::id{} && c->in_group_of != std::this_thread::get_id()) {
    violation(std::string(api) + ": another thread's open group has operations of this communicator");
    return ncclInvalidUsage;
  }
  if (group.depth == 0) return start(lock, {c, s, std::move(tasks)});
  c->in_group_of = std::this_thread::get_id();
  for (batch& b : group.batches) {
    if (b.comm != c) continue;
    if (b.stream != s) violation(std::string(api) + ": one communicator in two streams of a group is not modelled");
    b.tasks.insert(b.tasks.end(), tasks.begin(), tasks.end());
    return ncclSuccess;
  }
  group.batches.push_back({c, s, std::move(tasks)});
  return ncclSuccess;
}

/// End of an initialization or a split.
inline ncclResult_t finish(world_lock& lock, ncclComm_t* handle, ncclConfig_t const* config) {
  if (this_group().depth > 0) {
    this_group().fresh.push_back(handle);
    return ncclSuccess;
  }
  if (config != nullptr && config->blocking == 0) {
    if (*handle != nullptr) (*handle)->blocking = false;
    return ncclInProgress;
  }
  return complete(lock, handle);
}

inline ncclResult_t init_rank(world_lock& lock, ncclComm_t* comm, int nranks, ncclUniqueId const& id, int rank,
                              ncclConfig_t const* config) {
  if (ncclResult_t const wrong = check_devices(lock); wrong != ncclSuccess) return wrong;
  if (comm == nullptr || nranks < 1 || rank < 0 || rank >= nranks) return ncclInvalidArgument;
  *comm = nullptr;
  auto const known = the_nccl().by_id.find(std::string(id.internal, sizeof id.internal));
  if (known == the_nccl().by_id.end()) {
    violation("ncclCommInitRank: unknown id");
    return ncclInvalidArgument;
  }
  std::shared_ptr<clique>& ranks = known->second;
  if (!ranks) ranks = std::make_shared<clique>(nranks);
  if (ranks->size != nranks || ranks->members[static_cast<std::size_t>(rank)] != nullptr) {
    violation("ncclCommInitRank: the ranks disagree on their number, or a rank came twice");
    return ncclInvalidUsage;
  }
  *comm = new_communicator(ranks, rank, this_thread().device);
  arrive(*ranks, *comm);
  return finish(lock, comm, config);
}

inline task receive(char const* api, void* to, std::size_t count, ncclDataType_t type, int peer) {
  return {false, api, nullptr, to, count, type, peer};
}
inline task sending(char const* api, void const* from, std::size_t count, ncclDataType_t type, int peer) {
  return {true, api, from, nullptr, count, type, peer};
}

}  // namespace simt

inline ncclResult_t ncclGetVersion(int* version) {
  SIMT_ENTER_NCCL;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
inline char const* ncclGetLastError(ncclComm_t) { return simt::this_group().last_error.c_str(); }

inline ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  SIMT_ENTER_NCCL;
  *uniqueId = {};
  std::uint64_t const number = ++simt::the_nccl().ids;
  std::memcpy(uniqueId->internal, &number, sizeof number);
  simt::the_nccl().by_id[std::string(uniqueId->internal, sizeof uniqueId->internal)] = nullptr;
  return ncclSuccess;
}
inline ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  SIMT_ENTER_NCCL;
  ncclResult_t const result = simt::init_rank(lock, comm, nranks, commId, rank, nullptr);
  return result == ncclSuccess ? result : simt::fail(result);
}
inline ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                           ncclConfig_t* config) {
  SIMT_ENTER_NCCL;
  ncclResult_t const result = simt::init_rank(lock, comm, nranks, commId, rank, config);
  return result == ncclSuccess || result == ncclInProgress ? result : simt::fail(result);
}
inline ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, int const* devlist) {
  SIMT_ENTER_NCCL;
  if (ncclResult_t const wrong = simt::check_devices(lock); wrong != ncclSuccess) return simt::fail(wrong);
  if (comm == nullptr || ndev < 1) return simt::fail(ncclInvalidArgument);
  auto const ranks = std::make_shared<simt::clique>(ndev);
  std::set<int> devices;
  for (int i = 0; i < ndev; ++i) {
    int const device = devlist == nullptr ? i : devlist[i];
    if (device < 0 || static_cast<std::size_t>(device) >= simt::the_world().devices.size())
      return simt::fail(ncclUnhandledCudaError);
    if (!devices.insert(device).second) return simt::fail(ncclInvalidUsage);
  }
  for (int i = 0; i < ndev; ++i)
    simt::arrive(*ranks, comm[i] = simt::new_communicator(ranks, i, devlist == nullptr ? i : devlist[i]));
  return ncclSuccess;
}
inline ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  SIMT_ENTER_NCCL;
  if (ncclResult_t const wrong = simt::check_ready(__func__, comm); wrong != ncclSuccess) return simt::fail(wrong);
  if (newcomm == nullptr || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) return simt::fail(ncclInvalidArgument);
  *newcomm = color < 0 ? nullptr : simt::new_communicator(nullptr, 0, comm->device);
  simt::split_round& round = comm->ranks->splits[comm->splits++];
  round.requests.push_back({*newcomm, color, key, comm->rank});
  if (static_cast<int>(round.requests.size()) == comm->ranks->size) simt::split(round);
  ncclResult_t const result = simt::finish(lock, newcomm, config);
  return result == ncclSuccess || result == ncclInProgress ? result : simt::fail(result);
}

inline ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  SIMT_ENTER_NCCL;
  SIMT_COMMUNICATOR(comm);
  if (comm->finalized) return simt::fail(ncclInvalidArgument);
  comm->finalized = true;
  if (auto const last = comm->last) simt::wait(lock, *last);
  return ncclSuccess;
}
// Waits for the operations that were started, as the real one does.
inline ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  SIMT_ENTER_NCCL;
  if (comm == nullptr) return ncclSuccess;
  SIMT_COMMUNICATOR(comm);
  comm->finalized = true;
  if (auto const last = comm->last) simt::wait(lock, *last);
  simt::forget(comm);
  return ncclSuccess;
}
inline ncclResult_t ncclCommAbort(ncclComm_t comm) {
  SIMT_ENTER_NCCL;
  if (comm == nullptr) return ncclSuccess;
  SIMT_COMMUNICATOR(comm);
  simt::abort(comm);
  simt::forget(comm);
  return ncclSuccess;
}
inline ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  SIMT_ENTER_NCCL;
  SIMT_COMMUNICATOR(comm);
  if (asyncError == nullptr) return simt::fail(ncclInvalidArgument);
  bool const busy = comm->busy > 0 && comm->busy-- > 0;
  *asyncError = comm->async_error != ncclSuccess ? comm->async_error
                : busy                           ? ncclInProgress
                : comm->ranks                    ? comm->ranks->state
                                                 : ncclInProgress;
  return ncclSuccess;
}
inline ncclResult_t ncclCommCount(ncclComm_t const comm, int* count) {
  SIMT_ENTER_NCCL;
  SIMT_COMMUNICATOR(comm);
  if (!comm->ranks || comm->ranks->state != ncclSuccess) return simt::fail(ncclInvalidArgument);
  *count = comm->ranks->size;
  return ncclSuccess;
}
inline ncclResult_t ncclCommUserRank(ncclComm_t const comm, int* rank) {
  SIMT_ENTER_NCCL;
  SIMT_COMMUNICATOR(comm);
  if (!comm->ranks || comm->ranks->state != ncclSuccess) return simt::fail(ncclInvalidArgument);
  *rank = comm->rank;
  return ncclSuccess;
}
inline ncclResult_t ncclCommCuDevice(ncclComm_t const comm, int* device) {
  SIMT_ENTER_NCCL;
  SIMT_COMMUNICATOR(comm);
  *device = comm->device;
  return ncclSuccess;
}

inline ncclResult_t ncclGroupStart() {
  SIMT_ENTER_NCCL;
  if (simt::this_group().depth++ == 0) simt::this_group().error = ncclSuccess;
  return ncclSuccess;
}
// A group that failed starts nothing.
inline ncclResult_t ncclGroupEnd() {
  simt::world_lock lock(simt::the_world().mutex);
  ncclResult_t const refused = simt::enter_nccl(lock, __func__);
  simt::nccl_group& group = simt::this_group();
  if (group.depth == 0) {
    if (refused == ncclSuccess) simt::violation("ncclGroupEnd without ncclGroupStart");
    return simt::fail(refused != ncclSuccess ? refused : ncclInvalidUsage);
  }
  if (refused != ncclSuccess && group.error == ncclSuccess) group.error = refused;
  if (--group.depth > 0) return refused;
  auto const batches = std::exchange(group.batches, {});
  auto const fresh = std::exchange(group.fresh, {});
  ncclResult_t result = std::exchange(group.error, ncclSuccess);
  for (simt::batch const& b : batches) {
    b.comm->in_group_of = {};
    if ((result == ncclSuccess || result == ncclInProgress) && simt::the_nccl().live.contains(b.comm)) {
      ncclResult_t const started = simt::start(lock, b);
      if (started != ncclSuccess) result = started;
    }
  }
  for (simt::batch const& b : batches) {  // the peers have to come before their connections are there
    if (!simt::the_nccl().connects || result != ncclSuccess || !b.comm->last) continue;
    auto const last = b.comm->last;
    simt::demand(*last->stream, last->position);
    simt::the_world().progress.wait(lock, [&] { return last->done || b.comm->aborted; });
    if (b.comm->aborted) result = ncclSystemError;
  }
  for (ncclComm_t* handle : fresh)
    if (ncclResult_t const met = simt::complete(lock, handle); result == ncclSuccess) result = met;
  return result == ncclSuccess ? result : simt::fail(result);
}

inline ncclResult_t ncclSend(void const* sendbuff, std::size_t count, ncclDataType_t datatype, int peer,
                             ncclComm_t comm, cudaStream_t stream) {
  SIMT_ENTER_NCCL;
  ncclResult_t const result = simt::submit(lock, __func__, comm, stream, datatype, peer,
                                           {simt::sending(__func__, sendbuff, count, datatype, peer)});
  return result == ncclSuccess ? result : simt::fail(result);
}
inline ncclResult_t ncclRecv(void* recvbuff, std::size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                             cudaStream_t stream) {
  SIMT_ENTER_NCCL;
  ncclResult_t const result = simt::submit(lock, __func__, comm, stream, datatype, peer,
                                           {simt::receive(__func__, recvbuff, count, datatype, peer)});
  return result == ncclSuccess ? result : simt::fail(result);
}
inline ncclResult_t ncclAllGather(void const* sendbuff, void* recvbuff, std::size_t sendcount,
                                  ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  SIMT_ENTER_NCCL;
  if (ncclResult_t const wrong = simt::check_ready(__func__, comm); wrong != ncclSuccess) return simt::fail(wrong);
  if (datatype < 0 || datatype >= ncclNumTypes) return simt::fail(ncclInvalidArgument);
  std::vector<simt::task> tasks;
  for (int peer = 0; peer < comm->ranks->size; ++peer) {
    std::byte* const part =
        static_cast<std::byte*>(recvbuff) + static_cast<std::size_t>(peer) * sendcount * simt::bytes_of(datatype);
    tasks.push_back(simt::sending(__func__, sendbuff, sendcount, datatype, peer));
    tasks.push_back(simt::receive(__func__, part, sendcount, datatype, peer));
  }
  ncclResult_t const result = simt::submit(lock, __func__, comm, stream, datatype, 0, std::move(tasks));
  return result == ncclSuccess ? result : simt::fail(result);
}
inline ncclResult_t ncclBroadcast(void const* sendbuff, void* recvbuff, std::size_t count, ncclDataType_t datatype,
                                  int root, ncclComm_t comm, cudaStream_t stream) {
  SIMT_ENTER_NCCL;
  if (ncclResult_t const wrong = simt::check_ready(__func__, comm); wrong != ncclSuccess) return simt::fail(wrong);
  std::vector<simt::task> tasks{simt::receive(__func__, recvbuff, count, datatype, root)};
  for (int peer = 0; peer < comm->ranks->size && comm->rank == root; ++peer)
    tasks.push_back(simt::sending(__func__, sendbuff, count, datatype, peer));
  ncclResult_t const result = simt::submit(lock, __func__, comm, stream, datatype, root, std::move(tasks));
  return result == ncclSuccess ? result : simt::fail(result);
}
