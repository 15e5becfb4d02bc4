// SPDX-License-Identifier: Apache-2.0
// Progress of a long loop: a bar that redraws itself on a terminal, plain lines elsewhere.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace example {

/// "1:02:03", "2:03"
inline std::string clock_time(double seconds) {
  auto const all = static_cast<long long>(seconds + 0.5);
  char text[48];
  if (all >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", all / 3600, all / 60 % 60, all % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", all / 60, all % 60);
  }
  return text;
}

class progress {
 public:
  explicit progress(std::int64_t steps, std::FILE* out = stderr)
      : steps_(steps), out_(out), terminal_(isatty(fileno(out)) == 1), start_(clock::now()), drawn_(start_) {}

  /// After every step; redraws at most ten times a second, and only on a terminal.
  void step(std::int64_t done, double loss) {
    if (!terminal_) return;
    auto const now = clock::now();
    if (done < steps_ && now - drawn_ < std::chrono::milliseconds(100)) return;
    drawn_ = now;
    constexpr int width = 30;
    std::string bar(static_cast<std::size_t>(done * width / steps_), '#');
    bar.resize(width, '.');
    std::fprintf(out_, "\r[%s] %s\033[K", bar.c_str(), status(done, loss).c_str());
    std::fflush(out_);
  }

  /// A line to keep, wherever the output goes.
  void line(std::int64_t done, double loss, double validation_loss) {
    std::fprintf(out_, "%s%s  validation %.3f\n", terminal_ ? "\r\033[K" : "", status(done, loss).c_str(),
                 validation_loss);
    std::fflush(out_);
  }

  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(clock::now() - start_).count(); }

 private:
  using clock = std::chrono::steady_clock;

  [[nodiscard]] std::string status(std::int64_t done, double loss) const {
    double const rate = static_cast<double>(done) / seconds();
    char text[128];
    std::snprintf(text, sizeof text, "%lld/%lld  loss %.3f  %.1f steps/s  %s left", static_cast<long long>(done),
                  static_cast<long long>(steps_), loss, rate,
                  clock_time(static_cast<double>(steps_ - done) / rate).c_str());
    return text;
  }

  std::int64_t steps_;
  std::FILE* out_;
  bool terminal_;
  clock::time_point start_, drawn_;
};

}  // namespace example
