// A rating that the search is sure to reach, from a few of its proposals.
#pragma once

#include "search/search.h"

namespace fastplan {

// The rating of about the first greedy proposal that fits, or of another proposer's; infinite where
// few tries find none. The search's plan is never rated above it. Throws Interrupted.
double reachable_rating(const Problem& problem, const SearchSettings& settings);

}  // namespace fastplan
