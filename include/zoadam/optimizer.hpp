// SPDX-License-Identifier: Apache-2.0
// The optimizer: runs a state's program over a backend and a transport. It knows stages, not algorithms.
#pragma once

#include <array>
#include <concepts>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "zoadam/concepts/backend.hpp"
#include "zoadam/concepts/transport.hpp"
#include "zoadam/detail/agreement.hpp"
#include "zoadam/detail/segment.hpp"
#include "zoadam/detail/storage.hpp"
#include "zoadam/detail/uses.hpp"
#include "zoadam/detail/window.hpp"
#include "zoadam/lane/mode.hpp"
#include "zoadam/options.hpp"

namespace zoadam {
namespace detail {
struct field_access;
}

/// Quantizer   how a value travels
/// Sync        when workers exchange
/// State       what is remembered, and the program that a step runs
/// Backend     where loops run
/// Transport   who moves the bytes
///
/// Collective: construction, step(), synchronize(), rebase(): every rank, in the same order, one thread at a time.
///
/// Errors: argument_error before anything changed; mismatch_error when ranks disagree; transport_error. A call that
/// throws leaves the parameters as they were. After anything but an argument_error every call that changes something
/// throws poisoned_error; so does every call of an optimizer that was moved from, if it needs its tensors.
template <quantizer Quantizer, sync Sync, state State, backend Backend, transport Transport>
requires has_program<State, Quantizer, Sync>
class optimizer {
 public:
  using quantizer_type = Quantizer;
  using sync_type = Sync;
  using state_type = State;
  using backend_type = Backend;
  using transport_type = Transport;
  using options_type = options<Quantizer, Sync, State>;
  using program_type = program_of<State, Quantizer, Sync>;
  using fields = typename detail::storage<typename State::fields, program_type, Backend>::fields;
  /// step_report, or what delivers one when the device has caught up.
  using report_type = decltype(std::declval<Backend&>().report(std::declval<detail::view<fields> const&>(),
                                                               step_report{}, std::declval<Transport const&>()));

  static_assert(detail::passes_stay_within<
                    program_type, detail::unite<typename fields::tags, tags<at::gradient_t, at::parameter_t>>>,
                "zoadam: a pass uses a field that the state does not declare in its fields");
  static_assert(
      detail::passes_avoid<program_type, detail::at_home<fields, home::owner>>,
      "zoadam: a pass runs on every worker and cannot use a field that only the owner of a chunk has; use it "
      "in the own() of an exchange");
  static_assert(
      std::is_same_v<detail::at_home<typename State::fields, home::owner>, tags<>> || detail::one_cut<program_type>,
      "zoadam: a state with owner fields needs exchanges that cut elements into the same chunks; give their "
      "quantizers the same groups");
  static_assert(detail::passes_write_elements<program_type>,
                "zoadam: a pass sets values of elements; the scalars of a tensor are set by a tensor_reduction, "
                "the values of slices by a slice_reduction");

  /// Parameters must be equal on all ranks; they and the gradients are borrowed and must outlive the optimizer.
  ///
  /// Collective: every rank. Errors of one rank throw on all: argument_error there, mismatch_error elsewhere.
  optimizer(std::vector<tensor> tensors, options_type settings, Transport link, Backend where = Backend{})
      : optimizer(std::move(tensors), std::move(settings), std::move(link), std::move(where), nullptr) {}
  /// The same for one of several optimizers that take turns and share the memory of their messages, which memory()
  /// does not count.
  optimizer(std::vector<tensor> tensors, options_type settings, Transport link, Backend where,
            std::shared_ptr<detail::shared_messages<Backend>> messages)
      : options_(std::move(settings)), link_(std::move(link)), backend_(std::move(where)) {
    std::exception_ptr failure;
    detail::agreement mine;
    try {
      ZOADAM_EXPECTS(link_.size() >= 1, "optimizer(link)", "the transport was moved from");
      backend_.expect_transport(link_);
      options_.validate();
      group_ = options_.parameter_groups();
      program_ = options_.state.program(options_.quantizer, options_.sync);
      storage_.plan(std::move(tensors), static_cast<index>(group_.size()), link_.size(), link_.rank(), backend_,
                    std::move(messages));
      storage_.view().hyper = detail::hyper_numbers_of(options_);
      backend_.start(storage_.view());
      window_.start(group_.size());
      numbers_.resize(group_.size());
      mine = {true, composition_hash(), detail::hash_of(storage_.tensors()), detail::hash_of(options_),
              storage_.parameter_hash(backend_)};
      storage_.anchor_parameters(backend_);
    } catch (...) {
      failure = std::current_exception();
    }
    try {
      detail::agree(backend_, link_, mine, "optimizer()");
    } catch (...) {
      if (failure) std::rethrow_exception(failure);
      throw;
    }
    if (failure) std::rethrow_exception(failure);
    storage_.write_working(backend_);
    signature_ = mine.combined();
    options_.state.start(clock_);
  }

  optimizer(optimizer&&) noexcept = default;
  optimizer& operator=(optimizer&&) = delete;

  /// One step with the gradients that now lie in the tensors.
  ///
  /// @param lr          learning rate, finite, >= 0, equal on all ranks; unless it is 0, lr * lr_factor must lie in
  ///                    [2^-126, 2^64] for every group
  /// @param grad_scale  multiplies the gradients (1 / accumulated micro-batches, 1 / loss scale); at least 2^-126
  report_type step(double lr, double grad_scale = 1) {
    return step(lr, grad_scale, [](std::uint64_t, auto const& enqueue) { enqueue(); });
  }
  /// The same for a caller that records the loops of a step and replays them, such as step_graphs: launch(path,
  /// enqueue) either calls enqueue(), or replays what it has recorded of a step with the same path. Steps with an
  /// exchange or a reduction are not offered.
  template <class Launch>
  report_type step(double lr, double grad_scale, Launch&& launch) {
    return take_step(lr, grad_scale, launch, [] {});
  }

  /// Forces the exchange that makes parameters agree (before evaluation, at the end). Does nothing if they do.
  report_type synchronize() {
    enter("optimizer::synchronize");
    guarded([&] {
      begin(1);
      refresh(detail::advance::never);
      for_each_exchange([&]<std::size_t I, class What>() {
        if constexpr (What::closes_window && !What::carries_gradient) {
          if constexpr (!What::idempotent) {
            if (window_.steps() == 0) return;
            schedule_[I].last = clock_.step;
            if (window_.empty()) {
              window_.close();
              return;
            }
          }
          What::form(window_.steps() == 1, false, [&](auto form) {
            run_exchange<I, decltype(form), detail::segment<detail::nothing, detail::nothing>>(
                detail::no_messages{}, [&]<class Next>(auto const& in) {
                  backend_.template run<Next>(storage_.view(), in, detail::no_messages{});
                });
          });
          window_.close();
        }
      });
    });
    return report();
  }

  /// Takes parameters that the user has changed, the same way on every rank, as the new starting point; moments and
  /// errors stay. Of tensors given in 16 bits alone it takes the working copies, and forgets the rest of the master.
  /// Errors: argument_error while a window of local steps is open (call synchronize() first); mismatch_error if the
  /// parameters differ between ranks.
  void rebase() {
    enter("optimizer::rebase");
    ZOADAM_EXPECTS(window_.steps() == 0, "optimizer::rebase", "local steps are open: synchronize() first");
    guarded([&] {
      detail::agreement mine{true, 0, 0, 0, storage_.working_hash(backend_)};
      detail::agree(backend_, link_, mine, "optimizer::rebase");
      backend_.poll("optimizer::rebase");  // the device has caught up, and may have found a mismatch
      storage_.read_working(backend_);
      storage_.anchor_parameters(backend_);
      storage_.write_working(backend_);
    });
  }

  /// Restarts the schedule of variance updates at the next step. Call it on all ranks.
  void reopen_variance() requires(requires { requires State::reopens_variance; }) {
    enter("optimizer::reopen_variance");
    clock_.origin = clock_.step;
    for_each_exchange([&]<std::size_t I, class What>() {
      if constexpr (What::advances_variance) schedule_[I] = {};
    });
  }

  /// Whether the next step will exchange, variance rounds aside. `lr`: its learning rate, where the sync policy asks.
  bool will_exchange(double lr) const noexcept { return exchanges_next(lr, window_.empty() && lr == 0); }
  /// The same for any learning rate above 0; policies that ask for it see that of the last step.
  bool will_exchange() const noexcept { return exchanges_next(clock_.lr, false); }

  /// The parameters of tensor t that all workers agree on: those after the last exchange. Empty where owners have the
  /// masters of a tensor given in 16 bits alone: its working copy is what workers agree on.
  std::span<float const> agreed(index t) const {
    ZOADAM_EXPECTS(t >= 0 && t < storage_.tensors().size(), "optimizer::agreed", "there is no such tensor");
    return storage_.values(typename State::agreed{}, t);
  }

  /// A field of this rank, flat: every element for worker and replica fields, the owner's for owner fields.
  template <class Tag>
  requires detail::contains<typename fields::tags, Tag> std::span<float const> values(Tag tag)
  const { return storage_.values(tag); }

  /// Hash of everything that is equal on all ranks: replica fields, and the parameters unless local steps are open.
  std::uint64_t replica_hash() const {
    return storage_.replica_hash(backend_, window_.steps() == 0 ? storage_.parameter_hash(backend_) : 0);
  }

  /// Gives up: pending and later calls of the peers throw where the transport can reach them, later ones here do.
  void abort() noexcept { give_up(); }

  index steps() const noexcept { return clock_.step; }
  /// Steps since all workers agreed on the parameters.
  index local_steps() const noexcept { return window_.steps(); }
  index elements() const { return storage_.tensors().elements(); }
  int rank() const noexcept { return link_.rank(); }
  int workers() const noexcept { return link_.size(); }
  /// Updates of the variance so far.
  index variance_updates() const { return (void)storage_.tensors(), backend_.now(storage_.view()).count; }
  memory_use memory() const noexcept { return storage_.use(); }
  /// Bytes of state and errors per parameter on one of n ranks. Beyond memory().fields it leaves out what rounding
  /// up, gaps, chunks of unequal length, scalars of tensors and values of slices add; masters of tensors given in 16
  /// bits alone cost 4 more.
  static constexpr double state_bytes(int ranks) noexcept {
    return 4.0 * (fields::template count<home::worker> + fields::template count<home::replica>)+4.0 *
           fields::template count<home::owner> / ranks;
  }
  index bytes_sent() const noexcept { return link_.bytes_sent(); }

  /// The composition in words.
  std::string name() const {
    detail::namer sink;
    describe(sink);
    return sink.text();
  }

 private:
  friend detail::field_access;

  static constexpr std::size_t stages_ = std::tuple_size_v<program_type>;
  struct stage_schedule {
    index last = 0, count = 0;
  };
  // Set by a failure half-way, and in what was moved from.
  struct poison {
    bool set = false;
    poison() = default;
    poison(poison&& from) noexcept : set(std::exchange(from.set, true)) {}
  };

  template <class Sink>
  void describe(Sink& sink) const {
    options_.quantizer.describe(sink);
    options_.sync.describe(sink);
    options_.state.describe(sink);
  }
  std::uint64_t composition_hash() const {
    detail::hasher sink;
    describe(sink);
    return sink.value();
  }

  // Nothing is sent while every learning rate of the window was 0.
  bool exchanges_next(double lr, bool without_rate) const noexcept {
    bool answer = false;
    for_each_exchange([&]<std::size_t I, class What>() {
      if constexpr (!What::variance_only) {
        clock c = stage_clock(I);
        c.advance(lr);
        answer |= !(What::divides_by_gamma && without_rate) && std::get<I>(program_).when.due(c);
      }
    });
    return answer;
  }

  // learn(): what else there is to know of the gradient.
  template <class Launch, class Learn>
  report_type take_step(double lr, double grad_scale, Launch&& launch, Learn const& learn) {
    enter("optimizer::step");
    ZOADAM_EXPECTS(detail::not_negative(lr), "optimizer::step", "lr must be finite and >= 0");
    ZOADAM_EXPECTS(detail::window::takes(lr, group_), "optimizer::step",
                   "lr times the lr_factor (and the weight_decay) of a group is too small or too large for float32");
    ZOADAM_EXPECTS(detail::not_negative(grad_scale) && grad_scale >= 0x1p-126, "optimizer::step",
                   "grad_scale must be in [2^-126, largest float32]");
    guarded([&] {
      clock_.advance(lr);
      window_.add(lr, group_);
      begin(grad_scale);
      auto const enqueue = [&] {
        if (!options_.trusted_gradients) backend_.check(storage_.view());
        learn();
        refresh(detail::advance::never);
        walk<0, detail::segment<detail::nothing, detail::nothing>>(detail::no_messages{});
      };
      due_stages const due = stages_due();
      if (due.only_passes) {
        launch(due.path, enqueue);
      } else {
        enqueue();
      }
      if (closing_ || !detail::has_window<program_type>) window_.close();
    });
    return report();
  }

  // ---- a call ----

  void refuse_poisoned(char const* call) const {
    if (!poisoned_.set) return;
    throw poisoned_error(std::string("zoadam: ") + call +
                         ": an earlier call failed half-way, or the optimizer was moved from");
  }

  void give_up() noexcept {
    poisoned_.set = true;
    link_.abort();
  }
  // Start of every call that changes something. A backend that runs behind learns of a mismatch after the call in
  // which it happened; every later call says so.
  void enter(char const* call) {
    try {
      backend_.poll(call);
    } catch (mismatch_error const&) {
      give_up();
      throw;
    } catch (argument_error const&) {
      refuse_poisoned(call);
      throw;
    } catch (...) {
      refuse_poisoned(call);
      give_up();
      throw;
    }
    refuse_poisoned(call);
  }

  template <class Body>
  void guarded(Body const& body) {
    floating_point_mode const ieee;
    report_ = {};
    report_.alone = !detail::has_window<program_type>;
    closing_ = false;
    index const sent = link_.bytes_sent();
    try {
      body();
    } catch (mismatch_error const&) {  // every rank sees it for itself
      poisoned_.set = true;
      throw;
    } catch (transport_error const&) {
      give_up();
      backend_.explain();  // a peer may have seen first what this rank is about to learn
      throw;
    } catch (...) {
      give_up();
      throw;
    }
    report_.step = clock_.step;
    report_.bytes_sent = link_.bytes_sent() - sent;
  }
  report_type report() { return backend_.report(storage_.view(), report_, link_); }

  void begin(double gradient_scale) {
    for (std::size_t g = 0; g < group_.size(); ++g) numbers_[g] = window_.numbers(g, clock_.lr, group_[g]);
    backend_.begin(storage_.view(), gradient_scale, numbers_);
  }
  void refresh(detail::advance when) { backend_.refresh(storage_.view(), when); }

  // ---- the program ----

  clock stage_clock(std::size_t i) const noexcept {
    clock c = clock_;
    c.last = schedule_[i].last;
    c.count = schedule_[i].count;
    return c;
  }

  // Which stages are due: bit i for stage i. Passes and reductions per tensor or slice change nothing on the host.
  struct due_stages {
    std::uint64_t path = 0;
    bool only_passes = true;
  };
  due_stages stages_due() const noexcept {
    due_stages all;
    [&]<std::size_t... I>(std::index_sequence<I...>) { (note_due<I>(std::get<I>(program_), all), ...); }
    (std::make_index_sequence<stages_>{});
    return all;
  }
  template <std::size_t I, class Stage>
  void note_due(Stage const& stage, due_stages& all) const noexcept {
    if (!stage.when.due(stage_clock(I))) return;
    all.path |= std::uint64_t{1} << I;
    all.only_passes = all.only_passes && (detail::is_pass<Stage> || detail::is_tensor_reduction<Stage> ||
                                          detail::is_slice_reduction<Stage>);
  }

  // Runs stages I, I + 1, ...; Segment is what has been gathered since the last collective, `in` its input.
  template <std::size_t I, class Segment, class In>
  void walk(In const& in) {
    if constexpr (!Segment::complete) {
      refuse_incomplete();
    } else if constexpr (I == stages_) {
      backend_.template run<Segment>(storage_.view(), in, detail::no_messages{});
    } else {
      walk_stage<I, Segment>(std::get<I>(program_), in);
    }
  }

  template <std::size_t I, class Segment, class In, class Formula, class When>
  void walk_stage(pass<Formula, When> const& stage, In const& in) {
    if constexpr (!std::is_same_v<When, always>) {
      if (!stage.when.due(stage_clock(I))) return walk<I + 1, Segment>(in);
    }
    if constexpr (requires { Formula::advances_variance; }) refresh(detail::advance::unless_bad);
    walk<I + 1, typename Segment::template then<Formula>>(in);
  }

  template <std::size_t I, class Segment, class In, class Formula, class When>
  void walk_stage(reduction<Formula, When> const& stage, In const& in) {
    if (!stage.when.due(stage_clock(I))) return walk<I + 1, Segment>(in);
    backend_.template run<Segment>(storage_.view(), in, detail::no_messages{});
    options_.state.observe(clock_, backend_.template reduce<Formula>(storage_.view()));
    walk<I + 1, detail::segment<detail::nothing, detail::nothing>>(detail::no_messages{});
  }

  template <std::size_t I, class Segment, class In, class Formula, class When>
  void walk_stage(tensor_reduction<Formula, When> const& stage, In const& in) {
    if (!stage.when.due(stage_clock(I))) return walk<I + 1, Segment>(in);
    using segment = typename Segment::template into<detail::reducing<Formula>>;
    if constexpr (segment::complete) {
      backend_.template reduce_tensors<segment>(storage_.view(), in, stage.formula);
      after_reduction<I + 1, Segment>(in);
    } else {
      refuse_incomplete();
    }
  }

  template <std::size_t I, class Segment, class In, class Formula, class When>
  void walk_stage(slice_reduction<Formula, When> const& stage, In const& in) {
    if (!stage.when.due(stage_clock(I))) return walk<I + 1, Segment>(in);
    using segment = typename Segment::template into<detail::slice_reducing<Formula>>;
    static_assert(Formula::maximum || std::is_same_v<typename segment::stores, tags<>>,
                  "zoadam: loops for sums over slices run more than once and may store nothing");
    static_assert(Formula::maximum || std::is_same_v<typename segment::slices, tags<>>,
                  "zoadam: a term that is summed over slices reads no slice values");
    if constexpr (segment::complete) {
      backend_.template reduce_slices<segment>(storage_.view(), in, stage.formula);
      after_reduction<I + 1, Segment>(in);
    } else {
      refuse_incomplete();
    }
  }

  // A transient is read where the exchange that sets it was not due: an error in the state's program.
  [[noreturn]] static void refuse_incomplete() {
    throw std::logic_error("zoadam: the program reads a value of this step that no stage has set");
  }

  template <std::size_t I, class Segment, class In>
  void after_reduction([[maybe_unused]] In const& in) {
    if constexpr (Segment::receive::repeatable) {
      walk<I, typename Segment::next>(in);
    } else {
      walk<I, typename Segment::next>(detail::no_messages{});
    }
  }

  template <std::size_t I, class Segment, class In, class What, class When, class Up, class Down>
  void walk_stage(exchange<What, When, Up, Down> const& stage, In const& in) {
    if (!stage.when.due(stage_clock(I))) return walk<I + 1, Segment>(in);
    schedule_[I].last = clock_.step;
    schedule_[I].count += 1;
    if constexpr (What::closes_window) {
      closing_ = true;
    }
    if constexpr (What::divides_by_gamma) {
      // Learning rate 0 throughout: nobody moved, so there is nothing to send.
      if (window_.empty()) return walk<I + 1, Segment>(in);
    }
    What::form(window_.steps() == 1, true, [&](auto form) {
      run_exchange<I, decltype(form), Segment>(in, [&]<class Next>(auto const& next) { walk<I + 1, Next>(next); });
    });
  }

  // Both phases of exchange I. `proceed.operator()<Next>(next_in)` gets the segment that takes in the result.
  template <std::size_t I, class Form, class Segment, class In, class Proceed>
  void run_exchange(In const& in, Proceed const& proceed) {
    using stage = std::tuple_element_t<I, program_type>;
    using what = typename stage::what;
    using up_type = typename stage::up;
    using down_type = typename stage::down;
    auto const& p = storage_.template cut<I>();
    auto const& view = storage_.view();
    int const me = link_.rank();
    using only_elements = detail::unite<detail::unite<typename Form::bound_reads, typename Form::receive_writes>,
                                        detail::unite<typename Form::own_reads, typename Form::own_writes>>;
    static_assert(std::is_same_v<detail::scalars_of<only_elements>, tags<>>,
                  "zoadam: an exchange sets no scalars of a tensor, and only its send() and receive() read them");

    auto const [outbox, inbox, result] = storage_.next_exchange();
    message_header header = make_header(I);
    if constexpr (what::closes_window) header.flags |= message_header::closes_window;
    detail::outgoing<up_type, what::carries_gradient> out{&p.up, outbox, nullptr};
    if constexpr (detail::needs_carry<up_type>) out.carry = view.field[at::worker_error_t<what>{}];
    backend_.template run<typename Segment::template into<Form>>(view, in, out);
    backend_.write_headers_up(view, header, what::carries_gradient, p.up, outbox);
    link_.all_to_all(p.up.offsets(), outbox, inbox);

    backend_.read_headers_up(view, header, p.up, me, inbox);
    if constexpr (what::advances_variance) {
      refresh(detail::advance::if_contributed);
    } else if constexpr (what::tells_contributed) {
      refresh(detail::advance::never);
    }
    float* carry = nullptr;
    if constexpr (detail::needs_carry<down_type>) carry = view.field[at::owner_error_t<what>{}];
    backend_.template own<Form>(view, p.up, p.down, me, inbox, result, carry);
    backend_.write_header_down(view, header, result);
    link_.all_gather(p.down.offsets(), result, outbox);
    backend_.read_headers_down(view, header, p.down, outbox);

    report_.payload_bytes += p.up.payload_bytes();
    if constexpr (!what::variance_only) report_.exchanged = true;
    proceed.template operator()<detail::segment<Form, detail::nothing>>(
        detail::incoming < down_type, what::carries_gradient && !Form::unconditional > {&p.down, outbox});
  }

  message_header make_header(std::size_t stage) const noexcept {
    message_header h;
    h.flags = static_cast<std::uint32_t>(stage) << 8;
    h.composition = signature_;
    h.step = static_cast<std::uint64_t>(clock_.step);
    h.gamma = window_.gamma(0);
    h.groups = window_.hash(clock_.lr);
    return h;
  }

  // f.operator()<I, What>() for every exchange of the program.
  template <class F>
  static void for_each_exchange(F const& f) {
    [&]<std::size_t... I>(std::index_sequence<I...>) { (visit_exchange<I>(f), ...); }
    (std::make_index_sequence<stages_>{});
  }
  template <std::size_t I, class F>
  static void visit_exchange(F const& f) {
    using stage = std::tuple_element_t<I, program_type>;
    if constexpr (detail::is_exchange<stage>) f.template operator()<I, typename stage::what>();
  }

  options_type options_;
  Transport link_;
  Backend backend_;
  std::vector<parameter_group> group_;
  program_type program_;
  detail::storage<typename State::fields, program_type, Backend> storage_;

  clock clock_;
  std::array<stage_schedule, stages_> schedule_{};
  detail::window window_;
  std::uint64_t signature_ = 0;

  std::vector<detail::group_numbers> numbers_;
  step_report report_;
  bool closing_ = false;
  poison poisoned_;
};

namespace detail {

/// For what is built on an optimizer: its fields, to write, and where they lie.
struct field_access {
  template <class Optimizer, class Tag>
  static std::span<float> values(Optimizer& o, Tag tag) {
    return {o.storage_.view().field[tag], o.values(tag).size()};
  }
  /// A step on a gradient that `reducers` have reduced, and know all about.
  template <class Optimizer, class Reducers>
  static typename Optimizer::report_type step(Optimizer& o, double lr, Reducers const& reducers) {
    auto const launch = [](std::uint64_t, auto const& enqueue) { enqueue(); };
    return o.take_step(lr, 1, launch, [&] {
      constexpr bool alone = !has_window<typename Optimizer::program_type>;
      for (auto const& each : reducers) o.backend_.learn_missing(o.storage_.view(), each.storage_.view(), alone);
    });
  }
  /// See partition::for_runs.
  template <class Optimizer, class F>
  static void for_own_runs(Optimizer const& o, F const& f) {
    o.storage_.template cut<0>().up.for_runs(o.rank(), o.storage_.tensors(), f);
  }
};

}  // namespace detail
}  // namespace zoadam
