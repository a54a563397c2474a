// Checking a solution against its problem, independently of how it was found.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "problem.h"

namespace fastplan {

// Empty when the plan covers every table once, its ranks are legal for each sharding type, it
// fits, and its rating is `rating` to the bit (NaN: not asked); otherwise what is wrong first.
std::string verify(const Problem& problem, std::span<const std::int32_t> options,
                   std::span<const std::int32_t> ranks, double rating);

}  // namespace fastplan
