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
      : goal_per_rating_(settings.goal_per_rating),
        balanced_(settings.partitioner.memory_balanced) {
    if (settings.objective) objective_.emplace(problem, settings.objective);
    if (settings.goal) goal_.emplace(problem, *settings.goal);
  }

  // From now on a goal is counted while plans are placed, by what this returns: none if there is no
  // goal, or if a plan is the best of several placements.
  GoalCounter* follow_placements() {
    following_ = goal_ && !balanced_;
    return following_ ? &*goal_ : nullptr;
  }
  // The plan that is placed next has these options, comes to at least `least` by channel (none: not
  // known), and may be given up above `limit`.
  void expect(std::span<const std::int32_t> options, std::span<const std::int64_t> least,
              double limit) {
    if (following_) goal_->expect(options, least, limit);
  }

  // Of what the partitioner has just placed.
  double of(std::span<const std::int32_t> options, const Partitioner& partitioner) {
    if (objective_) return objective_->rate(options, partitioner.ranks());
    if (following_) return static_cast<double>(goal_->value());
    if (goal_) return static_cast<double>(goal_->value(options, partitioner.ranks()));
    return partitioner.rating();
  }

  // The rating that a plan within `limit` has at most.
  double rating_limit(double limit) const {
    if (objective_) return Partitioner::kNoLimit;
    if (!goal_) return limit;
    return goal_per_rating_ > 0 ? limit / goal_per_rating_ : Partitioner::kNoLimit;
  }

 private:
  std::optional<Objective> objective_;
  std::optional<GoalCounter> goal_;
  double goal_per_rating_;
  bool balanced_;
  bool following_ = false;
};

}  // namespace fastplan
