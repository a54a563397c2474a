// The second cost model: what a shard takes on real devices, in milliseconds.
// docs/hardware-costs.md has the formulas in one place.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/types.h"
#include "estimate/estimate.h"

namespace fastplan {

// The numbers are part of the boundary: fastplan/model/vocabulary.py lists the names.
enum class Collective : std::uint8_t { all_to_all, reduce_scatter, all_gather, all_reduce };
inline constexpr auto kLastCollective = Collective::all_reduce;

// Where a kernel reads its rows: in HBM, over the host link, or in a cache of the host's rows.
enum class KernelFamily : std::uint8_t { hbm, uvm, caching };
inline constexpr auto kLastKernelFamily = KernelFamily::caching;

// One exchange of S bytes over n ranks:
//     latency + by_rank n + by_doubling log2(n) + wire(S, n) (byte + small_group / n)
// in ms and ms per byte. Small groups use fewer links, so their bytes take longer.
struct CollectiveConstants {
  double latency = 0;
  double by_rank = 0;
  double by_doubling = 0;
  double byte = 0;
  double small_group = 0;
};

// Latencies in ms, the others in ms per byte or per id. Only doubles: Python hands them over as one
// array, in this order (see kHardwareConstants).
struct HardwareConstants {
  double hbm_forward_latency = 0;
  double hbm_forward_byte = 0;
  double hbm_backward_latency = 0;
  double hbm_backward_byte = 0;
  double uvm_forward_latency = 0;
  double uvm_forward_unique_byte = 0;
  double uvm_forward_repeat_byte = 0;
  double uvm_backward_latency = 0;
  double uvm_backward_gradient_byte = 0;
  double uvm_backward_row_byte = 0;
  double caching_forward_latency = 0;
  double caching_forward_id = 0;
  double caching_forward_miss_byte = 0;
  double caching_backward_latency = 0;
  double caching_backward_gradient_byte = 0;
  double caching_backward_id = 0;
  double caching_backward_state_byte = 0;
  // Inside an NVLink domain, and across domains.
  std::array<CollectiveConstants, 4> domain{};
  std::array<CollectiveConstants, 4> network{};
};
inline constexpr std::size_t kHardwareConstants = sizeof(HardwareConstants) / sizeof(double);
static_assert(kHardwareConstants == 17 + 2 * 4 * 5);

// A function by its points: linear in log(x) between them, constant outside. None has no points.
struct Curve {
  std::span<const double> x, y;

  bool known() const { return !x.empty(); }
  double at(double value) const;
};

// The ids of a table, if there are statistics of them.
struct IdCurves {
  Curve unique;  // the share of distinct ids among n consecutive ones
  Curve misses;  // the share of ids that an LRU cache of r rows misses
};

// The hardware costs of a request.
struct HardwareCosts {
  HardwareConstants constants;
  std::int64_t domain_ranks = 1;         // ranks of one NVLink domain
  std::span<const double> table_states;  // bytes of optimizer state per byte of weights
  std::vector<IdCurves> table_ids;       // empty: no table has statistics
};

// What one kernel call does for one shard.
struct Lookup {
  double ids = 0;                          // looked up
  double unique = 0;                       // of them
  double misses = 0;                       // of the unique ones, in the cache
  double outputs = 0;                      // vectors
  double rows = 0;                         // of the shard
  double row_bytes = 0, output_bytes = 0;  // of one vector; gradients are like outputs
  double states = 0;                       // bytes of optimizer state per byte of weights
  bool dense = false;                      // gradients and optimizer touch every row
};

// Without the latency, which all shards of a rank that one kernel looks up share.
double forward_ms(const HardwareConstants& c, KernelFamily family, const Lookup& lookup);
double prefetch_ms(const HardwareConstants& c, KernelFamily family, const Lookup& lookup);
double backward_ms(const HardwareConstants& c, KernelFamily family, const Lookup& lookup);
struct FamilyLatency {
  double forward = 0, prefetch = 0, backward = 0;
};
FamilyLatency latency_ms(const HardwareConstants& c, KernelFamily family);

// The time of an exchange is linear in the bytes of a rank's whole buffer.
struct ExchangeTime {
  double latency = 0;
  double byte = 0;
};
ExchangeTime exchange_time(const HardwareConstants& c, Collective collective, std::int64_t ranks,
                           std::int64_t domain_ranks);

// Throws OutOfRange for kernels that no figures exist for.
KernelFamily family_of(Kernel kernel);

// The exchanges of a sharding type. Hierarchical types exchange inside groups, then across them.
struct TypeExchanges {
  ExchangeTime input, forward, forward_across, backward, backward_across;
};

// Prices the shards of one request.
class HardwareModel {
 public:
  HardwareModel(const EstimateInput& input, const HardwareCosts& costs);

  Perf perf(std::size_t table, std::size_t menu_item, const ShardRun& run) const;
  const TypeExchanges& exchanges(ShardingType type, bool pooled) const {
    return exchanges_[static_cast<std::size_t>(type)][pooled];
  }

 private:
  TypeExchanges exchanges_of(ShardingType type, bool pooled) const;
  Lookup lookup_of(std::size_t table, ShardingType type, Kernel kernel, const ShardRun& run) const;
  double parts_of(ShardingType type) const;
  bool has_statistics(std::size_t table) const {
    return !costs_.table_ids.empty() && costs_.table_ids[table].unique.known();
  }
  void count_ids(std::size_t table, double parts, Lookup& lookup) const;
  void assume_ids(std::size_t table, double parts, Lookup& lookup) const;

  const EstimateInput& input_;
  const HardwareCosts& costs_;
  std::array<std::array<TypeExchanges, 2>, static_cast<std::size_t>(kLastShardingType) + 1>
      exchanges_;
};

}  // namespace fastplan
