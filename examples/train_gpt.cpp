// SPDX-License-Identifier: Apache-2.0
// Trains a character GPT on the King James Bible with n data-parallel workers: threads, or processes under mpirun.
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "app.hpp"
#include "trainer.hpp"
#include "zoadam/aliases.hpp"
#include "zoadam/zoadam.hpp"

namespace {

std::vector<std::string> const optimizers = {"adam",
                                             "onebit_adam",
                                             "zero_one_adam",
                                             "zero_one_adam_paper",
                                             "local_adam",
                                             "sgd",
                                             "momentum_sgd",
                                             "nesterov_sgd",
                                             "adagrad",
                                             "rmsprop",
                                             "nadam",
                                             "amsgrad",
                                             "lamb",
                                             "lars",
                                             "onebit_lamb",
                                             "diloco",
                                             "sparse_loco",
                                             "adafactor",
                                             "sm3",
                                             "zero_adam",
                                             "zero_onebit_adam"};

/// The one place where a name becomes a type: everything below it is compiled for that optimizer.
template <class Transport>
auto train_named(example::settings const& s, example::corpus const& text, Transport link) {
  using example::train;
  if (s.optimizer == "adam") return train<zoadam::adam<Transport>>(s, text, std::move(link));
  if (s.optimizer == "onebit_adam") return train<zoadam::onebit_adam<Transport>>(s, text, std::move(link));
  if (s.optimizer == "zero_one_adam") return train<zoadam::zero_one_adam<Transport>>(s, text, std::move(link));
  if (s.optimizer == "zero_one_adam_paper") {
    return train<zoadam::zero_one_adam_paper<Transport>>(s, text, std::move(link));
  }
  if (s.optimizer == "local_adam") return train<zoadam::local_adam<Transport>>(s, text, std::move(link));
  if (s.optimizer == "sgd") return train<zoadam::sgd<Transport>>(s, text, std::move(link));
  if (s.optimizer == "momentum_sgd") return train<zoadam::momentum_sgd<Transport>>(s, text, std::move(link));
  if (s.optimizer == "nesterov_sgd") return train<zoadam::nesterov_sgd<Transport>>(s, text, std::move(link));
  if (s.optimizer == "adagrad") return train<zoadam::adagrad<Transport>>(s, text, std::move(link));
  if (s.optimizer == "rmsprop") return train<zoadam::rmsprop<Transport>>(s, text, std::move(link));
  if (s.optimizer == "nadam") return train<zoadam::nadam<Transport>>(s, text, std::move(link));
  if (s.optimizer == "amsgrad") return train<zoadam::amsgrad<Transport>>(s, text, std::move(link));
  if (s.optimizer == "lamb") return train<zoadam::lamb<Transport>>(s, text, std::move(link));
  if (s.optimizer == "lars") return train<zoadam::lars<Transport>>(s, text, std::move(link));
  if (s.optimizer == "onebit_lamb") return train<zoadam::onebit_lamb<Transport>>(s, text, std::move(link));
  if (s.optimizer == "diloco") return train<zoadam::diloco<Transport>>(s, text, std::move(link));
  if (s.optimizer == "sparse_loco") return train<zoadam::sparse_loco<Transport>>(s, text, std::move(link));
  if (s.optimizer == "adafactor") return train<zoadam::adafactor<Transport>>(s, text, std::move(link));
  if (s.optimizer == "sm3") return train<zoadam::sm3<Transport>>(s, text, std::move(link));
  if (s.optimizer == "zero_adam") return train<zoadam::zero_adam<Transport>>(s, text, std::move(link));
  if (s.optimizer == "zero_onebit_adam") return train<zoadam::zero_onebit_adam<Transport>>(s, text, std::move(link));
  throw std::invalid_argument("unknown optimizer " + s.optimizer);
}

}  // namespace

int main(int argc, char** argv) {
  return example::run_program(argc, argv, optimizers, [](auto const& s, auto const& text, auto link) {
    return train_named(s, text, std::move(link));
  });
}
