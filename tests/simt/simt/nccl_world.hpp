// SPDX-License-Identifier: Apache-2.0
// Communicators between threads: how ranks meet, and how their messages are matched in the streams' workers.
#pragma once

#include "nccl_types.hpp"
#include "streams.hpp"

namespace simt {

/// What one rank sends to another; a collective is one message per pair of ranks.
struct message {
  char const* call;
  void const* data;
  std::size_t count;
  ncclDataType_t type;
  ncclComm_t from;
  bool taken = false;
};

struct split_round {
  struct request {
    ncclComm_t fresh;  // null without a color
    int color, key, rank;
  };
  std::vector<request> requests;
};

/// Ranks that share a communicator.
struct clique {
  explicit clique(int n)
      : size(n),
        members(static_cast<std::size_t>(n)),
        mail(static_cast<std::size_t>(n) * static_cast<std::size_t>(n)) {}
  std::deque<std::shared_ptr<message>>& box(int from, int to) {
    return mail[static_cast<std::size_t>(from * size + to)];
  }
  int size;
  int arrived = 0;
  ncclResult_t state = ncclInProgress;  // until all ranks arrived
  std::vector<ncclComm_t> members;
  std::vector<std::deque<std::shared_ptr<message>>> mail;
  std::map<int, split_round> splits;  // by how many splits came before
  int blocked = 0;                    // operations that wait for a peer
};

}  // namespace simt

struct ncclComm {
  std::shared_ptr<simt::clique> ranks;
  int rank = 0;
  int device = 0;
  bool finalized = false, aborted = false, destroyed = false;
  bool blocking = true;
  int busy = 0;  // queries until a non-blocking communicator has done what it was asked
  ncclResult_t async_error = ncclSuccess;
  int splits = 0;
  int sends_alone_to = -1;             // the peer of a send outside of a group that waits
  std::shared_ptr<simt::marker> last;  // after its last operation
  std::thread::id in_group_of;         // the thread whose open group has operations of this communicator
};

namespace simt {

struct task {
  bool sends;
  char const* call;
  void const* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  int peer;
};
/// The operations of one communicator that one group starts together.
struct batch {
  ncclComm_t comm;
  CUstream_st* stream;
  std::vector<task> tasks;
};

struct nccl_world {
  std::set<ncclComm_t> live;
  std::vector<std::unique_ptr<ncclComm>> all;
  std::map<std::string, std::shared_ptr<clique>> by_id;
  std::uint64_t ids = 0;
  bool connects = false;                      // a group's end waits for its peers
  std::chrono::milliseconds patience{10000};  // of a blocking initialization whose peers do not come
};
inline nccl_world& the_nccl() {
  static nccl_world& own = *new nccl_world;
  return own;
}

/// A host thread's open group.
struct nccl_group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<batch> batches;
  std::vector<ncclComm_t*> fresh;  // to be complete at its end
  std::string last_error;
  std::uint64_t epoch = 0;
  ~nccl_group() {
    if (depth > 0) violation("a thread ends inside of a group: ncclGroupEnd is missing");
  }
};
inline nccl_group& this_group() {
  the_world();
  static thread_local nccl_group own;
  return own;
}

inline std::size_t bytes_of(ncclDataType_t type) {
  constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

inline ncclComm_t new_communicator(std::shared_ptr<clique> ranks, int rank, int device) {
  auto owned = std::make_unique<ncclComm>();
  ncclComm_t const c = owned.get();
  c->ranks = std::move(ranks);
  c->rank = rank;
  c->device = device;
  the_nccl().all.push_back(std::move(owned));
  the_nccl().live.insert(c);
  return c;
}

/// The last rank to arrive decides for all.
inline void arrive(clique& ranks, ncclComm_t c) {
  ranks.members[static_cast<std::size_t>(c->rank)] = c;
  if (++ranks.arrived < ranks.size) return;
  std::set<int> devices;
  for (ncclComm_t member : ranks.members) devices.insert(member->device);
  ranks.state = devices.size() == ranks.members.size() ? ncclSuccess : ncclInvalidUsage;
  the_world().progress.notify_all();
}

inline void forget(ncclComm_t c) {
  the_nccl().live.erase(c);
  c->destroyed = true;
}

/// Waits until a communicator's ranks have met; a failed one is forgotten and its handle becomes null.
inline ncclResult_t complete(world_lock& lock, ncclComm_t* handle) {
  ncclComm_t const c = *handle;
  if (c == nullptr) return ncclSuccess;
  auto const met = [&] { return c->aborted || (c->ranks && c->ranks->state != ncclInProgress); };
  ncclResult_t result = ncclSystemError;
  if (the_world().progress.wait_for(lock, the_nccl().patience, met))
    result = c->aborted ? ncclInternalError : c->ranks->state;
  else
    violation("a communicator waited in vain for its other ranks");
  if (result != ncclSuccess) {
    forget(c);
    *handle = nullptr;
  }
  return result;
}

/// When all ranks of a communicator have asked for a split, makes the new ones.
inline void split(split_round& round) {
  std::map<int, std::vector<split_round::request>> by_color;
  for (split_round::request const& each : round.requests)
    if (each.fresh != nullptr) by_color[each.color].push_back(each);
  for (auto& [color, requests] : by_color) {
    std::sort(requests.begin(), requests.end(),
              [](auto const& a, auto const& b) { return std::pair(a.key, a.rank) < std::pair(b.key, b.rank); });
    auto const ranks = std::make_shared<clique>(static_cast<int>(requests.size()));
    int rank = 0;
    for (split_round::request const& each : requests) {
      each.fresh->ranks = ranks;
      each.fresh->rank = rank++;
      arrive(*ranks, each.fresh);
    }
  }
  the_world().progress.notify_all();
}

/// Lets everything that waits in this communicator's operations go on without data.
inline void abort(ncclComm_t c) {
  c->aborted = true;
  if (c->ranks)
    for (auto& box : c->ranks->mail) std::erase_if(box, [&](auto const& m) { return m->from == c; });
  if (c->last) demand(*c->last->stream, c->last->position);
  the_world().progress.notify_all();
}

/// Whether sends outside of groups wait for each other in a ring.
inline bool sends_deadlock(ncclComm_t c) {
  ncclComm_t at = c;
  for (int steps = 0; steps < c->ranks->size && at != nullptr && at->sends_alone_to >= 0; ++steps) {
    at = c->ranks->members[static_cast<std::size_t>(at->sends_alone_to)];
    if (at == c) return true;
  }
  return false;
}

/// Runs in a stream's worker: posts all sends, takes all receives, waits until the sends are taken.
inline void run_batch(batch const& b) {
  world& w = the_world();
  world_lock lock(w.mutex);
  ncclComm_t const c = b.comm;
  clique& ranks = *c->ranks;
  if (c->destroyed && !c->aborted) violation("a graph runs an operation of a destroyed communicator");
  if (c->destroyed || c->aborted) return;
  std::vector<std::shared_ptr<message>> sent;
  for (task const& t : b.tasks) {
    if (!t.sends) continue;
    sent.push_back(std::make_shared<message>(message{t.call, t.from, t.count, t.type, c}));
    ranks.box(c->rank, t.peer).push_back(sent.back());
  }
  w.progress.notify_all();
  ++ranks.blocked;
  for (ncclComm_t member : ranks.members)  // the peers' streams may be lazy
    if (member->last) demand(*member->last->stream, member->last->position);
  if (b.tasks.size() == 1 && b.tasks[0].sends && std::string_view(b.tasks[0].call) == "ncclSend") {
    c->sends_alone_to = b.tasks[0].peer;
    if (sends_deadlock(c)) violation("ncclSend outside of a group: the ranks' sends wait for each other");
  }
  for (task const& t : b.tasks) {
    if (t.sends) continue;
    auto& box = ranks.box(t.peer, c->rank);
    w.progress.wait(lock, [&] { return c->aborted || !box.empty(); });
    if (c->aborted) break;
    std::shared_ptr<message> const m = box.front();
    box.pop_front();
    bool const same_call = std::string_view(m->call) == t.call ||
                           (std::string_view(m->call) == "ncclSend" && std::string_view(t.call) == "ncclRecv");
    if (!same_call || m->count != t.count || m->type != t.type)
      violation("rank " + std::to_string(t.peer) + " in " + m->call + " sends " + std::to_string(m->count) +
                " of type " + std::to_string(m->type) + ", rank " + std::to_string(c->rank) + " in " + t.call +
                " expects " + std::to_string(t.count) + " of type " + std::to_string(t.type));
    std::size_t bytes = std::min(m->count * bytes_of(m->type), t.count * bytes_of(t.type));
    for (void const* p : {m->data, static_cast<void const*>(t.to)}) {
      // A free in stream order, which comes after this, is none yet.
      if (bytes == 0 || find_allocation(lock, p) != nullptr || !was_freed(lock, p)) continue;
      violation(std::string(t.call) + ": " + text(p, bytes) + " was freed before the operation ran");
      bytes = 0;
    }
    if (bytes > 0) std::memmove(t.to, m->data, bytes);
    m->taken = true;
    m->from->sends_alone_to = -1;
    w.progress.notify_all();
  }
  w.progress.wait(lock, [&] {
    return c->aborted || std::all_of(sent.begin(), sent.end(), [](auto const& m) { return m->taken; });
  });
  c->sends_alone_to = -1;
  --ranks.blocked;
}

inline bool const nccl_registered = [] {
  the_world().leak_sources.push_back([](std::vector<std::string>& found) {
    for (ncclComm_t c : the_nccl().live) found.push_back("communicator of rank " + std::to_string(c->rank));
  });
  the_world().reset_steps.push_back([] {
    if (!the_world().ending) {
      nccl_group& group = this_group();
      if (group.depth > 0) violation("a group is open at a reset: ncclGroupEnd is missing");
      group.depth = 0;
      group.batches.clear(), group.fresh.clear();
    }
    for (auto const& c : the_nccl().all) abort(c.get());
    the_nccl().live.clear(), the_nccl().by_id.clear();
    the_nccl().patience = std::chrono::milliseconds(10000);
    the_nccl().connects = false;
  });
  the_world().after_reset.push_back([] { the_nccl().all.clear(); });
  return true;
}();

/// ncclCommGetAsyncError of the live communicators of this rank reports code.
inline void nccl_async_error(int rank, ncclResult_t code) {
  world_lock const lock(the_world().mutex);
  for (ncclComm_t c : the_nccl().live)
    if (c->rank == rank) c->async_error = code;
}
/// Whether the host waits in ncclGroupEnd for the peers, as it does where connections are set up.
inline void set_nccl_connects(bool on) {
  world_lock const lock(the_world().mutex);
  the_nccl().connects = on;
}
/// How long a blocking initialization waits for its other ranks before it fails; 10 s.
inline void set_nccl_patience(std::chrono::milliseconds limit) {
  world_lock const lock(the_world().mutex);
  the_nccl().patience = limit;
}

}  // namespace simt
