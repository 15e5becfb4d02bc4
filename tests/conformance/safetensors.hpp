// SPDX-License-Identifier: Apache-2.0
// A small strict reader of safetensors files, for the conformance cases: F32, F64 and BOOL tensors.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace safetensors {

static_assert(std::endian::native == std::endian::little, "the file's data is little-endian");

struct format_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class dtype { f32, f64, boolean };

inline std::size_t size_of(dtype type) { return type == dtype::f64 ? 8 : type == dtype::f32 ? 4 : 1; }

struct tensor {
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;
  std::vector<unsigned char> bytes;

  std::size_t elements() const { return bytes.size() / size_of(type); }
};

/// One file: its metadata strings and its tensors.
class file {
 public:
  /// Reads and checks everything. Throws format_error, naming the file and the reason.
  static file read(std::string const& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw format_error(path + ": cannot be opened");
    std::string const bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    return parse(bytes, path);
  }

  /// The same from memory; `name` stands in messages.
  static file parse(std::string const& bytes, std::string const& name) {
    file result;
    result.name_ = name;
    if (bytes.size() < 8) result.fail("shorter than the header length");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    if (length > bytes.size() - 8) result.fail("the header reaches past the end of the file");
    std::string const header = bytes.substr(8, length);
    if (header.empty() || header[0] != '{') result.fail("the header is not a JSON object");
    result.parse_header(result.parse_json(header), bytes, 8 + length);
    return result;
  }

  std::string const& name() const { return name_; }
  std::map<std::string, std::string> const& metadata() const { return metadata_; }
  bool has_metadata(std::string const& key) const { return metadata_.count(key) != 0; }
  bool has_tensor(std::string const& key) const { return tensors_.count(key) != 0; }

  std::string const& text(std::string const& key) const {
    auto const found = metadata_.find(key);
    if (found == metadata_.end()) fail("no metadata \"" + key + "\"");
    return found->second;
  }

  /// The metadata value `key`, which holds JSON, as a T.
  template <class T>
  T value(std::string const& key) const {
    try {
      return nlohmann::json::parse(text(key)).get<T>();
    } catch (nlohmann::json::exception const& reason) {
      fail("metadata \"" + key + "\": " + reason.what());
    }
  }

  safetensors::tensor const& at(std::string const& key) const {
    auto const found = tensors_.find(key);
    if (found == tensors_.end()) fail("no tensor \"" + key + "\"");
    return found->second;
  }

  /// The elements of tensor `key`, an F32 or F64 tensor of that very shape.
  std::vector<double> numbers(std::string const& key, std::vector<std::int64_t> const& shape) const {
    auto const& t = at(key);
    if (t.shape != shape) fail("tensor \"" + key + "\": another shape than expected");
    if (t.type == dtype::boolean) fail("tensor \"" + key + "\": BOOL where numbers are expected");
    std::vector<double> result(t.elements());
    for (std::size_t k = 0; k < result.size(); ++k) {
      if (t.type == dtype::f64) {
        std::memcpy(&result[k], t.bytes.data() + 8 * k, 8);
      } else {
        float x = 0;
        std::memcpy(&x, t.bytes.data() + 4 * k, 4);
        result[k] = static_cast<double>(x);
      }
    }
    return result;
  }

  /// The elements of tensor `key`, a BOOL tensor of that very shape.
  std::vector<bool> booleans(std::string const& key, std::vector<std::int64_t> const& shape) const {
    auto const& t = at(key);
    if (t.shape != shape) fail("tensor \"" + key + "\": another shape than expected");
    if (t.type != dtype::boolean) fail("tensor \"" + key + "\": not BOOL");
    std::vector<bool> result(t.elements());
    for (std::size_t k = 0; k < result.size(); ++k) result[k] = t.bytes[k] != 0;
    return result;
  }

 private:
  [[noreturn]] void fail(std::string const& reason) const { throw format_error(name_ + ": " + reason); }

  nlohmann::json parse_json(std::string const& header) const {
    std::vector<std::set<std::string>> open;  // the keys of each open object, to refuse duplicates
    auto const watch = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
      if (event == nlohmann::json::parse_event_t::object_start) open.emplace_back();
      if (event == nlohmann::json::parse_event_t::object_end) open.pop_back();
      if (event == nlohmann::json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second)
        fail("duplicate key " + parsed.dump() + " in the header");
      return true;
    };
    try {
      return nlohmann::json::parse(header, watch);
    } catch (nlohmann::json::exception const& reason) {
      fail(std::string("the header is not JSON: ") + reason.what());
    }
  }

  void parse_header(nlohmann::json const& header, std::string const& bytes, std::size_t data) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
    for (auto const& [key, entry] : header.items()) {
      if (!entry.is_object()) fail("\"" + key + "\" is not an object");
      if (key == "__metadata__") {
        for (auto const& [name, value] : entry.items()) {
          if (!value.is_string()) fail("metadata \"" + name + "\" is not a string");
          metadata_[name] = value.get<std::string>();
        }
      } else {
        spans.push_back(parse_tensor(key, entry, bytes, data));
      }
    }
    std::sort(spans.begin(), spans.end());
    std::uint64_t end = 0;
    for (auto const& span : spans) {
      if (span.first != end) fail("tensors overlap or leave a hole");
      end = span.second;
    }
    if (end != bytes.size() - data) fail("bytes after the last tensor");
  }

  std::pair<std::uint64_t, std::uint64_t> parse_tensor(std::string const& key, nlohmann::json const& entry,
                                                       std::string const& bytes, std::size_t data) {
    auto const where = "tensor \"" + key + "\": ";
    if (entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets"))
      fail(where + "dtype, shape and data_offsets expected");
    if (!entry["dtype"].is_string()) fail(where + "dtype is not a string");
    auto const type = entry["dtype"].get<std::string>();
    tensor t;
    if (type == "F32") {
      t.type = dtype::f32;
    } else if (type == "F64") {
      t.type = dtype::f64;
    } else if (type == "BOOL") {
      t.type = dtype::boolean;
    } else {
      fail(where + "dtype " + type + " is none of F32, F64, BOOL");
    }
    std::uint64_t size = size_of(t.type);
    for (auto const extent : naturals(entry["shape"], where + "shape")) {
      if (extent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        fail(where + "shape overflows");
      if (extent != 0 && size > std::numeric_limits<std::uint64_t>::max() / extent) fail(where + "shape overflows");
      size *= extent;
      t.shape.push_back(static_cast<std::int64_t>(extent));
    }
    auto const offsets = naturals(entry["data_offsets"], where + "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) fail(where + "data_offsets are no range");
    if (offsets[1] > bytes.size() - data) fail(where + "reaches past the end of the file");
    if (offsets[1] - offsets[0] != size) fail(where + "its bytes do not match its shape");
    t.bytes.resize(size);
    if (size != 0) std::memcpy(t.bytes.data(), bytes.data() + data + offsets[0], size);
    if (t.type == dtype::boolean && std::any_of(t.bytes.begin(), t.bytes.end(), [](auto b) { return b > 1; }))
      fail(where + "a BOOL byte is neither 0 nor 1");
    tensors_[key] = std::move(t);
    return {offsets[0], offsets[1]};
  }

  std::vector<std::uint64_t> naturals(nlohmann::json const& list, std::string const& what) const {
    if (!list.is_array()) fail(what + " is not a list");
    std::vector<std::uint64_t> result;
    for (auto const& entry : list) {
      if (!entry.is_number_unsigned()) fail(what + " holds something else than natural numbers");
      result.push_back(entry.get<std::uint64_t>());
    }
    return result;
  }

  std::string name_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, tensor> tensors_;
};

}  // namespace safetensors
