// SPDX-License-Identifier: Apache-2.0
// Exceptions, and the always-on check for API boundaries.
#pragma once

#include <stdexcept>
#include <string>

#include "zoadam/config.hpp"

namespace zoadam {

/// Base of every exception that zoadam throws.
struct error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A wrong argument: the text says which argument of which call.
struct argument_error : error {
  using error::error;
};

/// Ranks disagree about layout, composition, hyper-parameters, step or schedule; thrown on every rank.
struct mismatch_error : error {
  using error::error;
};

/// A transport failed. `status` is the native code (an MPI or NCCL result), 0 where there is none.
struct transport_error : error {
  transport_error(std::string const& what, int native_status = 0) : error(what), status(native_status) {}
  int status;
};

/// A peer did not answer within the time limit.
struct timeout_error : transport_error {
  using transport_error::transport_error;
};

/// A peer gave up: the communicator was aborted.
struct aborted_error : transport_error {
  using transport_error::transport_error;
};

/// An earlier call failed half-way; the object refuses every further call.
struct poisoned_error : error {
  using error::error;
};

namespace detail {

[[noreturn]] inline void throw_argument(char const* call, std::string const& what) {
  throw argument_error(std::string("zoadam: ") + call + ": " + what);
}

}  // namespace detail

/// Throws argument_error unless `condition` holds. `call` names the function, `what` the argument and the rule.
/// `what` is evaluated on failure only.
#define ZOADAM_EXPECTS(condition, call, what)                       \
  do {                                                              \
    if (!(condition)) ::zoadam::detail::throw_argument(call, what); \
  } while (false)

}  // namespace zoadam
