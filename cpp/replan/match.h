// A plan's ranks under other numbers.
#pragma once

#include "improve/anneal_state.h"
#include "improve/choices.h"
#include "improve/moved_bytes.h"

namespace fastplan {

// The draft with its hosts, and the ranks within them, renumbered so that they keep much of what
// they hold: whatever keeps most is matched first. Loads of shards that are alike stay as they
// are; its cost and its bytes are not worked out.
Draft matched(const Choices& choices, const MovedBytes& bytes, const Draft& draft);

}  // namespace fastplan
