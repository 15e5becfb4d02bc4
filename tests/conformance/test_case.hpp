// SPDX-License-Identifier: Apache-2.0
// One conformance case: what its file's metadata and input tensors say, in the library's terms.
#pragma once

#include "safetensors.hpp"

#include <zoadam/config.hpp>

#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace conformance {

using zoadam::index;

enum class grouping { whole, tensor, block };
enum class scale_norm { l1, l2 };
enum class exchange_space { displacement, momentum_sum };
enum class momentum_rule { replace, correct };

/// A case that the program cannot run, and why.
struct unsupported_case : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline std::size_t size(index n) { return static_cast<std::size_t>(n); }

struct test_case {
  explicit test_case(safetensors::file const& source) : file(source), algorithm(source.text("algorithm")) {
    refuse_unknown_algorithms();
    workers = file.value<int>("workers");
    elements = file.value<index>("elements");
    steps = file.value<index>(algorithm == "onebit_allreduce" ? "rounds" : "steps");
    if (workers < 1 || elements < 0 || steps < 1)
      throw unsupported_case("workers, elements or steps are out of range");
    read_layout();
    read_tape();
    if (algorithm == "onebit_allreduce") return;
    read_adam();
    if (algorithm == "zero_one_adam") read_zero_one_adam();
    if (algorithm == "onebit_adam" || algorithm == "sharded_onebit_adam" || algorithm == "deepspeed_onebit_adam" ||
        algorithm == "deepspeed_onebit_lamb")
      freeze_step = file.value<index>("freeze_step");
    if (algorithm == "deepspeed_zero_one_adam") {
      freeze_step = file.value<index>("var_freeze_step");
      kappa = file.value<index>("var_update_scaler");
      sync_period = file.value<index>("local_step_scaler");
      sync_clip = file.value<index>("local_step_clipper");
    }
    if (published() && file.value<int>("first_step") != 2) throw unsupported_case("first_step is not 2");
  }

  /// Computed by the published Python implementation.
  bool published() const { return algorithm.rfind("deepspeed_", 0) == 0; }

  safetensors::file const& file;
  std::string algorithm;
  int workers = 0;
  index elements = 0;
  index steps = 0;

  std::vector<std::vector<index>> shapes;
  grouping groups = grouping::whole;
  index block = 0;
  scale_norm norm = scale_norm::l1;

  std::vector<float> gradients;  ///< [steps, workers, elements]
  std::vector<float> start;      ///< [elements]
  std::vector<double> lr;        ///< [steps]

  double beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0, limit = 0;
  bool bias_correction = false;
  index freeze_step = 0;
  exchange_space space{};
  double weight_power = 1;
  momentum_rule rule{};
  index kappa = 1, stop = 0;
  index sync_start = 0, sync_period = 1, sync_clip = 1;

 private:
  void refuse_unknown_algorithms() const {
    for (char const* known : {"onebit_allreduce", "zero_one_adam", "onebit_adam", "sharded_onebit_adam",
                              "deepspeed_zero_one_adam", "deepspeed_onebit_adam", "deepspeed_onebit_lamb"})
      if (algorithm == known) return;
    throw unsupported_case("no such composition yet: algorithm \"" + algorithm + "\"");
  }

  // One of the names, as the value beside it.
  template <class Value>
  Value choice(std::string const& key, std::string const& text, std::map<std::string, Value> const& values) const {
    auto const found = values.find(text);
    if (found == values.end()) throw unsupported_case("metadata \"" + key + "\": unknown value \"" + text + "\"");
    return found->second;
  }

  void read_layout() {
    if (file.has_metadata("shapes")) {
      shapes = file.value<std::vector<std::vector<index>>>("shapes");
    } else if (file.has_metadata("tensors")) {
      for (index n : file.value<std::vector<index>>("tensors")) shapes.push_back({n});
    } else {
      shapes = {{elements}};
    }
    index sum = 0;
    for (auto const& shape : shapes) {
      index product = 1;
      for (index n : shape) product *= n;
      sum += product;
    }
    if (sum != elements) throw unsupported_case("the tensors do not add up to \"elements\"");

    // Cases that name no groups scale whole buffers; the published implementation scales each tensor.
    std::string const text = file.has_metadata("groups")  ? file.text("groups")
                             : file.has_metadata("scale") ? file.text("scale")
                                                          : "whole";
    groups = choice<grouping>("groups", text,
                              {{"whole", grouping::whole},
                               {"tensor", grouping::tensor},
                               {"block", grouping::block},
                               {"per tensor", grouping::tensor},
                               {"whole buffer", grouping::whole}});
    norm = choice<scale_norm>("norm", file.text("norm"), {{"l1", scale_norm::l1}, {"l2", scale_norm::l2}});
    block = file.has_metadata("block") ? file.value<index>("block") : 0;
  }

  std::vector<float> floats(std::string const& key, std::vector<index> const& shape) const {
    std::vector<float> result;
    for (double value : file.numbers(key, shape)) result.push_back(static_cast<float>(value));
    return result;
  }

  void read_tape() {
    bool const mean = algorithm == "onebit_allreduce";
    gradients = floats(mean ? "input" : "grads", {steps, workers, elements});
    start = mean ? std::vector<float>(size(elements)) : floats("params0", {elements});
    if (mean)
      lr.assign(size(steps), 1.0);  // a mean has none
    else if (published())
      lr.assign(size(steps), file.value<double>("lr"));
    else
      lr = file.numbers("lr", {steps});
  }

  void read_adam() {
    if (file.has_metadata("betas")) {
      auto const betas = file.value<std::vector<double>>("betas");
      if (betas.size() != 2) throw unsupported_case("metadata \"betas\": two numbers expected");
      beta1 = betas[0];
      beta2 = betas[1];
    } else {
      beta1 = file.value<double>("beta1");
      beta2 = file.value<double>("beta2");
    }
    epsilon = file.value<double>("eps");
    weight_decay = file.value<double>("weight_decay");
    bias_correction = file.has_metadata("variance_bias_correction") && file.value<bool>("variance_bias_correction");
  }

  void read_zero_one_adam() {
    space = choice<exchange_space>(
        "exchange", file.text("exchange"),
        {{"displacement", exchange_space::displacement}, {"momentum_sum", exchange_space::momentum_sum}});
    rule = choice<momentum_rule>("momentum_rule", file.text("momentum_rule"),
                                 {{"replace", momentum_rule::replace}, {"correct", momentum_rule::correct}});
    weight_power = file.value<double>("weight_power");
    limit = file.value<double>("cap");
    kappa = file.value<index>("variance_kappa");
    stop = file.value<index>("variance_stop");
    sync_start = file.value<index>("sync_start");
    sync_period = file.value<index>("sync_period");
    sync_clip = file.value<index>("sync_clip");
  }
};

}  // namespace conformance
