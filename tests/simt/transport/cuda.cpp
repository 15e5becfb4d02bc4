// SPDX-License-Identifier: Apache-2.0
// The thread transport over device memory.
#include "simt/device.hpp"

namespace {

using namespace zoadam;
using namespace suite;
using zoadam::index;

TEST_CASE("messages reach their ranks, of any size, without a wait of the host for a device") {
  for (int const ranks : {1, 2, 3, 5}) {
    cuda_thread_group group(ranks);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        device_stream const stream;
        cuda_thread_transport link = group.rank(rank, stream);
        wrong += link.rank() != rank || link.size() != ranks || link.stream() != stream;
        std::vector<index> offsets{0};
        for (int j = 0; j < ranks; ++j) offsets.push_back(offsets.back() + 7 * j);
        auto const mine = nth(offsets[nth(rank) + 1] - offsets[nth(rank)]), all = nth(offsets.back());
        auto const value = [](int from, int to, std::size_t k) {
          return static_cast<unsigned char>(31 * from + 7 * to + static_cast<int>(k));
        };
        for (int round = 0; round < 20; ++round) {
          device_array<unsigned char> send(all), receive(mine * nth(ranks)), gathered(all);
          std::vector<unsigned char> bytes(all);
          for (int j = 0; j < ranks; ++j) {
            for (index k = offsets[nth(j)]; k < offsets[nth(j) + 1]; ++k) bytes[nth(k)] = value(rank, j, nth(k));
          }
          send.put(bytes.data(), stream);
          auto const at = [](device_array<unsigned char> const& a) {
            return reinterpret_cast<std::byte*>(a.span().data());
          };
          link.all_to_all(offsets, at(send), at(receive));
          link.all_gather(offsets, at(send) + offsets[nth(rank)], at(gathered));
          stream.wait();
          std::vector<unsigned char> const got = receive.get(stream), list = gathered.get(stream);
          for (int i = 0; i < ranks; ++i) {
            for (std::size_t k = 0; k < mine; ++k) {
              wrong += got[nth(i) * mine + k] != value(i, rank, nth(offsets[nth(rank)]) + k);
            }
            for (index k = offsets[nth(i)]; k < offsets[nth(i) + 1]; ++k) {
              wrong += list[nth(k)] != value(i, i, nth(k));
            }
          }
        }
      });
    }
    for (std::thread& t : threads) t.join();
    CHECK(wrong == 0);
  }
}

}  // namespace
