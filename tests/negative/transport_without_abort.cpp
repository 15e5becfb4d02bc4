// SPDX-License-Identifier: Apache-2.0
// A transport that cannot give up would leave its peers waiting.
// expect: satisf(y|action of) .(zoadam::)?can_abort
#include "zoadam/aliases.hpp"

struct stubborn_transport {
  stubborn_transport() = default;
  stubborn_transport(stubborn_transport&&) = default;
  stubborn_transport& operator=(stubborn_transport&&) = default;
  int rank() const noexcept { return 0; }
  int size() const noexcept { return 1; }
  void all_to_all(std::span<zoadam::index const>, std::byte const*, std::byte*) {}
  void all_gather(std::span<zoadam::index const>, std::byte const*, std::byte*) {}
#if defined(ZOADAM_NEGATIVE_CONTROL)
  void abort() noexcept {}
#endif
  zoadam::index bytes_sent() const noexcept { return 0; }
};

using wrong = zoadam::optimizer<zoadam::identity_quantizer, zoadam::every_step, zoadam::adam_state,
                                zoadam::cpu_backend, stubborn_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
