// SPDX-License-Identifier: Apache-2.0
// One transport for several optimizers of one rank, which take turns.
#pragma once

#include <utility>

#include "zoadam/concepts/transport.hpp"

namespace zoadam {

/// Passes every call to a transport that somebody else owns and that outlives this object. After a failure of one of
/// its users it has failed for all.
///
/// Collective: as the lender; users must take turns in the same order on every rank
template <transport Transport>
class borrowed {
 public:
  explicit borrowed(Transport& lender) noexcept : lender_(&lender) {}
  borrowed(borrowed&& other) noexcept : lender_(std::exchange(other.lender_, nullptr)) {}
  borrowed& operator=(borrowed&& other) noexcept {
    lender_ = std::exchange(other.lender_, nullptr);
    return *this;
  }

  int rank() const noexcept { return lender_ ? lender_->rank() : 0; }
  int size() const noexcept { return lender_ ? lender_->size() : 0; }
  index bytes_sent() const noexcept { return lender_ ? lender_->bytes_sent() : 0; }

  void all_to_all(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    lender_->all_to_all(offsets, send, receive);
  }
  void all_gather(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    lender_->all_gather(offsets, send, receive);
  }
  void abort() noexcept {
    if (lender_) lender_->abort();
  }

  // What transports of devices have besides.
  auto stream() const requires requires(Transport const& t) { t.stream(); }
  { return lender_->stream(); }
  auto watch() const requires requires(Transport const& t) { t.watch(); }
  { return lender_->watch(); }
  void check() requires requires(Transport& t) { t.check(); }
  { lender_->check(); }

 private:
  Transport* lender_;
};

}  // namespace zoadam
