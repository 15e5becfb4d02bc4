// SPDX-License-Identifier: Apache-2.0
// The header in front of every message of an exchange.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "zoadam/config.hpp"

namespace zoadam {

static_assert(std::endian::native == std::endian::little,
              "zoadam: messages are little-endian, and so must the host be");

inline constexpr std::uint32_t wire_version = 1;

/// Little-endian, 48 bytes, in front of each rank's message in both phases. Every field but
/// bits 0 and 1 of `flags` and `contributions` must be equal on all ranks; one that is not throws mismatch_error
/// everywhere.
struct message_header {
  std::uint32_t version = wire_version;
  /// Bit 0: the sender's gradient is bad; bit 1: it has been at some step since the last exchange that closes a
  /// window; bit 2: this one does; bits 8..: stage of the composition.
  std::uint32_t flags = 0;
  std::uint64_t composition = 0;  ///< hash of composition, layout and hyper-parameters
  std::uint64_t step = 0;
  double gamma = 0;                 ///< sum of learning rates since the last exchange, this step included
  std::uint64_t groups = 0;         ///< hash of P and the learning rate of every parameter group
  std::uint32_t contributions = 0;  ///< up: 0 or 1; down: how many workers the mean is over
  std::uint32_t reserved = 0;

  static constexpr std::uint32_t skipped = 1, skipped_since = 2, closes_window = 4;
};
inline constexpr index header_bytes = 48;
static_assert(sizeof(message_header) == header_bytes);

namespace detail {
inline message_header read_header(std::byte const* from) noexcept {
  message_header h;
  std::memcpy(&h, from, sizeof h);
  return h;
}
inline void write_header(std::byte* to, message_header const& h) noexcept { std::memcpy(to, &h, sizeof h); }
}  // namespace detail

}  // namespace zoadam
