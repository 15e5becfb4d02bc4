// SPDX-License-Identifier: Apache-2.0
// The example's images: a good file, and files that say which of them is wrong and why.
#include "../../examples/idx.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

namespace {

using example::parse_idx;

std::string word(unsigned value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift & 0xffu));
  return bytes;
}
std::string const three_images = word(0x803) + word(3) + word(2) + word(1) + "abcdef";

/// A folder that goes away.
struct folder {
  folder() {
    std::string name = (std::filesystem::temp_directory_path() / "zoadam-idx-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~folder() { std::filesystem::remove_all(path); }
  void put(std::string const& name, std::string const& bytes) const {
    std::filesystem::path const plain = path / "plain";
    std::ofstream(plain, std::ios::binary) << bytes;
    REQUIRE(std::system(("gzip -c '" + plain.string() + "' >'" + (path / name).string() + "'").c_str()) == 0);
  }
  std::filesystem::path path;
};

}  // namespace

TEST_CASE("a good file") {
  example::idx_array const all = parse_idx(three_images, "f", 3);
  CHECK(all.shape == std::vector<std::size_t>{3, 2, 1});
  CHECK(std::string(all.values.begin(), all.values.end()) == "abcdef");
}

TEST_CASE("what is wrong with a file, and its name") {
  CHECK_THROWS_WITH_AS(parse_idx(word(0x801) + three_images, "f", 3),
                       "f: not an IDX file of bytes in 3 dimensions: its magic number is 2049, not 2051",
                       std::runtime_error);
  for (std::size_t bytes = 0; bytes < three_images.size(); ++bytes) {
    std::string const at_least = bytes < 16 ? "16" : "22";
    std::string const expected =
        "f: truncated: it has " + std::to_string(bytes) + " of at least " + at_least + " bytes";
    CHECK_THROWS_WITH_AS(parse_idx(three_images.substr(0, bytes), "f", 3), expected.c_str(), std::runtime_error);
  }
  CHECK_THROWS_WITH_AS(parse_idx(three_images + "g", "f", 3), "f: it is longer than its header says",
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(parse_idx(word(0x803) + word(0) + word(2) + word(1), "f", 3), "f: it is empty",
                       std::runtime_error);
  unsigned const most = 0xffffffffu;
  CHECK_THROWS_AS(parse_idx(word(0x803) + word(most) + word(most) + word(most), "f", 3), std::runtime_error);
}

TEST_CASE("images and labels from gzip files") {
  folder const f;
  auto const read = [&] { return example::read_images(f.path, "train"); };
  auto const complaint = [&] {
    try {
      read();
    } catch (std::runtime_error const& e) {
      return std::string(e.what()).substr(f.path.string().size() + 1);
    }
    return std::string();
  };
  CHECK(complaint() ==
        "train-images-idx3-ubyte.gz: no such file: install Fashion-MNIST (apt-get install dataset-fashion-mnist) or "
        "name its folder with --data DIR");
  f.put("train-images-idx3-ubyte.gz", three_images);
  f.put("train-labels-idx1-ubyte.gz", word(0x801) + word(3) + std::string{1, 0, 9});
  example::labelled_images const all = read();
  CHECK(all.count == 3);
  CHECK(all.pixels == 2);
  CHECK(all.images[5] == 'f');
  CHECK(all.labels == std::vector<std::uint8_t>{1, 0, 9});

  f.put("train-labels-idx1-ubyte.gz", word(0x801) + word(2) + std::string{1, 0});
  CHECK(complaint() == "train-labels-idx1-ubyte.gz: not as many labels as there are images");
  f.put("train-labels-idx1-ubyte.gz", word(0x801) + word(3) + std::string{1, 10, 9});
  CHECK(complaint() == "train-labels-idx1-ubyte.gz: a label is not below 10");
  std::filesystem::resize_file(f.path / "train-labels-idx1-ubyte.gz", 20);
  CHECK(complaint() == "train-labels-idx1-ubyte.gz: truncated, or not a gzip file");
}
