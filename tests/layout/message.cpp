// SPDX-License-Identifier: Apache-2.0
// The bytes of a message header.
#include "zoadam/layout/message.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

namespace {

using zoadam::message_header;

static_assert(offsetof(message_header, version) == 0);
static_assert(offsetof(message_header, flags) == 4);
static_assert(offsetof(message_header, composition) == 8);
static_assert(offsetof(message_header, step) == 16);
static_assert(offsetof(message_header, gamma) == 24);
static_assert(offsetof(message_header, groups) == 32);
static_assert(offsetof(message_header, contributions) == 40);
static_assert(zoadam::header_bytes == 48 && zoadam::header_bytes % 4 == 0);

TEST_CASE("a header lies little-endian, at any alignment") {
  message_header h;
  h.flags = 0x01020304u;
  h.composition = 0x1122334455667788u;
  h.step = 5;
  h.gamma = 0.5;
  h.groups = 9;
  h.contributions = 3;
  std::vector<std::byte> buffer(64, std::byte{0xee});
  for (std::size_t shift = 0; shift < 8; ++shift) {
    zoadam::detail::write_header(buffer.data() + shift, h);
    CHECK(buffer[shift] == std::byte{zoadam::wire_version});
    CHECK(buffer[shift + 4] == std::byte{0x04});
    CHECK(buffer[shift + 15] == std::byte{0x11});
    CHECK(buffer[shift + 48] == std::byte{0xee});
    message_header const back = zoadam::detail::read_header(buffer.data() + shift);
    CHECK(back.flags == h.flags);
    CHECK(back.composition == h.composition);
    CHECK(back.step == h.step);
    CHECK(back.gamma == h.gamma);
    CHECK(back.groups == h.groups);
    CHECK(back.contributions == h.contributions);
    buffer.assign(64, std::byte{0xee});
  }
}

}  // namespace
