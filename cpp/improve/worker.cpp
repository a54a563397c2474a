#include "improve/worker.h"

#include <algorithm>
#include <utility>

namespace fastplan {
namespace {

// Where a round begins, by its number: at the best plan, or at the bound's choices of which ever
// more are left to chance.
constexpr std::int64_t kBeginnings = 4;
constexpr double kNoise = 0.2;
// Fewer moves over options alone would not cool down.
constexpr std::int64_t kFewestOptionMoves = 100;

// Large models with room want it cold, tight memory hot; which it is shows only in the search.
constexpr std::array<double, 4> kHot = {0.0007, 0.002, 0.006, 0.02};
constexpr double kCooling = 1.0 / 20;
constexpr std::array<std::pair<double, double>, 4> kOptionHeat = {
    {{0.02, 0.002}, {0.05, 0.005}, {0.1, 0.001}, {0.05, 0.001}}};

}  // namespace

std::size_t AdaptiveWeights::pick(Random& random) const {
  double sum = 0;
  for (const double weight : weight_) sum += weight;
  double at = random.real() * sum;
  std::size_t setting = 0;
  while (setting + 1 < weight_.size() && at >= weight_[setting]) at -= weight_[setting++];
  return setting;
}

// Weights return to 1 by a fifth each time, so that no setting is lost for good.
void AdaptiveWeights::reward(std::size_t setting) {
  for (auto& weight : weight_) weight = 1 + (weight - 1) * 0.8;
  weight_[setting] += 2;
}

Worker::Worker(const Choices& choices, std::uint64_t seed, std::int64_t index)
    : index_(index),
      random_(seed),
      annealer_(choices, random_.next()),
      option_annealer_(choices, random_.next()) {}

void Worker::run(const Round& round, const std::function<bool()>& stopped) {
  rest();
  begin(round, stopped);
  const auto heat = heat_.pick(random_);
  const Cooling cooling{kHot[heat], kHot[heat] * kCooling, round.moves - moves_,
                        round.step, Criterion::cost,       round.keep_below};
  moves_ += annealer_.run(cooling, round.target, *round.allowed, stopped);
  if (take(annealer_.take_best())) heat_.reward(heat);
}

void Worker::rest() {
  moves_ = 0;
  found_ = {};
}

void Worker::begin(const Round& round, const std::function<bool()>& stopped) {
  // Workers begin at different places in the same round.
  const auto beginning = (round.number + index_) % kBeginnings;
  if (beginning == 0 && !round.incumbent->empty()) return annealer_.start_from(*round.incumbent);
  auto chosen = *round.relaxed;
  if (beginning != 1 || round.number >= kBeginnings) {
    for (std::size_t t = 0; t < chosen.size(); ++t) {
      const auto& allowed = (*round.allowed)[t];
      if (random_.below(kBeginnings) < beginning)
        chosen[t] = allowed[random_.below(allowed.size())];
    }
  }
  if (round.option_moves < kFewestOptionMoves) return annealer_.start_from(chosen, kNoise);
  const auto heat = option_heat_.pick(random_);
  const auto [hot, cold] = kOptionHeat[heat];
  const Cooling cooling{hot, cold, round.option_moves, round.step};
  moves_ += option_annealer_.run(chosen, cooling, round.target, *round.allowed, stopped);
  annealer_.start_from(option_annealer_.present());
  if (take(option_annealer_.take_best())) option_heat_.reward(heat);
}

bool Worker::take(Draft draft) {
  if (draft.empty() || (!found_.empty() && found_.cost <= draft.cost)) return false;
  found_ = std::move(draft);
  return true;
}

}  // namespace fastplan
