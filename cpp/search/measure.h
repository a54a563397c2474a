// What a search compares plans by.
#pragma once

#include <optional>
#include <span>

#include "search/custom_objective.h"
#include "search/goal.h"
#include "search/partition.h"
#include "search/search.h"

namespace fastplan {

// The rating, a user's objective, or a goal.
class Measure {
 public:
  Measure(const Problem& problem, const SearchSettings& settings)
      : goal_per_rating_(settings.goal_per_rating) {
    if (settings.objective) objective_.emplace(problem, settings.objective);
    if (settings.goal) goal_.emplace(problem, *settings.goal);
  }

  // Of what the partitioner has just placed.
  double of(std::span<const std::int32_t> options, const Partitioner& partitioner) {
    if (objective_) return objective_->rate(options, partitioner.ranks());
    if (goal_) return static_cast<double>(goal_->value(options, partitioner.ranks()));
    return partitioner.rating();
  }

  // The rating that a plan within `limit` has at most.
  double rating_limit(double limit) const {
    if (!goal_) return limit;
    return goal_per_rating_ > 0 ? limit / goal_per_rating_ : Partitioner::kNoLimit;
  }

 private:
  std::optional<Objective> objective_;
  std::optional<GoalCounter> goal_;
  double goal_per_rating_;
};

}  // namespace fastplan
