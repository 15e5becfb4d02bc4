// SPDX-License-Identifier: Apache-2.0
// Runs a function on n thread ranks and collects what it throws.
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "zoadam/error.hpp"
#include "zoadam/transport/thread.hpp"

namespace suite {

using std::chrono::milliseconds;
using zoadam::index;

inline constexpr milliseconds patient{60000};

constexpr std::size_t nth(index i) noexcept { return static_cast<std::size_t>(i); }

enum class outcome { ok, argument, mismatch, timeout, aborted, poisoned, other };

inline doctest::String toString(outcome o) {
  constexpr char const* names[] = {"ok", "argument", "mismatch", "timeout", "aborted", "poisoned", "other"};
  return names[static_cast<int>(o)];
}

/// How a call ended, and the text of its exception.
struct ending {
  outcome what = outcome::ok;
  std::string text;
};

template <class Function>
ending ending_of(Function&& function) {
  try {
    function();
    return {};
  } catch (zoadam::argument_error const& e) {
    return {outcome::argument, e.what()};
  } catch (zoadam::mismatch_error const& e) {
    return {outcome::mismatch, e.what()};
  } catch (zoadam::timeout_error const& e) {
    return {outcome::timeout, e.what()};
  } catch (zoadam::aborted_error const& e) {
    return {outcome::aborted, e.what()};
  } catch (zoadam::poisoned_error const& e) {
    return {outcome::poisoned, e.what()};
  } catch (std::exception const& e) {
    return {outcome::other, e.what()};
  } catch (...) {
    return {outcome::other, "not a std::exception"};
  }
}

inline bool mentions(ending const& e, std::string const& words) { return e.text.find(words) != std::string::npos; }

/// Calls f(transport) on each of n ranks, a thread each, and says how each call ended.
template <class Function>
std::vector<ending> on_ranks(int n, Function f, milliseconds time_limit = patient) {
  zoadam::thread_group group(n, time_limit);
  std::vector<ending> endings(nth(n));
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) {
    threads.emplace_back([&f, &endings, i, link = group.rank(i)]() mutable {
      endings[nth(i)] = ending_of([&] { f(std::move(link)); });
    });
  }
  for (std::thread& t : threads) t.join();
  return endings;
}

/// The same where nothing may go wrong.
template <class Function>
void on_all_ranks(int n, Function f) {
  for (ending const& e : on_ranks(n, std::move(f))) {
    INFO(e.text);
    CHECK(e.what == outcome::ok);
  }
}

}  // namespace suite
