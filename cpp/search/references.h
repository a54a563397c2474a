// Proposals by where they come from, and those that failed.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "search/proposals.h"
#include "search/search.h"

namespace fastplan {

constexpr std::int64_t kPollEvery = 64;  // placed proposals between two looks for an interrupt

using Sequences = std::vector<std::unique_ptr<Sequence>>;

Sequences make_sequences(const Problem& problem, const SearchSettings& settings);

// A proposal is referred to by proposer and index until its options are needed: sixteen bytes
// instead of one number per table.
struct Reference {
  std::int32_t proposer = 0;
  std::int64_t index = 0;
};

Chosen choose(const Problem& problem, const Sequences& sequences, const Reference& reference);

// What TorchRec's error message tells of proposals that failed.
struct Failures {
  Storage lowest{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::max(),
                 std::numeric_limits<std::int64_t>::max()};
  Reference lowest_at, last_at;
  bool any = false;

  void note(const Storage& storage, const Reference& reference) {
    if (storage < lowest) {
      lowest = storage;
      lowest_at = reference;
    }
    last_at = reference;
    any = true;
  }
};

void report_failures(const Problem& problem, const Sequences& sequences, const Failures& failures,
                     SearchResult& result);

}  // namespace fastplan
