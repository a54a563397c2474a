// The search space as columns, and the cluster it is placed on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/types.h"

namespace fastplan {

// Owned columns of a search space, as estimate() makes them. Shards are runs: `run_count` shards
// alike in every column.
struct SearchSpace {
  std::vector<std::int64_t> table_option_begin{0};
  std::vector<std::uint8_t> option_type, option_kernel;
  std::vector<std::uint64_t> option_key;
  std::vector<std::int64_t> option_run_begin{0};
  std::vector<std::int64_t> run_count, run_rows, run_cols;
  std::vector<double> run_fwd_compute, run_fwd_comms, run_bwd_compute, run_bwd_comms;
  std::vector<double> run_input_dist_comms, run_prefetch_compute;
  std::vector<std::int64_t> run_hbm, run_ddr, run_ssd;
};

// Views of a problem's columns. Nothing here is owned or changed, and nothing is checked yet.
struct Columns {
  std::span<const std::int64_t> table_option_begin;
  // Tables of one module count together where modules are balanced; tables of one group, a tower,
  // share a host; -1 is none.
  std::span<const std::int32_t> table_module, table_group;
  std::span<const std::uint8_t> option_type, option_kernel;
  std::span<const std::uint64_t> option_key;  // equal for options that TorchRec takes for equal
  std::span<const std::int64_t> option_run_begin;
  std::span<const std::int64_t> run_count, run_rows, run_cols;
  std::span<const double> run_fwd_compute, run_fwd_comms, run_bwd_compute, run_bwd_comms;
  std::span<const double> run_input_dist_comms, run_prefetch_compute;
  std::span<const std::int64_t> run_hbm, run_ddr, run_ssd;
  std::span<const std::int64_t> rank_hbm, rank_ddr, rank_ssd;
  std::int64_t local_world_size = 1;
  std::int64_t group_size = 1;
  // Whether Python's sum() compensates rounding, as it does from 3.12 on.
  bool compensated_sum = false;
};

// A run of shards that are alike to the bit.
struct Run {
  std::int64_t count = 0;
  Perf perf;
  double total = 0;
  Storage storage;
};

// What the search reads of an option again and again, computed once.
struct Option {
  std::int32_t table = 0;
  ShardingType type{};
  Kernel kernel{};
  Reach reach{};
  bool same_perf = false;  // every shard costs the same to the bit
  // Sums of keys identify proposals.
  std::uint64_t key = 0;
  std::int64_t shards = 0;
  std::int64_t run_begin = 0;
  std::int64_t run_end = 0;
  Storage storage_sum;
  // Of the largest shard in each: what a greedy proposer compares tables by.
  std::int64_t max_hbm = 0, max_ddr = 0;
  double perf_max = 0;    // largest shard total
  double perf_min = 0;    // smallest shard total
  double perf_sum = 0;    // shard totals added one by one, in shard order
  double perf_score = 0;  // the same by Python's sum(), which compensates from 3.12 on
};

// Everything a search reads, copied and checked once. Nothing changes it afterwards, so any number
// of threads may read one problem at a time.
struct Problem {
  std::vector<Run> runs;
  // Sizes of a run's shards, apart from Run: only moved bytes are counted with them.
  std::vector<std::int64_t> run_rows, run_cols;
  std::vector<Option> options;
  std::vector<std::int64_t> table_option_begin;
  std::vector<std::int32_t> table_module, table_group;
  std::vector<Storage> capacity;  // by rank
  Storage capacity_sum;           // of all ranks
  // What all shards of a plan together must fit in. A rank with less than no memory holds none of
  // them, and takes no room from the others.
  Storage room;
  std::int64_t local_world_size = 1;
  std::int64_t group_size = 1;
  std::int64_t hosts = 0;  // whole groups of group_size ranks

  std::size_t tables() const { return table_option_begin.size() - 1; }
  std::size_t ranks() const { return capacity.size(); }

  // Throws std::invalid_argument naming the column that is wrong, OutOfRange for values beyond
  // exact arithmetic.
  static Problem from(const Columns& columns);
};

}  // namespace fastplan
