// Cost of one shard, in TorchRec's unit and in its order of operations: every product and sum
// below is associated as Python evaluates it, because the last bit decides ties.
#include <algorithm>
#include <cmath>

#include "estimate/estimate.h"

namespace fastplan {
namespace {

constexpr double kBatchedCopyFactor = 2.455;
constexpr double kDataParallelOptimizerFactor = 9.22;

double positive(double bandwidth, const char* what) {
  if (!(bandwidth > 0)) throw OutOfRange(std::string(what) + " is not a positive bandwidth");
  return bandwidth;
}

double block_usage_penalty(std::int64_t dim) {
  if (dim >= 128) return 1.0;
  return dim >= 64 ? 1.15 : 1.75;
}

// The quantities of one shard that the formulas share; the sharding types differ in these.
struct Sizes {
  double input_read = 0;
  double fwd_lookup = 0;
  double bwd_lookup = 0;
  double fwd_output = 0;
  double bwd_output = 0;
  double prefetch_lookups = 0;  // for the linear prefetch model
  double prefetch_divisor = 1;
};

struct Shard {
  const EstimateInput& input;
  std::size_t table;
  double inputs, outputs;  // of one local batch
  double world;
  double rows, dim;
  std::int64_t int_dim;
  double element;
  bool pooled, weighted;

  double doubled_if_weighted(double size) const { return weighted ? size * 2 : size; }
};

Sizes table_wise_sizes(const Shard& s) {
  const auto& model = s.input.model;
  Sizes sizes;
  const double indices = s.inputs * s.world;
  sizes.input_read = s.doubled_if_weighted(
      std::ceil(model.input_read_in_bytes ? indices * model.input_element_size : indices));
  const double lookup_dim = model.min_dim_table_wise ? std::max(s.dim, 32.0) : s.dim;
  sizes.fwd_lookup = indices * lookup_dim * s.element;
  sizes.bwd_lookup = indices * s.dim * s.element;
  const double outputs = s.outputs * s.world * s.dim;
  sizes.fwd_output = outputs * s.input.table_fwd_a2a[s.table];
  sizes.bwd_output = outputs * s.input.table_bwd_a2a[s.table];
  sizes.prefetch_lookups = s.doubled_if_weighted(std::ceil(indices));
  return sizes;
}

// Row-wise and table-row-wise: each of `parts` shards sees its part of the batch.
Sizes by_rows_sizes(const Shard& s, double parts, bool whole_world) {
  const auto& input = s.input;
  Sizes sizes;
  const double indices = s.inputs / parts * s.world;
  sizes.input_read = s.doubled_if_weighted(std::ceil(indices * input.model.input_element_size));
  sizes.fwd_lookup = sizes.bwd_lookup = indices * s.dim * s.element;
  // Only the row-wise form asks whether outputs are pooled before it takes reduce-scatter sizes.
  const bool reduce_scatter = !whole_world || s.pooled;
  const double fwd_size =
      reduce_scatter ? input.table_fwd_sr[s.table] : input.table_fwd_a2a[s.table];
  const double bwd_size =
      reduce_scatter ? input.table_bwd_sr[s.table] : input.table_bwd_a2a[s.table];
  const double outputs = (s.pooled ? s.outputs * s.world : s.outputs / parts * s.world) * s.dim;
  sizes.fwd_output = outputs * fwd_size;
  sizes.bwd_output = outputs * bwd_size;
  sizes.prefetch_lookups =
      s.doubled_if_weighted(whole_world ? std::ceil(s.inputs * input.model.input_element_size)
                                        : std::ceil(indices * input.model.input_element_size));
  sizes.prefetch_divisor = parts;
  return sizes;
}

Sizes data_parallel_sizes(const Shard& s) {
  Sizes sizes;
  sizes.input_read = s.doubled_if_weighted(std::ceil(s.inputs * s.input.model.input_element_size));
  sizes.fwd_lookup = sizes.bwd_lookup = s.inputs * s.dim * s.element;
  sizes.fwd_output = sizes.bwd_output = s.outputs * s.dim * s.element;
  return sizes;
}

double linear(const std::array<double, 4>& c, double input, double lookup, double output,
              double rows) {
  return c[0] * input + c[1] * lookup + c[2] * output + c[3] * rows;
}

double fwd_compute(const Shard& s, const Sizes& sizes, const Coefficients& c, bool table_wise,
                   double bandwidth) {
  const auto& model = s.input.model;
  const bool penalised = table_wise ? model.block_penalty_table_wise : model.block_penalty_other;
  const double penalty = penalised ? block_usage_penalty(s.int_dim) : 1.0;
  return linear(c.fwd, sizes.input_read, sizes.fwd_lookup, sizes.fwd_output, s.rows) * penalty /
         bandwidth;
}

double bwd_compute(const Shard& s, const Sizes& sizes, const Coefficients& c, double fwd,
                   double bandwidth) {
  const auto& input = s.input;
  double bwd =
      c.has_bwd
          ? linear(c.bwd, sizes.input_read, sizes.bwd_lookup, sizes.bwd_output, s.rows) / bandwidth
          : fwd * input.cluster.bwd_compute_multiplier;
  if (!s.weighted) return bwd;
  bwd = bwd * input.cluster.weighted_bwd_multiplier;
  return bwd + fwd * input.model.weighted_kernel_multiplier;
}

double prefetch_compute(const Shard& s, const Sizes& sizes, Kernel kernel) {
  const auto& input = s.input;
  const auto& model = input.model;
  const double lookups = input.table_expected_lookups[s.table];
  const bool known = kernel == Kernel::fused_uvm_caching && !std::isnan(lookups);
  double fetches = 0;
  double unique = lookups;
  if (known) {
    const double batch = std::ceil(s.world * s.inputs);
    if (model.linear_prefetch) {
      unique = std::min({unique, batch, static_cast<double>(input.table_rows[s.table])});
    }
    fetches = input.table_miss_rate[s.table] * (model.fetches_from_batch_inputs ? batch : unique);
  }
  fetches /= sizes.prefetch_divisor;
  if (model.linear_prefetch && known) {
    const auto& c = model.prefetch_coefficients;
    return c[0] * (sizes.prefetch_lookups / sizes.prefetch_divisor) +
           c[1] * (unique / sizes.prefetch_divisor) + c[2] * (fetches * s.dim);
  }
  const double bandwidth = input.cluster.hbm_to_ddr_bw;
  return bandwidth > 0 ? fetches * s.dim * s.element / bandwidth : 0.0;
}

struct Comms {
  double fwd = 0;
  double bwd = 0;
};

Comms row_wise_comms(const PerfCluster& cluster, const Sizes& sizes, double device_bw) {
  const double fwd = sizes.fwd_output / positive(cluster.bw_world_reduce_scatter, "reduce-scatter");
  const double gather = sizes.bwd_output / positive(cluster.bw_world_all_gather, "all-gather");
  return {fwd, gather + sizes.bwd_output * kBatchedCopyFactor / device_bw};
}

Comms table_row_wise_comms(const Shard& s, const Sizes& sizes, double device_bw) {
  const auto& cluster = s.input.cluster;
  const std::int64_t groups = std::max<std::int64_t>(1, cluster.world_size / cluster.group_size);
  const double scatter =
      sizes.fwd_output / positive(cluster.bw_group_reduce_scatter, "group reduce-scatter");
  const double gather =
      sizes.bwd_output / positive(cluster.bw_group_all_gather, "group all-gather");
  double across_fwd = 0;
  double across_bwd = 0;
  if (groups > 1) {
    const double bw = positive(cluster.bw_across_all_to_all, "all-to-all across groups");
    const double outputs = s.outputs * static_cast<double>(groups) * s.dim;
    across_fwd = outputs * s.input.table_fwd_a2a[s.table] / bw;
    across_bwd = outputs * s.input.table_bwd_a2a[s.table] / bw;
  }
  const double copy = sizes.bwd_output * kBatchedCopyFactor / device_bw;
  return {scatter + across_fwd, across_bwd + gather + copy};
}

// All-reduce of the whole table's gradient, and the optimizer's element-wise kernels.
double data_parallel_bwd_comms(const Shard& s, double device_bw) {
  const auto& cluster = s.input.cluster;
  const double table = s.rows * s.dim * s.element;
  const double world = static_cast<double>(cluster.world_size);
  const double local = static_cast<double>(cluster.local_world_size);
  const double nodes = std::min(world / local, 2.0);
  const double bw = cluster.bw_world_all_reduce;
  double reduce = bw > 0 ? table * (2 * nodes - 1) / nodes / bw : 0.0;
  if (cluster.world_size > 2 * cluster.local_world_size) reduce *= 2;
  return reduce + table * kDataParallelOptimizerFactor / device_bw;
}

void check(const Perf& perf) {
  for (double part : {perf.fwd_compute, perf.fwd_comms, perf.bwd_compute, perf.bwd_comms,
                      perf.input_dist_comms, perf.prefetch_compute}) {
    if (!(part >= 0) || std::isinf(part)) {
      throw OutOfRange("a cost is negative, infinite or not a number");
    }
  }
}

}  // namespace

Perf shard_perf(const EstimateInput& input, std::size_t table, std::size_t menu_item,
                const ShardRun& run) {
  const auto type = static_cast<ShardingType>(input.menu_type[menu_item]);
  const auto kernel = static_cast<Kernel>(input.menu_kernel[menu_item]);
  const double bw = positive(input.menu_bandwidth[menu_item], "the kernel's memory");
  const auto& coefficients = input.coefficients[input.menu_coefficients[menu_item]];
  const auto& cluster = input.cluster;
  const Shard s{
      input,
      table,
      input.table_perf_inputs[table],
      input.table_pooled[table] ? input.table_perf_outputs[table] : input.table_perf_inputs[table],
      static_cast<double>(cluster.world_size),
      static_cast<double>(run.rows),
      static_cast<double>(run.cols),
      run.cols,
      static_cast<double>(input.table_element_size[table]),
      input.table_pooled[table] != 0,
      input.table_weighted[table] != 0};

  Sizes sizes;
  Comms comms;
  bool table_wise = false;
  switch (type) {
    case ShardingType::table_wise:
    case ShardingType::column_wise:
    case ShardingType::table_column_wise: {
      table_wise = true;
      sizes = table_wise_sizes(s);
      const double a2a = positive(cluster.bw_world_all_to_all, "all-to-all");
      comms = {sizes.fwd_output / a2a, sizes.bwd_output / a2a};
      break;
    }
    case ShardingType::row_wise:
      sizes = by_rows_sizes(s, static_cast<double>(cluster.world_size), true);
      comms = row_wise_comms(cluster, sizes, bw);
      break;
    case ShardingType::table_row_wise:
    case ShardingType::grid_shard:
      sizes = by_rows_sizes(s, static_cast<double>(cluster.group_size), false);
      comms = table_row_wise_comms(s, sizes, bw);
      break;
    case ShardingType::data_parallel:
      sizes = data_parallel_sizes(s);
      comms = {0.0, data_parallel_bwd_comms(s, bw)};
      break;
  }

  Perf perf;
  perf.fwd_compute = fwd_compute(s, sizes, coefficients, table_wise, bw);
  perf.fwd_comms = comms.fwd;
  if (!input.model.inference) {
    perf.bwd_compute = bwd_compute(s, sizes, coefficients, perf.fwd_compute, bw);
    perf.bwd_comms = comms.bwd;
  }
  if (type != ShardingType::data_parallel) {
    perf.prefetch_compute = prefetch_compute(s, sizes, kernel);
    perf.input_dist_comms = std::ceil(s.inputs * s.world * input.model.input_element_size) /
                            positive(cluster.bw_world_all_to_all, "all-to-all");
  }
  check(perf);
  return perf;
}

}  // namespace fastplan
