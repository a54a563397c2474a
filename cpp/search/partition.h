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

struct PartitionerSettings {
  bool memory_balanced = false;
  bool sort_by_perf = false;
  bool balance_modules = false;
  std::int64_t max_search_count = 10;  // memory balanced
  double tolerance = 0.02;             // memory balanced
};

enum class Outcome : std::uint8_t {
  placed,
  failed,      // some shard fits nowhere
  over_limit,  // given up: a rank costs more than the limit
};

// TorchRec's greedy partitioner, and the memory-balanced one, which searches over it. Uniform
// options come first, then groups of tables, largest first, each where the load is least. Reusable:
// one object places many proposals without allocating.
class Partitioner {
 public:
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  Partitioner(const Problem& problem, const PartitionerSettings& settings);

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
  // The plan's cost as TorchRec rates it: the largest sum of shard totals over ranks, each sum
  // taken in plan order.
  double rating() const { return rating_; }

 private:
  // Tables that are placed together: those of a tower, or one alone.
  struct Group {
    Storage storage;
    double perf = 0;
    std::int32_t modules = 0;
    std::int32_t first = 0;  // plan positions, linked by next_
    std::int32_t last = 0;
  };

  Outcome greedy(std::span<const std::int32_t> options, std::int64_t hbm, double limit);
  Outcome memory_balanced(std::span<const std::int32_t> options);
  bool place_uniform(std::span<const std::int32_t> options);
  void group_and_sort(std::span<const std::int32_t> options);
  bool place_group(std::span<const std::int32_t> options, const Group& group);
  bool place_on_devices(const Option& option, std::int64_t first_shard);
  bool place_on_distinct_devices(const Option& option, std::int64_t first_shard);
  bool place_on_host(std::span<const std::int32_t> options, const Group& group);
  bool try_host(std::span<const std::int32_t> options, const Group& group, std::int64_t host);
  bool place_on_hosts(const Option& option, std::int64_t first_shard);
  bool try_hosts(const Option& option, std::int64_t first_shard,
                 std::span<const std::int64_t> hosts, std::int64_t wanted);
  void sort_hosts();
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
  std::vector<Group> groups_;
  std::vector<std::int32_t> next_, group_of_, module_count_;
  std::vector<std::int64_t> shard_begin_;  // plan position -> its first entry in ranks_
  std::vector<std::int32_t> ranks_;
  std::vector<std::uint8_t> taken_;
  std::vector<std::int64_t> host_order_;
  std::vector<std::uint8_t> host_tried_;
  Devices::Snapshot snapshot_;
  std::vector<Devices::Snapshot> snapshots_;
  mutable std::vector<std::int32_t> slot_;
  mutable std::vector<double> sums_;
};

}  // namespace fastplan
