// SPDX-License-Identifier: Apache-2.0
// Compares the ranks' records with the tensors of a case file.
#pragma once

#include "rank.hpp"

#include <zoadam/options.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace conformance {

/// Collects the worst relative errors, and the reasons why a case fails.
class comparison {
 public:
  comparison(test_case const& c, std::vector<record> const& ranks) : case_(c), ranks_(ranks) {
    if (c.algorithm == "onebit_allreduce") {
      each_element("output", shape::rows, tight);
      errors();
      rank_groups();
    } else if (c.algorithm == "zero_one_adam") {
      each_element("params", shape::rows_of_workers, tight);
      each_element("m", shape::workers, tight);
      each_element("v", shape::plain, tight);
      each_element("u", shape::workers, loose);
      errors();
      schedule("synced");
      schedule("variance_updated");
    } else if (c.published()) {
      each_element("params", shape::rows_of_workers, tight);
      each_element("m", shape::workers, tight);
      each_element("v", shape::workers, tight);
    } else if (c.algorithm == "sharded_onebit_adam") {
      each_element("params", shape::rows, tight);
      of_owners("m", tight);
      of_owners("v", tight);
      errors();
    } else {
      each_element("params", shape::rows, tight);
      each_element("m", shape::plain, tight);
      each_element("v", shape::plain, tight);
      errors();
    }
    replicas();
  }

  /// " params 1.2e-07 m 3.4e-07": what was compared, exact comparisons by name only.
  std::string const& summary() const { return summary_; }
  /// Empty if the case passed.
  std::string const& failures() const { return failures_; }

 private:
  // Relative to the largest magnitude of the tensor; where that is 0, absolute.
  static constexpr double tight = 1e-5;
  static constexpr double loose = 1e-4;
  static constexpr double of_zero = 1e-7;

  // plain: [d]; workers: [n, d]; rows: [steps, d]; rows_of_workers: [steps, n, d].
  enum class shape { plain, workers, rows, rows_of_workers };

  void fail(std::string const& reason) { failures_ += (failures_.empty() ? "" : "; ") + reason; }

  void each_element(std::string const& name, shape form, double tolerance) {
    bool const by_worker = form == shape::workers || form == shape::rows_of_workers;
    bool const by_step = form == shape::rows || form == shape::rows_of_workers;
    auto const d = size(case_.elements), rows = by_step ? size(case_.steps) : 1, n = ranks_.size();
    std::vector<index> extents;
    if (by_step) extents.push_back(case_.steps);
    if (by_worker) extents.push_back(case_.workers);
    extents.push_back(case_.elements);
    auto const expected = case_.file.numbers(name, extents);

    std::vector<double> wanted, got;
    for (std::size_t i = 0; i < n; ++i) {
      auto const& values = ranks_[i].values.at(name);
      if (values.size() != rows * d) return fail(name + ": rank " + std::to_string(i) + " has another length");
      for (std::size_t k = 0; k < rows * d; ++k) {
        wanted.push_back(by_worker ? expected[(k / d * n + i) * d + k % d] : expected[k]);
        got.push_back(static_cast<double>(values[k]));
      }
    }
    judge(name, wanted, got, tolerance);
  }

  void judge(std::string const& name, std::vector<double> const& wanted, std::vector<double> const& got,
             double tolerance) {
    double largest = 0, worst = 0;
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      if (!zoadam::detail::finite(wanted[k])) return fail(name + ": the file holds a number that is not finite");
      if (!zoadam::detail::finite(got[k])) return fail(name + " is not finite");
      largest = std::fmax(largest, std::fabs(wanted[k]));
      worst = std::fmax(worst, std::fabs(got[k] - wanted[k]));
    }
    double const error = largest > 0 ? worst / largest : worst;
    double const bound = largest > 0 ? tolerance : of_zero;
    char text[64];
    std::snprintf(text, sizeof text, " %.1e", error);
    summary_ += " " + name + text;
    if (error <= bound) return;
    std::snprintf(text, sizeof text, " is off by %.2e, allowed %.0e", error, bound);
    fail(name + text);
  }

  void errors() {
    each_element("worker_error", shape::workers, loose);
    of_owners("server_error", loose);
  }

  // Each element's value is on its owner.
  void of_owners(std::string const& name, double tolerance) {
    auto const d = size(case_.elements);
    std::vector<double> got(d);
    std::vector<bool> owned(d);
    for (auto const& g : ranks_[0].rank_groups) {
      for (auto k = size(g[1]); k < size(g[2]); ++k) {
        if (owned[k]) return fail(name + ": element " + std::to_string(k) + " has two owners");
        owned[k] = true;
        got[k] = static_cast<double>(ranks_.at(size(g[0])).values.at(name)[k]);
      }
    }
    for (std::size_t k = 0; k < d; ++k)
      if (!owned[k]) return fail(name + ": element " + std::to_string(k) + " has no owner");
    judge(name, case_.file.numbers(name, {case_.elements}), got, tolerance);
  }

  void rank_groups() {
    summary_ += " rank_groups";
    if (ranks_[0].rank_groups != case_.file.value<std::vector<std::vector<index>>>("rank_groups"))
      fail("rank_groups differ");
  }

  void schedule(std::string const& name) {
    auto const expected = case_.file.booleans(name, {case_.steps});
    summary_ += " " + name;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      auto const& got = ranks_[i].values.at(name);
      for (std::size_t t = 0; t < expected.size(); ++t)
        if ((got[t] != 0) != expected[t])
          return fail(name + " differs on rank " + std::to_string(i) + " at step " + std::to_string(t + 1));
    }
  }

  // After every exchange the parameters are the same bits on all ranks, and so is the variance.
  void replicas() {
    auto const same = [](float a, float b) {
      return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
    };
    auto const& first = ranks_[0].values;
    auto const d = size(case_.elements);
    for (std::size_t i = 1; i < ranks_.size(); ++i) {
      auto const& other = ranks_[i].values;
      for (char const* name : {"output", "params"}) {
        if (first.count(name) == 0) continue;
        for (std::size_t k = 0; k < first.at(name).size(); ++k)
          if (first.at("synced")[k / d] != 0 && !same(first.at(name)[k], other.at(name)[k]))
            return fail(std::string(name) + ": ranks 0 and " + std::to_string(i) +
                        " differ after the exchange of step " + std::to_string(k / d + 1));
      }
      if (first.count("v") == 0 || case_.algorithm == "sharded_onebit_adam") continue;
      for (std::size_t k = 0; k < d; ++k)
        if (!same(first.at("v")[k], other.at("v")[k])) return fail("v: ranks 0 and " + std::to_string(i) + " differ");
    }
  }

  test_case const& case_;
  std::vector<record> const& ranks_;
  std::string summary_;
  std::string failures_;
};

}  // namespace conformance
