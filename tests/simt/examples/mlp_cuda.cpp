// SPDX-License-Identifier: Apache-2.0
// The perceptron of the CUDA example: its gradients against finite differences in float64, and its training by two
// ranks, bit for bit equal to that of the CPU backend.
#include "../../../examples/mlp_cuda.cuh"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "../../../examples/cublas_gemm.hpp"
#include "../../../examples/ranks.hpp"
#include "suite/job.hpp"
#include "zoadam/aliases.hpp"
#include "zoadam/backend/cuda.cuh"
#include "zoadam/transport/cuda_thread.hpp"

namespace {

using model_type = example::mlp<example::cublas_gemm>;

struct host_images {
  int pixels;
  std::vector<std::uint8_t> images, labels;

  /// An image is bright at its label's places, under noise.
  host_images(int count, int side, int classes) : pixels(side) {
    for (int i = 0; i < count; ++i) {
      labels.push_back(static_cast<std::uint8_t>(i % classes));
      for (int k = 0; k < pixels; ++k) {
        float const noise = suite::noise(7, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(k));
        images.push_back(static_cast<std::uint8_t>(k % classes == i % classes ? 150 + 100 * noise : 75 + 74 * noise));
      }
    }
  }
  example::device_images upload(cudaStream_t stream) const { return {{images, stream}, {labels, stream}}; }
};

std::vector<float> fetch(std::span<float const> values, cudaStream_t stream) {
  std::vector<float> all(values.size());
  ZOADAM_CUDA(cudaMemcpyAsync(all.data(), values.data(), values.size_bytes(), cudaMemcpyDeviceToHost, stream));
  ZOADAM_CUDA(cudaStreamSynchronize(stream));
  return all;
}
std::span<float const> gradient_of(zoadam::tensor const& t) {
  return {static_cast<float const*>(t.gradient.data()), static_cast<std::size_t>(t.gradient.size())};
}

/// Mean cross entropy by plain loops; parameters are w0, b0, w1, ...
double reference_loss(host_images const& data, std::vector<int> const& order, std::vector<int> const& widths,
                      std::vector<std::vector<double>> const& parameters) {
  double total = 0;
  for (int const image : order) {
    std::vector<double> x;
    for (int k = 0; k < data.pixels; ++k) x.push_back(data.images[suite::nth(image * data.pixels + k)] / 255.0);
    for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
      std::vector<double> y = parameters[2 * l + 1];
      for (std::size_t o = 0; o < y.size(); ++o) {
        for (std::size_t i = 0; i < x.size(); ++i) y[o] += x[i] * parameters[2 * l][i * y.size() + o];
        if (l + 2 < widths.size()) y[o] = std::max(y[o], 0.0);
      }
      x = y;
    }
    double sum = 0;
    for (double const z : x) sum += std::exp(z);
    total += std::log(sum) - x[data.labels[suite::nth(image)]];
  }
  return total / static_cast<double>(order.size());
}

}  // namespace

TEST_CASE("gradients are those of finite differences") {
  std::vector<int> const widths{6, 7, 5, 3}, order{4, 0, 8, 5, 5};  // rows fewer than at most, one twice
  host_images const data(9, 6, 3);
  example::device_stream const stream;
  example::device_images const images = data.upload(stream);
  model_type model(widths, 8, 3, stream, example::cublas_gemm(stream));
  example::device_array<int> const device_order(order, stream);
  example::device_array<float> const sums(2);

  std::vector<zoadam::tensor> const tensors = model.tensors();
  std::vector<std::vector<double>> parameters;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    std::vector<float> values = fetch(tensors[t].parameter, stream);
    if (t % 2 == 1) {  // they start as zeros
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.2f * suite::noise(5, t, i);
      ZOADAM_CUDA(cudaMemcpyAsync(tensors[t].parameter.data(), values.data(), values.size() * sizeof(float),
                                  cudaMemcpyHostToDevice, stream));
      ZOADAM_CUDA(cudaStreamSynchronize(stream));
    }
    parameters.emplace_back(values.begin(), values.end());
  }

  int const rows = static_cast<int>(order.size());
  model.score_and_gradients(images, device_order.data(), rows, sums.data());
  double const loss = reference_loss(data, order, widths, parameters);
  CHECK(static_cast<double>(sums.get(stream)[0]) / rows == doctest::Approx(loss).epsilon(1e-6));
  double largest = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    std::vector<float> const gradient = fetch(gradient_of(tensors[t]), stream);
    double worst = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      double const h = 1e-5, middle = parameters[t][i];
      parameters[t][i] = middle + h;
      double const above = reference_loss(data, order, widths, parameters);
      parameters[t][i] = middle - h;
      double const below = reference_loss(data, order, widths, parameters);
      parameters[t][i] = middle;
      double const g = static_cast<double>(gradient[i]);
      worst = std::max(worst, std::abs(g - (above - below) / (2 * h)));
      largest = std::max(largest, std::abs(g));
    }
    CAPTURE(tensors[t].name);
    CHECK(worst < 1e-6);
  }
  CHECK(largest > 1e-2);
}

TEST_CASE("two ranks learn, agree, and have the bits of the CPU backend") {
  constexpr int ranks = 2, batch = 12, classes = 3, steps = 60;
  host_images const data(96, 12, classes);
  zoadam::cuda_thread_group group(ranks);
  zoadam::thread_group cpu_group(ranks);
  std::vector<example::device_stream> const streams(ranks);
  std::vector<zoadam::cuda_thread_transport> links;
  std::vector<zoadam::thread_transport> cpu_links;
  for (int i = 0; i < ranks; ++i) {
    links.push_back(group.rank(i, streams[suite::nth(i)]));
    cpu_links.push_back(cpu_group.rank(i));
  }
  struct found {
    std::uint64_t replicas = 0;
    double first_loss = 0, last_loss = 0, right = 0;
    int wrong_bits = 0, exchanges = 0;
  };

  auto const results = example::on_threads<found>(std::move(links), [&](zoadam::cuda_thread_transport link) {
    cudaStream_t const stream = link.stream();
    int const rank = link.rank();
    example::device_images const images = data.upload(stream);
    model_type model({data.pixels, 16, 8, classes}, batch, 1, stream, example::cublas_gemm(stream));
    std::vector<int> order(data.labels.size());
    std::iota(order.begin(), order.end(), 0);
    example::device_array<int> const device_order(order, stream);
    example::device_array<float> const sums(2);

    using optimizer_type = zoadam::zero_one_adam<zoadam::cuda_thread_transport, zoadam::cuda_backend>;
    using cpu_type = zoadam::zero_one_adam<zoadam::thread_transport>;
    std::vector<zoadam::tensor> const tensors = model.tensors();
    std::vector<zoadam::tensor> cpu_tensors;
    std::vector<suite::flat> x, g;
    for (zoadam::tensor const& t : tensors) {
      x.push_back(fetch(t.parameter, stream));
      g.emplace_back(t.parameter.size());
    }
    for (std::size_t t = 0; t < x.size(); ++t) cpu_tensors.push_back({tensors[t].name, tensors[t].shape, x[t], g[t]});
    optimizer_type::options_type options;
    options.sync = {.start = 20, .period = 10, .longest = 4};
    optimizer_type optimizer(tensors, options, std::move(link), zoadam::cuda_backend(stream));
    cpu_type cpu(cpu_tensors, options, std::move(cpu_links[suite::nth(rank)]));

    example::rank_result<found> result;
    found& f = result.totals;
    auto const compare = [&] {
      for (std::size_t t = 0; t < x.size(); ++t) {
        if (!suite::same_bits(fetch(tensors[t].parameter, stream), x[t])) ++f.wrong_bits;
      }
    };
    for (int step = 0; step < steps; ++step) {
      int const first = (step * ranks + rank) * batch % static_cast<int>(order.size());
      model.score_and_gradients(images, device_order.data() + first, batch, sums.data());
      double const loss = static_cast<double>(sums.get(stream)[0]) / batch;
      (step == 0 ? f.first_loss : f.last_loss) = loss;
      for (std::size_t t = 0; t < x.size(); ++t) {
        std::vector<float> const values = fetch(gradient_of(tensors[t]), stream);
        std::copy(values.begin(), values.end(), g[t].begin());  // in place: the optimizer has borrowed it
      }
      f.exchanges += optimizer.step(0.02).known().exchanged ? 1 : 0;
      (void)cpu.step(0.02);
      compare();
    }
    (void)optimizer.synchronize().get();
    (void)cpu.synchronize();
    compare();
    f.replicas = optimizer.replica_hash();
    if (f.replicas != cpu.replica_hash()) ++f.wrong_bits;
    model.score(images, device_order.data(), batch, sums.data());
    f.right = static_cast<double>(sums.get(stream)[1]);
    return result;
  });

  for (auto const& each : results) {
    found const& f = each.totals;
    CHECK(f.wrong_bits == 0);
    CHECK(f.exchanges < steps * 3 / 4);
    CHECK(f.first_loss > 0.9);
    CHECK(f.last_loss < 0.1);
    CHECK(f.right == batch);
    CHECK(f.replicas == results[0].totals.replicas);
  }
}
