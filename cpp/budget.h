// How long a search may go on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>

namespace fastplan {

struct OptimizeSettings {
  double seconds = std::numeric_limits<double>::infinity();
  std::int64_t moves = std::numeric_limits<std::int64_t>::max();
  std::uint64_t seed = 0;
  std::int32_t threads = 1;
  std::function<bool()> interrupted = [] { return false; };  // asked by the calling thread only
};

class Budget {
 public:
  explicit Budget(const OptimizeSettings& settings) : settings_(settings) {}

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool interrupted() const { return interrupted_; }
  bool stopped() const { return interrupted_ || seconds() > settings_.seconds; }
  // For the calling thread, which alone may ask for signals.
  bool stopped_or_interrupted() {
    const double now = seconds();
    if (now > next_poll_ && !interrupted_) {
      interrupted_ = settings_.interrupted();
      next_poll_ = now + kPollSeconds;
    }
    return stopped();
  }

 private:
  static constexpr double kPollSeconds = 0.02;
  using Clock = std::chrono::steady_clock;

  const OptimizeSettings& settings_;
  const Clock::time_point start_ = Clock::now();
  double next_poll_ = 0;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace fastplan
