// From a request's columns to a problem's: sharding options, their shards as runs, cost and
// storage of each.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "core/problem.h"
#include "core/types.h"

namespace fastplan {

// What the cost formulas read of the cluster. Bandwidths are in bytes per millisecond, as
// TorchRec's are.
struct PerfCluster {
  std::int64_t world_size = 1;
  std::int64_t local_world_size = 1;
  std::int64_t group_size = 1;
  // Bandwidths by collective and reach; zero where no option needs it.
  double bw_world_all_to_all = 0;
  double bw_world_reduce_scatter = 0;
  double bw_world_all_gather = 0;
  double bw_world_all_reduce = 0;
  double bw_group_reduce_scatter = 0;
  double bw_group_all_gather = 0;
  double bw_across_all_to_all = 0;
  double hbm_to_ddr_bw = 0;
  // TorchRec takes the backward pass for a multiple of the forward one, unless coefficients say
  // else.
  double bwd_compute_multiplier = 2;
  double weighted_bwd_multiplier = 1;
};

// What the cost formulas read of the hardware configuration.
struct PerfModelSettings {
  bool inference = false;
  // TorchRec's newer versions and its subclasses for other hardware differ in these: what is
  // counted, in which unit, and with which penalties.
  bool min_dim_table_wise = true;
  bool block_penalty_table_wise = true;
  bool block_penalty_other = false;
  bool input_read_in_bytes = true;
  double input_element_size = 8;
  double weighted_kernel_multiplier = 1.1;
  bool fetches_from_batch_inputs = false;
  bool linear_prefetch = false;
  std::array<double, 3> prefetch_coefficients{};
};

enum class DeviceKind : std::uint8_t { hbm, cpu, other };
inline constexpr auto kLastDeviceKind = DeviceKind::other;
enum class Pipeline : std::uint8_t { none, sparse_dist, prefetch_sparse_dist };
inline constexpr auto kLastPipeline = Pipeline::prefetch_sparse_dist;
enum class UsageType : std::uint8_t { base_quant, base, plain };
inline constexpr auto kLastUsageType = UsageType::plain;

struct StorageSettings {
  std::int64_t world_size = 1;
  std::int64_t group_size = 1;
  DeviceKind device = DeviceKind::hbm;
  // The tier that holds a table's weights, for quantised modules and for all others.
  bool weights_in_ddr = false;
  bool quant_weights_in_ddr = false;
  Pipeline pipeline = Pipeline::none;
  // Whether outputs, which live for a moment only, count as memory.
  bool at_peak_memory = false;
  bool inference = false;
};

// How tables are cut into shards. Perf, storage and layout each have their own sizes of the
// cluster: TorchRec's estimators may have been built with another topology than its enumerator.
struct LayoutSettings {
  std::int64_t world_size = 1;
  std::int64_t group_size = 1;
  std::span<const std::int64_t> rank_memory;  // uneven row-wise shards; empty when even
};

// Linear cost coefficients: input read, lookup, output write, rows. Without `bwd`, the backward
// pass is a multiple of the forward one.
struct Coefficients {
  std::array<double, 4> fwd{1, 1, 1, 0};
  bool has_bwd = false;
  std::array<double, 4> bwd{};
};

// One column per field and one row per table; menus hold the (type, kernel) lists that tables
// share.
struct EstimateInput {
  PerfCluster cluster;
  PerfModelSettings model;
  StorageSettings storage;
  LayoutSettings layout;

  std::span<const std::int64_t> table_rows, table_dim, table_element_size, table_bytes;
  std::span<const std::int32_t> table_menu;
  std::span<const double> table_perf_inputs, table_perf_outputs;
  std::span<const double> table_storage_inputs, table_storage_outputs;
  std::span<const std::uint8_t> table_pooled, table_weighted, table_usage, table_virtual;
  std::span<const double> table_output_element_size;
  std::span<const double> table_fwd_a2a, table_bwd_a2a, table_fwd_sr, table_bwd_sr;
  // Constraints: the narrowest column shards, buckets of virtual tables, passes of prefetching.
  std::span<const std::int64_t> table_min_partition, table_buckets, table_prefetch_passes;
  std::span<const double> table_optimizer_multiplier, table_cache_ratio, table_kv_load_factor;
  std::span<const std::int64_t> table_kv_cache_bytes;
  std::span<const double> table_expected_lookups, table_miss_rate;  // NaN: no statistics

  std::span<const std::int64_t> menu_begin;
  std::span<const std::uint8_t> menu_type, menu_kernel;
  std::span<const double> menu_bandwidth;
  std::span<const std::int32_t> menu_coefficients;
  // Menu items refer to these by number: most share one.
  std::vector<Coefficients> coefficients;

  std::size_t tables() const { return table_rows.size(); }
};

class HardwareModel;
class Pricer;

// Throws OutOfRange when an exact answer would need more than the core's arithmetic. A hardware
// model replaces TorchRec's costs, and a pricer has the last word on costs.
SearchSpace estimate(const EstimateInput& input, const HardwareModel* hardware = nullptr,
                     Pricer* pricer = nullptr);

// Shards that Python code has cut, as one row per option and one per shard. An option is a table
// with a menu item; its shards are those from `option_begin` to that of the next option.
struct GivenShards {
  std::span<const std::int32_t> option_table, option_item;
  std::span<const std::int64_t> option_begin;
  std::span<const std::int64_t> rows, cols;
  // What to estimate: the rest may be Python's, with inputs that the core could not hold.
  bool perf = true;
  bool storage = true;
};

// Estimates shards of any size. In the result every shard is a run of its own, and what was not
// asked for is zero. Throws OutOfRange as estimate() does.
SearchSpace estimate_shards(const EstimateInput& input, const GivenShards& shards,
                            const HardwareModel* hardware = nullptr);

// The parts of estimate(), each a subject of its own. A run is `count` shards of one size: row-wise
// shards of a table differ only at its end, so a cut is a few runs on any number of ranks.
struct ShardRun {
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};
std::vector<ShardRun> cut(ShardingType type, std::int64_t rows, std::int64_t dim,
                          std::int64_t min_partition, std::int64_t buckets,
                          const LayoutSettings& layout);
// Throws OutOfRange where a cost is negative or infinite.
void check(const Perf& perf);
Perf shard_perf(const EstimateInput& input, std::size_t table, std::size_t menu_item,
                const ShardRun& run);
Storage shard_storage(const EstimateInput& input, std::size_t table, std::size_t menu_item,
                      const ShardRun& run);

}  // namespace fastplan
