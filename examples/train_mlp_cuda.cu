// SPDX-License-Identifier: Apache-2.0
// Trains a perceptron on Fashion-MNIST on a GPU with n data-parallel workers: threads that share the device, or
// processes with a device each under mpirun (NCCL).
//
// Without CMake, for threads: nvcc -std=c++20 -Iinclude examples/train_mlp_cuda.cu -lcublas
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cublas_gemm.hpp"
#include "idx.hpp"
#include "mlp_cuda.cuh"
#include "ranks.hpp"
#include "zoadam/aliases.hpp"
#include "zoadam/backend/cuda.cuh"
#include "zoadam/schedule.hpp"
#include "zoadam/transport/cuda_thread.hpp"

#ifdef ZOADAM_EXAMPLE_MPI
#include "zoadam/transport/nccl.hpp"
#endif

namespace {

using zoadam::index;

struct settings {
  int ranks = 4, epochs = 4, batch = 32;
  double lr = 1e-3;
  std::string data = "/usr/share/datasets/fashion-mnist", optimizer = "zero_one_adam";
};

constexpr char const* usage =
    "usage: train_mlp_cuda [--ranks N] [--epochs N] [--batch N] [--lr X] [--data DIR] [--optimizer NAME]\n"
    "  --ranks      threads that share the device (4); under mpirun its number of processes\n"
    "  --batch      images per worker and step (32)\n"
    "  --data       folder of the gzipped IDX files (/usr/share/datasets/fashion-mnist)\n"
    "  --optimizer  adam or zero_one_adam (the default)\n";

template <class T>
bool positive_number(std::string const& text, T& value) {
  char const* const end = text.data() + text.size();
  auto const read = std::from_chars(text.data(), end, value);
  return read.ec == std::errc() && read.ptr == end && value > 0;
}

settings read_flags(int argc, char** argv) {
  settings s;
  for (int i = 1; i < argc; i += 2) {
    std::string const flag = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    bool understood = false;
    if (flag == "--ranks") understood = positive_number(value, s.ranks);
    if (flag == "--epochs") understood = positive_number(value, s.epochs);
    if (flag == "--batch") understood = positive_number(value, s.batch);
    if (flag == "--lr") understood = positive_number(value, s.lr);
    if (flag == "--data") understood = !(s.data = value).empty();
    if (flag == "--optimizer") understood = (s.optimizer = value) == "adam" || value == "zero_one_adam";
    if (!understood) throw std::invalid_argument("not understood: " + flag + " " + value + "\n" + usage);
  }
  return s;
}

/// What one worker found.
struct totals {
  std::uint64_t replicas = 0;  // hash of the parameters that all agree on
  index parameters = 0, steps = 0, exchanges = 0, payload_bytes = 0, bytes_sent = 0;
  double loss = 0, accuracy = 0, seconds = 0;  // loss: mean of the last epoch

  void count(zoadam::step_report const& report) {
    exchanges += report.exchanged ? 1 : 0;
    payload_bytes += report.payload_bytes;
    bytes_sent += report.bytes_sent;
  }
};

/// One worker, on the stream of its link. The host runs ahead of the device, and waits for it once an epoch.
template <class Optimizer, class Transport>
totals train(settings const& s, example::labelled_images const& training, example::labelled_images const& test,
             Transport link) {
  cudaStream_t const stream = link.stream();
  int const rank = link.rank(), ranks = link.size();
  int const steps = training.count / ranks / s.batch, all_steps = steps * s.epochs;
  if (steps == 0) throw std::invalid_argument("--batch times --ranks is more than there are images");

  auto const upload = [&](example::labelled_images const& from) {
    return example::device_images{{from.images, stream}, {from.labels, stream}};
  };
  example::device_images const images = upload(training), test_images = upload(test);
  example::mlp model({training.pixels, 256, 128, training.classes}, s.batch, 1, stream, example::cublas_gemm(stream));

  typename Optimizer::options_type options;
  if constexpr (requires { options.sync.period; }) {  // exchanges get rarer, by the length of the run
    options.sync.start = std::max(1, all_steps / 4);
    options.sync.period = std::max(1, all_steps * 3 / 20);
    options.sync.longest = 16;
  }
  int const warmup = std::max(1, all_steps / 20);
  Optimizer optimizer(model.tensors(), options, std::move(link), zoadam::cuda_backend(stream));

  totals result;
  result.steps = all_steps;
  for (zoadam::tensor const& each : model.tensors()) result.parameters += each.gradient.size();
  std::vector<int> order(static_cast<std::size_t>(training.count));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 shuffler(1);  // the same on every rank: each step's images are dealt out
  example::device_array<int> const device_order(training.count);
  example::device_array<float> const sums(2 * steps);
  auto const start = std::chrono::steady_clock::now();

  for (int epoch = 0; epoch < s.epochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), shuffler);
    device_order.put(order, stream);
    for (int i = 0; i < steps; ++i) {
      int const* const mine = device_order.data() + (i * ranks + rank) * s.batch;
      model.score_and_gradients(images, mine, s.batch, sums.data() + 2 * i);
      int const step = epoch * steps + i + 1;
      double const left = 0.1 + 0.9 * zoadam::cosine_decay(step - warmup, all_steps - warmup);
      result.count(optimizer.step(s.lr * zoadam::linear_warmup(step, warmup) * left).known());
    }
    std::vector<float> const found = sums.get(stream);
    result.loss = 0;
    for (std::size_t i = 0; i < found.size(); i += 2) result.loss += double{found[i]} / (steps * s.batch);
    if (rank == 0) std::fprintf(stderr, "epoch %d of %d: loss %.4f\n", epoch + 1, s.epochs, result.loss);
  }
  result.count(optimizer.synchronize().get());  // now the parameters are those that all agree on
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.replicas = optimizer.replica_hash();

  if (rank == 0) {
    order.resize(static_cast<std::size_t>(test.count));
    std::iota(order.begin(), order.end(), 0);
    example::device_array<int> const in_order(order, stream);
    for (int first = 0; first < test.count; first += s.batch) {
      model.score(test_images, in_order.data() + first, std::min(s.batch, test.count - first), sums.data());
      result.accuracy += double{sums.get(stream)[1]} / test.count;
    }
  }
  return result;
}

/// All workers' totals in rank order; under mpirun on rank 0 alone.
template <class Body>
std::vector<example::rank_result<totals>> on_every_rank(settings const& s, Body const& body) {
#ifdef ZOADAM_EXAMPLE_MPI
  if (example::launched_processes() > 1) {
    // MPI brings the ranks of a machine their devices and all ranks together; what it cannot do ends the program.
    int rank = 0, size = 0, device = 0;
    MPI_Comm neighbours;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &neighbours);
    MPI_Comm_rank(neighbours, &device);
    MPI_Comm_free(&neighbours);
    ZOADAM_CUDA(cudaSetDevice(device));
    auto const check = [](ncclResult_t status, char const* call) {
      if (status != ncclSuccess) throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(status));
    };
    ncclUniqueId id;
    if (rank == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    example::device_stream const stream;
    ncclComm_t comm = nullptr;
    check(ncclCommInitRank(&comm, size, id, rank), "ncclCommInitRank");
    auto results = example::on_process<totals>(zoadam::nccl_transport(comm, stream), body);
    check(ncclCommDestroy(comm), "ncclCommDestroy");
    return results;
  }
#endif
  zoadam::cuda_thread_group group(s.ranks);
  std::vector<example::device_stream> const streams(static_cast<std::size_t>(s.ranks));
  std::vector<zoadam::cuda_thread_transport> links;
  for (auto const& stream : streams) links.push_back(group.rank(static_cast<int>(links.size()), stream));
  return example::on_threads<totals>(std::move(links), body);
}

void run(settings const& s) {
  auto const training = example::read_images(s.data, "train"), test = example::read_images(s.data, "t10k");
  if (test.pixels != training.pixels) throw std::invalid_argument(s.data + ": the test images have another size");
  auto const ranks = on_every_rank(s, [&]<class Transport>(Transport link) -> example::rank_result<totals> {
    using backend = zoadam::cuda_backend;
    if (s.optimizer == "adam")
      return {train<zoadam::adam<Transport, backend>>(s, training, test, std::move(link)), {}};
    return {train<zoadam::zero_one_adam<Transport, backend>>(s, training, test, std::move(link)), {}};
  });
  if (ranks.empty()) return;  // another process reports

  totals const& first = ranks[0].totals;
  bool identical = true;
  double loss = 0;
  for (auto const& each : ranks) {
    identical = identical && each.totals.replicas == first.replicas;
    loss += each.totals.loss / static_cast<double>(ranks.size());
  }
  auto const steps = static_cast<double>(first.steps), bits = 8 * static_cast<double>(first.payload_bytes);
  std::printf("%-20s %s, %d workers\n", "optimizer", s.optimizer.c_str(), static_cast<int>(ranks.size()));
  std::printf("%-20s %.4f\n", "train_loss", loss);
  std::printf("%-20s %.4f\n", "test_accuracy", first.accuracy);
  std::printf("%-20s %.3f\n", "bits_per_parameter", bits / static_cast<double>(first.parameters) / steps);
  std::printf("%-20s %.3f\n", "rounds_per_step", static_cast<double>(first.exchanges) / steps);
  std::printf("%-20s %.1f\n", "megabytes_per_worker", static_cast<double>(first.bytes_sent) / 1e6);
  std::printf("%-20s %.2f\n", "seconds", first.seconds);
  std::printf("%-20s %s\n", "replicas_identical", identical ? "true" : "false");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2 && argv[1] == std::string_view("--help")) return std::fputs(usage, stdout) < 0 ? 1 : 0;
    settings const s = read_flags(argc, argv);
    int devices = 0;
    cudaError_t const status = cudaGetDeviceCount(&devices);
    if (status != cudaSuccess || devices < 1) {
      std::printf("%s: no CUDA device: %s\n", argv[0],
                  status == cudaSuccess ? "the driver knows none" : cudaGetErrorString(status));
      return 77;
    }
    example::launch const launched(&argc, &argv);
    run(s);
    return 0;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
    example::give_up();
    return 1;
  }
}
