#include "estimate/custom_cost.h"

#include <cmath>
#include <limits>

namespace fastplan {
namespace {

bool is_cost(double part) { return part >= 0 && !std::isinf(part); }

bool is_cost(const Perf& perf) {
  return is_cost(perf.fwd_compute) && is_cost(perf.fwd_comms) && is_cost(perf.bwd_compute) &&
         is_cost(perf.bwd_comms) && is_cost(perf.input_dist_comms) &&
         is_cost(perf.prefetch_compute);
}

ShardBandwidths bandwidths_of(const PerfCluster& cluster) {
  return {.memory = 0,
          .all_to_all = cluster.bw_world_all_to_all,
          .reduce_scatter = cluster.bw_world_reduce_scatter,
          .all_gather = cluster.bw_world_all_gather,
          .all_reduce = cluster.bw_world_all_reduce,
          .group_reduce_scatter = cluster.bw_group_reduce_scatter,
          .group_all_gather = cluster.bw_group_all_gather,
          .across_all_to_all = cluster.bw_across_all_to_all,
          .hbm_to_ddr = cluster.hbm_to_ddr_bw};
}

ShardModel model_of(const EstimateInput& input) {
  const auto& model = input.model;
  return {.fwd = {},
          .bwd = {},
          .prefetch = model.prefetch_coefficients,
          .bwd_compute_multiplier = input.cluster.bwd_compute_multiplier,
          .weighted_bwd_multiplier = input.cluster.weighted_bwd_multiplier,
          .weighted_kernel_multiplier = model.weighted_kernel_multiplier,
          .input_element_size = model.input_element_size,
          .has_bwd = false,
          .inference = model.inference,
          .min_dim_table_wise = model.min_dim_table_wise,
          .block_penalty_table_wise = model.block_penalty_table_wise,
          .block_penalty_other = model.block_penalty_other,
          .input_read_in_bytes = model.input_read_in_bytes,
          .fetches_from_batch_inputs = model.fetches_from_batch_inputs,
          .linear_prefetch = model.linear_prefetch};
}

void write(SearchSpace& space, std::size_t run, const Perf& perf) {
  space.run_fwd_compute[run] = perf.fwd_compute;
  space.run_fwd_comms[run] = perf.fwd_comms;
  space.run_bwd_compute[run] = perf.bwd_compute;
  space.run_bwd_comms[run] = perf.bwd_comms;
  space.run_input_dist_comms[run] = perf.input_dist_comms;
  space.run_prefetch_compute[run] = perf.prefetch_compute;
}

}  // namespace

Pricer::Pricer(const EstimateInput& input, const HardwareModel* hardware, CostFunction function,
               std::int64_t batch)
    : input_(input), hardware_(hardware), function_(function), described_(input.tables()) {
  blank_.batch = batch;
  blank_.world_size = input.cluster.world_size;
  blank_.local_world_size = input.cluster.local_world_size;
  blank_.group_size = input.cluster.group_size;
  blank_.bandwidths = bandwidths_of(input.cluster);
  blank_.model = model_of(input);
}

// What all shards of a table share is written once, and copied for each.
void Pricer::describe_table(std::size_t table) {
  described_ = table;
  blank_.table_rows = input_.table_rows[table];
  blank_.table_dim = input_.table_dim[table];
  blank_.element_size = input_.table_element_size[table];
  blank_.pooled = input_.table_pooled[table] != 0;
  blank_.weighted = input_.table_weighted[table] != 0;
  blank_.inputs = input_.table_perf_inputs[table];
  blank_.outputs = blank_.pooled ? input_.table_perf_outputs[table] : blank_.inputs;
  blank_.pooling = blank_.inputs / static_cast<double>(blank_.batch);
  blank_.fwd_a2a = input_.table_fwd_a2a[table];
  blank_.bwd_a2a = input_.table_bwd_a2a[table];
  blank_.fwd_sr = input_.table_fwd_sr[table];
  blank_.bwd_sr = input_.table_bwd_sr[table];
  blank_.cache_ratio = input_.table_cache_ratio[table];
}

void Pricer::add(std::size_t table, std::size_t menu_item, const ShardRun& run, const Perf& perf,
                 const Storage& storage) {
  if (described_ != table) describe_table(table);
  auto& record = records_.emplace_back(blank_);
  const auto& coefficients = input_.coefficients[input_.menu_coefficients[menu_item]];
  record.rows = run.rows;
  record.dim = run.cols;
  record.sharding_type = input_.menu_type[menu_item];
  record.kernel = input_.menu_kernel[menu_item];
  const bool caches = record.kernel == static_cast<std::uint8_t>(Kernel::fused_uvm_caching);
  // As the request has it for tables without statistics.
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  record.expected_lookups = caches ? input_.table_expected_lookups[table] : kUnknown;
  record.miss_rate = caches ? input_.table_miss_rate[table] : kUnknown;
  record.hbm = storage.hbm;
  record.ddr = storage.ddr;
  record.ssd = storage.ssd;
  record.bandwidths.memory = input_.menu_bandwidth[menu_item];
  record.model.fwd = coefficients.fwd;
  record.model.bwd = coefficients.bwd;
  record.model.has_bwd = coefficients.has_bwd;
  // A record shows both costs, whichever of them `perf` is.
  constexpr Perf kNone{kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown};
  record.stock = hardware_ ? shard_perf(input_, table, menu_item, run) : perf;
  record.hardware = hardware_ ? perf : kNone;
  costs_.push_back(perf);
  first_shard_.push_back(option_shards_);
  option_shards_ += run.count;
}

// How many shards an option has is known at its end only.
void Pricer::end_option() {
  for (auto i = option_begin_; i < records_.size(); ++i) records_[i].shards = option_shards_;
  option_begin_ = records_.size();
  option_shards_ = 0;
}

void Pricer::price(std::size_t table, SearchSpace& space) {
  const auto count = static_cast<std::int64_t>(records_.size());
  // The function writes over costs that are TorchRec's, so one that leaves a shard alone keeps
  // them.
  const std::int64_t priced = function_(records_.data(), costs_.data(), count);
  const std::size_t begin = space.run_count.size() - records_.size();
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const bool raised = static_cast<std::int64_t>(i) >= priced;
    if (raised || !is_cost(costs_[i])) {
      CostFailed failed;
      failed.table = table;
      failed.shard = first_shard_[i];
      failed.raised = raised;
      failed.record = records_[i];
      failed.cost = costs_[i];
      throw failed;
    }
    write(space, begin + i, costs_[i]);
  }
  records_.clear();
  costs_.clear();
  first_shard_.clear();
  option_begin_ = 0;
}

}  // namespace fastplan
