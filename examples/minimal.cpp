// SPDX-License-Identifier: Apache-2.0
// Two workers, whose data want x = 2 and x = 4, agree on about 3 with one bit per parameter and exchange.
#include <zoadam/zoadam.hpp>

#include <cstdio>
#include <thread>

using optimizer = zoadam::zero_one_adam<zoadam::thread_transport>;
// using optimizer = zoadam::optimizer<zoadam::identity_quantizer, zoadam::local_steps, zoadam::adam_state,
//                                     zoadam::cpu_backend, zoadam::thread_transport>;  // Adam has no local steps

void work(zoadam::thread_group& group, int rank) {
  std::vector<float> x(1000), g(1000);
  optimizer adam({{"x", {10, 100}, x, g}}, {.weight_decay = 1e-4}, group.rank(rank));
  for (int t = 1; t <= 400; ++t) {
    for (std::size_t i = 0; i < x.size(); ++i) g[i] = x[i] - (rank == 0 ? 2.0f : 4.0f);
    zoadam::step_report const report = adam.step(0.05);
    if (rank == 0 && t % 100 == 0) std::printf("step %d: x = %.3f, %d bytes sent\n", t, x[0], int(report.bytes_sent));
  }
}

int main() {
  zoadam::thread_group group(2);
  std::thread other([&] { work(group, 1); });
  work(group, 0);
  other.join();
}
