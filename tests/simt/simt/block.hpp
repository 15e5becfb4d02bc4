// SPDX-License-Identifier: Apache-2.0
// Runs a grid: blocks one after the other, each thread of a block on a fiber that switches only at barriers and warp
// operations.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cuda_types.hpp"
#include "fiber.hpp"

inline thread_local uint3 threadIdx{};
inline thread_local uint3 blockIdx{};
inline thread_local dim3 blockDim{};
inline thread_local dim3 gridDim{};
inline constexpr int warpSize = 32;

namespace simt {

/// Order in which the threads of a block, and the blocks of a grid, run between barriers.
enum class order { in_order, reversed, shuffled };

namespace detail {
inline std::atomic<order> current_order{order::in_order};
inline std::atomic<unsigned> order_seed{0};
}  // namespace detail

inline void set_thread_order(order o, unsigned seed = 0) {
  detail::current_order = o;
  detail::order_seed = seed;
}

/// What a device did wrong.
struct device_fault {
  cudaError_t code;
  std::string what;
};

struct grid_shape {
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  unsigned threads() const { return block.x * block.y * block.z; }
  std::size_t blocks() const { return std::size_t{grid.x} * grid.y * grid.z; }
};

/// What threads wait for. The first three are barriers of the block, the others of lanes of a warp.
enum class wait_for { none, syncthreads, syncthreads_count, syncwarp, ballot, shuffle };

inline char const* name_of(wait_for w) {
  constexpr char const* names[] = {"nothing",    "__syncthreads", "__syncthreads_count/and/or",
                                   "__syncwarp", "a vote",        "a shuffle"};
  return names[static_cast<int>(w)];
}

inline std::string text(uint3 v) {
  return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}

/// Executes grids on the calling host thread; keeps its fibers for the next one.
class executor {
 public:
  static executor& of_this_thread() {
    static thread_local executor own;
    return own;
  }
  /// The executor that runs the calling device code; null on the host.
  static executor*& active() {
    static thread_local executor* current = nullptr;
    return current;
  }

  /// call(arguments) runs one device thread.
  std::optional<device_fault> run(grid_shape const& shape, void (*call)(void const*), void const* arguments) {
    shape_ = shape;
    call_ = call;
    arguments_ = arguments;
    fault_.reset();
    order const o = detail::current_order;
    std::minstd_rand random(detail::order_seed + 1u);
    threads_.assign(shape.threads(), device_thread{});
    indices_.clear();
    for (std::size_t i = 0; i < threads_.size(); ++i) indices_.push_back(index_in(i, shape.block));
    thread_order_ = permutation(threads_.size(), o, random);
    std::vector<std::size_t> const blocks = permutation(shape.blocks(), o, random);
    blockDim = shape.block;
    gridDim = shape.grid;
    active() = this;
    for (std::size_t b : blocks) {
      blockIdx = index_in(b, shape.grid);
      if (o == order::shuffled) std::shuffle(thread_order_.begin(), thread_order_.end(), random);
      run_block();
      if (fault_) break;
    }
    active() = nullptr;
    return std::move(fault_);
  }

  std::byte* dynamic_shared() { return shared_.get() + canary_bytes; }

  /// Waits for all threads of the block; returns how many of them gave a true predicate.
  int block_barrier(wait_for kind, bool predicate) {
    device_thread& self = threads_[current_];
    if (arrived_ > 0 && barrier_ != kind) {
      fault(cudaErrorLaunchFailure, "barrier divergence: arrives at %s while others wait at %s", name_of(kind),
            name_of(barrier_));
    }
    barrier_ = kind;
    self.waits = kind;
    predicates_ += predicate ? 1 : 0;
    if (++arrived_ == threads_.size()) {
      for (device_thread& each : threads_) {
        each.waits = wait_for::none;
        each.result = static_cast<std::uint64_t>(predicates_);
      }
      arrived_ = 0;
      predicates_ = 0;
    }
    yield();
    return static_cast<int>(threads_[current_].result);
  }

  /// Waits for the lanes of mask. A shuffle returns the value of lane `source`, a vote the bits of true predicates.
  std::uint64_t warp_operation(wait_for kind, unsigned mask, std::uint64_t value, unsigned source) {
    device_thread& self = threads_[current_];
    std::size_t const base = current_ / 32 * 32;
    if ((mask >> (current_ - base) & 1u) == 0)
      fault(cudaErrorLaunchFailure, "lane is not in the mask of its own %s", name_of(kind));
    if (kind == wait_for::shuffle && ((mask >> source & 1u) == 0 || base + source >= threads_.size()))
      fault(cudaErrorLaunchFailure, "shuffle reads lane %u, which does not take part", source);
    self.waits = kind;
    self.mask = mask;
    self.value = value;
    self.source = source;
    unsigned votes = 0;
    bool complete = true;
    each_lane(base, mask, [&](device_thread const& lane, unsigned bit) {
      complete = complete && lane.waits == kind && lane.mask == mask;
      votes |= lane.value != 0 ? bit : 0;
    });
    if (complete) {
      each_lane(base, mask, [&](device_thread& lane, unsigned) {
        lane.result = kind == wait_for::shuffle ? threads_[base + lane.source].value : votes;
      });
      each_lane(base, mask, [](device_thread& lane, unsigned) { lane.waits = wait_for::none; });
    }
    yield();
    return threads_[current_].result;
  }
  unsigned lane() const { return static_cast<unsigned>(current_ % 32); }

  /// Ends the whole grid; the fibers are abandoned where they are, so that callers must own nothing.
  [[noreturn, gnu::format(printf, 3, 4)]] void fault(cudaError_t code, char const* format, ...) {
    char what[200];
    std::va_list values;
    va_start(values, format);
    std::vsnprintf(what, sizeof what, format, values);
    va_end(values);
    set_fault(code, "thread " + text(threadIdx) + ": " + what);
    switch_context(threads_[current_].on->place, scheduler_);
    __builtin_unreachable();
  }

 private:
  static constexpr std::size_t canary_bytes = 256;

  struct device_thread {
    fiber* on = nullptr;
    wait_for waits = wait_for::none;
    bool done = false;
    unsigned mask = 0, source = 0;
    std::uint64_t value = 0, result = 0;
  };

  static std::vector<std::size_t> permutation(std::size_t n, order o, std::minstd_rand& random) {
    std::vector<std::size_t> indices(n);
    std::iota(indices.begin(), indices.end(), std::size_t{0});
    if (o == order::reversed) std::reverse(indices.begin(), indices.end());
    if (o == order::shuffled) std::shuffle(indices.begin(), indices.end(), random);
    return indices;
  }
  static uint3 index_in(std::size_t i, dim3 shape) {
    return {static_cast<unsigned>(i % shape.x), static_cast<unsigned>(i / shape.x % shape.y),
            static_cast<unsigned>(i / shape.x / shape.y)};
  }
  template <class Function>
  void each_lane(std::size_t base, unsigned mask, Function function) {
    for (std::size_t i = base; i < std::min(base + 32, threads_.size()); ++i)
      if (unsigned const bit = 1u << (i - base); (mask & bit) != 0) function(threads_[i], bit);
  }
  void set_fault(cudaError_t code, std::string what) {
    fault_ = device_fault{code, "block " + text(blockIdx) + " " + std::move(what)};
  }

  void run_block() {
    prepare_shared();
    std::fill(threads_.begin(), threads_.end(), device_thread{});
    next_ = done_ = arrived_ = 0;
    predicates_ = 0;
    while (done_ < threads_.size() && !fault_) {
      bool progress = next_ < threads_.size();
      while (next_ < threads_.size() && !fault_) resume(idle_fiber());
      for (std::size_t i : thread_order_) {
        device_thread& each = threads_[i];
        if (fault_ || each.done || each.waits != wait_for::none) continue;
        progress = true;
        select(i);
        resume(*each.on);
      }
      if (!progress) report_divergence();
    }
    if (!fault_ && !shared_intact())
      set_fault(cudaErrorIllegalAddress,
                "wrote outside of its " + std::to_string(shape_.shared_bytes) + " bytes of dynamic shared memory");
    if (fault_)
      for (std::unique_ptr<fiber>& each : fibers_) each->abandon();
    idle_.clear();
    for (std::unique_ptr<fiber>& each : fibers_) idle_.push_back(each.get());
  }

  // Runs the threads that no fiber has started, one after the other, until one of them waits.
  static void fiber_main() {
    executor& self = *active();
    arrive_in_fiber(self.scheduler_);
    fiber& own = *self.running_;
    for (;;) {
      while (self.next_ < self.threads_.size()) {
        self.select(self.thread_order_[self.next_++]);
        std::size_t const mine = self.current_;
        self.threads_[mine].on = &own;
        self.call_(self.arguments_);
        self.threads_[mine].done = true;
        ++self.done_;
      }
      self.idle_.push_back(&own);
      switch_context(own.place, self.scheduler_);
    }
  }

  fiber& idle_fiber() {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<fiber>());
      idle_.push_back(fibers_.back().get());
    }
    fiber& f = *idle_.back();
    idle_.pop_back();
    if (!f.started) f.start(&executor::fiber_main);
    return f;
  }
  void select(std::size_t i) {
    current_ = i;
    threadIdx = indices_[i];
  }
  void resume(fiber& f) {
    running_ = &f;
#if defined(SIMT_TSAN)
    scheduler_.shadow = __tsan_get_current_fiber();
#endif
    switch_context(scheduler_, f.place);
  }
  void yield() { switch_context(threads_[current_].on->place, scheduler_); }

  void report_divergence() {
    std::size_t exited = 0, first = threads_.size();
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      exited += threads_[i].done ? 1 : 0;
      if (!threads_[i].done && (first == threads_.size() || threads_[i].waits != threads_[first].waits)) first = i;
    }
    set_fault(cudaErrorLaunchFailure, "thread " + text(indices_[first]) + ": barrier divergence: waits at " +
                                          name_of(threads_[first].waits) + " for threads that do not come (" +
                                          std::to_string(exited) + " of " + std::to_string(threads_.size()) +
                                          " have exited)");
  }

  void prepare_shared() {
    std::size_t const bytes = shape_.shared_bytes + 2 * canary_bytes;
    if (bytes > capacity_) {
      shared_.reset(static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256)));
      if (!shared_) throw std::bad_alloc();
      capacity_ = bytes;
    }
    std::memset(shared_.get(), 0xa5, canary_bytes);
    std::memset(dynamic_shared(), 0xff, shape_.shared_bytes);
    std::memset(dynamic_shared() + shape_.shared_bytes, 0xa5, canary_bytes);
  }
  bool shared_intact() {
    auto const intact = [](std::byte const* p) {
      return std::all_of(p, p + canary_bytes, [](std::byte b) { return b == std::byte{0xa5}; });
    };
    return intact(shared_.get()) && intact(dynamic_shared() + shape_.shared_bytes);
  }

  struct release {
    void operator()(std::byte* p) const { std::free(p); }
  };

  grid_shape shape_;
  void (*call_)(void const*) = nullptr;
  void const* arguments_ = nullptr;
  std::optional<device_fault> fault_;
  std::vector<device_thread> threads_;
  std::vector<uint3> indices_;
  std::vector<std::size_t> thread_order_;
  std::vector<std::unique_ptr<fiber>> fibers_;
  std::vector<fiber*> idle_;
  context scheduler_;
  fiber* running_ = nullptr;
  std::size_t current_ = 0, next_ = 0, done_ = 0, arrived_ = 0;
  wait_for barrier_ = wait_for::none;
  int predicates_ = 0;
  std::unique_ptr<std::byte, release> shared_;
  std::size_t capacity_ = 0;
};

/// Dynamic shared memory of the calling block, aligned to 16 bytes, full of 0xff bytes at its start.
inline std::byte* dynamic_shared() { return executor::active()->dynamic_shared(); }

/// Whether results depend on the order of threads: runs several orders; run() returns comparable bytes.
template <class Run>
bool is_racy(Run run) {
  order const before = detail::current_order;
  unsigned const seed_before = detail::order_seed;
  set_thread_order(order::in_order);
  auto const expected = run();
  bool differs = false;
  set_thread_order(order::reversed);
  differs = !(run() == expected);
  for (unsigned seed = 1; seed <= 4 && !differs; ++seed) {
    set_thread_order(order::shuffled, seed);
    differs = !(run() == expected);
  }
  set_thread_order(before, seed_before);
  return differs;
}

}  // namespace simt
