// SPDX-License-Identifier: Apache-2.0
// The transport of one rank, and the argument check that every transport makes.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "zoadam/concepts/transport.hpp"
#include "zoadam/config.hpp"
#include "zoadam/error.hpp"

namespace zoadam {
namespace detail {

enum class collective : unsigned char { all_to_all, all_gather };

/// "zoadam: single_transport::all_gather: "
inline std::string collective_name(char const* transport_name, collective kind) {
  return std::string("zoadam: ") + transport_name +
         (kind == collective::all_to_all ? "::all_to_all: " : "::all_gather: ");
}

/// What is wrong with the arguments of a collective on this rank alone; empty if nothing is. The text is returned and
/// not thrown, because a transport has to wake its peers before it throws.
inline std::string collective_defect(collective kind, int rank, int size, std::span<index const> offsets,
                                     std::byte const* send, std::byte const* receive) {
  if (size < 1) return "the transport was moved from";
  auto const ranks = static_cast<std::size_t>(size);
  if (offsets.size() != ranks + 1) {
    return "offsets must have size() + 1 = " + std::to_string(ranks + 1) + " entries, not " +
           std::to_string(offsets.size());
  }
  if (offsets[0] < 0) return "offsets must not be negative";
  for (std::size_t i = 0; i < ranks; ++i)
    if (offsets[i + 1] < offsets[i]) return "offsets must not decrease";
  bool const own = offsets[static_cast<std::size_t>(rank) + 1] > offsets[static_cast<std::size_t>(rank)];
  bool const any = offsets[ranks] > offsets[0];
  if ((kind == collective::all_to_all ? any : own) && send == nullptr) return "send must not be null";
  if ((kind == collective::all_to_all ? own : any) && receive == nullptr) return "receive must not be null";
  return {};
}

/// Length of the message of (or for) `rank`.
inline index message_bytes(std::span<index const> offsets, int rank) noexcept {
  return offsets[static_cast<std::size_t>(rank) + 1] - offsets[static_cast<std::size_t>(rank)];
}

/// Where, in the send buffer of rank `from`, the message for rank `to` begins.
inline index send_offset(collective kind, std::span<index const> offsets, int to) noexcept {
  return kind == collective::all_to_all ? offsets[static_cast<std::size_t>(to)] : 0;
}

/// Where, in the receive buffer of rank `to`, the message of rank `from` begins.
inline index receive_offset(collective kind, std::span<index const> offsets, int from, int to) noexcept {
  return kind == collective::all_to_all ? from * message_bytes(offsets, to) : offsets[static_cast<std::size_t>(from)];
}

/// Bytes that go from rank `from` to rank `to`.
inline index pair_bytes(collective kind, std::span<index const> offsets, int from, int to) noexcept {
  return message_bytes(offsets, kind == collective::all_to_all ? to : from);
}

/// Bytes that `rank` sends to the others.
inline index bytes_to_peers(collective kind, std::span<index const> offsets, int rank) noexcept {
  auto const size = static_cast<int>(offsets.size()) - 1;
  return kind == collective::all_to_all ? offsets.back() - offsets.front() - message_bytes(offsets, rank)
                                        : message_bytes(offsets, rank) * (size - 1);
}

/// copy(source, target, bytes) for the message of rank `from` for rank `to`, if there is anything to copy. An
/// all-gather may be in place: the own message then lies where it belongs.
template <class Copy>
void copy_message(collective kind, std::span<index const> offsets, int from, int to, std::byte const* send,
                  std::byte* receive, Copy const& copy) {
  index const bytes = pair_bytes(kind, offsets, from, to);
  if (bytes == 0) return;  // the pointers may be null
  std::byte const* const source = send + send_offset(kind, offsets, to);
  std::byte* const target = receive + receive_offset(kind, offsets, from, to);
  if (source != target) copy(source, target, static_cast<std::size_t>(bytes));
}
inline constexpr auto copy_in_memory = [](std::byte const* source, std::byte* target, std::size_t bytes) noexcept {
  std::memcpy(target, source, bytes);
};

}  // namespace detail

/// One rank: a collective is a copy, and no byte leaves it.
///
/// Errors:     argument_error for wrong offsets or null buffers; aborted_error after abort()
/// Collective: trivially; the buffers may be reused when the call returns
class single_transport {
 public:
  single_transport() = default;
  single_transport(single_transport&& other) noexcept
      : size_(std::exchange(other.size_, 0)), aborted_(std::exchange(other.aborted_, false)) {}
  single_transport& operator=(single_transport&& other) noexcept {
    if (this != &other) {
      size_ = std::exchange(other.size_, 0);
      aborted_ = std::exchange(other.aborted_, false);
    }
    return *this;
  }

  int rank() const noexcept { return 0; }
  int size() const noexcept { return size_; }

  void all_to_all(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    run(detail::collective::all_to_all, offsets, send, receive);
  }
  void all_gather(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    run(detail::collective::all_gather, offsets, send, receive);
  }

  void abort() noexcept { aborted_ = true; }

  index bytes_sent() const noexcept { return 0; }

 private:
  void run(detail::collective kind, std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    if (aborted_)
      throw aborted_error(detail::collective_name("single_transport", kind) + "aborted by an earlier call");
    if (std::string const defect = detail::collective_defect(kind, 0, size_, offsets, send, receive);
        !defect.empty()) {
      aborted_ = true;  // as on every other transport
      throw argument_error(detail::collective_name("single_transport", kind) + defect);
    }
    detail::copy_message(kind, offsets, 0, 0, send, receive, detail::copy_in_memory);
  }

  int size_ = 1;
  bool aborted_ = false;
};

static_assert(transport<single_transport>);

}  // namespace zoadam
