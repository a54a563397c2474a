// Cost of one shard, in TorchRec's unit and in its order of operations: every product and sum
// below is associated as Python evaluates it, because the last bit decides ties.
#include <algorithm>
#include <cmath>

#include "estimate/estimate.h"

namespace fastplan {
namespace {

// TorchRec's constants BATCHED_COPY_PERF_FACTOR and DP_ELEMENTWISE_KERNELS_PERF_FACTOR.
constexpr double kBatchedCopyFactor = 2.455;
constexpr double kDataParallelOptimizerFactor = 9.22;

// TorchRec would divide by zero, or by a negative number, and go on with what comes of it.
double positive(double bandwidth, const char* what) {
  if (!(bandwidth > 0)) throw OutOfRange(std::string(what) + " is not a positive bandwidth");
  return bandwidth;
}

// TorchRec's FULL_BLOCK_EMB_DIM and its penalties for half and quarter blocks: narrow rows leave
// threads of a CUDA block idle.
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

// One shard as the formulas see it, with everything as doubles: Python divides and multiplies
// floats.
struct Shard {
  const EstimateInput& input;
  std::size_t table;
  double inputs, outputs;  // of one local batch
  double world;
  double rows, dim;
  std::int64_t int_dim;
  double element;
  bool pooled, weighted;

  // Weighted features bring a weight for each index.
  double doubled_if_weighted(double size) const { return weighted ? size * 2 : size; }
};

// Table-wise, column-wise and table-column-wise: a shard is looked up for the whole batch of all
// ranks,
//     indices = inputs x world
//     lookup  = indices x max(dim, 32) x element,    output = outputs x world x dim x wire element
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

// Row-wise and table-row-wise: each of `parts` shards sees its part of the indices,
//     indices = inputs / parts x world
// and puts out a partial sum of all outputs, which a reduce-scatter adds up.
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

// Every rank looks up its own batch in its own copy.
Sizes data_parallel_sizes(const Shard& s) {
  Sizes sizes;
  sizes.input_read = s.doubled_if_weighted(std::ceil(s.inputs * s.input.model.input_element_size));
  sizes.fwd_lookup = sizes.bwd_lookup = s.inputs * s.dim * s.element;
  sizes.fwd_output = sizes.bwd_output = s.outputs * s.dim * s.element;
  return sizes;
}

// The kernels' cost model: a weighted sum of what is read and written.
double linear(const std::array<double, 4>& c, double input, double lookup, double output,
              double rows) {
  return c[0] * input + c[1] * lookup + c[2] * output + c[3] * rows;
}

//     fwd = (c0 input + c1 lookup + c2 output + c3 rows) x penalty / bandwidth
double fwd_compute(const Shard& s, const Sizes& sizes, const Coefficients& c, bool table_wise,
                   double bandwidth) {
  const auto& model = s.input.model;
  const bool penalised = table_wise ? model.block_penalty_table_wise : model.block_penalty_other;
  const double penalty = penalised ? block_usage_penalty(s.int_dim) : 1.0;
  return linear(c.fwd, sizes.input_read, sizes.fwd_lookup, sizes.fwd_output, s.rows) * penalty /
         bandwidth;
}

//     bwd = the same with the coefficients of the backward pass, or fwd x multiplier;
//     weighted features: bwd x weighted_bwd_multiplier + fwd x weighted_kernel_multiplier
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

// Cache misses fetched over the bus, of caching kernels with statistics:
//     fetches = miss rate x (inputs of the batch, or expected distinct lookups)
//     cost    = fetches x dim x element / bandwidth,  or linear in lookups, distinct lookups and
//     fetches
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

// Forward a reduce-scatter of outputs, backward an all-gather of gradients and a batched copy of
// them.
Comms row_wise_comms(const PerfCluster& cluster, const Sizes& sizes, double device_bw) {
  const double fwd = sizes.fwd_output / positive(cluster.bw_world_reduce_scatter, "reduce-scatter");
  const double gather = sizes.bwd_output / positive(cluster.bw_world_all_gather, "all-gather");
  return {fwd, gather + sizes.bwd_output * kBatchedCopyFactor / device_bw};
}

// The same inside a host, and an all-to-all of outputs between hosts where there are several.
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

// An all-reduce of the whole table's gradient, and the optimizer's element-wise kernels,
//     table x (2 n - 1) / n / bandwidth x (2 beyond two nodes) + table x 9.22 / memory bandwidth,
// with n the nodes, at most 2, as TorchRec has it.
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

// What differs between the sharding types.
struct SizesAndComms {
  Sizes sizes;
  Comms comms;
  bool table_wise = false;  // whole rows on one rank: the block penalty may differ
};

SizesAndComms sizes_and_comms(const Shard& s, ShardingType type, double bw) {
  const auto& cluster = s.input.cluster;
  switch (type) {
    case ShardingType::table_wise:
    case ShardingType::column_wise:
    case ShardingType::table_column_wise: {
      const Sizes sizes = table_wise_sizes(s);
      const double a2a = positive(cluster.bw_world_all_to_all, "all-to-all");
      return {sizes, {sizes.fwd_output / a2a, sizes.bwd_output / a2a}, true};
    }
    case ShardingType::row_wise: {
      const Sizes sizes = by_rows_sizes(s, static_cast<double>(cluster.world_size), true);
      return {sizes, row_wise_comms(cluster, sizes, bw), false};
    }
    case ShardingType::table_row_wise:
    case ShardingType::grid_shard: {
      const Sizes sizes = by_rows_sizes(s, static_cast<double>(cluster.group_size), false);
      return {sizes, table_row_wise_comms(s, sizes, bw), false};
    }
    case ShardingType::data_parallel:
      return {data_parallel_sizes(s), {0.0, data_parallel_bwd_comms(s, bw)}, false};
  }
  throw std::invalid_argument("unknown sharding type");
}

Shard shard_of(const EstimateInput& input, std::size_t table, const ShardRun& run) {
  const bool pooled = input.table_pooled[table] != 0;
  // Without pooling, every value that is looked up is put out.
  const double outputs = pooled ? input.table_perf_outputs[table] : input.table_perf_inputs[table];
  return {.input = input,
          .table = table,
          .inputs = input.table_perf_inputs[table],
          .outputs = outputs,
          .world = static_cast<double>(input.cluster.world_size),
          .rows = static_cast<double>(run.rows),
          .dim = static_cast<double>(run.cols),
          .int_dim = run.cols,
          .element = static_cast<double>(input.table_element_size[table]),
          .pooled = pooled,
          .weighted = input.table_weighted[table] != 0};
}

}  // namespace

// Overflow of large inputs ends here, instead of in a plan that nobody could rate.
void check(const Perf& perf) {
  for (double part : {perf.fwd_compute, perf.fwd_comms, perf.bwd_compute, perf.bwd_comms,
                      perf.input_dist_comms, perf.prefetch_compute}) {
    if (!(part >= 0) || std::isinf(part)) {
      throw OutOfRange("a cost is negative, infinite or not a number");
    }
  }
}

Perf shard_perf(const EstimateInput& input, std::size_t table, std::size_t menu_item,
                const ShardRun& run) {
  const auto type = static_cast<ShardingType>(input.menu_type[menu_item]);
  const auto kernel = static_cast<Kernel>(input.menu_kernel[menu_item]);
  const double bw = positive(input.menu_bandwidth[menu_item], "the kernel's memory");
  const auto& coefficients = input.coefficients[input.menu_coefficients[menu_item]];
  const Shard s = shard_of(input, table, run);
  const auto [sizes, comms, table_wise] = sizes_and_comms(s, type, bw);
  Perf perf;
  perf.fwd_compute = fwd_compute(s, sizes, coefficients, table_wise, bw);
  perf.fwd_comms = comms.fwd;
  // Nothing flows backward in inference.
  if (!input.model.inference) {
    perf.bwd_compute = bwd_compute(s, sizes, coefficients, perf.fwd_compute, bw);
    perf.bwd_comms = comms.bwd;
  }
  // Copies are looked up where their input is: nothing is distributed, and TorchRec prefetches
  // none.
  if (type != ShardingType::data_parallel) {
    perf.prefetch_compute = prefetch_compute(s, sizes, kernel);
    perf.input_dist_comms = std::ceil(s.inputs * s.world * input.model.input_element_size) /
                            positive(input.cluster.bw_world_all_to_all, "all-to-all");
  }
  check(perf);
  return perf;
}

}  // namespace fastplan
