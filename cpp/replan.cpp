#include "replan.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include "replan_start.h"

namespace fastplan {
namespace {

// Rounds are warm starts from the best plan, each at another heat: parts of the target.
constexpr std::array<double, 4> kHot = {0.001, 0.02, 0.003, 0.008};
constexpr double kCooling = 1.0 / 20;
constexpr std::int64_t kRounds = 20;
// How far below the best plan the next is looked for, round by round: of the bytes that need not
// move, and of the cost.
constexpr std::array<double, 5> kByteSteps = {0.5, 0.25, 0.125, 0.0625, 0.03125};
constexpr std::array<double, 5> kCostSteps = {0.02, 0.01, 0.004, 0.0015, 0.0005};
// How far above a draft that does not fit a plan is looked for, round by round.
constexpr std::array<double, 5> kSlack = {1.02, 1.2, 3, 30, 1000};
constexpr std::int64_t kFewestMoves = 2000;
// Plans that are better by a smaller part are not worth looking for.
constexpr double kLeastStep = 1e-6;
// A rating is a sum in another order than the core's fixed point.
constexpr double kRounding = 1e-14;
constexpr double kPollSeconds = 0.02;

using Clock = std::chrono::steady_clock;

class Replanner {
 public:
  Replanner(const Problem& problem, const HeldColumns& held, const ReplanSettings& settings)
      : problem_(problem),
        settings_(settings),
        options_(held_options(problem, held)),
        choices_(problem, kept_options()),
        bytes_(choices_, held),
        translator_(problem, choices_, {}) {
    home_ = home_of(choices_, held, options_);
    result_.least = bytes_.least();
    result_.held = bytes_.held();
  }

  Replanned run() {
    if (!choices_.complete()) {
      result_.points.resize(settings_.budgets.size());
      return std::move(result_);
    }
    even_ = even_cost();
    target_ = settings_.lowers == Lowers::bytes ? choices_.fixed(settings_.target * (1 + kRounding))
                                                : even_;
    auto [present, fits] = settle(choices_, bytes_, home_, target_);
    result_.start = point(present);
    Annealer annealer(choices_, settings_.seed, bytes_, home_);
    for (const double part : settings_.budgets) {
      const auto budget = static_cast<std::int64_t>(part * static_cast<double>(bytes_.held()));
      Draft found = improve(annealer, present, fits, bytes_.least() + budget);
      result_.points.push_back(found.empty() ? ReplanPoint{} : point(found));
      if (found.empty()) continue;
      present = std::move(found);
      fits = true;
    }
    result_.mean = mean_cost(present);
    return std::move(result_);
  }

 private:
  std::vector<std::int32_t> kept_options() const {
    std::vector<std::int32_t> kept;
    std::ranges::copy_if(options_, std::back_inserter(kept), [](auto o) { return o >= 0; });
    return kept;
  }

  // What ranks would cost if every table took its cheapest option and all were spread evenly.
  std::int64_t even_cost() const {
    double sum = 0;
    for (std::size_t t = 0; t < choices_.tables(); ++t) {
      double least = std::numeric_limits<double>::infinity();
      for (auto c = choices_.first(t); c < choices_.first(t + 1); ++c) {
        least = std::min(least, problem_.options[choices_[c].option].perf_sum);
      }
      sum += least;
    }
    return choices_.fixed(sum / static_cast<double>(problem_.ranks()));
  }

  ReplanPoint point(const Draft& draft) const { return {translator_.plan(draft), draft.moved}; }

  double mean_cost(const Draft& draft) const {
    double sum = 0;
    for (const auto number : draft.choice)
      sum += problem_.options[choices_[number].option].perf_sum;
    return sum / static_cast<double>(problem_.ranks());
  }

  bool stopped() {
    const double now = std::chrono::duration<double>(Clock::now() - began_).count();
    if (now > next_poll_ && result_.stopped_by != Stop::interrupted) {
      if (settings_.interrupted()) result_.stopped_by = Stop::interrupted;
      next_poll_ = now + kPollSeconds;
    }
    if (now > settings_.seconds && result_.stopped_by == Stop::moves) {
      result_.stopped_by = Stop::time;
    }
    return result_.stopped_by == Stop::interrupted || result_.stopped_by == Stop::time;
  }

  // The best plan within the limits, from a draft that need not be; empty when none is found. Where
  // bytes are lowered, the cost is brought to the target first.
  Draft improve(Annealer& annealer, const Draft& start, bool fits, std::int64_t budget) {
    Draft best;
    if (fits && start.moved <= budget) best = start;
    const auto reached = [&] { return !best.empty() && best.cost <= target_; };
    const auto each = std::max(settings_.moves / kRounds, kFewestMoves);
    std::int64_t made = 0;
    for (std::int64_t round = 0; made < settings_.moves && !stopped(); ++round) {
      const Lowers lowers = reached() ? settings_.lowers : Lowers::cost;
      if (lowers == Lowers::bytes && best.moved <= bytes_.least()) break;
      const Draft& from = best.empty() ? start : best;
      const Aim aim = aim_below(from, !best.empty(), lowers, budget, round);
      annealer.start_from(from);
      annealer.set_move_budget(aim.moved, byte_price(aim.cost));
      allow(aim.cost);
      const double hot = kHot[static_cast<std::size_t>(round) % kHot.size()];
      const Cooling cooling{hot, hot * kCooling, std::min(each, settings_.moves - made), aim.step,
                            lowers};
      made += annealer.run(cooling, aim.cost, allowed_, [this] { return stopped(); });
      Draft found = annealer.take_best();
      if (!found.empty()) best = std::move(found);
    }
    result_.moves += made;
    if (settings_.lowers == Lowers::bytes && !reached()) return {};
    return best;
  }

  // Leaves the choices that may be part of a plan of this cost.
  void allow(std::int64_t cost) {
    allowed_.resize(choices_.tables());
    for (std::size_t t = 0; t < choices_.tables(); ++t) {
      allowed_[t].clear();
      for (auto c = choices_.first(t); c < choices_.first(t + 1); ++c) {
        const double dearest = problem_.options[choices_[c].option].perf_max;
        if (choices_.fixed(dearest) <= cost) allowed_[t].push_back(c);
      }
      if (allowed_[t].empty()) allowed_[t].push_back(choices_.first(t));
    }
  }

  struct Aim {
    std::int64_t cost = 0;
    std::int64_t moved = 0;
    double step = 0;
  };

  // Some way from a plan within the limits down to what nothing is below; else some way up.
  Aim aim_below(const Draft& from, bool within, Lowers lowers, std::int64_t budget,
                std::int64_t round) const {
    const auto turn = static_cast<std::size_t>(round) % kByteSteps.size();
    if (lowers == Lowers::bytes) {
      const auto less = static_cast<double>(from.moved - bytes_.least()) * kByteSteps[turn];
      const auto moved = static_cast<double>(from.moved);
      return {target_, static_cast<std::int64_t>(moved - less), less / 8 / moved};
    }
    const auto cost = static_cast<double>(std::max(from.cost, even_));
    if (!within) {
      // What does not fit may look cheaper than anything that does.
      const double above = std::min(cost * kSlack[turn], 0x1p60);
      return {static_cast<std::int64_t>(above), budget, kCostSteps[turn] / 8};
    }
    // Step by step; where there is a target, every other time all the way at once.
    if (settings_.lowers == Lowers::bytes && round % 2 == 1) {
      return {target_, budget, kCostSteps[turn] / 8};
    }
    const auto gap = cost - static_cast<double>(even_);
    const double less = std::max(std::min(gap / 2, kCostSteps[turn] * cost), kLeastStep * cost);
    return {static_cast<std::int64_t>(cost - less), budget, less / 8 / cost};
  }

  // Moving what an average rank holds costs as much energy as a rank that is twice over the target.
  double byte_price(std::int64_t target) const {
    const auto held = static_cast<double>(std::max<std::int64_t>(bytes_.held(), 1));
    return static_cast<double>(target) * static_cast<double>(problem_.ranks()) / held;
  }

  const Problem& problem_;
  const ReplanSettings& settings_;
  const Clock::time_point began_ = Clock::now();
  double next_poll_ = 0;
  std::vector<std::int32_t> options_;  // of the old plan, by table
  Choices choices_;
  MoveBytes bytes_;
  Translator translator_;
  Draft home_;
  Allowed allowed_;
  std::int64_t even_ = 0;    // no plan costs less
  std::int64_t target_ = 0;  // of the cost
  Replanned result_;
};

}  // namespace

Replanned replan(const Problem& problem, const HeldColumns& held, const ReplanSettings& settings) {
  return Replanner(problem, held, settings).run();
}

}  // namespace fastplan
