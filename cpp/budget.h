// How long a search may go on, and why it ended.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>

namespace fastplan {

// The numbers are part of the boundary: fastplan/engine/optimize.py lists the names in this order.
enum class Stop : std::uint8_t { optimal, time, moves, interrupted };

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
  // Why a search is over, if it is; for the calling thread.
  std::optional<Stop> ended(bool optimal, bool out_of_moves) {
    if (stopped_or_interrupted() && interrupted_) return Stop::interrupted;
    if (optimal) return Stop::optimal;
    if (out_of_moves) return Stop::moves;
    if (stopped()) return Stop::time;
    return std::nullopt;
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
