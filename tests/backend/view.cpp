// SPDX-License-Identifier: Apache-2.0
// What loops are told about a quantizer: when a group is encoded in one pass, and how long tiles are.
#include "zoadam/backend/view.hpp"

#include <doctest/doctest.h>

#include "zoadam/quantizer/cast.hpp"
#include "zoadam/quantizer/error_feedback.hpp"
#include "zoadam/quantizer/identity.hpp"
#include "zoadam/quantizer/sign.hpp"

namespace {

using namespace zoadam;
using detail::needs_carry;
using detail::single_pass;
using detail::tile_of;

// A scale must be known before the first element is encoded: groups longer than a tile take two passes.
static_assert(single_pass<sign_quantizer<block<64>>> && single_pass<sign_quantizer<block<8192>>>);
static_assert(!single_pass<sign_quantizer<whole>> && !single_pass<sign_quantizer<per_tensor>>);
static_assert(single_pass<identity_quantizer> && single_pass<cast_quantizer<bfloat16>>);

// Two passes keep the values between them, where errors lie otherwise.
static_assert(needs_carry<sign_quantizer<whole>> && needs_carry<error_feedback<sign_quantizer<whole>>>);
static_assert(!needs_carry<sign_quantizer<>> && needs_carry<error_feedback<sign_quantizer<>>>);
static_assert(!needs_carry<identity_quantizer> && needs_carry<error_feedback<cast_quantizer<float16>>>);

// A tile holds a whole block.
static_assert(tile_of<void> == 2048 && tile_of<sign_quantizer<block<64>>> == 2048);
static_assert(tile_of<sign_quantizer<block<8192>>> == 8192 && tile_of<sign_quantizer<whole>> == 2048);
static_assert(detail::block_of<void> == 0 && detail::block_of<sign_quantizer<whole>> == 0);

TEST_CASE("a view holds one pointer per field, found by its tag") {
  using declared = fields<field<at::momentum_t, home::worker>, field<at::variance_t, home::replica>>;
  float m[3] = {}, v[3] = {};
  detail::view<declared> view{};
  view.field[at::momentum] = m;
  view.field[at::variance] = v;
  CHECK(view.field[at::momentum] == m);
  CHECK(view.field[at::variance] == v);
  CHECK(sizeof(view.field) == 2 * sizeof(float*));
}

}  // namespace
