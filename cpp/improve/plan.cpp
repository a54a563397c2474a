#include "improve/plan.h"

#include <algorithm>
#include <numeric>

namespace fastplan {

// In plan order, shard by shard: the order of TorchRec's sums, to the bit.
double rate(const Problem& problem, const Plan& plan) {
  std::vector<double> cost(problem.ranks(), 0.0);
  std::size_t next = 0;
  for (const auto o : plan.options) {
    const auto& option = problem.options[o];
    const bool uniform = option.reach == Reach::uniform;
    std::int64_t rank = 0;
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      for (std::int64_t i = 0; i < problem.runs[r].count; ++i) {
        cost[uniform ? rank++ : plan.ranks[next++]] += problem.runs[r].total;
      }
    }
  }
  return *std::max_element(cost.begin(), cost.end());
}

// The order of tables decides the last bits of a rating, so plans keep that of the first one.
Translator::Translator(const Problem& problem, const Choices& choices, const Plan& first)
    : problem_(problem), choices_(choices), order_(problem.tables()) {
  std::iota(order_.begin(), order_.end(), 0);
  for (std::size_t p = 0; p < first.options.size(); ++p) {
    order_[p] = problem.options[first.options[p]].table;
  }
}

Plan Translator::plan(const Draft& draft) const {
  Plan plan;
  for (const auto table : order_) {
    const auto& choice = choices_[draft.choice[table]];
    plan.options.push_back(choice.option);
    const auto size =
        static_cast<std::int32_t>(choice.spread == Spread::hosts ? problem_.group_size : 1);
    for (const auto place : draft.places[table]) {
      for (std::int32_t i = 0; i < size; ++i) plan.ranks.push_back(place * size + i);
    }
  }
  plan.rating = rate(problem_, plan);
  return plan;
}

Draft Translator::draft(const Plan& plan) const {
  Draft draft;
  draft.choice.resize(problem_.tables());
  draft.places.resize(problem_.tables());
  std::size_t next = 0;
  for (const auto o : plan.options) {
    const auto number = choices_.of_option(o);
    if (number < 0) return {};
    const auto& choice = choices_[number];
    draft.choice[choice.table] = number;
    const auto size =
        static_cast<std::int32_t>(choice.spread == Spread::hosts ? problem_.group_size : 1);
    for (std::int32_t i = 0; i < choice.pieces; ++i, next += size) {
      draft.places[choice.table].push_back(plan.ranks[next] / size);
    }
  }
  return draft;
}

}  // namespace fastplan
