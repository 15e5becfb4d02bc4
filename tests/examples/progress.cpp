// SPDX-License-Identifier: Apache-2.0
// The example's progress: plain lines where there is no terminal.
#include "../../examples/progress.hpp"

#include <cstdio>
#include <string>

#include <doctest/doctest.h>

TEST_CASE("times are hours, minutes and seconds") {
  CHECK(example::clock_time(0.4) == "0:00");
  CHECK(example::clock_time(59.6) == "1:00");
  CHECK(example::clock_time(754) == "12:34");
  CHECK(example::clock_time(3723) == "1:02:03");
}

TEST_CASE("a file gets one plain line per evaluation and nothing per step") {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  example::progress progress(10, file);
  for (int step = 1; step <= 10; ++step) progress.step(step, 2.5);
  progress.line(10, 2.5, 2.25);
  std::rewind(file);
  char buffer[256] = {};
  std::size_t const length = std::fread(buffer, 1, sizeof buffer - 1, file);
  std::fclose(file);
  std::string const text(buffer, length);
  CHECK(text.starts_with("10/10  loss 2.500  "));
  CHECK(text.ends_with("  0:00 left  validation 2.250\n"));
  CHECK(text.find_first_of("\r\033") == std::string::npos);
}
