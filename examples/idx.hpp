// SPDX-License-Identifier: Apache-2.0
// Labelled images from gzipped IDX files, the format of MNIST and Fashion-MNIST.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "text.hpp"

namespace example {

/// An array of bytes.
struct idx_array {
  std::vector<std::size_t> shape;
  std::vector<std::uint8_t> values;
};

/// The contents of an IDX file. Errors: runtime_error that starts with its name.
inline idx_array parse_idx(std::string_view file, std::string const& name, std::size_t dimensions) {
  auto const word = [&](std::size_t at) {  // big-endian
    std::size_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value * 256 + static_cast<unsigned char>(file[at + i]);
    return value;
  };
  std::size_t const header = 4 + 4 * dimensions, magic = 0x800 + dimensions;
  if (file.size() >= 4 && word(0) != magic) {
    throw std::runtime_error(name + ": not an IDX file of bytes in " + std::to_string(dimensions) +
                             " dimensions: its magic number is " + std::to_string(word(0)) + ", not " +
                             std::to_string(magic));
  }
  std::size_t expected = header;
  idx_array all;
  if (file.size() >= header) {
    std::size_t count = 1;
    for (std::size_t d = 0; d < dimensions; ++d) {
      all.shape.push_back(word(4 + 4 * d));
      if (all.shape.back() == 0) throw std::runtime_error(name + ": it is empty");
      count *= all.shape.back();
      if (count > file.size()) break;  // more would only overflow
    }
    expected += count;
  }
  if (file.size() < expected) {
    throw std::runtime_error(name + ": truncated: it has " + std::to_string(file.size()) + " of at least " +
                             std::to_string(expected) + " bytes");
  }
  if (file.size() > expected) throw std::runtime_error(name + ": it is longer than its header says");
  all.values.assign(file.begin() + static_cast<std::ptrdiff_t>(header), file.end());
  return all;
}

inline idx_array read_idx(std::filesystem::path const& path, std::size_t dimensions) {
  std::string const name = path.string();
  if (!std::filesystem::exists(path)) {
    throw std::runtime_error(name +
                             ": no such file: install Fashion-MNIST (apt-get install dataset-fashion-mnist) or "
                             "name its folder with --data DIR");
  }
  if (name.find('\'') != std::string::npos) throw std::runtime_error(name + ": a quote in the name");
  std::string file;
  try {
    file = output_of("zcat '" + name + "' 2>/dev/null");
  } catch (std::runtime_error const&) {
    throw std::runtime_error(name + ": truncated, or not a gzip file");
  }
  return parse_idx(file, name, dimensions);
}

struct labelled_images {
  static constexpr int classes = 10;
  int count = 0, pixels = 0;
  std::vector<std::uint8_t> images, labels;  // an image is a row
};

/// prefix: "train" or "t10k".
inline labelled_images read_images(std::filesystem::path const& folder, std::string const& prefix) {
  std::filesystem::path const label_file = folder / (prefix + "-labels-idx1-ubyte.gz");
  idx_array images = read_idx(folder / (prefix + "-images-idx3-ubyte.gz"), 3), labels = read_idx(label_file, 1);
  if (labels.shape[0] != images.shape[0]) {
    throw std::runtime_error(label_file.string() + ": not as many labels as there are images");
  }
  for (std::uint8_t const label : labels.values) {
    if (label >= labelled_images::classes)
      throw std::runtime_error(label_file.string() + ": a label is not below 10");
  }
  return {static_cast<int>(images.shape[0]), static_cast<int>(images.shape[1] * images.shape[2]),
          std::move(images.values), std::move(labels.values)};
}

}  // namespace example
