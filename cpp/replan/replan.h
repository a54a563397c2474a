// A new plan from an old one: few bytes move, and the rating is as good as it must be.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "core/problem.h"
#include "improve/anneal.h"
#include "improve/moved_bytes.h"
#include "improve/optimize.h"
#include "improve/plan.h"

namespace fastplan {

struct ReplanSettings {
  Criterion criterion = Criterion::bytes;
  double target = 0;  // rating that must be reached while bytes are lowered
  // What may move beyond the least that any plan moves, as parts of all bytes, ascending; a plan
  // for each.
  std::vector<double> budgets;
  // A plan that reaches the target whatever it moves; may be none. Plans found have its order.
  Plan reached;
  std::int64_t moves = 0;  // for each budget
  std::uint64_t seed = 0;
  double seconds = std::numeric_limits<double>::infinity();
  std::function<bool()> interrupted = [] { return false; };
};

struct ReplanPoint {
  Plan plan;  // none within the limits: no options
  std::int64_t moved = 0;
};

struct Replanned {
  std::vector<ReplanPoint> points;  // by budget
  ReplanPoint start;       // the old placement with what was missing filled in; it may not fit
  double mean = 0;         // of the ranks' costs in the last plan, or in the start
  std::int64_t least = 0;  // no plan moves fewer bytes
  std::int64_t held = 0;   // bytes of all tables that somebody holds
  std::int64_t moves = 0;
  Stop stopped_by = Stop::moves;
};

// Without a limit in seconds, the same settings give the same plans.
Replanned replan(const Problem& problem, const HeldColumns& held, const ReplanSettings& settings);

}  // namespace fastplan
