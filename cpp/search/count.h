// Counting feasible proposals without placing those whose answer is plain.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/problem.h"
#include "search/search.h"

namespace fastplan {

// Whether a proposal can be placed, as far as its sums and largest shards tell. Placing a proposal
// costs some hundred times as much as keeping these up to date, and for most proposals of a model
// with room the answer is plain.
class Feasibility {
 public:
  explicit Feasibility(const Problem& problem);

  void change(std::int32_t before, std::int32_t after);

  // Nothing when only an attempt can tell.
  std::optional<bool> answer() const;

 private:
  // What a table's placement asks of a rank, by the kind of place it looks for.
  struct Need {
    Storage largest;     // of its shards
    Storage anywhere;    // of any rank
    Storage by_rows;     // of each rank of a host
    Storage by_columns;  // of one rank of a host, at most
    bool operator==(const Need&) const = default;
  };
  Need need_of(const Option& option) const;
  Storage largest_shard(const Option& option) const;
  void count(const Option& option, std::int64_t sign);
  std::int64_t most_refusing(const Storage& shard, const Storage& held) const;
  bool surely_fits() const;

  const Problem& problem_;
  Storage smallest_rank_, largest_rank_;
  bool towers_ = false;
  Storage total_;
  Storage uniform_;  // on every rank, at most
  Storage placed_;   // of shards that are not uniform
  Storage stacked_;  // the same, but of a table cut by row only what one rank may get
  std::int64_t by_rows_ = 0, by_columns_ = 0;  // tables
  std::int64_t unclear_ = 0;                   // tables whose placement follows other rules
  std::vector<Need> largest_;                  // tournament over tables
  std::size_t leaves_ = 1;
};

struct PlanCount {
  std::vector<std::int64_t> plans;  // feasible proposals by proposer, each distinct one once
  std::int64_t undecided = 0;       // proposals that may be feasible too
};

// Places proposals to find out, if so many are enough; otherwise none. Throws Interrupted.
PlanCount count_plans(const Problem& problem, const SearchSettings& settings,
                      std::int64_t placements);

}  // namespace fastplan
