// SPDX-License-Identifier: Apache-2.0
// Two levels: gradients are reduced into shards within a node, any optimizer runs on each shard across nodes, and
// parameters are gathered within the node.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "zoadam/optimizer.hpp"
#include "zoadam/quantizer/identity.hpp"
#include "zoadam/quantizer/nothing.hpp"
#include "zoadam/quantizer/regrouped.hpp"
#include "zoadam/state/formulas.hpp"
#include "zoadam/sync/every_step.hpp"
#include "zoadam/transport/borrowed.hpp"

namespace zoadam {
namespace at {
/// The mean gradient of a node, at the owner of its chunk.
struct shard_gradient_t {
  static constexpr char const* name = "shard_gradient";
};
inline constexpr shard_gradient_t shard_gradient;
}  // namespace at

/// When the parameters of a layer are whole on every rank: from step to step (ZeRO, stage 2), or between
/// materialize() and release() (stage 3).
enum class residence { always, on_demand };

namespace detail {

/// Reduce-scatter: the mean gradient stays at the owner.
struct reduce_gradient : exchange_facts {
  static constexpr bool carries_gradient = true;
  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : exchange_form {
    static constexpr bool unconditional = true;
    using send_reads = tags<at::gradient_t>;
    using own_reads = tags<>;
    using own_writes = tags<at::shard_gradient_t>;
    using receive_reads = tags<>;
    using receive_writes = tags<>;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const& r, Coefficients const& k) noexcept {
      return formula::gradient(r, k);
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static Lane own(Registers& r, Lane mean, Coefficients const&) noexcept {
      return r[at::shard_gradient] = mean;
    }
    /// The optimizer of the shard is told.
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto missing(Registers& r, Coefficients const&) noexcept {
      return r[at::shard_gradient] = formula::value_of<Registers>(0.0f);
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers&, Lane, Coefficients const&) noexcept {}
  };
};

/// All-gather of the owners' parameters.
struct gather_parameters : exchange_facts {
  static constexpr bool closes_window = true;
  static constexpr bool idempotent = true;
  template <class F>
  static decltype(auto) form(bool, bool, F f) {
    return f(the_form{});
  }
  struct the_form : exchange_form {
    using send_reads = tags<>;
    using own_reads = tags<at::parameter_t>;
    using receive_reads = tags<>;
    using receive_writes = tags<at::parameter_t>;
    template <class Registers, class Coefficients>
    ZOADAM_INLINE static auto send(Registers const&, Coefficients const& k) noexcept {
      return k.lr;  // nothing_quantizer drops it
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static Lane own(Registers& r, Lane, Coefficients const&) noexcept {
      return r[at::parameter];
    }
    template <class Registers, class Lane, class Coefficients>
    ZOADAM_INLINE static void receive(Registers& r, Lane value, Coefficients const&) noexcept {
      r[at::parameter] = value;
    }
  };
};

/// Only where synchronize() asks for it.
struct on_demand {
  constexpr bool due(clock const&) const noexcept { return false; }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("on_demand");
  }
};

/// step() reduces gradients into the shard, synchronize() gathers the parameters from it.
template <quantizer Wire>
struct shard_state {
  using fields = zoadam::fields<field<at::shard_gradient_t, home::owner>, field<at::master_t, home::owner>>;
  using agreed = at::parameter_t;

  constexpr void start(clock&) const noexcept {}

  template <class Quantizer, class Sync>
  constexpr auto program(Quantizer, Sync when) const {
    using headers_only = regrouped<nothing_quantizer, typename Quantizer::groups>;
    return std::tuple(exchange<reduce_gradient, Sync, Quantizer, headers_only>{when},
                      exchange<gather_parameters, on_demand, headers_only, Wire>{});
  }
  template <class Sink>
  void describe(Sink& sink) const {
    sink("shard");
    Wire{}.describe(sink);
  }
};

/// Chunks are cut where the scales of the shard's optimizer begin, so that a shard has the scales of the whole.
template <class Quantizer>
struct shard_groups {
  static_assert(!Quantizer::has_scale || block_size<typename Quantizer::groups> > 0,
                "zoadam: sharded: a group of the optimizer's quantizer would reach over several shards; use block "
                "scales");
  using type = std::conditional_t<Quantizer::has_scale, typename Quantizer::groups, block<>>;
};

}  // namespace detail

/// What a step on devices reports: get() waits. Valid for the 8 latest steps.
template <class Across, class Within>
class [[nodiscard]] sharded_report {
 public:
  sharded_report(Across across, std::vector<Within> within, index bytes)
      : across_(std::move(across)), within_(std::move(within)), bytes_(bytes) {}
  bool ready() const {
    for (Within const& each : within_)
      if (!each.ready()) return false;
    return across_.ready();
  }
  /// Errors: those of either level.
  step_report get() const {
    for (Within const& each : within_) (void)each.get();
    step_report all = across_.get();
    all.bytes_sent += bytes_;
    return all;
  }

 private:
  Across across_;
  std::vector<Within> within_;
  index bytes_;
};

/// ZeRO within a node, any optimizer across nodes: the mean gradient of the node's n ranks is reduced into chunks,
/// each rank runs an Optimizer on its chunk with the ranks of other nodes that have the same chunk, and the node
/// gathers the parameters. The parameters are those of Optimizer with nodes as its workers, bit for bit, if Up and
/// Wire are the identity. On one node (Optimizer over single_transport) this is flat ZeRO for any state.
///
/// Optimizer  what runs on a shard, with its own quantizer, sync policy, state and transport across nodes
/// Link       transport within the node
/// Residence  always: parameters are whole after every step; on_demand: between materialize() and release() or
///            step()
/// Up, Wire   how gradients and parameters travel within the node; without scale
///
/// A gradient that is bad counts as missing in its layer, since what has been reduced before cannot be called back;
/// where no rank of the node has one for some layer, the node has none, and none of its ranks.
///
/// Memory     8 / n bytes per parameter (float32 parameters and mean gradient of the chunk), the messages of the
///            largest layer, and 1 / n of what Optimizer has
/// Collective every call but will_exchange() and accessors: all ranks of the node, and where it steps all nodes
/// Errors     as the optimizer's. A rank on which a call throws has aborted both transports; if it was while the node
///            gathered, layers of the new step may stand beside layers of the old one.
///
/// Source: ZeRO, sections 5.1 to 5.3.
template <class Optimizer, transport Link, residence Residence = residence::always, quantizer Up = identity_quantizer,
          quantizer Wire = identity_quantizer>
class sharded {
  using groups = typename detail::shard_groups<typename Optimizer::quantizer_type>::type;
  static_assert(!detail::reduces_tensors<typename Optimizer::program_type>,
                "zoadam: sharded: a shard holds parts of tensors, and the optimizer needs sums over whole ones or "
                "over their slices");

 public:
  using optimizer_type = Optimizer;
  using options_type = typename Optimizer::options_type;
  using backend_type = typename Optimizer::backend_type;

 private:
  using shard_type = optimizer<regrouped<Up, groups>, every_step, detail::shard_state<regrouped<Wire, groups>>,
                               backend_type, borrowed<Link>>;

 public:
  /// step_report, or a sharded_report. It speaks of nodes where the optimizer's speaks of workers: skipped_here: this
  /// node had no gradient; skipped_since: nodes on which some rank's was bad. exchanged: across nodes.
  using report_type =
      std::conditional_t<std::same_as<typename Optimizer::report_type, step_report>, step_report,
                         sharded_report<typename Optimizer::report_type, typename shard_type::report_type>>;

  /// Layers are reduced, and with residence::on_demand materialized, one by one; `layers` may be one. With on_demand,
  /// spans of different layers may lie in the same memory: load(layer), if given, is called before the parameters of
  /// that layer are read.
  ///
  /// max_norm, for one layer alone, clips the gradient of each rank before it is reduced; other options are the
  /// optimizer's.
  sharded(
      std::vector<std::vector<tensor>> layers, options_type settings, Link link,
      typename Optimizer::transport_type across,
      std::function<backend_type()> const& make_backend = [] { return backend_type{}; },
      std::function<void(index layer)> const& load = {})
      : link_(std::make_unique<Link>(std::move(link))) {
    ZOADAM_EXPECTS(!layers.empty(), "sharded(layers)", "layers: the list is empty");
    ZOADAM_EXPECTS(layers.size() == 1 || settings.max_norm == 0, "sharded(settings)",
                   "max_norm needs the norm over all layers: give one layer");
    auto const own = shard_options(settings);
    std::vector<tensor> mine;
    shards_.reserve(layers.size());
    for (std::vector<tensor>& layer : layers) {
      if (load) load(static_cast<index>(shards_.size()));
      std::vector<tensor> const list = layer;
      shards_.emplace_back(std::move(layer), own, borrowed<Link>(*link_), make_backend(), messages_);
      add_chunk(list, shards_.back(), mine);
    }
    reduced_.resize(shards_.size());
    whole_.resize(shards_.size());
    said_.resize(shards_.size());
    settings.max_norm = 0;
    settings.trusted_gradients = true;  // the shards have looked at them
    try {
      optimizer_.emplace(std::move(mine), std::move(settings), std::move(across), make_backend());
    } catch (...) {
      link_->abort();
      throw;
    }
  }

  index layers() const noexcept { return static_cast<index>(shards_.size()); }

  /// Reduces the gradients of one layer into the shards; its gradient spans may be reused when the call returns (on
  /// devices: when the stream gets there). step() reduces the layers that have not been. Arguments: those of the
  /// step.
  void reduce(index layer, double lr, double grad_scale = 1) {
    auto& shard = at(layer, "sharded::reduce");
    auto const l = static_cast<std::size_t>(layer);
    ZOADAM_EXPECTS(!reduced_[l], "sharded::reduce",
                   "layer " + std::to_string(layer) + " has been reduced in this step");
    expect_begun("sharded::reduce", lr, grad_scale);
    guarded([&] { (void)said_[l].emplace(shard.step(lr, grad_scale)); });
    reduced_[l] = true;
    begun_ = {lr, grad_scale};
  }

  /// One step. Arguments as the optimizer's; those that reduce() was given.
  report_type step(double lr, double grad_scale = 1) {
    expect_begun("sharded::step", lr, grad_scale);
    index const sent = link_->bytes_sent();
    for (index l = 0; l < layers(); ++l) {
      if (!reduced_[static_cast<std::size_t>(l)]) reduce(l, lr, grad_scale);
    }
    reduced_.assign(shards_.size(), false);
    begun_.reset();
    return guarded([&] { return gathered(detail::field_access::step(*optimizer_, lr, shards_), sent); });
  }

  /// Forces the exchange that makes all nodes agree.
  report_type synchronize() {
    index const sent = link_->bytes_sent();
    return guarded([&] { return gathered(optimizer_->synchronize(), sent); });
  }

  /// Takes parameters that the user has changed, the same way on every rank, as the new starting point; see
  /// optimizer::rebase().
  void rebase() requires(Residence == residence::always) {
    ZOADAM_EXPECTS(optimizer_->local_steps() == 0, "sharded::rebase", "local steps are open: synchronize() first");
    guarded([&] {
      for (shard_type& shard : shards_) shard.rebase();
      optimizer_->rebase();
    });
  }

  /// Writes the parameters of a layer into its spans, on every rank of the node, unless it has since the last step
  /// and release(). On devices it only enqueues: called a layer ahead it overlaps with that layer's work on the host.
  void materialize(index layer) requires(Residence == residence::on_demand) {
    auto& shard = at(layer, "sharded::materialize");
    if (whole_[static_cast<std::size_t>(layer)]) return;
    guarded([&] { (void)said_[static_cast<std::size_t>(layer)].emplace(shard.synchronize()); });
    whole_[static_cast<std::size_t>(layer)] = true;
  }
  /// The spans of a layer may be used for something else until it is materialized again.
  void release(index layer) requires(Residence == residence::on_demand) {
    (void)at(layer, "sharded::release");
    whole_[static_cast<std::size_t>(layer)] = false;
  }

  bool will_exchange(double lr) const noexcept { return optimizer_->will_exchange(lr); }
  index steps() const noexcept { return optimizer_->steps(); }
  /// What runs on this rank's shard.
  Optimizer const& shard_optimizer() const noexcept { return *optimizer_; }
  index bytes_sent() const noexcept { return link_->bytes_sent() + optimizer_->bytes_sent(); }
  memory_use memory() const noexcept {
    memory_use all = optimizer_->memory();
    for (auto const& shard : shards_) all += shard.memory();
    all.messages += messages_->bytes();
    return all;
  }
  /// As Optimizer::state_bytes(), for nodes of n ranks each.
  static constexpr double state_bytes(int nodes, int ranks) noexcept {
    return shard_type::state_bytes(ranks) + Optimizer::state_bytes(nodes) / ranks;
  }
  std::string name() const { return "sharded within a node: " + optimizer_->name(); }

 private:
  static typename shard_type::options_type shard_options(options_type const& settings) {
    typename shard_type::options_type own;
    own.groups = settings.groups;
    own.weight_decay = settings.weight_decay;
    own.max_norm = settings.max_norm;
    own.trusted_gradients = settings.trusted_gradients;
    return own;
  }

  // The parts of this rank's chunk of a layer, as tensors of the shard's optimizer.
  static void add_chunk(std::vector<tensor> const& list, shard_type& shard, std::vector<tensor>& mine) {
    std::span<float> const x = detail::field_access::values(shard, at::master),
                           g = detail::field_access::values(shard, at::shard_gradient);
    std::size_t const before = mine.size();
    detail::field_access::for_own_runs(shard, [&](index t, index first, index last, index own) {
      auto const at = static_cast<std::size_t>(own), n = static_cast<std::size_t>(last - first);
      tensor const& whole = list[static_cast<std::size_t>(t)];
      // The name says which part it is, so that ranks of different chunks do not take each other for peers.
      std::string const name = whole.name + "[" + std::to_string(first) + ":" + std::to_string(last) + "]";
      mine.push_back({name, {}, x.subspan(at, n), std::span<float const>(g.subspan(at, n)), whole.group});
    });
    // A rank may own nothing of a layer.
    if (mine.size() == before) mine.push_back({list[0].name + "[]", {}, {}, {}, list[0].group});
  }

  shard_type& at(index layer, char const* call) {
    ZOADAM_EXPECTS(layer >= 0 && layer < layers(), call, "there is no such layer");
    return shards_[static_cast<std::size_t>(layer)];
  }
  void expect_begun(char const* call, double lr, double grad_scale) const {
    ZOADAM_EXPECTS(!begun_ || begun_->lr == lr, call, "lr differs from that of a layer reduced before");
    ZOADAM_EXPECTS(!begun_ || begun_->grad_scale == grad_scale, call,
                   "grad_scale differs from that of a layer reduced before");
  }
  report_type gathered(typename Optimizer::report_type report, index sent) {
    if constexpr (Residence == residence::always) {
      for (std::size_t l = 0; l < shards_.size(); ++l) (void)said_[l].emplace(shards_[l].synchronize());
    }
    whole_.assign(shards_.size(), false);
    index const bytes = link_->bytes_sent() - sent;
    if constexpr (std::same_as<report_type, step_report>) {
      report.bytes_sent += bytes;
      return report;
    } else {
      std::vector<typename shard_type::report_type> within;
      for (auto const& each : said_)
        if (each) within.push_back(*each);
      return {std::move(report), std::move(within), bytes};
    }
  }

  // Peers of both levels hear of a failure.
  template <class Body>
  auto guarded(Body const& body) -> decltype(body()) {
    try {
      return body();
    } catch (argument_error const&) {
      throw;
    } catch (...) {
      link_->abort();
      optimizer_->abort();
      throw;
    }
  }

  std::unique_ptr<Link> link_;
  std::shared_ptr<detail::shared_messages<backend_type>> messages_ =
      std::make_shared<detail::shared_messages<backend_type>>();
  std::vector<shard_type> shards_;
  std::optional<Optimizer> optimizer_;
  std::vector<bool> reduced_, whole_;                                  // per layer
  std::vector<std::optional<typename shard_type::report_type>> said_;  // the last that each shard said
  struct arguments {
    double lr, grad_scale;
  };
  std::optional<arguments> begun_;  // of the layers that have been reduced in this step
};

}  // namespace zoadam
