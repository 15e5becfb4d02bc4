// SPDX-License-Identifier: Apache-2.0
// The transport of one rank, and the arithmetic of offsets that all transports share.
#include "zoadam/transport/single.hpp"

#include "transport/suite.hpp"

namespace {

using zoadam::index;
using zoadam::detail::collective;

struct single_harness {
  static int most_ranks() { return 1; }
  template <class Function>
  static void run(int, transport_suite::milliseconds, Function function) {
    zoadam::single_transport transport;
    CHECK(transport.rank() == 0);
    function(transport);
  }
};

TEST_CASE_TEMPLATE_INVOKE(transport_suite::every_rank, single_harness);

TEST_CASE("messages lie where the concept says") {
  std::vector<index> const offsets{10, 13, 13, 20};
  for (int to = 0; to < 3; ++to) {
    CHECK(send_offset(collective::all_to_all, offsets, to) == offsets[static_cast<std::size_t>(to)]);
    CHECK(send_offset(collective::all_gather, offsets, to) == 0);
  }
  CHECK(receive_offset(collective::all_to_all, offsets, 2, 0) == 6);
  CHECK(receive_offset(collective::all_gather, offsets, 2, 0) == 13);
  CHECK(pair_bytes(collective::all_to_all, offsets, 2, 0) == 3);
  CHECK(pair_bytes(collective::all_gather, offsets, 2, 0) == 7);
  CHECK(bytes_to_peers(collective::all_to_all, offsets, 2) == 3);
  CHECK(bytes_to_peers(collective::all_gather, offsets, 2) == 14);
}

TEST_CASE("case 18: byte counts pass 2^31") {
  index const large = (index{1} << 31) + 5;
  std::vector<index> const offsets{0, large, 2 * large, 3 * large};
  CHECK(bytes_to_peers(collective::all_to_all, offsets, 1) == 4294967306);
  CHECK(bytes_to_peers(collective::all_gather, offsets, 1) == 4294967306);
  CHECK(receive_offset(collective::all_to_all, offsets, 2, 0) == 4294967306);
  CHECK(send_offset(collective::all_to_all, offsets, 2) == 4294967306);
}

}  // namespace
