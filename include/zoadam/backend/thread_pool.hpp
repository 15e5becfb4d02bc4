// SPDX-License-Identifier: Apache-2.0
// The threads of one rank.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "zoadam/error.hpp"
#include "zoadam/lane/mode.hpp"

namespace zoadam::detail {

/// Runs one loop at a time on a fixed set of threads, the caller among them. Which thread takes which part never
/// changes a result: all sums have an order of their own.
class thread_pool {
 public:
  /// Errors: argument_error for fewer than 1.
  explicit thread_pool(int threads) : size_(threads), shared_(std::make_unique<shared>()) {
    ZOADAM_EXPECTS(threads >= 1, "cpu_backend", "the number of threads must be at least 1");
    for (int i = 1; i < size_; ++i) {
      shared_->threads.emplace_back([s = shared_.get(), i] { work(*s, i); });
    }
  }
  thread_pool(thread_pool&& from) noexcept : size_(std::exchange(from.size_, 1)), shared_(std::move(from.shared_)) {}
  thread_pool& operator=(thread_pool&& from) noexcept {
    std::swap(size_, from.size_);
    std::swap(shared_, from.shared_);
    return *this;
  }
  int size() const noexcept { return size_; }

  /// body(first, last, thread) on consecutive parts of [0, n), whose inner borders are multiples of `grain`.
  template <class Body>
  void parallel(index n, index grain, Body const& body) {
    if (n <= 0) return;
    index const grains = (n + grain - 1) / grain;
    if (size_ == 1 || grains == 1) {
      body(index{0}, n, 0);
      return;
    }
    auto const part = [&](int i) {
      index const first = grains * i / size_ * grain;
      index const last = grains * (i + 1) / size_ * grain;
      if (first < last) body(first, last < n ? last : n, i);
    };
    {
      std::lock_guard lock(shared_->mutex);
      shared_->call = [](void const* f, int i) { (*static_cast<decltype(part) const*>(f))(i); };
      shared_->argument = &part;
      shared_->running = size_ - 1;
      ++shared_->round;
    }
    shared_->start.notify_all();
    part(0);
    std::unique_lock lock(shared_->mutex);
    shared_->done.wait(lock, [&] { return shared_->running == 0; });
  }

 private:
  struct shared {
    std::mutex mutex;
    std::condition_variable start, done;
    void (*call)(void const*, int) = nullptr;
    void const* argument = nullptr;
    index round = 0;
    int running = 0;
    bool stop = false;
    std::vector<std::thread> threads;

    ~shared() {
      {
        std::lock_guard lock(mutex);
        stop = true;
      }
      start.notify_all();
      for (std::thread& t : threads) t.join();
    }
  };

  static void work(shared& s, int i) {
    floating_point_mode const ieee;  // threads inherit the mode of whoever started them
    index seen = 0;
    std::unique_lock lock(s.mutex);
    for (;;) {
      s.start.wait(lock, [&] { return s.stop || s.round != seen; });
      if (s.stop) return;
      seen = s.round;
      auto const call = s.call;
      void const* const argument = s.argument;
      lock.unlock();
      call(argument, i);
      lock.lock();
      if (--s.running == 0) s.done.notify_one();
    }
  }

  int size_;
  std::unique_ptr<shared> shared_;
};

}  // namespace zoadam::detail
