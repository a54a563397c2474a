// Whether the tables that are still to be placed surely fit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"

namespace fastplan {

// What a table that is placed alone asks of ranks.
struct Need {
  // Where it looks for room: on any rank for each shard, on every rank of a host, or on one rank of
  // a host, which may get all of its columns. `unclear`: its placement has rules of its own.
  enum class Place : std::uint8_t { anywhere, by_rows, by_columns, unclear };

  static Need of(const Problem& problem, const Option& option);

  Storage all;      // of all shards
  Storage room;     // what one rank needs, so that it does not refuse the table
  Storage stacked;  // what one rank of each host may get, at most
  Place place = Place::anywhere;
};

// Asked while a proposal is placed. Loads decide where a shard goes, so it may go wherever there is
// room. But a rank with f(r) left refuses a shard s only after it got f(r) - s + 1 or more. If all
// tables that are left together can't bring every rank that far, with the largest of their shards
// for s, each of their shards finds a rank, whatever the loads are. The same holds for hosts.
class Remainder {
 public:
  explicit Remainder(const Problem& problem);

  // The tables of a proposal that are not uniform, in reverse order of their placement.
  void clear();
  void add(const Need& need);

  // Whether all tables but the first `placed` surely fit in what is left on each rank. Looks only
  // now and then, and says no otherwise.
  bool surely_fits(std::size_t placed, std::span<const Storage> free);

 private:
  // Of the last tables: sums, and by place the largest.
  struct Rest {
    Storage all, stacked;
    Storage anywhere, by_rows, by_columns;
    bool rows = false, columns = false;  // whether there are such tables
    bool clear = true;
  };
  bool fits(const Rest& rest, std::span<const Storage> free);
  std::size_t refusing(const Storage& room, const Storage& held, std::span<const Storage> free);

  const Problem& problem_;
  std::vector<Rest> rests_;  // of the last table, the last two ...; the first one is of none
  std::size_t next_look_ = 0;
  std::vector<Storage> host_free_;     // of the fullest rank in each tier
  std::vector<std::int64_t> missing_;  // work space: what makes each rank refuse
};

}  // namespace fastplan
