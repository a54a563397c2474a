// Finding the plan TorchRec's planner would return, or its best proposal by another measure.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/problem.h"
#include "search/custom_objective.h"
#include "search/goal.h"
#include "search/partition.h"
#include "search/proposals.h"

namespace fastplan {

struct SearchSettings {
  std::vector<ProposerSettings> proposers;
  PartitionerSettings partitioner;
  // Evaluate every proposal in order: the number of plans is then known, thresholds act as in
  // TorchRec. Otherwise proposals that can't win are left out; the plan is the same.
  bool exhaustive = false;
  // 0 is none. A search that leaves proposals out and is not done by then starts again as an
  // exhaustive one, which ends with the best plan so far when the time-out has passed once more.
  double timeout_seconds = 0;
  ObjectiveFunction objective = nullptr;  // in place of the largest rank; needs `exhaustive`
  std::shared_ptr<const Goal> goal;       // in place of the largest rank; may be none
  // No plan comes to less by the goal than this times its rating; 0 if that is not known.
  double goal_per_rating = 0;
  Interrupt interrupted = [] { return false; };
};

struct ProposerReport {
  std::int64_t proposals = 0;  // new ones
  std::int64_t repeats = 0;    // made before, by this proposer or another
  std::int64_t plans = 0;      // feasible; only counted by an exhaustive search
  bool timed_out = false;
  double best_rating = 0;  // only by an exhaustive search; of a greedy proposer with a threshold:
  double state_best_rating = 0;  // its state afterwards
  std::int64_t state_inferior = 0;
};

// A proposal together with where it came from.
struct Chosen {
  std::vector<std::int32_t> options;  // by plan position
  std::int64_t proposer = -1;
};

// Infeasible is a result, not an error.
struct SearchResult {
  bool found = false;
  bool exhaustive = false;  // every proposal was evaluated, up to a time-out
  Chosen best;
  std::vector<std::int32_t> ranks;  // of the best plan's shards that are not uniform
  double rating = 0;
  std::vector<ProposerReport> reports;
  std::int64_t evaluated = 0;
  // For the error message when there is no plan.
  Chosen lowest, last;
};

// Throws Interrupted.
SearchResult search(const Problem& problem, const SearchSettings& settings);

}  // namespace fastplan
