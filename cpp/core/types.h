// The words of the domain, shared by every file of the core.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace fastplan {

// The numbers of both enums are part of the boundary: fastplan/model/vocabulary.py lists the names
// in the same order.
enum class ShardingType : std::uint8_t {
  data_parallel,
  table_wise,
  column_wise,
  row_wise,
  table_row_wise,
  table_column_wise,
  grid_shard,
};
inline constexpr auto kLastShardingType = ShardingType::grid_shard;

// TorchRec's EmbeddingComputeKernel.
enum class Kernel : std::uint8_t {
  dense,
  fused,
  fused_uvm,
  fused_uvm_caching,
  quant,
  quant_uvm,
  quant_uvm_caching,
  key_value,
  customized_kernel,
  ssd_virtual_table,
  dram_virtual_table,
  dram_ssd_virtual_table,
  fused_triton,
  unfused_tpu,
};
inline constexpr auto kLastKernel = Kernel::unfused_tpu;

// Where the shards of an option may go: any rank each, ranks of one host, one on every rank, or
// whole blocks on hosts. TorchRec's partitioner has a way of placing for each.
enum class Reach : std::uint8_t { device, host, uniform, multi_host };

inline Reach reach_of(ShardingType type) {
  switch (type) {
    case ShardingType::table_wise:
    case ShardingType::column_wise:
      return Reach::device;
    case ShardingType::table_row_wise:
    case ShardingType::table_column_wise:
      return Reach::host;
    case ShardingType::row_wise:
    case ShardingType::data_parallel:
      return Reach::uniform;
    case ShardingType::grid_shard:
      return Reach::multi_host;
  }
  throw std::invalid_argument("unknown sharding type");
}

struct Storage {
  std::int64_t hbm = 0;
  std::int64_t ddr = 0;
  std::int64_t ssd = 0;

  Storage& operator+=(const Storage& other) {
    hbm += other.hbm;
    ddr += other.ddr;
    ssd += other.ssd;
    return *this;
  }
  // May go below zero: memory that is reserved beyond what a rank has is a negative capacity.
  Storage& operator-=(const Storage& other) {
    hbm -= other.hbm;
    ddr -= other.ddr;
    ssd -= other.ssd;
    return *this;
  }
  // In every tier. There is no order: of two sizes, neither may fit in the other.
  bool fits_in(const Storage& other) const {
    return hbm <= other.hbm && ddr <= other.ddr && ssd <= other.ssd;
  }
  // Lexicographic, hbm first: the order in which TorchRec sorts tables.
  auto operator<=>(const Storage&) const = default;
};

// Tier by tier.
inline Storage largest_of(const Storage& a, const Storage& b) {
  return {std::max(a.hbm, b.hbm), std::max(a.ddr, b.ddr), std::max(a.ssd, b.ssd)};
}

inline Storage smallest_of(const Storage& a, const Storage& b) {
  return {std::min(a.hbm, b.hbm), std::min(a.ddr, b.ddr), std::min(a.ssd, b.ssd)};
}

inline Storage operator*(std::int64_t count, const Storage& each) {
  return {count * each.hbm, count * each.ddr, count * each.ssd};
}

// Cost of one shard by part. Sums are taken part by part and only then totalled, in the order of
// total(): the other order gives other last bits.
struct Perf {
  double fwd_compute = 0;
  double fwd_comms = 0;
  double bwd_compute = 0;
  double bwd_comms = 0;
  double input_dist_comms = 0;
  double prefetch_compute = 0;

  double total() const {
    return fwd_compute + bwd_compute + fwd_comms + bwd_comms + prefetch_compute;
  }
};

// TorchRec starts from the largest int64: a plan must be rated below it.
inline constexpr double kWorstRating = 9223372036854775807.0;

// The input is outside what the core computes exactly (overflow, NaN, division by zero). The caller
// falls back to TorchRec, which knows what to say about it.
struct OutOfRange : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace fastplan
