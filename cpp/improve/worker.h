// One thread's search for better plans.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "improve/anneal.h"
#include "improve/anneal_options.h"
#include "improve/anneal_random.h"
#include "improve/choices.h"

namespace fastplan {

// What all workers are to do next.
struct Round {
  std::int64_t number = 0;
  std::int64_t moves = 0;         // of each worker, at most
  std::int64_t option_moves = 0;  // of these, over options alone
  std::int64_t target = 0;
  double step = 0;
  std::int64_t keep_below = 0;  // as in Cooling
  const Allowed* allowed = nullptr;
  const Draft* incumbent = nullptr;
  const std::vector<std::int32_t>* relaxed = nullptr;  // choices that a bound makes cheapest
};

// Roulette-wheel selection among a few settings: those that have led to better plans are taken more
// often, and what was learned fades.
class AdaptiveWeights {
 public:
  std::size_t pick(Random& random) const;
  void reward(std::size_t setting);

 private:
  std::array<double, 4> weight_{1, 1, 1, 1};
};

// One thread's annealers and random numbers. Workers share nothing that changes, so what each finds
// depends on its seed and the rounds alone.
class Worker {
 public:
  Worker(const Choices& choices, std::uint64_t seed, std::int64_t index);

  void run(const Round& round, const std::function<bool()>& stopped);
  // A round without this worker.
  void rest();

  // Of the last round.
  std::int64_t moves() const { return moves_; }
  const Draft& found() const { return found_; }

 private:
  void begin(const Round& round, const std::function<bool()>& stopped);
  bool take(Draft draft);

  std::int64_t index_;
  Random random_;
  Annealer annealer_;
  OptionAnnealer option_annealer_;
  AdaptiveWeights heat_, option_heat_;
  std::int64_t moves_ = 0;
  Draft found_;
};

}  // namespace fastplan
