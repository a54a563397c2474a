#include "improve/optimize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <system_error>
#include <thread>

#include "bound/bound_search.h"
#include "improve/anneal.h"
#include "improve/anneal_random.h"
#include "improve/choices.h"
#include "improve/enumerate.h"
#include "improve/worker.h"

namespace fastplan {
namespace {

// A plan this close to its bound is optimal: bounds are lowered by about as much against rounding.
constexpr double kOptimal = 1e-8;
// Not worth a better bound.
constexpr double kCloseEnough = 2e-4;
constexpr std::int64_t kEvaluations = 4000;
// The packing bound is tried after these rounds, with so many knapsacks. Nothing here depends on
// how much time there is in all: a longer search begins like a shorter one and goes on.
constexpr std::array<std::pair<std::int64_t, std::int64_t>, 3> kPacking = {
    {{3, 400}, {9, 800}, {20, 1600}}};
// Where time is limited, an attempt takes no longer than this part of the time that has passed.
constexpr double kPackingShare = 0.5;
// Rounds grow, so that short budgets see several and long ones cool slowly.
constexpr double kFirstRound = 5e4;
constexpr double kFewestRounds = 10;
constexpr double kLongestRound = 4e6;
constexpr double kGrowth = 1.2;
// Enumeration: nodes for each move of a round, and how many the first and the last attempt take. A
// node takes about as long as a move.
constexpr double kNodeShare = 0.5;
constexpr double kFirstNodes = 2e4;
constexpr double kMostNodes = 1e8;
// Moves over options alone place all tables again. They get this part of a round at most, and fewer
// the more tables x ranks there are.
constexpr double kOptionShare = 0.7;
constexpr double kOptionMoveCost = 150;

// Rounds of annealing on all threads, each aimed between the best plan and the bound. After each
// round the bound and the choices that can still be part of a better plan follow the new rating.
// Rounds end together, and results are taken in the order of the workers, so that threads change
// the time only.
class Optimizer {
 public:
  Optimizer(const Problem& problem, const Plan& start, const OptimizeSettings& settings)
      : problem_(problem),
        settings_(settings),
        budget_(settings),
        choices_(problem, start.options),
        translator_(problem, choices_, start),
        bounds_(problem),
        enumeration_(choices_, bounds_.relaxation()) {
    result_.plan = start;
    if (start.found()) {
      incumbent_ = translator_.draft(start);
      result_.trace.emplace_back(0.0, start.rating);
    }
    Random seeds(settings.seed);
    workers_.reserve(settings.threads);
    for (std::int32_t i = 0; i < settings.threads; ++i) {
      workers_.emplace_back(choices_, seeds.next(), i);
    }
  }

  Optimized run() {
    bound();
    const double each = static_cast<double>(settings_.moves) / settings_.threads;
    double quota = std::min(kFirstRound, std::ceil(each / kFewestRounds));
    for (std::int64_t number = 0; !finished(); ++number) {
      const Round round = plan_round(number, quota);
      if (packing_due(number)) {
        run_packing_round(round);
      } else {
        run_workers(round, [&] {
          workers_[0].run(round, [this] { return budget_.stopped_or_interrupted(); });
        });
      }
      take_results();
      enumerate(round);
      quota = std::min(quota * kGrowth, kLongestRound);
    }
    result_.certificate = bounds_.checked();
    return std::move(result_);
  }

 private:
  double lower() const { return bounds_.certificate().value; }
  double upper() const { return result_.plan.rating; }

  bool optimal() const { return complete_ || upper() <= lower() * (1 + kOptimal); }

  // Settled: the plan is as good as its bound, all plans were seen, or there can be none.
  bool finished() {
    const bool settled = result_.plan.found()
                             ? optimal()
                             : lower() > bounds_.relaxation().most() * (1 + kOptimal) ||
                                   (!choices_.complete() && !choices_.partial());
    // Where a table has nothing to choose there is no move to make.
    const bool out_of_moves =
        !choices_.complete() || settings_.moves - result_.moves < settings_.threads;
    const auto why = budget_.ended(settled, out_of_moves);
    if (why) result_.stopped_by = *why;
    return why.has_value();
  }

  void bound() {
    bounds_.bound_averages(upper(), kEvaluations,
                           [this] { return budget_.stopped_or_interrupted(); });
    narrow();
  }

  // Leaves the choices that may be part of a better plan, by their reduced costs, and notes the
  // ones that the weakest slab makes cheapest: the bound's own idea of a plan.
  void narrow() {
    const auto slabs = bounds_.average_slabs();
    const auto useful = bounds_.relaxation().useful(slabs, upper());
    const double threshold = std::min(upper(), lower() * (1 + 1e-4));
    const auto weakest =
        std::min_element(slabs.begin(), slabs.end(), [&](const Slab& a, const Slab& b) {
          return bounds_.relaxation().proven(a, threshold) <
                 bounds_.relaxation().proven(b, threshold);
        });
    const auto cheapest = bounds_.relaxation().cheapest(*weakest, threshold);
    allowed_.assign(problem_.tables(), {});
    relaxed_.assign(problem_.tables(), -1);
    for (std::size_t t = 0; t < problem_.tables(); ++t) {
      auto& allowed = allowed_[t];
      for (auto c = choices_.first(t); c < choices_.first(t + 1); ++c) {
        if (useful[choices_[c].option]) allowed.push_back(c);
      }
      // Nothing useful: the plan at hand is the best. Something must be left to search with.
      if (allowed.empty()) allowed.push_back(choices_.first(t));
      if (cheapest[t] >= 0) relaxed_[t] = choices_.of_option(cheapest[t]);
      if (relaxed_[t] < 0) relaxed_[t] = allowed[0];
    }
  }

  Round plan_round(std::int64_t number, double quota) const {
    Round round;
    round.number = number;
    const std::int64_t left = (settings_.moves - result_.moves) / settings_.threads;
    round.moves = std::min(static_cast<std::int64_t>(quota), left);
    const double cost =
        0.2 + static_cast<double>(problem_.tables() * problem_.ranks()) / kOptionMoveCost;
    const auto most = static_cast<std::int64_t>(kOptionShare * static_cast<double>(round.moves));
    // A move over options costs about tables x ranks / kOptionMoveCost as much as one over
    // placements.
    round.option_moves = std::min(static_cast<std::int64_t>(quota / cost), most);
    round.allowed = &allowed_;
    round.incumbent = &incumbent_;
    round.relaxed = &relaxed_;
    aim(round);
    return round;
  }

  // Some way from the best plan down to the bound, 1/2 to 1/32 of it in turn: near targets are
  // reached often, far ones save many small steps. Without a plan, some way up from the bound.
  void aim(Round& round) const {
    if (!result_.plan.found()) {
      static constexpr std::array<double, 5> kFactors = {1.02, 1.1, 1.5, 3, 10};
      const auto at = static_cast<std::size_t>(round.number) % (kFactors.size() + 1);
      const double most = bounds_.relaxation().most();
      round.target =
          choices_.fixed(at < kFactors.size() ? std::min(lower() * kFactors[at], most) : most);
      round.step = 0.01;
      return;
    }
    const double part = std::ldexp(1.0, -1 - static_cast<int>(round.number % 5));
    const double less = std::max((upper() - lower()) * part, upper() * 1e-7);
    round.target = choices_.fixed(upper() - less);
    round.step = less / 8 / upper();
    if (enumeration_.worthwhile()) round.keep_below = choices_.fixed(upper());
  }

  bool packing_may_help() const {
    return packings_ < kPacking.size() && bounds_.packing_worthwhile() && result_.plan.found() &&
           upper() > lower() * (1 + kCloseEnough);
  }

  // The packing bound takes long and often gains nothing: it waits for a few rounds, which may
  // close the gap without it.
  bool packing_due(std::int64_t number) const {
    return packing_may_help() && number >= kPacking[packings_].first &&
           budget_.seconds() >= next_packing_;
  }

  // A better bound instead of a round of the first worker.
  void run_packing_round(const Round& round) {
    // With a move budget alone, the clock must not change what is found.
    const double deadline =
        std::isinf(settings_.seconds) ? settings_.seconds : budget_.seconds() * (1 + kPackingShare);
    workers_[0].rest();
    run_workers(round, [&] {
      run_packing([&] { return budget_.stopped_or_interrupted() || budget_.seconds() > deadline; });
    });
  }

  // An attempt that is cut off is made again when there is time for twice as much.
  void run_packing(const std::function<bool()>& stopped) {
    const double before = lower();
    bool cut_off = false;
    bounds_.bound_packing(upper(), kPacking[packings_].second, [&] {
      cut_off = cut_off || stopped();
      return cut_off;
    });
    if (cut_off) {
      next_packing_ = 2 * budget_.seconds();
    } else {
      packings_ = lower() > before ? packings_ + 1 : kPacking.size();
    }
  }

  // Runs all workers but the first on threads of their own, and `first` on this one. Workers whose
  // threads can't be started follow on this one: what is found does not depend on threads.
  void run_workers(const Round& round, const std::function<void()>& first) {
    std::vector<std::exception_ptr> failed(workers_.size());
    {
      std::vector<std::jthread> threads;
      threads.reserve(workers_.size());
      std::size_t begun = 1;
      try {
        for (; begun < workers_.size(); ++begun) {
          threads.emplace_back([&, i = begun] {
            try {
              workers_[i].run(round, [this] { return budget_.stopped(); });
            } catch (...) {
              failed[i] = std::current_exception();
            }
          });
        }
      } catch (const std::system_error&) {
        // The system has no more threads.
      }
      first();
      for (; begun < workers_.size(); ++begun) {
        workers_[begun].run(round, [this] { return budget_.stopped_or_interrupted(); });
      }
    }
    for (const auto& each : failed) {
      if (each) std::rethrow_exception(each);
    }
  }

  // Sees all plans of a small problem, if there are not too many. Every round allows for some more
  // nodes; once they are twice those of the last attempt, there is another.
  void enumerate(const Round& round) {
    if (!enumeration_.worthwhile() || !result_.plan.found() || optimal()) return;
    spare_nodes_ += kNodeShare * static_cast<double>(round.moves);
    if (spare_nodes_ < wanted_nodes_ || wanted_nodes_ > kMostNodes || budget_.stopped()) return;
    auto nodes = static_cast<std::int64_t>(spare_nodes_);
    spare_nodes_ = 0;
    wanted_nodes_ *= 2;
    complete_ = enumeration_.run(bounds_.average_slabs(), allowed_, upper(), nodes,
                                 [this] { return budget_.stopped_or_interrupted(); });
    if (take_plan(enumeration_.best())) narrow();
    // There is no better plan to look for, but there may be a better proof to show.
    while (complete_ && packing_may_help() && !budget_.stopped()) {
      run_packing([this] { return budget_.stopped_or_interrupted(); });
    }
  }

  // Keeps a plan if it is the best.
  bool take_plan(const Draft& found) {
    if (found.empty()) return false;
    Plan plan = translator_.plan(found);
    if (plan.rating >= upper()) return false;
    result_.plan = std::move(plan);
    incumbent_ = found;
    result_.trace.emplace_back(budget_.seconds(), upper());
    return true;
  }

  // Adds up a round in the order of the workers, so that threads leave no trace.
  void take_results() {
    const double before = upper();
    for (auto& worker : workers_) {
      result_.moves += worker.moves();
      if (worker.moves() > 0) ++result_.restarts;
      take_plan(worker.found());
    }
    // A much better plan makes a closer bound possible; a little better one only rules out choices.
    if (upper() < before * (1 - 1e-3)) {
      bound();
    } else if (upper() < before) {
      narrow();
    }
  }

  const Problem& problem_;
  const OptimizeSettings& settings_;
  Budget budget_;
  Choices choices_;
  Translator translator_;
  BoundSearch bounds_;
  Enumeration enumeration_;
  double spare_nodes_ = kFirstNodes;
  double wanted_nodes_ = kFirstNodes;
  bool complete_ = false;  // all plans were seen, and none is better
  std::size_t packings_ = 0;
  double next_packing_ = 0;  // seconds
  std::vector<Worker> workers_;
  Allowed allowed_;
  std::vector<std::int32_t> relaxed_;  // by table: the choice that the bound makes cheapest
  Draft incumbent_;
  Optimized result_;
};

}  // namespace

Optimized optimize(const Problem& problem, const Plan& start, const OptimizeSettings& settings) {
  return Optimizer(problem, start, settings).run();
}

}  // namespace fastplan
