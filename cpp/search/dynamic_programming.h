// What TorchRec's dynamic-programming proposer proposes.
#pragma once

#include <memory>

#include "search/proposals.h"

namespace fastplan {

// Throws OutOfRange where its table would not fit in memory, Interrupted.
std::unique_ptr<Sequence> make_dynamic_programming(const Problem& problem,
                                                   const ProposerSettings& settings,
                                                   const Interrupt& interrupted);

}  // namespace fastplan
