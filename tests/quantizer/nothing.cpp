// SPDX-License-Identifier: Apache-2.0
#include "zoadam/quantizer/nothing.hpp"

#include "suite/job.hpp"

namespace {

using namespace zoadam;
using namespace suite;

TEST_CASE("nothing_quantizer: messages are headers, values are zeros") {
  using mean = threaded<nothing_quantizer, every_step, mean_state>;
  job<mean> run;
  run.ranks = 3;
  run.steps = 2;
  run.start = [](std::size_t) { return 1.0f; };
  run.after = [](int, mean const&, step_report const& r, buffers&) {
    CHECK(r.payload_bytes == 0);
    CHECK(r.bytes_sent == 4 * header_bytes);
  };
  for (flat const& x : run.run())
    for (float const each : x) CHECK(each == 0);
}

}  // namespace
