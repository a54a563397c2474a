// Where a new plan starts from an old one: tables stay, and what has no place gets one.
#pragma once

#include <cstdint>
#include <vector>

#include "improve/anneal_state.h"
#include "improve/choices.h"
#include "improve/moved_bytes.h"

namespace fastplan {

// The options of the old plan as far as the problem has them, by table; -1 for none.
std::vector<std::int32_t> held_options(const Problem& problem, const HeldColumns& held);

// The old plan in terms of choices. A table without a choice is -1, a piece without a place too: it
// was on a rank that is lost, or the option has other shards now.
Draft previous_draft(const Choices& choices, const HeldColumns& held,
                     const std::vector<std::int32_t>& options);

struct Repaired {
  Draft draft;
  bool fits = false;  // the ranks' memory
};

// Fills in what is missing, largest first, each where it does least harm beyond the target. Repair
// is greedy: it only has to be a good start for the annealer.
Repaired repair(const Choices& choices, const MovedBytes& bytes, const Draft& previous,
                std::int64_t target);

}  // namespace fastplan
