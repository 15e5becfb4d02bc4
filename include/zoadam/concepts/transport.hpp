// SPDX-License-Identifier: Apache-2.0
// What a transport is: ranks, two collectives over bytes, a way to give up.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "zoadam/config.hpp"

namespace zoadam {

template <class Transport>
concept has_ranks = requires(Transport const t) {
  { t.rank() }
  noexcept->std::same_as<int>;
  { t.size() }
  noexcept->std::same_as<int>;
};

/// `offsets` has size() + 1 entries, the same on every rank: the message of (or for) rank j is
/// offsets[j+1] - offsets[j] bytes long.
///   all_to_all: `send` holds the messages for ranks 0, 1, ... at those offsets; `receive` gets the messages of
///               ranks 0, 1, ... for this rank, one after the other, all of this rank's length.
///   all_gather: `send` holds this rank's message; `receive` gets all of them at those offsets.
/// Collective: every rank, in the same order. The buffers may be reused when the call returns.
/// Errors: transport_error; timeout_error when a peer does not come within the time limit; aborted_error.
template <class Transport>
concept has_collectives = requires(Transport t, std::span<index const> offsets, std::byte const* send,
                                   std::byte* receive) {
  t.all_to_all(offsets, send, receive);
  t.all_gather(offsets, send, receive);
};

/// abort() makes every pending and later call throw, on this rank and, where the transport can reach them, on its
/// peers.
template <class Transport>
concept can_abort = requires(Transport t) {
  { t.abort() }
  noexcept;
};

/// Bytes this rank has sent to other ranks since construction.
template <class Transport>
concept counts_bytes = requires(Transport const t) {
  { t.bytes_sent() }
  noexcept->std::same_as<index>;
};

/// Moves bytes between the ranks of one communicator; never adds. Owned by one optimizer: movable, not copyable.
template <class Transport>
concept transport = has_ranks<Transport> && has_collectives<Transport> && can_abort<Transport> &&
    counts_bytes<Transport> && std::movable<Transport> && !std::copyable<Transport>;

}  // namespace zoadam
