// Placing a proposal's shards on ranks, as TorchRec's partitioners do.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/problem.h"
#include "search/devices.h"
#include "search/remainder.h"

namespace fastplan {

class GoalCounter;

struct PartitionerSettings {
  bool memory_balanced = false;
  bool sort_by_perf = false;
  bool balance_modules = false;
  std::int64_t max_search_count = 10;  // memory balanced
  double tolerance = 0.02;             // memory balanced
};

enum class Outcome : std::uint8_t {
  placed,
  failed,  // some shard fits nowhere, or given up: a rank costs more than the limit
};

// TorchRec's greedy partitioner, and the memory-balanced one, which searches over it. Uniform
// options come first, then groups of tables, largest first, each where the load is least. Reusable:
// one object places many proposals without allocating, each from where it differs from the one
// before.
class Partitioner {
 public:
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  // A `counter`, which must live as long, is told of every placement: a plan that exceeds its limit
  // is given up. Not for the memory-balanced partitioner.
  Partitioner(const Problem& problem, const PartitionerSettings& settings,
              GoalCounter* counter = nullptr);

  // Places `options` (by plan position). Ratings above `limit` may be given up early.
  Outcome place(std::span<const std::int32_t> options, double limit);

  // Whether `options` can be placed at all; neither ranks nor rating are of use afterwards.
  // Ends as soon as `rest`, if given, says that what is left to place surely fits.
  bool can_place(std::span<const std::int32_t> options, Remainder* rest = nullptr) {
    rest_ = rest;
    const Outcome outcome = greedy(options, 0, kNoLimit);
    rest_ = nullptr;
    return outcome == Outcome::placed;
  }

  // After `placed`: ranks of all shards that are not uniform, in plan order.
  std::span<const std::int32_t> ranks() const { return ranks_; }
  // After `failed` without a limit: the same, with -1 for shards that have no rank. Empty if it is
  // not known what TorchRec's partitioner leaves: it has tried hosts, or several placements.
  std::vector<std::int32_t> partial_ranks() const;
  // After `failed` without a limit: the same for the groups that were placed before the first one
  // that could not be. Empty if the uniform options do not fit, or if this is not known.
  std::vector<std::int32_t> ranks_before_failure() const;
  // The plan's cost as TorchRec rates it: the largest sum of shard totals over ranks, each sum
  // taken in plan order.
  double rating() const { return rating_; }

 private:
  // Tables that are placed together: those of a tower, or one alone.
  struct Group {
    Storage storage;
    double perf = 0;
    std::int32_t modules = 0;
    std::int32_t last = 0;  // plan position; next_ links them
    double cost = -1;       // of its costliest shard
    std::int64_t costliest_run = 0;
  };
  // What placing reads of an option, all in one place: options and runs of a large model are spread
  // over main memory.
  struct Piece {
    Run first_run;
    std::int64_t run_begin = 0;
    std::int64_t run_end = 0;
    std::int64_t shards = 0;
    ShardingType type{};
    Kernel kernel{};
    Reach reach{};
  };
  // What differs from the attempt before: something uniform, and groups from this place on.
  struct Change {
    bool uniform = false;
    std::size_t order = 0;
  };

  Outcome greedy(std::span<const std::int32_t> options, std::int64_t hbm, double limit);
  Outcome memory_balanced(std::span<const std::int32_t> options);
  Change arrange(std::span<const std::int32_t> options);
  void group_and_sort();
  void read_piece(std::int32_t p);
  void start_group(std::int32_t p);
  void add_table(Group& group, std::int32_t p);
  void find_costliest(std::size_t from);
  bool must_exceed_limit(std::size_t g);
  bool comes_first(std::int32_t p, std::int32_t q) const;
  bool place_uniform();
  const Run& run_of(const Piece& piece, std::int64_t r) const {
    return r == piece.run_begin ? piece.first_run : problem_.runs[r];
  }
  bool place_group(std::int32_t first);
  bool count_group(std::int32_t first);
  bool place_on_devices(const Piece& piece);
  bool place_on_distinct_devices(const Piece& piece);
  bool place_on_host(std::int32_t first);
  bool try_host(std::int32_t first, std::int32_t host);
  bool place_columns(const Piece& piece, std::int32_t host);
  bool place_rows(const Piece& piece, std::int32_t host);
  bool place_on_hosts(const Piece& piece);
  bool try_hosts(const Piece& piece, std::span<const std::int64_t> hosts, std::int64_t wanted);
  void sort_hosts();
  void list_ranks(std::span<const std::int32_t> options);
  std::vector<std::int32_t> ranks_of_groups(std::size_t groups) const;
  double rate(std::span<const std::int32_t> options) const;
  std::int64_t largest_hbm(std::span<const std::int32_t> options, std::int64_t& total,
                           std::int64_t& largest_shard) const;

  const Problem& problem_;
  PartitionerSettings settings_;
  bool sort_by_perf_;
  Devices devices_;
  // Of the attempt under way: no rank may cost more.
  double limit_ = kNoLimit;
  double rating_ = 0;
  Remainder* rest_ = nullptr;
  GoalCounter* counter_;

  // Of the last attempt, which the next one goes on from. A group is known by the plan position of
  // its first table.
  std::vector<std::int32_t> options_;
  std::int64_t hbm_ = 0;
  bool uniform_fits_ = false;
  double uniform_load_ = 0;
  std::vector<Piece> pieces_;        // by plan position
  std::vector<Group> groups_;        // by plan position
  std::vector<std::int32_t> order_;  // groups in the order they are placed
  // Placements before each group that was reached; empty before the first attempt.
  std::vector<std::size_t> marks_;
  std::vector<std::int32_t> costliest_;  // by place in order_
  std::vector<std::int32_t> next_;       // plan position -> the next table of its group; -1 is none

  std::vector<std::int32_t> changed_, group_of_, module_count_;
  std::vector<std::int64_t> shard_begin_;  // plan position -> its first entry in ranks_
  std::vector<std::int32_t> ranks_;
  std::vector<std::uint8_t> taken_;
  std::vector<std::int64_t> host_order_;
  mutable std::vector<std::int32_t> slot_;
  mutable std::vector<double> sums_;
};

}  // namespace fastplan
