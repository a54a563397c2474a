#include "estimate/estimate.h"

#include "core/exact.h"
#include "estimate/custom_cost.h"
#include "estimate/hardware.h"

namespace fastplan {
namespace {

// Distinct for every (table, type, kernel), well spread: sums of these identify proposals. The
// mixing is that of splitmix64, which is a bijection, so keys of a search space are all different.
std::uint64_t option_key(std::size_t table, std::uint8_t type, std::uint8_t kernel) {
  std::uint64_t x = (static_cast<std::uint64_t>(table) << 16) | (std::uint64_t{type} << 8) | kernel;
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

void append(SearchSpace& space, const ShardRun& run, const Perf& perf, const Storage& storage) {
  space.run_count.push_back(run.count);
  space.run_rows.push_back(run.rows);
  space.run_cols.push_back(run.cols);
  space.run_fwd_compute.push_back(perf.fwd_compute);
  space.run_fwd_comms.push_back(perf.fwd_comms);
  space.run_bwd_compute.push_back(perf.bwd_compute);
  space.run_bwd_comms.push_back(perf.bwd_comms);
  space.run_input_dist_comms.push_back(perf.input_dist_comms);
  space.run_prefetch_compute.push_back(perf.prefetch_compute);
  space.run_hbm.push_back(storage.hbm);
  space.run_ddr.push_back(storage.ddr);
  space.run_ssd.push_back(storage.ssd);
}

void check_table(const EstimateInput& input, std::size_t table) {
  const auto rows = input.table_rows[table];
  const auto dim = input.table_dim[table];
  if (rows < 0 || dim < 0 || input.table_bytes[table] < 0) throw OutOfRange("negative size");
  // Products of rows, columns and element size must stay exact as doubles.
  if (static_cast<__int128>(rows) * dim * 16 >= kLargestSize ||
      input.table_bytes[table] >= kLargestSize) {
    throw OutOfRange("a table is too large for the core");
  }
}

// Any cut is allowed, but products of its sizes must stay exact, as those of whole tables.
void check_shard(const ShardRun& shard) {
  if (shard.rows < 0 || shard.cols < 0) throw OutOfRange("negative size");
  if (static_cast<__int128>(shard.rows) * shard.cols * 16 >= kLargestSize) {
    throw OutOfRange("a shard is too large for the core");
  }
}

Perf price(const EstimateInput& input, const HardwareModel* hardware, std::size_t table,
           std::size_t item, const ShardRun& run) {
  return hardware ? hardware->perf(table, item, run) : shard_perf(input, table, item, run);
}

}  // namespace

SearchSpace estimate(const EstimateInput& input, const HardwareModel* hardware, Pricer* pricer) {
  SearchSpace space;
  for (std::size_t table = 0; table < input.tables(); ++table) {
    check_table(input, table);
    // Tables with the same sharders and constraints share a menu.
    const auto menu = static_cast<std::size_t>(input.table_menu[table]);
    const auto end = static_cast<std::size_t>(input.menu_begin[menu + 1]);
    for (auto item = static_cast<std::size_t>(input.menu_begin[menu]); item < end; ++item) {
      const auto type = input.menu_type[item];
      const auto kernel = input.menu_kernel[item];
      for (const auto& run :
           cut(static_cast<ShardingType>(type), input.table_rows[table], input.table_dim[table],
               input.table_min_partition[table], input.table_buckets[table], input.layout)) {
        const Perf perf = price(input, hardware, table, item, run);
        const Storage storage = shard_storage(input, table, item, run);
        append(space, run, perf, storage);
        if (pricer) pricer->add(table, item, run, perf, storage);
      }
      if (pricer) pricer->end_option();
      space.option_type.push_back(type);
      space.option_kernel.push_back(kernel);
      space.option_key.push_back(option_key(table, type, kernel));
      space.option_run_begin.push_back(static_cast<std::int64_t>(space.run_count.size()));
    }
    // A custom cost sees a table's shards together: one call for all of them.
    if (pricer) pricer->price(table, space);
    space.table_option_begin.push_back(static_cast<std::int64_t>(space.option_type.size()));
  }
  return space;
}

SearchSpace estimate_shards(const EstimateInput& input, const GivenShards& shards,
                            const HardwareModel* hardware) {
  SearchSpace space;
  for (std::size_t table = 0; table < input.tables(); ++table) check_table(input, table);
  for (std::size_t option = 0; option < shards.option_table.size(); ++option) {
    const auto table = static_cast<std::size_t>(shards.option_table[option]);
    const auto item = static_cast<std::size_t>(shards.option_item[option]);
    const auto end = static_cast<std::size_t>(shards.option_begin[option + 1]);
    for (auto i = static_cast<std::size_t>(shards.option_begin[option]); i < end; ++i) {
      const ShardRun run{1, shards.rows[i], shards.cols[i]};
      check_shard(run);
      append(space, run, shards.perf ? price(input, hardware, table, item, run) : Perf{},
             shards.storage ? shard_storage(input, table, item, run) : Storage{});
    }
  }
  return space;
}

}  // namespace fastplan
