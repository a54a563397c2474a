// Plans that are best by another measure than their rating, which only has to stay within a limit.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "improve/budget.h"
#include "improve/optimize.h"
#include "improve/plan.h"
#include "improve/tally.h"

namespace fastplan {

struct Refined {
  Plan plan;
  std::int64_t value = 0;  // of the goal
  std::int64_t value_before = 0;
  Stop stopped_by = Stop::time;
  std::int64_t moves = 0;
};

// Counts what a plan comes to; `tally` must be empty.
void count_plan(const Problem& problem, const Plan& plan, Tally& tally);

// The plan with the smallest value of the goal that was found among plans rated at most `limit`;
// no worse than `start`, which must be one of them. Runs on the calling thread. Without a limit in
// seconds, the same settings give the same plan.
Refined refine(const Problem& problem, const Plan& start, double limit, const Goal& goal,
               const OptimizeSettings& settings);

}  // namespace fastplan
