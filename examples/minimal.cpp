// SPDX-License-Identifier: Apache-2.0
// Two workers, one thread each, minimize |x - 3|^2 from noisy gradients with one bit per parameter and exchange.
#include <zoadam/zoadam.hpp>

#include <cstdio>
#include <thread>
#include <vector>

using optimizer = zoadam::zero_one_adam<zoadam::thread_transport>;
// using optimizer = zoadam::optimizer<zoadam::identity_quantizer, zoadam::local_steps, zoadam::adam_state,
//                                     zoadam::cpu_backend, zoadam::thread_transport>;  // refused: Adam has no local
//                                     steps

void work(zoadam::thread_group& group, int rank) {
  std::vector<float> x(1000, 0.0f), g(1000);
  optimizer adam({{"x", {10, 100}, x, g}}, {.weight_decay = 1e-4, .sync = {.period = 50}}, group.rank(rank));
  for (int t = 0; t < 400; ++t) {
    for (std::size_t i = 0; i < x.size(); ++i) g[i] = x[i] - 3 + (rank == 0 ? 0.5f : -0.5f);
    zoadam::step_report const report = adam.step(0.05);
    if (rank == 0 && t % 100 == 99)
      std::printf("step %3d  x[0] %.3f  sent %d bytes\n", t + 1, x[0], int(report.bytes_sent));
  }
}

int main() {
  zoadam::thread_group group(2);
  std::thread other(work, std::ref(group), 1);
  work(group, 0);
  other.join();
}
