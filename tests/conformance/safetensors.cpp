// SPDX-License-Identifier: Apache-2.0
// The safetensors reader: what it reads, and that it refuses every kind of malformed file.
#include "safetensors.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace {

using safetensors::file;
using safetensors::format_error;

std::string with_length(std::uint64_t length, std::string const& rest) {
  std::string result;
  for (int k = 0; k < 8; ++k) result.push_back(static_cast<char>((length >> (8 * k)) & 0xff));
  return result + rest;
}

std::string make(std::string const& header, std::string const& data) {
  return with_length(header.size(), header + data);
}

std::string entry(std::string const& type, std::string const& shape, std::string const& offsets) {
  return R"({"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string const one_and_minus_two("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8);  // float32
std::string const half("\x00\x00\x00\x00\x00\x00\xe0\x3f", 8);               // float64

}  // namespace

TEST_CASE("safetensors: tensors and metadata are read") {
  auto const bytes = make(R"({"__metadata__":{"n":"3","name":"x"},"a":)" + entry("F32", "[2,1]", "[2,10]") +
                              R"(,"b":)" + entry("F64", "[]", "[10,18]") + R"(,"c":)" +
                              entry("BOOL", "[2]", "[0,2]") + R"(,"d":)" + entry("F32", "[0,5]", "[18,18]") + "}  ",
                          std::string("\x01\x00", 2) + one_and_minus_two + half);
  auto const f = file::parse(bytes, "memory");
  CHECK(f.text("name") == "x");
  CHECK(f.value<int>("n") == 3);
  CHECK(f.numbers("a", {2, 1}) == std::vector<double>{1, -2});
  CHECK(f.numbers("b", {}) == std::vector<double>{0.5});
  CHECK(f.booleans("c", {2}) == std::vector<bool>{true, false});
  CHECK(f.numbers("d", {0, 5}).empty());
  CHECK(f.has_tensor("a"));
  CHECK_FALSE(f.has_tensor("n"));
  CHECK_FALSE(f.has_metadata("a"));

  CHECK_THROWS_AS(f.text("missing"), format_error);
  CHECK_THROWS_AS(f.value<int>("name"), format_error);
  CHECK_THROWS_AS(f.at("missing"), format_error);
  CHECK_THROWS_AS(f.numbers("a", {1, 2}), format_error);
  CHECK_THROWS_AS(f.numbers("c", {2}), format_error);
  CHECK_THROWS_AS(f.booleans("a", {2, 1}), format_error);
}

TEST_CASE("safetensors: malformed files are refused, with the reason") {
  auto const refuses = [](std::string const& bytes, char const* reason) {
    CHECK_THROWS_WITH_AS(file::parse(bytes, "memory"), doctest::Contains(reason), format_error);
  };
  auto const a = [](std::string const& text) { return R"({"a":)" + text + "}"; };
  auto const& data = one_and_minus_two;

  refuses("1234567", "shorter than the header length");
  refuses(with_length(3, "{}"), "past the end");
  refuses(with_length(~std::uint64_t{0}, "{}"), "past the end");
  refuses(make("", ""), "not a JSON object");
  refuses(make("[]", ""), "not a JSON object");
  refuses(make("{", ""), "not JSON");
  refuses(make(R"({"a":1})", ""), "not an object");
  refuses(make(R"({"__metadata__":{"n":3}})", ""), "not a string");
  refuses(make(R"({"a":)" + entry("F32", "[2]", "[0,8]") + R"(,"a":)" + entry("F32", "[2]", "[0,8]") + "}", data),
          "duplicate key");
  refuses(make(R"({"__metadata__":{"n":"3","n":"4"}})", ""), "duplicate key");
  refuses(make(a(R"({"dtype":"F32","shape":[2]})"), data), "expected");
  refuses(make(a(entry("F16", "[4]", "[0,8]")), data), "none of F32, F64, BOOL");
  refuses(make(a(entry("F32", "2", "[0,8]")), data), "not a list");
  refuses(make(a(entry("F32", "[-2]", "[0,8]")), data), "natural numbers");
  refuses(make(a(entry("F32", "[2.0]", "[0,8]")), data), "natural numbers");
  refuses(make(a(entry("F32", "[4294967296,4294967296,2]", "[0,8]")), data), "overflows");
  refuses(make(a(entry("F32", "[0,18446744073709551615]", "[0,0]")), data), "overflows");
  refuses(make(a(entry("F32", "[2]", "[8,0]")), data), "no range");
  refuses(make(a(entry("F32", "[2]", "[0,8,8]")), data), "no range");
  refuses(make(a(entry("F32", "[3]", "[0,12]")), data), "past the end");
  refuses(make(a(entry("F32", "[1]", "[0,8]")), data), "do not match its shape");
  refuses(make(a(entry("BOOL", "[1]", "[0,1]")), "\x02"), "neither 0 nor 1");
  refuses(make(a(entry("F32", "[1]", "[0,4]")), data), "after the last tensor");
  refuses(make(a(entry("F32", "[1]", "[4,8]")), data), "hole");
  refuses(make(R"({"a":)" + entry("F32", "[2]", "[0,8]") + R"(,"b":)" + entry("F32", "[1]", "[4,8]") + "}", data),
          "overlap");
  CHECK_THROWS_WITH_AS(file::read("no/such/file"), doctest::Contains("cannot be opened"), format_error);
}
