// Checking a solution against its problem, independently of how it was found.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/problem.h"
#include "search/custom_objective.h"

namespace fastplan {

// Empty when the plan covers every table once, its ranks are legal for each sharding type, it
// fits, and its rating is `rating` to the bit (NaN: not asked); otherwise what is wrong first. The
// rating is the largest rank's, or the objective's if there is one, which may throw.
std::string verify(const Problem& problem, std::span<const std::int32_t> options,
                   std::span<const std::int32_t> ranks, double rating,
                   ObjectiveFunction objective = nullptr);

}  // namespace fastplan
