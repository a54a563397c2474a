// Memory of one shard by tier, rounded as Python rounds it.
#include <algorithm>
#include <cmath>

#include "core/exact.h"
#include "estimate/estimate.h"

namespace fastplan {
namespace {

// Kernels that keep a part of the table in HBM, the rest elsewhere.
bool is_cached(Kernel kernel) {
  switch (kernel) {
    case Kernel::fused_uvm_caching:
    case Kernel::quant_uvm_caching:
    case Kernel::key_value:
    case Kernel::ssd_virtual_table:
    case Kernel::dram_virtual_table:
    case Kernel::dram_ssd_virtual_table:
      return true;
    default:
      return false;
  }
}

// Kernels whose HBM is a cache of fixed size, whatever the table's.
bool is_key_value(Kernel kernel) {
  return kernel == Kernel::key_value || kernel == Kernel::ssd_virtual_table ||
         kernel == Kernel::dram_virtual_table || kernel == Kernel::dram_ssd_virtual_table;
}

struct Io {
  std::int64_t input = 0;
  std::int64_t output = 0;
};

// Bytes of indices that come in and of vectors that go out, for one batch:
//     input  = inputs x world x 8,    output = outputs x world x columns x output element,
// with inputs divided by the shards a row-wise cut makes. Data-parallel tables see one rank's
// batch.
Io io_sizes(const EstimateInput& input, std::size_t table, ShardingType type, const ShardRun& run) {
  const auto& settings = input.storage;
  const double world = static_cast<double>(settings.world_size);
  const bool pooled = input.table_pooled[table] != 0;
  const double index_size = 8;
  const double output_size = input.table_output_element_size[table];
  double inputs = input.table_storage_inputs[table];

  if (type == ShardingType::row_wise || type == ShardingType::table_row_wise ||
      type == ShardingType::grid_shard) {
    // An empty shard at a table's end gets no input.
    if (run.rows == 0 || run.cols == 0) return {};
    inputs = inputs /
             (type == ShardingType::row_wise ? world : static_cast<double>(settings.group_size));
  }
  const double outputs = pooled ? input.table_storage_outputs[table] : inputs;
  const double cols =
      static_cast<double>(type == ShardingType::table_wise || type == ShardingType::data_parallel
                              ? input.table_dim[table]
                              : run.cols);
  if (type == ShardingType::data_parallel) {
    return {ceil_size(inputs * index_size, "input size"),
            ceil_size(outputs * cols * output_size, "output size")};
  }
  return {ceil_size(inputs * world * index_size, "input size"),
          ceil_size(outputs * world * cols * output_size, "output size")};
}

struct Tiers {
  std::int64_t hbm = 0;
  std::int64_t ddr = 0;
};

// The whole table's bytes, in the tier where its weights are.
Tiers weight_bytes(const EstimateInput& input, std::size_t table, Kernel kernel) {
  const auto usage = static_cast<UsageType>(input.table_usage[table]);
  std::int64_t bytes = input.table_bytes[table];
  bool in_ddr = input.storage.weights_in_ddr;
  if (usage == UsageType::base_quant) {
    // TorchRec adds 4 bytes per row of a quantised table, for its scale and bias.
    bytes += input.table_rows[table] * 4;
    in_ddr = input.storage.quant_weights_in_ddr || kernel == Kernel::quant_uvm ||
             kernel == Kernel::quant_uvm_caching;
  } else if (usage == UsageType::base) {
    in_ddr = in_ddr || kernel == Kernel::fused_uvm || kernel == Kernel::fused_uvm_caching;
  }
  return in_ddr ? Tiers{0, bytes} : Tiers{bytes, 0};
}

// Weights, optimizer state and, for cached tables, the cache's own bookkeeping:
//     ceil(weights x shard / table) + ceil(that x optimizer) + ceil(rows x (4 + 16 x cache ratio))
std::int64_t shard_bytes(const EstimateInput& input, std::size_t table, ShardingType type,
                         const ShardRun& run, std::int64_t weights, double cache_ratio) {
  const std::int64_t tensor =
      type == ShardingType::data_parallel
          ? weights
          : ceil_of_rounded_ratio(weights, run.rows * run.cols,
                                  input.table_rows[table] * input.table_dim[table]);
  if (input.storage.inference) return tensor;
  const std::int64_t optimizer = ceil_size(
      static_cast<double>(tensor) * input.table_optimizer_multiplier[table], "optimizer state");
  const std::int64_t bookkeeping =
      std::isnan(cache_ratio)
          ? 0
          : ceil_size(static_cast<double>(run.rows) * (4 + cache_ratio * 16), "cache state");
  return bookkeeping + tensor + optimizer;
}

// Batches that a training pipeline keeps in flight. The factors are TorchRec's, which took them
// from memory snapshots.
std::int64_t pipeline_bytes(const EstimateInput& input, std::size_t table, const Io& io,
                            bool cached) {
  const auto& settings = input.storage;
  if (settings.inference) return 0;
  const std::int64_t output = settings.at_peak_memory ? io.output : 0;
  switch (settings.pipeline) {
    case Pipeline::sparse_dist:
      return 2 * io.input + output;
    case Pipeline::prefetch_sparse_dist: {
      const std::int64_t passes = std::max<std::int64_t>(1, input.table_prefetch_passes[table]);
      const double burst = 1 + 6 / static_cast<double>(passes);
      const double prefetch = cached ? static_cast<double>(io.input) : 0.0;
      return 3 * io.input + checked_size(burst * prefetch, "prefetch size") + output;
    }
    case Pipeline::none:
      return io.input + io.output;
  }
  throw std::invalid_argument("unknown pipeline");
}

}  // namespace

Storage shard_storage(const EstimateInput& input, std::size_t table, std::size_t menu_item,
                      const ShardRun& run) {
  const auto type = static_cast<ShardingType>(input.menu_type[menu_item]);
  const auto kernel = static_cast<Kernel>(input.menu_kernel[menu_item]);
  const auto& settings = input.storage;
  const bool cached = is_cached(kernel);
  const double no_cache = std::nan("");
  const double ratio = cached ? input.table_cache_ratio[table] : no_cache;

  const Io io = io_sizes(input, table, type, run);
  const Tiers weights = weight_bytes(input, table, kernel);
  // round() in Python and nearbyint() here both take halves to even.
  const std::int64_t hbm_weights =
      cached ? checked_size(std::nearbyint(static_cast<double>(weights.ddr) * ratio), "cache")
             : weights.hbm;

  std::int64_t hbm = shard_bytes(input, table, type, run, hbm_weights, ratio);
  std::int64_t ddr = shard_bytes(input, table, type, run, weights.ddr, no_cache);
  std::int64_t ssd = 0;
  if (kernel == Kernel::key_value) {
    ssd = shard_bytes(input, table, type, run, weights.hbm, ratio) + ddr;
  }
  // Their cache is bounded by settings, not by the table: HBM has no more than that.
  if (is_key_value(kernel) || input.table_virtual[table]) {
    const double cache = static_cast<double>(input.table_rows[table]) *
                         input.table_kv_load_factor[table] *
                         static_cast<double>(input.table_element_size[table]) *
                         static_cast<double>(input.table_dim[table]);
    hbm = std::min(input.table_kv_cache_bytes[table], ceil_size(cache, "key-value cache"));
    ddr = 0;
  }

  Storage storage;
  storage.hbm =
      settings.device == DeviceKind::hbm ? hbm + pipeline_bytes(input, table, io, cached) : 0;
  storage.ddr =
      settings.device == DeviceKind::cpu && !settings.inference ? io.input + io.output + ddr : ddr;
  storage.ssd = ssd;
  return storage;
}

}  // namespace fastplan
