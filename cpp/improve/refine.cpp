#include "improve/refine.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>

#include "improve/anneal.h"
#include "improve/anneal_random.h"
#include "improve/choices.h"

namespace fastplan {
namespace {

// By round: how much the goal counts against limits that are broken on the way, and the heat.
// Maxima over ranks want it cold, sums over tables hot; which it is shows only in the search.
constexpr std::array<double, 3> kWeight = {0.3, 1, 0.1};
constexpr std::array<double, 4> kHot = {0.01, 0.003, 0.03, 0.001};
constexpr double kCooling = 1.0 / 30;
constexpr double kFirstRound = 2e4;
constexpr double kFewestRounds = 12;
constexpr double kLongestRound = 2e6;
constexpr double kGrowth = 1.2;
// Where tables share charges, every second round begins with many tables changed at once. Such
// rounds are worth more than long ones.
constexpr std::int64_t kRetypeEvery = 2;
constexpr double kSharedGrowth = 1.1;

// Every option that can be placed: whatever costs more may serve the goal.
std::vector<std::int32_t> all_options(const Problem& problem) {
  std::vector<std::int32_t> all(problem.options.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Whether options of a table differ in nothing but the size of a cache. Moves between them keep the
// places; without such options they would only change which random numbers the others draw.
bool has_sizes(const Problem& problem) {
  for (std::size_t t = 0; t + 1 < problem.table_option_begin.size(); ++t) {
    std::set<std::pair<ShardingType, Kernel>> seen;
    for (auto o = problem.table_option_begin[t]; o < problem.table_option_begin[t + 1]; ++o) {
      const auto& option = problem.options[o];
      if (!seen.emplace(option.type, option.kernel).second) return true;
    }
  }
  return false;
}

// Rounds from the best plan so far, each with another heat and another weight of the goal.
class Refiner {
 public:
  Refiner(const Problem& problem, const Plan& start, double limit, const Goal& goal,
          const OptimizeSettings& settings)
      : settings_(settings),
        budget_(settings),
        limit_(limit),
        choices_(problem, all_options(problem)),
        translator_(problem, choices_, start),
        tally_(goal, problem.ranks()),
        annealer_(choices_, settings.seed),
        random_(settings.seed),
        shares_(goal.charges() > 0) {
    for (std::size_t t = 0; t < choices_.tables(); ++t) {
      allowed_.emplace_back(choices_.first(t + 1) - choices_.first(t));
      std::iota(allowed_[t].begin(), allowed_[t].end(), choices_.first(t));
      const auto own =
          std::span(goal.option_amount)
              .subspan(problem.table_option_begin[t],
                       problem.table_option_begin[t + 1] - problem.table_option_begin[t]);
      least_ += *std::min_element(own.begin(), own.end());
    }
    result_.plan = start;
    const Draft draft = translator_.draft(start);
    if (draft.empty()) {
      // The annealer can't tell what a plan comes to that it can't represent.
      count_plan(problem, start, tally_);
      result_.value = result_.value_before = tally_.value();
      return;
    }
    annealer_.watch(tally_);
    if (has_sizes(problem)) annealer_.resize();
    annealer_.start_from(draft);
    best_ = annealer_.present();
    result_.value = result_.value_before = best_.goal;
  }

  Refined run() {
    // A plan that choices can't represent stays as it is.
    if (best_.empty()) {
      result_.stopped_by = Stop::moves;
      return std::move(result_);
    }
    double quota =
        std::min(kFirstRound, std::max(1.0, static_cast<double>(settings_.moves) / kFewestRounds));
    for (std::int64_t number = 0; !finished(); ++number) {
      run_round(number,
                std::min(static_cast<std::int64_t>(quota), settings_.moves - result_.moves));
      quota = std::min(quota * (shares_ ? kSharedGrowth : kGrowth), kLongestRound);
    }
    return std::move(result_);
  }

 private:
  // A charge is saved only when the last table that brings it is gone, and a sharding type that
  // loads single ranks pays only when many tables balance each other. No move of one table leads
  // there, so many tables take another type at once.
  void start_round(std::int64_t number) {
    if (!shares_ || number % kRetypeEvery == 0) return annealer_.start_from(best_);
    annealer_.start_from(best_, retyped());
  }

  // The best choices, but tables of one module or of all, which have one type now or any, take the
  // same type.
  std::vector<std::int32_t> retyped() {
    const auto& modules = choices_.problem().table_module;
    const auto sample = random_.below(choices_.tables());
    const auto& own = allowed_[sample];
    const auto type = option(own[random_.below(own.size())]).type;
    const auto type_now = option(best_.choice[sample]).type;
    const bool one_module = random_.below(2) == 0;
    const bool one_type = random_.below(2) == 0;
    auto chosen = best_.choice;
    for (std::size_t t = 0; t < choices_.tables(); ++t) {
      if (one_module && modules[t] != modules[sample]) continue;
      if (one_type && option(chosen[t]).type != type_now) continue;
      chosen[t] = with_type(t, chosen[t], type);
    }
    return chosen;
  }

  // The table's choice of the type, if it has one, with the same kernel, if there is one.
  std::int32_t with_type(std::size_t table, std::int32_t now, ShardingType type) const {
    if (option(now).type == type) return now;
    auto found = now;
    for (const auto choice : allowed_[table]) {
      if (option(choice).type != type) continue;
      found = choice;
      if (option(choice).kernel == option(now).kernel) break;
    }
    return found;
  }

  const Option& option(std::int32_t choice) const {
    return choices_.problem().options[choices_[choice].option];
  }

  void run_round(std::int64_t number, std::int64_t moves) {
    // Rounding to fixed point must not put the best plan itself above the limit.
    const auto target = std::max(choices_.fixed(limit_), best_.cost);
    const double hot = kHot[number % kHot.size()];
    const double weight = kWeight[number % kWeight.size()];
    start_round(number);
    // In units of energy: all of the goal counts like `weight` times the target.
    annealer_.weigh(weight * static_cast<double>(target) / static_cast<double>(result_.value));
    const Cooling cooling{hot, hot * kCooling, moves, 0};
    const auto made = annealer_.refine(cooling, target, best_.goal, allowed_,
                                       [this] { return budget_.stopped_or_interrupted(); });
    result_.moves += std::max<std::int64_t>(made, 1);
    Draft found = annealer_.take_best();
    if (found.empty()) return;
    Plan plan = translator_.plan(found);
    // Sums in another order may be above the limit by their last bit.
    if (plan.rating > limit_) return;
    result_.plan = std::move(plan);
    result_.value = found.goal;
    best_ = std::move(found);
  }

  bool finished() {
    const auto why = budget_.ended(result_.value <= least_, result_.moves >= settings_.moves);
    if (why) result_.stopped_by = *why;
    return why.has_value();
  }

  const OptimizeSettings& settings_;
  Budget budget_;
  double limit_;
  Choices choices_;
  Translator translator_;
  Tally tally_;
  Annealer annealer_;
  Random random_;
  bool shares_;  // whether shards bring charges
  Allowed allowed_;
  std::int64_t least_ = 0;  // no choice of options comes to less
  Draft best_;
  Refined result_;
};

}  // namespace

void count_plan(const Problem& problem, const Plan& plan, Tally& tally) {
  std::size_t next = 0;
  for (const auto o : plan.options) {
    const auto& option = problem.options[o];
    tally.add_option(o, 1);
    std::int32_t rank = 0;
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      for (std::int64_t i = 0; i < problem.runs[r].count; ++i) {
        tally.add_shard(r, option.reach == Reach::uniform ? rank++ : plan.ranks[next++], 1);
      }
    }
  }
  tally.commit();
}

Refined refine(const Problem& problem, const Plan& start, double limit, const Goal& goal,
               const OptimizeSettings& settings) {
  return Refiner(problem, start, limit, goal, settings).run();
}

}  // namespace fastplan
