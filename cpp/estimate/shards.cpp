// How a table is cut into shards, by sharding type.
#include <algorithm>
#include <numeric>

#include "core/exact.h"
#include "estimate/estimate.h"

namespace fastplan {
namespace {

// TorchRec's MIN_CW_DIM: the narrowest column shards, unless constraints say else.
constexpr std::int64_t kMinColumnDim = 128;
constexpr std::int64_t kMostColumns = std::int64_t{1} << 20;  // no table is wider

// Equal neighbours become one run.
void append(std::vector<ShardRun>& runs, std::int64_t count, std::int64_t rows, std::int64_t cols) {
  if (count <= 0) return;
  if (!runs.empty() && runs.back().rows == rows && runs.back().cols == cols) {
    runs.back().count += count;
  } else {
    runs.push_back({count, rows, cols});
  }
}

// Full blocks first, then what is left, then empty shards, as TorchRec divides rows by a rounded-up
// block size.
std::vector<ShardRun> even_rows(std::int64_t rows, std::int64_t shards, std::int64_t cols) {
  const std::int64_t block = ceil_of_rounded_ratio(rows, 1, shards);
  if (block == 0) throw OutOfRange("a table without rows can't be cut by rows");
  const std::int64_t full = std::min(rows / block, shards);
  std::vector<ShardRun> runs;
  append(runs, full, block, cols);
  if (full < shards) {
    append(runs, 1, rows - block * full, cols);
    append(runs, shards - full - 1, 0, cols);
  }
  return runs;
}

// Tables of virtual rows are cut between buckets; the first shards take one bucket more.
std::vector<ShardRun> even_buckets(std::int64_t rows, std::int64_t shards, std::int64_t cols,
                                   std::int64_t buckets) {
  if (rows % buckets != 0) throw OutOfRange("rows are not a multiple of the buckets");
  const std::int64_t bucket_rows = rows / buckets;
  std::vector<ShardRun> runs;
  append(runs, buckets % shards, bucket_rows * (buckets / shards + 1), cols);
  append(runs, shards - buckets % shards, bucket_rows * (buckets / shards), cols);
  return runs;
}

// Rows in proportion to each rank's memory; the last rank takes what is left.
std::vector<ShardRun> uneven_rows(std::int64_t rows, std::span<const std::int64_t> memory,
                                  std::int64_t cols, std::int64_t buckets) {
  const std::int64_t total = std::accumulate(memory.begin(), memory.end(), std::int64_t{0});
  if (total <= 0) throw OutOfRange("no memory to divide rows by");
  std::int64_t bucket_rows = 1;
  if (buckets == 0) {
    buckets = rows;
  } else {
    if (rows % buckets != 0) throw OutOfRange("rows are not a multiple of the buckets");
    bucket_rows = rows / buckets;
  }
  std::vector<ShardRun> runs;
  std::int64_t placed = 0;
  for (std::size_t rank = 0; rank + 1 < memory.size(); ++rank) {
    // The product is taken down as Python's int() does.
    const double share = static_cast<double>(memory[rank]) / static_cast<double>(total);
    const auto local =
        static_cast<std::int64_t>(static_cast<double>(buckets) * share) * bucket_rows;
    placed += local;
    append(runs, 1, local, cols);
  }
  if (placed > rows) throw OutOfRange("uneven row-wise shards exceed the table");
  append(runs, 1, rows - placed, cols);
  return runs;
}

// The width of column shards: TorchRec tries widths from the smallest allowed on, in steps of 4,
// for one that divides the table's.
std::int64_t column_block(std::int64_t dim, std::int64_t min_partition) {
  if (dim <= 0) throw OutOfRange("a table without columns can't be cut by columns");
  if (dim > kMostColumns) throw OutOfRange("a table of over 2^20 columns is not cut by columns");
  if (min_partition < 0) throw OutOfRange("negative column partition");
  const std::int64_t smallest = min_partition ? min_partition : kMinColumnDim;
  if (smallest >= dim || dim % 4 != 0) return dim;
  // The narrowest width that is large enough, divides dim and is a multiple of 4: 4 x a divisor of
  // dim / 4. Divisors come in pairs, so the root is far enough to look.
  const std::int64_t quarter = dim / 4;
  std::int64_t best = quarter;
  for (std::int64_t low = 1; low * low <= quarter; ++low) {
    if (quarter % low != 0) continue;
    for (const std::int64_t divisor : {low, quarter / low}) {
      if (4 * divisor >= smallest) best = std::min(best, divisor);
    }
  }
  return 4 * best;
}

}  // namespace

std::vector<ShardRun> cut(ShardingType type, std::int64_t rows, std::int64_t dim,
                          std::int64_t min_partition, std::int64_t buckets,
                          const LayoutSettings& layout) {
  switch (type) {
    case ShardingType::data_parallel:
      return {{layout.world_size, rows, dim}};
    case ShardingType::table_wise:
      return {{1, rows, dim}};
    case ShardingType::row_wise:
      if (buckets && buckets < layout.world_size) {
        throw OutOfRange("fewer buckets than ranks");
      }
      if (!layout.rank_memory.empty()) return uneven_rows(rows, layout.rank_memory, dim, buckets);
      return buckets ? even_buckets(rows, layout.world_size, dim, buckets)
                     : even_rows(rows, layout.world_size, dim);
    case ShardingType::table_row_wise:
      return even_rows(rows, layout.group_size, dim);
    case ShardingType::column_wise:
    case ShardingType::table_column_wise: {
      const std::int64_t block = column_block(dim, min_partition);
      return {{dim / block, rows, block}};
    }
    case ShardingType::grid_shard: {
      const std::int64_t block = column_block(dim, min_partition);
      const auto column = even_rows(rows, layout.group_size, block);
      std::vector<ShardRun> runs;
      for (std::int64_t i = 0; i < dim / block; ++i) {
        for (const auto& run : column) append(runs, run.count, run.rows, run.cols);
      }
      return runs;
    }
  }
  throw std::invalid_argument("unknown sharding type");
}

}  // namespace fastplan
