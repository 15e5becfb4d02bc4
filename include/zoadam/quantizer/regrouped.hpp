// SPDX-License-Identifier: Apache-2.0
// A quantizer that cuts elements as another one does.
#pragma once

#include "zoadam/concepts/quantizer.hpp"

namespace zoadam {

/// Quantizer with other groups, so that the exchanges of a program cut elements into the same chunks. For quantizers
/// whose values do not depend on their groups: identity_quantizer, casts, nothing_quantizer.
template <quantizer Quantizer, groups Groups>
struct regrouped : Quantizer {
  static_assert(
      elementwise<Quantizer> && !Quantizer::has_scale,
      "zoadam: what travels beside another exchange, or within a node, must have neither scales nor blocks: "
      "use identity_quantizer or a cast");
  using groups = Groups;
};

}  // namespace zoadam
