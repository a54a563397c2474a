// Cost functions that users bring: compiled elsewhere, called here by address and in batches.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <vector>

#include "core/problem.h"
#include "core/types.h"
#include "estimate/estimate.h"

namespace fastplan {

// What a cost function may read. Python takes names and layout from here, and users the names:
// they are public.
struct ShardBandwidths {
  double memory;                                              // of the memory that the kernel reads
  double all_to_all, reduce_scatter, all_gather, all_reduce;  // over all ranks; zero where unused
  double group_reduce_scatter, group_all_gather;              // inside a host or pod
  double across_all_to_all;                                   // between them
  double hbm_to_ddr;
};

struct ShardModel {
  std::array<double, 4> fwd, bwd;  // weights of input read, lookup, output write and rows
  std::array<double, 3> prefetch;
  double bwd_compute_multiplier, weighted_bwd_multiplier, weighted_kernel_multiplier;
  double input_element_size;
  bool has_bwd;  // else backward is a multiple of forward
  bool inference, min_dim_table_wise, block_penalty_table_wise, block_penalty_other;
  bool input_read_in_bytes, fetches_from_batch_inputs, linear_prefetch;
};

struct ShardRecord {
  std::int64_t rows, dim;  // of the shard
  std::int64_t table_rows, table_dim;
  std::int64_t shards;  // of the table, under this sharding type
  std::int64_t element_size;
  std::int64_t batch;      // samples of one rank
  double pooling;          // values looked up per sample
  double inputs, outputs;  // of one rank's batch: values looked up, vectors put out
  std::int64_t world_size, local_world_size, group_size;
  std::int64_t hbm, ddr, ssd;  // bytes of the shard
  double cache_ratio;          // of rows in the cache; TorchRec's default where none is given
  double expected_lookups, miss_rate;       // of a caching kernel; NaN without statistics
  double fwd_a2a, bwd_a2a, fwd_sr, bwd_sr;  // bytes per element on the wire
  std::uint8_t sharding_type, kernel;
  bool pooled, weighted;
  ShardBandwidths bandwidths;
  ShardModel model;
  Perf stock;     // TorchRec's cost
  Perf hardware;  // the hardware cost; NaN if the request has none
};

// Prices shards one after the other: each cost is TorchRec's before the call, or the hardware cost
// if the request has one. Returns how many were priced before one raised.
using CostFunction = std::int64_t (*)(const ShardRecord* shards, Perf* costs, std::int64_t count);

// A cost function raised, or gave what is no cost.
struct CostFailed : std::exception {
  std::size_t table = 0;
  std::int64_t shard = 0;  // of the table, under the record's sharding type
  bool raised = false;
  ShardRecord record{};
  Perf cost;

  const char* what() const noexcept override { return "a custom cost failed"; }
};

// Puts a cost function in the place of TorchRec's costs, table by table: one call prices all shards
// of a table, so that a call through a pointer costs little.
class Pricer {
 public:
  Pricer(const EstimateInput& input, const HardwareModel* hardware, CostFunction function,
         std::int64_t batch);

  // Takes note of a run of the table's current option.
  void add(std::size_t table, std::size_t menu_item, const ShardRun& run, const Perf& perf,
           const Storage& storage);
  void end_option();
  // Prices the noted runs, which are the last ones of the space. Throws CostFailed.
  void price(std::size_t table, SearchSpace& space);

 private:
  void describe_table(std::size_t table);

  const EstimateInput& input_;
  const HardwareModel* hardware_;
  CostFunction function_;
  ShardRecord blank_{};  // with what all shards share
  std::size_t described_;
  std::size_t option_begin_ = 0;
  std::int64_t option_shards_ = 0;
  std::vector<ShardRecord> records_;
  std::vector<std::int64_t> first_shard_;
  std::vector<Perf> costs_;
};

}  // namespace fastplan
