// SPDX-License-Identifier: Apache-2.0
// Paired timing, the table that a bench prints and the file that it writes.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

/// One line of the table.
struct row {
  std::string name;
  int threads;
  double ns_per_element;
  double bytes_per_element;
  double fraction_of_copy;
};

inline double median(std::vector<double> values) {
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Seconds of the loop under test, and of its copy over those of the loop: medians over rounds.
struct timing {
  double seconds, fraction_of_copy;
};

/// Times `loop` and `copy` in turns, after one untimed run of each. The two runs of a round follow each other at
/// once, so that what else the machine does hits both alike, and rounds begin with each of them by turns.
template <class Loop, class Copy>
timing time_in_turns(int rounds, Loop const& loop, Copy const& copy) {
  auto const seconds = [](auto const& f) {
    auto const start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  loop();
  copy();
  std::vector<double> loops, fractions;
  for (int i = 0; i < rounds; ++i) {
    double mine = 0, theirs = 0;
    if (i % 2 == 0) mine = seconds(loop);
    theirs = seconds(copy);
    if (i % 2 != 0) mine = seconds(loop);
    loops.push_back(mine);
    fractions.push_back(theirs / mine);
  }
  return {median(loops), median(fractions)};
}

/// Facts about the machine and the build, by name.
using facts = std::vector<std::pair<std::string, std::string>>;

inline facts machine(char const* isa, int rounds, long long elements) {
  std::string model = "unknown", line;
  for (std::ifstream in("/proc/cpuinfo"); std::getline(in, line);) {
    if (line.rfind("model name", 0) == 0) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  return {
    {"cpu", model}, {"hardware_threads", std::to_string(std::thread::hardware_concurrency())},
#if defined(__clang__)
        {"compiler", "clang " __clang_version__},
#else
        {"compiler", "g++ " __VERSION__},
#endif
        {"build", ZOADAM_BENCH_CONFIG}, {"instruction_set", isa}, {"elements", std::to_string(elements)}, {
      "rounds", std::to_string(rounds)
    }
  };
}

inline void print(facts const& about) {
  for (auto const& [name, value] : about) std::printf("%-16s  %s\n", name.c_str(), value.c_str());
  std::printf("\n%-42s %7s %10s %10s %7s %8s\n", "loop", "threads", "ns/element", "B/element", "GB/s", "of copy");
}

inline void print(row const& r) {
  std::printf("%-42s %7d %10.3f %10.3f %7.1f %8.3f\n", r.name.c_str(), r.threads, r.ns_per_element,
              r.bytes_per_element, r.bytes_per_element / r.ns_per_element, r.fraction_of_copy);
  std::fflush(stdout);
}

/// {"machine": {...}, "rows": [{...}, ...]}; false if the file cannot be written. Names hold no character that JSON
/// would have to escape.
inline bool write_json(std::string const& path, facts const& about, std::vector<row> const& rows) {
  std::FILE* const f = std::fopen(path.c_str(), "w");
  if (!f) return false;
  char const* separator = "{\n  \"machine\": {";
  for (auto const& [name, value] : about) {
    std::fprintf(f, "%s\"%s\": \"%s\"", separator, name.c_str(), value.c_str());
    separator = ", ";
  }
  separator = "},\n  \"rows\": [\n";
  for (row const& r : rows) {
    std::fprintf(f,
                 "%s    {\"name\": \"%s\", \"threads\": %d, \"ns_per_element\": %.6g, \"bytes_per_element\": %.6g, "
                 "\"fraction_of_copy\": %.6g}",
                 separator, r.name.c_str(), r.threads, r.ns_per_element, r.bytes_per_element, r.fraction_of_copy);
    separator = ",\n";
  }
  std::fprintf(f, "\n  ]\n}\n");
  return std::fclose(f) == 0;
}

}  // namespace bench
