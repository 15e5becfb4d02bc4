// SPDX-License-Identifier: Apache-2.0
// A transport belongs to one optimizer.
// expect: satisf(y|action of) .(zoadam::)?transport
#include "zoadam/aliases.hpp"

struct copied_transport {
  copied_transport() = default;
  copied_transport(copied_transport&&) = default;
  copied_transport& operator=(copied_transport&&) = default;
#if !defined(ZOADAM_NEGATIVE_CONTROL)
  copied_transport(copied_transport const&) = default;
  copied_transport& operator=(copied_transport const&) = default;
#endif
  int rank() const noexcept { return 0; }
  int size() const noexcept { return 1; }
  void all_to_all(std::span<zoadam::index const>, std::byte const*, std::byte*) {}
  void all_gather(std::span<zoadam::index const>, std::byte const*, std::byte*) {}
  void abort() noexcept {}
  zoadam::index bytes_sent() const noexcept { return 0; }
};

using wrong = zoadam::optimizer<zoadam::identity_quantizer, zoadam::every_step, zoadam::adam_state,
                                zoadam::cpu_backend, copied_transport>;

int main() { return sizeof(wrong) > 0 ? 0 : 1; }
