// SPDX-License-Identifier: Apache-2.0
// What a user may set at construction, and what a step reports.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "zoadam/concepts/state.hpp"
#include "zoadam/detail/progress.hpp"
#include "zoadam/layout/layout.hpp"

namespace zoadam {

namespace detail {
constexpr bool in_unit_interval(double d) noexcept { return finite(d) && d >= 0 && d < 1; }
/// Finite in float32 too, which is what formulas see.
constexpr bool not_negative(double d) noexcept {
  return finite(d) && d >= 0 && d <= static_cast<double>(std::numeric_limits<float>::max());
}

template <class State>
inline constexpr bool corrects_bias = true;
template <class State>
requires requires { State::bias_correction; }
inline constexpr bool corrects_bias<State> = State::bias_correction;
}  // namespace detail

/// Hyper-parameters and the policies' own settings; must be equal on all ranks.
template <class Quantizer, class Sync, class State>
struct options {
  double beta1 = 0.9;                                   ///< in [0, 1)
  double beta2 = 0.999;                                 ///< in [0, 1)
  double epsilon = 1e-8;                                ///< >= 0
  bool epsilon_inside = false;                          ///< under the root instead of beside it
  bool bias_correction = detail::corrects_bias<State>;  ///< of the variance
  double weight_decay = 0;                              ///< decoupled; used where `groups` is empty
  /// Bound on decoded displacements in units of gamma * D^p; 0: none. What it cuts stays in the error, so it needs
  /// one.
  double limit = Quantizer::compensated ? 1 : 0;
  /// Clip this worker's gradient, after grad_scale, to that norm; 0: no clipping. The mean is not clipped.
  double max_norm = 0;
  bool trusted_gradients = false;         ///< leave out the pass that finds NaN and Inf; excludes max_norm
  std::vector<parameter_group> groups{};  ///< tensor.group indexes it; empty: one group
  [[no_unique_address]] Sync sync{};
  [[no_unique_address]] State state{};
  [[no_unique_address]] Quantizer quantizer{};

  std::vector<parameter_group> parameter_groups() const {
    return groups.empty() ? std::vector<parameter_group>{{weight_decay, 1.0}} : groups;
  }

  /// Errors: argument_error that names the field.
  void validate() const {
    auto const expects = [](bool condition, char const* rule) {
      ZOADAM_EXPECTS(condition, "optimizer(options)", std::string("options.") + rule);
    };
    expects(detail::in_unit_interval(beta1), "beta1 must be in [0, 1)");
    expects(detail::in_unit_interval(beta2), "beta2 must be in [0, 1)");
    expects(detail::not_negative(epsilon), "epsilon must be finite and >= 0");
    expects(detail::not_negative(weight_decay), "weight_decay must be finite and >= 0");
    expects(detail::not_negative(limit) && (limit == 0 || static_cast<float>(limit) > 0),
            "limit must be finite and >= 0, in float32 too");
    expects(limit == 0 || Quantizer::compensated, "limit needs error_feedback: what it cuts would be lost");
    expects(detail::not_negative(max_norm), "max_norm must be finite and >= 0");
    expects(!trusted_gradients || max_norm == 0, "trusted_gradients leaves out the pass that max_norm needs");
    for (parameter_group const& g : groups) {
      expects(detail::not_negative(g.weight_decay), "groups: weight_decay must be finite and >= 0");
      expects(detail::finite(g.lr_factor) && g.lr_factor > 0, "groups: lr_factor must be finite and > 0");
    }
    expects(groups.empty() || weight_decay == 0, "weight_decay is not used with groups: set it in each group");
    auto const expects_policy = [](char const* axis, auto const& policy) {
      if constexpr (requires { policy.defect(); }) {
        if (char const* const what = policy.defect()) {
          detail::throw_argument("optimizer(options)", std::string("options.") + axis + "." + what);
        }
      }
    };
    expects_policy("sync", sync);
    expects_policy("state", state);
  }

  template <class Sink>
  void describe(Sink& sink) const {
    sink("options", beta1, beta2, epsilon, epsilon_inside, bias_correction, limit, max_norm, trusted_gradients);
    for (parameter_group const& g : parameter_groups()) sink("group", g.weight_decay, g.lr_factor);
  }
};

namespace detail {
template <class Options>
hyper_numbers hyper_numbers_of(Options const& o) noexcept {
  auto const epsilon = static_cast<float>(o.epsilon);
  hyper_numbers h{o.beta1,
                  o.beta2,
                  o.max_norm,
                  o.epsilon_inside ? 0.0f : epsilon,
                  o.epsilon_inside ? epsilon : 0.0f,
                  static_cast<float>(o.limit),
                  o.limit > 0 ? 0.0f : std::numeric_limits<float>::max(),
                  o.bias_correction};
  if constexpr (requires { o.state.set(h); }) o.state.set(h);
  return h;
}
}  // namespace detail

/// What a step did.
struct [[nodiscard]] step_report {
  index step = 0;
  bool exchanged = false;         ///< an exchange took place, variance rounds aside
  bool variance_updated = false;  ///< this step changed the variance
  bool alone = false;             ///< the optimizer has no exchange: what this says of workers is of this one
  bool skipped_here = false;      ///< this worker's gradient was bad and counted as missing
  int skipped_workers = 0;        ///< how many workers' were, known on steps with an exchange of any kind
  /// How many workers' gradients were bad at this step or another one since the last exchange; known on exchanges.
  int skipped_since = 0;
  double gradient_norm = 0;  ///< of this worker's scaled gradient before clipping; 0 if not computed
  index waiting = 0;         ///< elements with a momentum and no variance; known on exchanges
  index bytes_sent = 0;      ///< to other ranks, as the transport counted
  index payload_bytes = 0;   ///< encoded size of what this worker had to say, headers excluded
};

namespace detail {
/// The report, with what only the data could tell.
inline step_report complete(step_report r, progress const& now) noexcept {
  r.variance_updated = now.updated != 0;
  r.skipped_here = now.bad != 0;
  r.skipped_workers = now.skipped;
  r.skipped_since = now.skipped_since;
  if (r.alone && now.bad != 0) r.skipped_since = 1;
  r.gradient_norm = now.gradient_norm;
  r.waiting = now.waiting;
  return r;
}
}  // namespace detail

/// Bytes allocated by one rank.
struct memory_use {
  /// Behind each field, so that fields of a size that is a power of two do not fall into the same cache sets.
  static constexpr index field_gap = 65 * 64;

  index fields = 0;     ///< state and errors: 4 bytes per value, each field rounded up to 64 bytes, plus field_gap
  index masters = 0;    ///< float32 parameters of tensors that were given in 16 bits alone
  index messages = 0;   ///< buffers of the exchanges
  index workspace = 0;  ///< tiles and block sums
  index total() const noexcept { return fields + masters + messages + workspace; }

  memory_use& operator+=(memory_use const& other) noexcept {
    fields += other.fields;
    masters += other.masters;
    messages += other.messages;
    workspace += other.workspace;
    return *this;
  }
};

}  // namespace zoadam
