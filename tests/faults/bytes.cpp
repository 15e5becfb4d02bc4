// SPDX-License-Identifier: Apache-2.0
// Faults in counts: memory, collectives per exchange, 64-bit sizes.
#include <sys/mman.h>

#include <atomic>

#include "suite/job.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

// ------------------------------------------------------------------------------------------------------ memory

/// The CPU, and the bytes that a rank's optimizer took from it.
struct counting_backend : cpu_backend {
  using cpu_backend::cpu_backend;
  std::shared_ptr<std::atomic<index>> taken = std::make_shared<std::atomic<index>>(0);

  memory allocate(index bytes) const {
    *taken += bytes;
    return cpu_backend::allocate(bytes);
  }
  void reserve(index elements) {
    cpu_backend::reserve(elements);
    *taken += workspace_bytes();
  }
};
static_assert(backend<counting_backend>);

index rounded(index bytes) { return (bytes + 63) / 64 * 64; }
index field_bytes(index bytes) { return rounded(bytes) + 65 * 64; }

TEST_CASE("case 8: zero_one_adam, n = 10^6, W = 2: bytes reported = bytes allocated = the formula") {
  using optimizer_type = zero_one_adam<thread_transport, counting_backend>;
  constexpr index n = 1000000;
  on_all_ranks(2, [&](thread_transport link) {
    int const me = link.rank();
    buffers mine({n - 2048, 2048}, {}, [](std::size_t) { return 0.0f; });
    counting_backend where(3);
    auto const taken = where.taken;
    optimizer_type o(mine.tensors(), {}, std::move(link), std::move(where));
    // 487 full blocks and one of 576, then one block of the second tensor; 245 of these 490 - 1 = 489 go to rank 0.
    index const blocks = (n - 2048 + 2047) / 2048 + 1;
    CHECK(blocks == 489);
    index const own = me == 0 ? 245 * 2048 : n - 245 * 2048;
    // m, v, a, the worker error, and the owner error of the own chunk
    CHECK(o.memory().fields == 4 * field_bytes(4 * n) + field_bytes(4 * own));
    // The largest messages are those of the variance round, 2 bytes for each element: two buffers of all messages,
    // and this owner's result.
    index const half = 48 + 2 * n / 2;
    CHECK(o.memory().messages == 2 * rounded(2 * half) + rounded(half));
    index const tiles = 3 * 6 * 4 * index{2048};
    CHECK(o.memory().workspace == tiles + rounded(4 * (n / 2048 + 1)) + rounded(sizeof(coefficients<float>)) +
                                      rounded(sizeof(detail::group_numbers)) + rounded(sizeof(detail::progress)) +
                                      rounded(o.workers()));
    CHECK(o.memory().total() == *taken);
    CHECK(o.memory().total() == o.memory().fields + o.memory().messages + o.memory().workspace);
  });
}

template <class Optimizer, int Fields, int Scalars = 0>
struct fields_of {
  using type = Optimizer;
  static constexpr int count = Fields;  // of n values; all exchanges here keep no errors but where said
  static constexpr int scalars = Scalars;
};
using backend_type = counting_backend;

TEST_CASE_TEMPLATE("case 8: one rank: fields are what the composition declares", Case,
                   fields_of<adam<single_transport, backend_type>, 2>,
                   fields_of<local_adam<single_transport, backend_type>, 3>,
                   fields_of<onebit_adam<single_transport, backend_type>, 4>,
                   fields_of<onebit_lamb<single_transport, backend_type>, 5, 4>,
                   fields_of<zero_one_adam<single_transport, backend_type>, 5>,
                   fields_of<zero_one_adam_paper<single_transport, backend_type>, 6>,
                   fields_of<zero_adam<single_transport, backend_type>, 2>,
                   fields_of<zero_onebit_adam<single_transport, backend_type>, 4>) {
  using optimizer_type = typename Case::type;
  typename optimizer_type::options_type settings;
  if constexpr (requires { settings.state.freeze.step; }) settings.state.freeze.step = 1;
  for (index const n : {0, 1, 16, 17, 5000}) {
    buffers mine({n}, {}, [](std::size_t) { return 0.0f; });
    counting_backend where;
    auto const taken = where.taken;
    optimizer_type o(mine.tensors(), settings, single_transport{}, std::move(where));
    CHECK(o.memory().fields == Case::count * field_bytes(4 * n) + Case::scalars * field_bytes(4));
    static_assert(optimizer_type::state_bytes(1) == 4.0 * Case::count);
    CHECK(o.memory().total() == *taken);
    mine.gradient[0].assign(nth(n), 1.0f);
    for (int t = 0; t < 3; ++t) (void)o.step(0.1);
    CHECK(o.memory().total() == *taken);  // steps take nothing
  }
}

TEST_CASE_TEMPLATE("case 8: state_bytes() is what is allocated, on any number of ranks", Optimizer,
                   zero_one_adam<thread_transport>, zero_onebit_adam<thread_transport>) {
  constexpr int ranks = 4, count = Optimizer::fields::size;
  constexpr index n = ranks * 3 * 2048;
  static_assert(Optimizer::state_bytes(1) > Optimizer::state_bytes(ranks));
  on_all_ranks(ranks, [&](thread_transport link) {
    buffers mine({n}, {}, [](std::size_t) { return 0.0f; });
    typename Optimizer::options_type settings;
    if constexpr (requires { settings.state.freeze.step; }) settings.state.freeze.step = 1;
    Optimizer const o(mine.tensors(), settings, std::move(link));
    auto const bytes = static_cast<double>(o.memory().fields - count * memory_use::field_gap);
    CHECK(bytes == Optimizer::state_bytes(ranks) * static_cast<double>(n));
  });
}

TEST_CASE("case 8: nothing is kept for policies without state") {
  using none = optimizer<identity_quantizer, every_step, mean_state, counting_backend, single_transport>;
  using without = optimizer<sign_quantizer<>, every_step, mean_state, counting_backend, single_transport>;
  using with = optimizer<sign_with_feedback<>, every_step, mean_state, counting_backend, single_transport>;
  buffers mine({1000}, {}, [](std::size_t) { return 0.0f; });
  CHECK(make<none>(mine, {}, {}).memory().fields == 0);
  CHECK(make<without>(mine, {}, {}).memory().fields == 0);
  CHECK(make<with>(mine, {}, {}).memory().fields == 2 * field_bytes(4000));
}

// -------------------------------------------------------------------------------------------------- collectives

/// Threads, and how many collectives this rank has called.
struct counting_transport : thread_transport {
  explicit counting_transport(thread_transport inner) : thread_transport(std::move(inner)) {}
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);

  void all_to_all(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    ++*calls;
    thread_transport::all_to_all(offsets, send, receive);
  }
  void all_gather(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    ++*calls;
    thread_transport::all_gather(offsets, send, receive);
  }
};
static_assert(transport<counting_transport>);

TEST_CASE_TEMPLATE("case 9: 1000 tensors of 1000 elements, W = 4: two collectives per exchange", Optimizer,
                   zero_one_adam<counting_transport>, zero_one_adam_paper<counting_transport>,
                   onebit_adam<counting_transport>, adam<counting_transport>) {
  std::atomic<int> wrong{0}, exchanges{0};
  on_all_ranks(4, [&](thread_transport link) {
    buffers mine(std::vector<index>(1000, 1000), {}, [](std::size_t k) { return noise(1, k); });
    mine.set_gradient(noisy_gradient(1, link.rank(), 1, mine.elements()));
    counting_transport counted(std::move(link));
    auto const calls = counted.calls;
    typename Optimizer::options_type settings;
    if constexpr (requires { settings.state.freeze.step; }) settings.state.freeze.step = 1;
    if constexpr (requires { settings.sync.period; }) settings.sync.period = 2;
    auto o = make<Optimizer>(mine, settings, std::move(counted));
    for (int t = 0; t < 3; ++t) {
      int const before = *calls;
      step_report const r = o.step(1e-2);
      bool const beside = r.variance_updated && requires { settings.state.variance_schedule; };
      wrong += *calls - before != 2 * (r.exchanged + beside);
      exchanges += r.exchanged;
    }
  });
  CHECK(wrong == 0);
  CHECK(exchanges >= 4 * 2);
}

TEST_CASE("bytes: what a step reports is what the transport counted, and what the format says") {
  using optimizer_type = zero_one_adam<thread_transport>;
  job<optimizer_type> run;
  run.sizes = {2048, 2048, 100};
  run.ranks = 2;
  run.settings.state.variance_schedule.stop = 1;
  std::atomic<int> wrong{0};
  std::vector<index> total(2);
  run.after = [&](int step, optimizer_type& o, step_report const& r, buffers&) {
    index const up = 3 * 4 + 2048 / 8 + 2048 / 8 + 16, exact = 2 * 4196;
    wrong += r.payload_bytes != up + (step == 1 ? exact : 0);
    // Rank 0 owns two blocks, rank 1 one: each sends the other's chunk up and its own down.
    index const chunks = up + 2 * 48;
    index const halves = step == 1 ? exact + 2 * 48 : 0;
    wrong += r.bytes_sent != chunks + halves;
    total[nth(o.rank())] += r.bytes_sent;
    index const agreement = 5 * 8;  // at construction
    wrong += o.bytes_sent() != total[nth(o.rank())] + agreement;
  };
  (void)run.run();
  CHECK(wrong == 0);
}

// -------------------------------------------------------------------------------------------------- 64-bit sizes

constexpr index huge = (index{1} << 31) + 5;

/// Address space without memory behind it; whoever touches pages pays for those.
class reserved {
 public:
  reserved() = default;
  reserved(index bytes, int protection)
      : bytes_(nth(bytes)),
        data_(mmap(nullptr, bytes_, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  reserved(reserved&& other) noexcept
      : bytes_(std::exchange(other.bytes_, 0)), data_(std::exchange(other.data_, nullptr)) {}
  reserved& operator=(reserved&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~reserved() {
    if (data_) munmap(data_, bytes_);
  }
  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_ = 0;
  void* data_ = nullptr;
};

/// Loops that do nothing, so that only counts, offsets and headers are left of a step.
struct idle_backend : basic_cpu_backend<> {
  idle_backend() : basic_cpu_backend<>(1) {}
  using memory = reserved;
  static memory allocate(index bytes) { return {bytes, PROT_READ | PROT_WRITE}; }
  static void reserve(index) {}
  static index workspace_bytes() noexcept { return 0; }
  template <class Segment, class View, class In, class Out>
  void run(View const&, In const&, Out const&) {}
  template <class Form, class... Arguments>
  void own(Arguments const&...) {}
  template <class View>
  void check(View const&) {}
  static std::uint64_t hash(float const*, index, index) noexcept { return 0; }
  static void copy(float const*, float*, index) noexcept {}
};
static_assert(backend<idle_backend>);

/// Rank 1 of four, whose peers all say what it says. It moves the heads of messages and records the counts.
struct recording_transport {
  recording_transport() = default;
  recording_transport(recording_transport&&) = default;
  recording_transport& operator=(recording_transport&&) = default;
  std::shared_ptr<std::vector<std::vector<index>>> seen = std::make_shared<std::vector<std::vector<index>>>();
  index sent = 0;

  int rank() const noexcept { return 1; }
  int size() const noexcept { return 4; }
  void all_to_all(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    seen->emplace_back(offsets.begin(), offsets.end());
    index const stride = offsets[2] - offsets[1];
    for (index i = 0; i < 4; ++i) head(send + offsets[1], receive + i * stride, stride);
    sent += offsets[4] - stride;
  }
  void all_gather(std::span<index const> offsets, std::byte const* send, std::byte* receive) {
    seen->emplace_back(offsets.begin(), offsets.end());
    index const own = offsets[2] - offsets[1];
    for (std::size_t j = 0; j < 4; ++j) head(send, receive + offsets[j], own);
    sent += 3 * own;
  }
  void abort() noexcept {}
  index bytes_sent() const noexcept { return sent; }

 private:
  static void head(std::byte const* from, std::byte* to, index bytes) {
    std::memmove(to, from, nth(std::min(bytes, index{48})));
  }
};
static_assert(transport<recording_transport>);

TEST_CASE("case 18: 2^31 + 5 elements: message offsets, byte counts and memory pass 2^31") {
  using optimizer_type = optimizer<identity_quantizer, every_step, mean_state, idle_backend, recording_transport>;
  reserved const parameters(4 * huge, PROT_NONE);
  std::span<float> const x(reinterpret_cast<float*>(parameters.data()), nth(huge));
  recording_transport link;
  auto const seen = link.seen;
  optimizer_type o({{"x", {huge}, x, {}}}, {}, std::move(link));
  CHECK(o.elements() == huge);
  step_report const r = o.step(1);
  CHECK(r.exchanged);
  CHECK(r.payload_bytes == 4 * huge);
  REQUIRE(seen->size() == 3);  // the agreement, and one exchange
  // Runs of ceil(ceil(n / 32) / 4) units of 32 elements.
  index const units = (huge + 31) / 32, run = (units + 3) / 4 * 32;
  std::vector<index> const offsets{0, 48 + 4 * run, 2 * (48 + 4 * run), 3 * (48 + 4 * run), 4 * huge + 4 * 48};
  CHECK((*seen)[1] == offsets);
  CHECK((*seen)[2] == offsets);
  CHECK(offsets[1] > (index{1} << 31));  // one message by itself
  CHECK(r.bytes_sent == 3 * (48 + 4 * run) + 4 * huge + 4 * 48 - (48 + 4 * run));
  CHECK(o.memory().messages >= 4 * huge + 5 * 4 * run);
  CHECK(o.memory().fields == 0);
}

TEST_CASE("case 18: fields of 2^31 + 5 elements: sizes and the last one") {
  using optimizer_type =
      optimizer<sign_with_feedback<>, local_steps, frozen_variance_state<>, idle_backend, recording_transport>;
  reserved const parameters(4 * huge, PROT_NONE);
  std::span<float> const x(reinterpret_cast<float*>(parameters.data()), nth(huge));
  optimizer_type o({{"x", {}, x.first(nth(huge - 7)), {}}, {"y", {}, x.last(7), {}}}, {}, recording_transport{});
  auto const v = o.values(at::variance), m = o.values(at::momentum);
  CHECK(static_cast<index>(v.size()) == huge);
  CHECK(v.data() != m.data());
  CHECK(std::abs(v.data() - m.data()) >= huge);
  CHECK(v[nth(huge - 1)] == 0);  // readable: within the arena
  CHECK(o.agreed(1).data() - o.values(at::anchor).data() == huge - 7);
  step_report const r = o.step(1);
  CHECK(r.payload_bytes == 4 * huge + 4 * ((huge - 7 + 2047) / 2048 + 1) + (huge - 7 + 31) / 32 * 4 + 4);
}

template <class Quantizer>
void check_partition(index payload_of_all, index groups_with_scale) {
  reserved const parameters(4 * huge, PROT_NONE);
  std::span<float> const x(reinterpret_cast<float*>(parameters.data()), nth(huge));
  layout const l({{"x", {}, x, {}}}, 1);
  for (int const ranks : {1, 3}) {
    partition<Quantizer> const cut(l, ranks);
    piece const last = cut[cut.find(huge - 1)];
    CHECK(last.first <= huge - 1);
    CHECK(last.last == huge);
    CHECK(last.owner == ranks - 1);
    index elements = 0;
    for (int j = 0; j < ranks; ++j) elements += cut.elements(j);
    CHECK(elements == huge);
    CHECK(last.own + (last.last - last.first) == cut.elements(ranks - 1));
    index const scales = Quantizer::has_scale ? 4 * groups_with_scale * (groups_with_scale == 1 ? ranks : 1) : 0;
    CHECK(cut.payload_bytes() == payload_of_all + scales);
    index const length = cut.offsets().back() - cut.offsets()[nth(ranks - 1)];
    CHECK(last.payload + (Quantizer::payload_bytes(last.last - last.first) + 3) / 4 * 4 == length);
    CHECK(cut.find(index{1} << 31) >= cut.find((index{1} << 31) - 1));
  }
}

TEST_CASE("case 18: the cut of 2^31 + 5 elements reaches the last one") {
  index const words = (huge + 31) / 32 * 4;
  check_partition<sign_quantizer<>>(words, (huge + 2047) / 2048);
  check_partition<sign_quantizer<whole>>(words, 1);
  check_partition<sign_quantizer<per_tensor>>(words, 1);
  check_partition<identity_quantizer>(4 * huge, 0);
}

}  // namespace
