// Counting feasible proposals without placing those whose answer is plain.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "problem.h"
#include "search.h"

namespace fastplan {

// Whether a proposal can be placed, as far as its sums and largest shards tell.
class Feasibility {
 public:
  explicit Feasibility(const Problem& problem);

  void change(std::int32_t before, std::int32_t after);

  // Nothing when only an attempt can tell.
  std::optional<bool> answer() const;

 private:
  // Storage that a table's placement asks of one rank, and the largest it really puts on one.
  struct Need {
    Storage asked, largest;
  };
  Need need_of(const Option& option) const;
  bool surely_fits() const;

  const Problem& problem_;
  Storage smallest_rank_, largest_rank_;
  bool towers_ = false;
  Storage total_, placed_total_, uniform_;
  std::int64_t on_hosts_ = 0;  // tables that need a host
  std::int64_t unclear_ = 0;   // tables whose placement follows rules not covered here
  std::vector<Need> largest_;  // tournament over tables
  std::size_t leaves_ = 1;
};

// Feasible proposals by proposer, each distinct proposal counted once. Throws Interrupted.
std::vector<std::int64_t> count_plans(const Problem& problem, const SearchSettings& settings);

}  // namespace fastplan
