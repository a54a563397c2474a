// Plans as the boundary has them, and as the optimizer does.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/problem.h"
#include "improve/anneal_state.h"
#include "improve/choices.h"

namespace fastplan {

// Options by plan position, and the ranks of the shards that are not uniform.
struct Plan {
  std::vector<std::int32_t> options;
  std::vector<std::int32_t> ranks;
  double rating = std::numeric_limits<double>::infinity();
  bool found() const { return !options.empty(); }
};

// The plan's cost as TorchRec rates it: the largest sum of shard totals over ranks, each sum taken
// in plan order.
double rate(const Problem& problem, const Plan& plan);

// Between the plans of the boundary and the drafts of the annealer.
class Translator {
 public:
  // Plans have their tables in the order of `first`, or in the problem's when that is empty.
  Translator(const Problem& problem, const Choices& choices, const Plan& first);

  Plan plan(const Draft& draft) const;
  // Empty when the plan has an option that the choices leave out.
  Draft draft(const Plan& plan) const;

 private:
  const Problem& problem_;
  const Choices& choices_;
  std::vector<std::int32_t> order_;  // plan position -> table
};

}  // namespace fastplan
