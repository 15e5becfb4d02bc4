// SPDX-License-Identifier: Apache-2.0
// One of the library's transports, chosen at run time, so that each composition is compiled once for all of them.
#pragma once

#include <zoadam/concepts/transport.hpp>
#include <zoadam/transport/single.hpp>
#include <zoadam/transport/thread.hpp>
#if ZOADAM_CONFORMANCE_MPI
#include <zoadam/transport/mpi.hpp>
#endif

#include <cstddef>
#include <span>
#include <utility>
#include <variant>

namespace conformance {

/// Hands every call to the transport inside; moves no byte itself.
class any_transport {
 public:
  using inner = std::variant<zoadam::single_transport, zoadam::thread_transport
#if ZOADAM_CONFORMANCE_MPI
                             ,
                             zoadam::mpi_transport
#endif
                             >;
  explicit any_transport(inner transport) : inner_(std::move(transport)) {}

  int rank() const noexcept {
    return std::visit([](auto const& t) { return t.rank(); }, inner_);
  }
  int size() const noexcept {
    return std::visit([](auto const& t) { return t.size(); }, inner_);
  }
  void all_to_all(std::span<zoadam::index const> offsets, std::byte const* send, std::byte* receive) {
    std::visit([&](auto& t) { t.all_to_all(offsets, send, receive); }, inner_);
  }
  void all_gather(std::span<zoadam::index const> offsets, std::byte const* send, std::byte* receive) {
    std::visit([&](auto& t) { t.all_gather(offsets, send, receive); }, inner_);
  }
  void abort() noexcept {
    std::visit([](auto& t) { t.abort(); }, inner_);
  }
  zoadam::index bytes_sent() const noexcept {
    return std::visit([](auto const& t) { return t.bytes_sent(); }, inner_);
  }

 private:
  inner inner_;
};
static_assert(zoadam::transport<any_transport>);

}  // namespace conformance
