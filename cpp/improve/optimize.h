// Plans better than TorchRec's, and how good they are.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "bound/certificate.h"
#include "core/problem.h"
#include "improve/budget.h"
#include "improve/plan.h"

namespace fastplan {

// Without a plan, `stopped_by` says whether there is none (optimal) or none was found.
struct Optimized {
  Plan plan;  // none found: no options
  Certificate certificate;
  Stop stopped_by = Stop::time;
  std::int64_t moves = 0;
  std::int64_t restarts = 0;
  std::vector<std::pair<double, double>> trace;  // seconds, rating
};

// The best plan found, no worse than `start` if there is one. Without a limit in seconds, the same
// settings give the same plan.
Optimized optimize(const Problem& problem, const Plan& start, const OptimizeSettings& settings);

}  // namespace fastplan
