// SPDX-License-Identifier: Apache-2.0
// The step of the common compositions, compiled only: check.sh reads the code. With ZOADAM_CODEGEN_CONTROL it holds
// what must be found: a virtual call and a call through a pointer.
#include "zoadam/aliases.hpp"

template <class Optimizer>
zoadam::step_report one_step(Optimizer& optimizer, double lr) {
  auto const report = optimizer.step(lr);
  return optimizer.will_exchange(lr) ? optimizer.synchronize() : report;
}

template zoadam::step_report one_step(zoadam::zero_one_adam<zoadam::single_transport>&, double);
template zoadam::step_report one_step(zoadam::zero_one_adam_paper<zoadam::single_transport>&, double);
template zoadam::step_report one_step(zoadam::onebit_adam<zoadam::single_transport>&, double);
template zoadam::step_report one_step(zoadam::adam<zoadam::single_transport>&, double);
template zoadam::step_report one_step(zoadam::local_adam<zoadam::single_transport>&, double);

#if defined(ZOADAM_CODEGEN_CONTROL)
namespace zoadam {
struct dispatching {
  virtual ~dispatching() = default;
  virtual int run(int);
};
int dispatching::run(int i) { return i; }
int through_table(dispatching& d) { return d.run(1) + 1; }
int through_pointer(int (*f)(int)) { return f(1) + 1; }
}  // namespace zoadam
#endif
