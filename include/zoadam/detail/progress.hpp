// SPDX-License-Identifier: Apache-2.0
// What a step learns from data, and the coefficients that follow from it. A backend keeps it where its loops run, so
// that the host need not wait for numbers that only loops use.
#pragma once

#include <bit>

#include "zoadam/lane/f64.hpp"
#include "zoadam/layout/message.hpp"
#include "zoadam/state/coefficients.hpp"

namespace zoadam::detail {

/// Hyper-parameters that coefficients are made of.
struct hyper_numbers {
  double beta1, beta2;
  double max_norm;  ///< 0: no clipping
  float epsilon, epsilon_inside;
  float limit, unlimited;
  bool corrects_bias;
  // What some states set:
  double warming = 0;     ///< mu_k = beta1 (1 - warming^k / 2) in place of beta1; 0: mu_k = beta1
  double decay_rate = 0;  ///< beta2 is 1 - k^-decay_rate; 0: it is constant
  float outer_momentum = 0, outer_lr = 0;
};

/// What the host knows about a step beforehand, per parameter group.
struct group_numbers {
  float lr, weight_decay;
  float gamma, decay;  ///< sum of lr and product of 1 - lr * weight_decay since the last exchange
};

struct progress {
  index count = 0;                 ///< k: updates of the variance
  double power1 = 1, power2 = 1;   ///< mu_1 ... mu_k (beta1^k unless it warms up), beta2^k
  double warmth = 1;               ///< warming^k
  double gradient_scale = 1;       ///< clipping included
  double gradient_norm = 0;        ///< of the scaled gradient before clipping; 0 if not computed
  index waiting = 0;               ///< elements with a momentum and no variance
  std::int32_t bad = 0;            ///< this worker's gradient counts as missing
  std::int32_t updated = 0;        ///< this step changed the variance
  std::int32_t contributions = 0;  ///< workers that the last mean is over
  std::int32_t skipped = 0;        ///< workers with a bad gradient
  std::int32_t bad_since = 0;  ///< this worker's gradient has been bad since the last exchange that closes a window
  std::int32_t skipped_since = 0;  ///< workers whose gradient has been
  std::int32_t defect = 0;         ///< devices: the header_field that differed, and whose; nothing runs after that
  std::int32_t defect_rank = 0;
};

/// When the count of updates goes up.
enum class advance { never, unless_bad, if_contributed };

ZOADAM_INLINE void begin_step(progress& p, double gradient_scale) noexcept {
  p.gradient_scale = gradient_scale;
  p.gradient_norm = 0;
  p.waiting = 0;
  p.bad = p.updated = p.contributions = p.skipped = p.skipped_since = 0;
}

/// After the pass over the gradients: `squares` is the sum of the scaled gradient's squares.
ZOADAM_INLINE void judge_gradient(progress& p, bool bad, double squares, double max_norm) noexcept {
  p.bad = bad;
  if (bad) p.bad_since = 1;
  if (bad) return;
  f64 const norm = sqrt(f64(squares));
  p.gradient_norm = norm.v;
  if (max_norm > 0 && norm.v > max_norm) p.gradient_scale = (f64(p.gradient_scale) * f64(max_norm) / norm).v;
}

/// mu, given warming^k
ZOADAM_INLINE f64 warmed_beta1(hyper_numbers const& h, f64 warmth) noexcept {
  return f64(h.beta1) * (f64(1.0) - f64(0.5) * warmth);
}

/// `from` is what the optimizer that reduced this one's gradient has learnt: without a contribution there is none;
/// who left one out counts as this worker, or, where it has no peers of its own, as all there is to tell.
ZOADAM_INLINE void learn_missing(progress& p, progress const& from, bool alone) noexcept {
  if (from.contributions == 0) p.bad = 1;
  if (from.skipped == 0) return;
  (alone ? p.skipped_since : p.bad_since) = 1;
}

ZOADAM_INLINE void advance_moments(progress& p, hyper_numbers const& h, advance when) noexcept {
  if (when == advance::never || (when == advance::unless_bad ? p.bad != 0 : p.contributions == 0)) return;
  ++p.count;
  p.warmth = (f64(p.warmth) * f64(h.warming)).v;
  p.power1 = (f64(p.power1) * warmed_beta1(h, f64(p.warmth))).v;
  p.power2 = (f64(p.power2) * f64(h.beta2)).v;
  p.updated = 1;
}

/// x^-power for x >= 1 and a power in [0, 1], of roots alone, so that devices and hosts agree.
ZOADAM_INLINE f64 inverse_power(f64 x, double power) noexcept {
  f64 result(1.0), rest(power);
  for (int bit = 0; bit < 48; ++bit) {
    if (rest.v >= 1) result = result * x, rest = rest - f64(1.0);
    x = sqrt(x);
    rest = rest + rest;
  }
  return f64(1.0) / result;
}

/// The coefficients of one parameter group: float64, rounded once.
ZOADAM_INLINE coefficients<float> coefficients_now(progress const& p, hyper_numbers const& h,
                                                   group_numbers const& g) noexcept {
  f64 const one(1.0);
  coefficients<float> k;
  k.grad_scale = p.bad ? 1.0f : f64(p.gradient_scale).to_float();  // it may be what made the gradient bad
  k.beta1 = f64(h.beta1).to_float();
  k.one_minus_beta1 = (one - f64(h.beta1)).to_float();
  k.beta2 = f64(h.beta2).to_float();
  k.one_minus_beta2 = (one - f64(h.beta2)).to_float();
  if (h.decay_rate > 0) {
    f64 const change = inverse_power(f64(static_cast<double>(p.count > 0 ? p.count : 1)), h.decay_rate);
    k.beta2 = (one - change).to_float();
    k.one_minus_beta2 = change.to_float();
  }
  // Moments of a gradient that is missing stay as they are.
  k.own_beta1 = p.bad ? 1.0f : k.beta1;
  k.own_one_minus_beta1 = p.bad ? 0.0f : k.one_minus_beta1;
  k.own_beta2 = p.bad ? 1.0f : k.beta2;
  k.own_one_minus_beta2 = p.bad ? 0.0f : k.one_minus_beta2;
  k.correction1 = p.count > 0 ? (one / (one - f64(p.power1))).to_float() : 1.0f;
  k.correction2 = p.count > 0 && h.corrects_bias ? (one / (one - f64(p.power2))).to_float() : 1.0f;
  f64 const momentum = warmed_beta1(h, f64(p.warmth)), next = warmed_beta1(h, f64(p.warmth) * f64(h.warming));
  k.ahead_gradient = p.count > 0 ? ((one - momentum) / (one - f64(p.power1))).to_float() : 1.0f;
  k.ahead_momentum = (next / (one - f64(p.power1) * next)).to_float();
  k.epsilon_inside = h.epsilon_inside;
  k.epsilon = h.epsilon;
  k.weight_decay = g.weight_decay;
  k.lr = g.lr;
  k.gamma = g.gamma;
  f64 const gamma{f32(g.gamma)};  // as float32 the comparison would be --use_fast_math's
  k.per_gamma = gamma.v > 0 ? (one / gamma).to_float() : 0.0f;
  k.decay = g.decay;
  k.limit = h.limit;
  k.unlimited = h.unlimited;
  k.updates = f64(static_cast<double>(p.count)).to_float();
  k.contributed = p.contributions > 0 ? 1.0f : 0.0f;
  k.outer_momentum = h.outer_momentum;
  k.outer_lr = h.outer_lr;
  return k;
}

/// The header that a worker sends up, and the one that an owner sends down.
ZOADAM_INLINE message_header header_up(message_header h, progress const& p, bool carries_gradient) noexcept {
  h.contributions = carries_gradient && p.bad ? 0 : 1;
  if (p.bad) h.flags |= message_header::skipped;
  if (p.bad_since) h.flags |= message_header::skipped_since;
  return h;
}
ZOADAM_INLINE message_header header_down(message_header h, progress const& p) noexcept {
  h.contributions = static_cast<std::uint32_t>(p.contributions);
  if (p.bad) h.flags |= message_header::skipped;
  return h;
}

/// What differs between a header received and this rank's own.
enum class header_field : std::int32_t { none, version, composition, stage, step, gamma, groups, contributions };

ZOADAM_INLINE header_field compare_headers(message_header const& theirs, message_header const& mine) noexcept {
  if (theirs.version != mine.version) return header_field::version;
  if (theirs.composition != mine.composition) return header_field::composition;
  if ((theirs.flags ^ mine.flags) & ~(message_header::skipped | message_header::skipped_since))
    return header_field::stage;
  if (theirs.step != mine.step) return header_field::step;
  if (__builtin_bit_cast(std::uint64_t, theirs.gamma) != __builtin_bit_cast(std::uint64_t, mine.gamma)) {
    return header_field::gamma;
  }
  if (theirs.groups != mine.groups) return header_field::groups;
  return header_field::none;
}

/// Before and after the headers of the ranks' messages up.
ZOADAM_INLINE void begin_headers_up(progress& p) noexcept { p.contributions = p.skipped = 0; }
ZOADAM_INLINE void end_headers_up(progress& p, message_header const& mine) noexcept {
  if (mine.flags & message_header::closes_window) p.bad_since = 0;
}
/// Takes in the header of `rank`'s message up.
ZOADAM_INLINE header_field take_header_up(progress& p, unsigned char& contributes, message_header const& theirs,
                                          message_header const& mine) noexcept {
  header_field const defect = compare_headers(theirs, mine);
  if (defect != header_field::none) return defect;
  contributes = theirs.contributions != 0;
  p.contributions += contributes;
  p.skipped += (theirs.flags & message_header::skipped) != 0;
  if (mine.flags & message_header::closes_window) {
    p.skipped_since += (theirs.flags & message_header::skipped_since) != 0;
  }
  return header_field::none;
}
ZOADAM_INLINE header_field check_header_down(progress const& p, message_header const& theirs,
                                             message_header const& mine) noexcept {
  header_field const defect = compare_headers(theirs, mine);
  if (defect == header_field::none && theirs.contributions != static_cast<std::uint32_t>(p.contributions)) {
    return header_field::contributions;
  }
  return defect;
}

}  // namespace zoadam::detail
