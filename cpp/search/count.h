// Counting feasible proposals without placing those whose answer is plain.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/problem.h"
#include "search/remainder.h"
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

  // The same with the order of placement in mind: the largest tables find most room. `needs` are
  // those of the tables that are not uniform.
  bool surely_fits_in_order(std::span<const Need* const> needs) const;

 private:
  // The largest needs of tables by the kind of place.
  struct Largest {
    Storage shard, anywhere, by_rows, by_columns;
    bool operator==(const Largest&) const = default;
  };
  void count(const Option& option, const Need& need, std::int64_t sign);
  std::int64_t most_refusing(const Storage& room, const Storage& held) const;
  bool surely_fits() const;

  const Problem& problem_;
  std::vector<Need> needs_;  // by option
  Storage smallest_rank_, largest_rank_;
  bool towers_ = false;
  Storage total_;
  Storage uniform_;  // on every rank, at most
  Storage placed_;   // of shards that are not uniform
  Storage stacked_;  // the same, but of a table cut by row only what one rank may get
  std::int64_t by_rows_ = 0, by_columns_ = 0;  // tables
  std::int64_t unclear_ = 0;                   // tables whose placement follows other rules
  std::vector<Largest> largest_;               // tournament over tables
  std::size_t leaves_ = 1;
};

// The order in which a partitioner places the tables of a proposal.
class PlacementOrder {
 public:
  // `plan_order` gives the table at each plan position.
  PlacementOrder(const Problem& problem, const PartitionerSettings& settings,
                 std::span<const std::int32_t> plan_order);

  // Whether each table has a place in the order that does not depend on the others.
  static bool exists(const Problem& problem, const PartitionerSettings& settings);

  // Needs of the proposal's tables that are not uniform, in order; valid until the next call.
  std::span<const Need* const> sort(std::span<const std::int32_t> options);

 private:
  const Problem& problem_;
  std::vector<Need> needs_;          // of all options, in order
  std::vector<std::int32_t> place_;  // option -> its index there
  std::vector<std::uint64_t> set_;   // the places of a proposal, a bit each
  std::vector<const Need*> sorted_;
};

struct PlanCount {
  std::vector<std::int64_t> plans;  // feasible proposals by proposer, each distinct one once
  std::int64_t placed = 0;          // proposals that had to be placed, at least in part
};

// Throws Interrupted.
PlanCount count_plans(const Problem& problem, const SearchSettings& settings);

}  // namespace fastplan
