// SPDX-License-Identifier: Apache-2.0
// NCCL communicators for ranks that are threads, each with a device of its own.
#pragma once

#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "zoadam/transport/nccl.hpp"

namespace suite {

constexpr std::chrono::milliseconds no_hang{60000};

/// They are destroyed at the end, unless a transport gave one up.
class nccl_group {
 public:
  explicit nccl_group(int ranks, std::chrono::milliseconds limit = no_hang, bool blocking = true)
      : comms_(static_cast<std::size_t>(ranks)), watches_(comms_.size()), limit_(limit) {
    ncclUniqueId id;
    expect(ncclGetUniqueId(&id), ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < ranks; ++i) {
      threads.emplace_back([&, i] {
        enter(i);
        expect(ncclCommInitRankConfig(&comms_[static_cast<std::size_t>(i)], ranks, id, i, &config),
               blocking ? ncclSuccess : ncclInProgress);
      });
    }
    for (std::thread& t : threads) t.join();
  }
  nccl_group(nccl_group const&) = delete;
  nccl_group& operator=(nccl_group const&) = delete;
  ~nccl_group() {
    for (std::size_t i = 0; i < comms_.size(); ++i) {
      if (!watches_[i] || !watches_[i]->failed()) expect(ncclCommDestroy(comms_[i]), ncclSuccess);
    }
  }

  static void enter(int i) { ZOADAM_CUDA(cudaSetDevice(i)); }
  zoadam::nccl_transport rank(int i, cudaStream_t stream) {
    zoadam::nccl_transport link(comm(i), stream, limit_);
    watches_[static_cast<std::size_t>(i)] = std::make_unique<zoadam::nccl_watch>(link.watch());
    return link;
  }
  ncclComm_t comm(int i) const { return comms_[static_cast<std::size_t>(i)]; }
  zoadam::nccl_watch const& watch(int i) const { return *watches_[static_cast<std::size_t>(i)]; }

 private:
  static void expect(ncclResult_t got, ncclResult_t wanted) {
    if (got != wanted) throw std::runtime_error(ncclGetErrorString(got));
  }

  std::vector<ncclComm_t> comms_;
  std::vector<std::unique_ptr<zoadam::nccl_watch>> watches_;
  std::chrono::milliseconds limit_;
};

}  // namespace suite
