#include "replan/replan.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include "replan/match.h"
#include "replan/start.h"

namespace fastplan {
namespace {

// Rounds are warm starts from the best plan, each at another heat: parts of the target. Where bytes
// are lowered, some are hot enough for a large table to change its option.
constexpr std::array<double, 4> kHot = {0.001, 0.02, 0.003, 0.008};
constexpr std::array<double, 5> kByteHot = {0.001, 0.1, 0.003, 0.03, 0.01};
constexpr double kCooling = 1.0 / 20;
constexpr std::int64_t kRounds = 20;
// How far below the best plan the next is looked for, round by round: of the bytes that need not
// move, and of the cost.
constexpr std::array<double, 5> kByteSteps = {0.5, 0.25, 0.125, 0.0625, 0.03125};
constexpr std::array<double, 5> kCostSteps = {0.02, 0.01, 0.004, 0.0015, 0.0005};
// How far above a draft that does not fit a plan is looked for, round by round.
constexpr std::array<double, 5> kSlack = {1.02, 1.2, 3, 30, 1000};
// What a byte costs, as a share of byte_price(): it doubles with every plan that is found, falls to
// a third where none is, and is all of it once that has come to nothing.
constexpr double kFirstPriceShare = 0.1, kLeastPriceShare = 1e-3;
constexpr double kPriceGrowth = 2, kPriceDecay = 1.0 / 3;
// Plans that move fewer bytes by a smaller part are not kept on the way.
constexpr double kByteStep = 1e-4;
constexpr std::int64_t kFewestMoves = 2000;
// Plans that are better by a smaller part are not worth looking for.
constexpr double kLeastStep = 1e-6;
// A rating is a sum in another order than the core's fixed point.
constexpr double kRounding = 1e-14;
constexpr double kPollSeconds = 0.02;

using Clock = std::chrono::steady_clock;

// Either the best rating within a budget of bytes (Criterion::cost), or the fewest bytes within a
// rating (Criterion::bytes). Both are annealing with a price on moved bytes, from the old plan and,
// where there is one, from a plan from scratch.
class Replanner {
 public:
  Replanner(const Problem& problem, const HeldColumns& held, const ReplanSettings& settings)
      : problem_(problem),
        settings_(settings),
        options_(held_options(problem, held)),
        choices_(problem, kept_options()),
        bytes_(choices_, held),
        translator_(problem, choices_, settings.reached) {
    previous_ = previous_draft(choices_, held, options_);
    result_.least = bytes_.least();
    result_.held = bytes_.held();
  }

  Replanned run() {
    if (!choices_.complete()) {
      result_.points.resize(settings_.budgets.size());
      return std::move(result_);
    }
    floor_ = cost_floor();
    target_ = minimizes_cost() ? floor_ : choices_.fixed(settings_.target * (1 + kRounding));
    auto [present, fits] = repair(choices_, bytes_, previous_, target_);
    result_.start = point(present);
    Annealer annealer(choices_, settings_.seed, bytes_, previous_);
    if (minimizes_cost() && settings_.reached.found()) {
      const Draft reached = translator_.draft(settings_.reached);
      if (!reached.empty()) {
        annealer.start_from(reached);
        present = annealer.present();
        fits = true;
      }
    }
    for (const double part : settings_.budgets) {
      const auto budget =
          bytes_.least() + static_cast<std::int64_t>(part * static_cast<double>(bytes_.held()));
      Draft found = minimizes_cost() ? lower_cost(annealer, present, fits, budget)
                                     : lower_bytes(annealer, present, budget);
      result_.points.push_back(found.empty() ? ReplanPoint{} : point(found));
      if (found.empty()) continue;
      present = std::move(found);
      fits = true;
    }
    result_.mean = mean_cost(present);
    return std::move(result_);
  }

 private:
  bool minimizes_cost() const { return settings_.criterion == Criterion::cost; }

  std::vector<std::int32_t> kept_options() const {
    std::vector<std::int32_t> kept;
    std::ranges::copy_if(options_, std::back_inserter(kept), [](auto o) { return o >= 0; });
    std::ranges::copy(settings_.reached.options, std::back_inserter(kept));
    return kept;
  }

  //     floor = sum_t min_o perf_sum(o) / R
  // What ranks would cost if every table took its cheapest option and all were spread evenly: no
  // plan costs less.
  std::int64_t cost_floor() const {
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

  // Rated as TorchRec rates it; fixed point is for the search only.
  ReplanPoint point(const Draft& draft) const { return {translator_.plan(draft), draft.moved}; }

  double mean_cost(const Draft& draft) const {
    double sum = 0;
    for (const auto number : draft.choice)
      sum += problem_.options[choices_[number].option].perf_sum;
    return sum / static_cast<double>(problem_.ranks());
  }

  // Once interrupted or out of time, it stays so: the searches ask again and again.
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

  // The best plan within the budget, from a draft that need not be; empty when none is found.
  // Rounds start from the best plan so far, or from the draft while there is none.
  Draft lower_cost(Annealer& annealer, const Draft& start, bool fits, std::int64_t budget) {
    Draft best;
    if (fits && start.moved <= budget) best = start;
    const auto each = std::max(settings_.moves / kRounds, kFewestMoves);
    std::int64_t made = 0;
    for (std::int64_t round = 0; made < settings_.moves && !stopped(); ++round) {
      const Draft& from = best.empty() ? start : best;
      const Aim aim = aim_below(from, !best.empty(), static_cast<std::size_t>(round));
      annealer.start_from(from);
      annealer.set_move_budget(budget, byte_price(aim.cost));
      allow(aim.cost);
      const double hot = kHot[static_cast<std::size_t>(round) % kHot.size()];
      const Cooling cooling{hot, hot * kCooling, std::min(each, settings_.moves - made), aim.step,
                            Criterion::cost};
      const auto more = annealer.run(cooling, aim.cost, allowed_, [this] { return stopped(); });
      annealer.swap_best(best);
      if (more == 0) break;  // nothing costs anything, so no plan is better
      made += more;
    }
    result_.moves += made;
    return best;
  }

  // One start's way to plans that cost at most the target and move less and less.
  struct Descent {
    Draft present;  // the best plan, or what the start has come to while there is none
    bool found = false;
    double price_share = kFirstPriceShare;  // of a byte's full price
    std::size_t turn = 0;  // of heats and kinds of rounds: the next, when one finds nothing
  };

  // The plan that costs at most the target and moves least; empty when none within the budget is
  // found. A plan that costs too much for the target may be a few large tables' options away from
  // it, which a plan at hand that has reached it knows: both are starts.
  Draft lower_bytes(Annealer& annealer, const Draft& start, std::int64_t budget) {
    std::vector<Descent> descents;
    descents.push_back(descent_from(annealer, start));
    if (settings_.reached.found()) {
      const Draft reached = translator_.draft(settings_.reached);
      if (!reached.empty()) {
        Descent numbered = descent_from(annealer, matched(choices_, bytes_, reached));
        descents.push_back(numbered.found ? std::move(numbered) : descent_from(annealer, reached));
      }
    }
    allow(target_);
    const auto each = std::max(settings_.moves / kRounds, kFewestMoves);
    std::int64_t made = 0;
    for (std::size_t round = 0; made < settings_.moves && !stopped(); ++round) {
      Descent& descent = next(descents, round);
      if (descent.found && descent.present.moved <= bytes_.least()) break;
      const auto more = descend(annealer, descent, std::min(each, settings_.moves - made));
      made += std::max<std::int64_t>(more, 1);
    }
    result_.moves += made;
    const Descent& best = best_of(descents);
    return best.found && best.present.moved <= budget ? best.present : Draft{};
  }

  Descent descent_from(Annealer& annealer, const Draft& draft) const {
    annealer.start_from(draft);
    Descent descent{.present = annealer.present()};
    descent.found = annealer.fits(target_) && is_reached(descent.present);
    return descent;
  }

  // Sums in another order may be above the target by their last bit.
  bool is_reached(const Draft& draft) const {
    return translator_.plan(draft).rating <= settings_.target;
  }

  // Both in turn, until the way from the old plan is ahead.
  static Descent& next(std::vector<Descent>& descents, std::size_t round) {
    Descent& old = descents.front();
    const bool ahead = old.found && &best_of(descents) == &old;
    return ahead || round % 2 == 0 ? old : descents.back();
  }

  static Descent& best_of(std::vector<Descent>& descents) {
    return *std::ranges::min_element(descents, {}, [](const Descent& descent) {
      return descent.found ? descent.present.moved : std::numeric_limits<std::int64_t>::max();
    });
  }

  // One round. Every other one, once there is a plan, asks for fewer bytes than it moves by a hard
  // budget; the others put a price on all bytes above the least, and keep the best plan on the way.
  std::int64_t descend(Annealer& annealer, Descent& descent, std::int64_t moves) {
    const auto turn = descent.turn;
    // Heats and kinds of rounds meet in all combinations: the index of heats shifts by one each
    // turn.
    const double hot = kByteHot[(turn + turn / kByteHot.size()) % kByteHot.size()];
    Cooling cooling{hot, hot * kCooling, moves, kByteStep, Criterion::bytes};
    annealer.start_from(descent.present);
    std::int64_t made = 0;
    if (descent.found && turn % 2 == 1) {
      const auto moved = static_cast<double>(descent.present.moved);
      const auto less = static_cast<double>(descent.present.moved - bytes_.least()) *
                        kByteSteps[turn / 2 % kByteSteps.size()];
      cooling.step = less / 8 / moved;
      annealer.set_move_budget(static_cast<std::int64_t>(moved - less), byte_price(target_));
      made = annealer.run(cooling, target_, allowed_, [this] { return stopped(); });
    } else {
      const auto most =
          descent.found ? descent.present.moved : std::numeric_limits<std::int64_t>::max();
      annealer.set_move_budget(bytes_.least(), descent.price_share * byte_price(target_));
      made = annealer.save_bytes(cooling, target_, most, allowed_, [this] { return stopped(); });
    }
    Draft found = annealer.take_best();
    if (!found.empty() && is_reached(found)) {
      descent.present = std::move(found);
      descent.found = true;
      descent.price_share *= kPriceGrowth;
    } else {
      // What misses the target by its last bit would end every round at once: look below it.
      if (made == 0 && !found.empty()) {
        target_ = std::max<std::int64_t>(found.cost - 1, 0);
        allow(target_);
      }
      ++descent.turn;
      if (!descent.found) descent.present = annealer.present();
      descent.price_share *= kPriceDecay;
      if (descent.price_share < kLeastPriceShare) descent.price_share = 1;
    }
    return made;
  }

  // Leaves the choices that may be part of a plan of this cost: no shard may cost more alone.
  void allow(std::int64_t cost) {
    allowed_.resize(choices_.tables());
    for (std::size_t t = 0; t < choices_.tables(); ++t) {
      allowed_[t].clear();
      for (auto c = choices_.first(t); c < choices_.first(t + 1); ++c) {
        const double costliest = problem_.options[choices_[c].option].perf_max;
        if (choices_.fixed(costliest) <= cost) allowed_[t].push_back(c);
      }
      if (allowed_[t].empty()) allowed_[t].push_back(choices_.first(t));
    }
  }

  struct Aim {
    std::int64_t cost = 0;
    double step = 0;
  };

  // Some way from a plan within the limits down to what nothing is below; else some way up, since
  // what does not fit may look cheaper than anything that does.
  Aim aim_below(const Draft& from, bool within, std::size_t round) const {
    const auto turn = round % kCostSteps.size();
    const auto cost = static_cast<double>(std::max(from.cost, floor_));
    if (!within) {
      // What does not fit may look cheaper than anything that does.
      const double above = std::min(cost * kSlack[turn], 0x1p60);
      return {static_cast<std::int64_t>(above), kCostSteps[turn] / 8};
    }
    const auto gap = cost - static_cast<double>(floor_);
    const double less = std::max(std::min(gap / 2, kCostSteps[turn] * cost), kLeastStep * cost);
    return {static_cast<std::int64_t>(cost - less), cost > 0 ? less / 8 / cost : 0};
  }

  //     price = target R / held
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
  MovedBytes bytes_;
  Translator translator_;
  Draft previous_;
  Allowed allowed_;
  std::int64_t floor_ = 0;   // no plan costs less
  std::int64_t target_ = 0;  // of the cost
  Replanned result_;
};

}  // namespace

Replanned replan(const Problem& problem, const HeldColumns& held, const ReplanSettings& settings) {
  return Replanner(problem, held, settings).run();
}

}  // namespace fastplan
