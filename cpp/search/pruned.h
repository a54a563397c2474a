// The search that leaves out what can't win.
#pragma once

#include <optional>

#include "search/search.h"

namespace fastplan {

// The plan of an exhaustive search without time-out, thresholds and objective. Throws Interrupted.
SearchResult pruned_search(const Problem& problem, const SearchSettings& settings);

// A proposal of the search that comes to less than `limit`, by its rating or by what the search
// compares instead: what it comes to, or none. Leaves out proposers that listen to ratings and may
// end early, and those that take as long as a search. With an objective only the first proposals by
// rating are tried. Throws Interrupted.
std::optional<double> better_proposal(const Problem& problem, const SearchSettings& settings,
                                      double limit);

}  // namespace fastplan
