#include "estimate/hardware.h"

#include <algorithm>
#include <cmath>

namespace fastplan {
namespace {

// HBM moves whole sectors: a row of 20 bytes costs as much as one of 32.
constexpr double kSector = 32;
// An id on the wire, and a length for each output.
constexpr double kIdBytes = 8;

double whole_sectors(double bytes) { return std::ceil(bytes / kSector) * kSector; }

// Distinct values of `ids` draws from `rows` equally likely ones.
double distinct(double ids, double rows) {
  return rows > 0 ? -std::expm1(-ids / rows) * rows : 0.0;
}

const CollectiveConstants& of(const std::array<CollectiveConstants, 4>& all, Collective kind) {
  return all[static_cast<std::size_t>(kind)];
}

double latency_of(const CollectiveConstants& c, double ranks) {
  return c.latency + c.by_rank * ranks + c.by_doubling * std::log2(ranks);
}

double byte_of(const CollectiveConstants& c, double ranks) {
  return c.byte + c.small_group / ranks;
}

// An all-reduce is a reduce-scatter and an all-gather.
double passes(Collective kind) { return kind == Collective::all_reduce ? 2.0 : 1.0; }

}  // namespace

double Curve::at(double value) const {
  if (value <= x.front()) return y.front();
  if (value >= x.back()) return y.back();
  const auto right = std::lower_bound(x.begin(), x.end(), value) - x.begin();
  const auto left = right - 1;
  const double share = std::log(value / x[left]) / std::log(x[right] / x[left]);
  return y[left] + share * (y[right] - y[left]);
}

KernelFamily family_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::dense:
    case Kernel::fused:
    case Kernel::quant:
    case Kernel::fused_triton:
      return KernelFamily::hbm;
    case Kernel::fused_uvm:
    case Kernel::quant_uvm:
      return KernelFamily::uvm;
    case Kernel::fused_uvm_caching:
    case Kernel::quant_uvm_caching:
      return KernelFamily::caching;
    default:
      throw OutOfRange("the hardware costs have no figures for a kernel");
  }
}

//     hbm, caching: (ids row + outputs output) hbm_forward_byte
//     uvm:          unique row unique_byte + (ids - unique) row repeat_byte
double forward_ms(const HardwareConstants& c, KernelFamily family, const Lookup& l) {
  if (family == KernelFamily::uvm) {
    return l.unique * l.row_bytes * c.uvm_forward_unique_byte +
           (l.ids - l.unique) * l.row_bytes * c.uvm_forward_repeat_byte;
  }
  return (l.ids * l.row_bytes + l.outputs * l.output_bytes) * c.hbm_forward_byte;
}

// The cache looks up every distinct id and fetches what it misses:
//     unique id + misses row miss_byte
double prefetch_ms(const HardwareConstants& c, KernelFamily family, const Lookup& l) {
  if (family != KernelFamily::caching) return 0;
  return l.unique * c.caching_forward_id + l.misses * l.row_bytes * c.caching_forward_miss_byte;
}

// Gradients are read once per id. A distinct row and its optimizer state are read and written:
//     hbm:     (ids gradient + 2 unique (1 + states) row) hbm_backward_byte
//     dense:   (ids gradient + rows (3 + 2 states) row) hbm_backward_byte
//     uvm:     ids gradient gradient_byte + unique (1 + states) row row_byte
//     caching: ids gradient gradient_byte + unique id + unique states row state_byte
// since FBGEMM caches weights only: optimizer state stays on the host.
double backward_ms(const HardwareConstants& c, KernelFamily family, const Lookup& l) {
  const double gradients = l.ids * l.output_bytes;
  switch (family) {
    case KernelFamily::uvm:
      return gradients * c.uvm_backward_gradient_byte +
             l.unique * (1 + l.states) * l.row_bytes * c.uvm_backward_row_byte;
    case KernelFamily::caching:
      return gradients * c.caching_backward_gradient_byte + l.unique * c.caching_backward_id +
             l.unique * l.states * l.row_bytes * c.caching_backward_state_byte;
    case KernelFamily::hbm:
      break;
  }
  const double rows = l.dense ? l.rows * (3 + 2 * l.states) : 2 * l.unique * (1 + l.states);
  return (gradients + rows * l.row_bytes) * c.hbm_backward_byte;
}

FamilyLatency latency_ms(const HardwareConstants& c, KernelFamily family) {
  switch (family) {
    case KernelFamily::hbm:
      return {c.hbm_forward_latency, 0, c.hbm_backward_latency};
    case KernelFamily::uvm:
      return {c.uvm_forward_latency, 0, c.uvm_backward_latency};
    case KernelFamily::caching:
      return {c.hbm_forward_latency, c.caching_forward_latency, c.caching_backward_latency};
  }
  throw std::invalid_argument("unknown kernel family");
}

// In a domain of n ranks, (n - 1) / n of a buffer leave the rank. Across domains of d ranks:
//     all-to-all:                 (n - d) / n of the buffer leave the domain by the rank's own card
//     reduce-scatter, all-gather: 1 / d of what leaves the domain goes by each card, while the
//                                 ranks of a domain exchange the rest at the same time
ExchangeTime exchange_time(const HardwareConstants& c, Collective kind, std::int64_t ranks,
                           std::int64_t domain_ranks) {
  if (ranks <= 1) return {};
  const auto n = static_cast<double>(ranks);
  if (ranks <= domain_ranks) {
    const auto& own = of(c.domain, kind);
    return {latency_of(own, n), passes(kind) * (n - 1) / n * byte_of(own, n)};
  }
  const auto d = static_cast<double>(domain_ranks);
  const auto& own = of(c.network, kind);
  const double inside = exchange_time(c, kind, domain_ranks, domain_ranks).byte;
  const double leaves = kind == Collective::all_to_all ? (n - d) / n : (n - d) / n / d;
  return {latency_of(own, n), std::max(inside, passes(kind) * leaves * byte_of(own, n))};
}

HardwareModel::HardwareModel(const EstimateInput& input, const HardwareCosts& costs)
    : input_(input), costs_(costs) {
  for (std::size_t type = 0; type < exchanges_.size(); ++type) {
    for (const bool pooled : {false, true}) {
      exchanges_[type][pooled] = exchanges_of(static_cast<ShardingType>(type), pooled);
    }
  }
}

TypeExchanges HardwareModel::exchanges_of(ShardingType type, bool pooled) const {
  const auto world = input_.cluster.world_size;
  const auto group = std::min(input_.cluster.group_size, world);
  const auto groups = world / group;
  const auto time = [this](Collective kind, std::int64_t ranks) {
    return exchange_time(costs_.constants, kind, ranks, costs_.domain_ranks);
  };
  TypeExchanges e;
  if (type == ShardingType::data_parallel) {
    e.backward = time(Collective::all_reduce, world);
    return e;
  }
  e.input = time(Collective::all_to_all, world);
  if (type == ShardingType::table_row_wise || type == ShardingType::grid_shard) {
    e.forward = time(Collective::reduce_scatter, group);
    e.backward = time(Collective::all_gather, group);
    // One rank of each group takes part: unless a domain holds all, each is alone in its own.
    const auto domain = world <= costs_.domain_ranks ? groups : 1;
    e.forward_across = e.backward_across =
        exchange_time(costs_.constants, Collective::all_to_all, groups, domain);
  } else if (type == ShardingType::row_wise && pooled) {
    e.forward = time(Collective::reduce_scatter, world);
    e.backward = time(Collective::all_gather, world);
  } else {
    e.forward = e.backward = e.input;
  }
  return e;
}

// How many shards share the ids of a table.
double HardwareModel::parts_of(ShardingType type) const {
  switch (type) {
    case ShardingType::row_wise:
      return static_cast<double>(input_.cluster.world_size);
    case ShardingType::table_row_wise:
    case ShardingType::grid_shard:
      return static_cast<double>(input_.cluster.group_size);
    default:
      return 1.0;
  }
}

Lookup HardwareModel::lookup_of(std::size_t table, ShardingType type, Kernel kernel,
                                const ShardRun& run) const {
  const auto world = static_cast<double>(input_.cluster.world_size);
  const double ranks = type == ShardingType::data_parallel ? 1.0 : world;
  const double parts = parts_of(type);
  const auto dim = static_cast<double>(run.cols);
  Lookup lookup;
  lookup.ids = input_.table_perf_inputs[table] * ranks / parts;
  // Shards of rows put out a partial sum for every bag.
  lookup.outputs =
      input_.table_pooled[table] ? input_.table_perf_outputs[table] * ranks : lookup.ids;
  lookup.rows = static_cast<double>(run.rows);
  lookup.row_bytes = whole_sectors(dim * static_cast<double>(input_.table_element_size[table]));
  lookup.output_bytes = whole_sectors(dim * input_.table_output_element_size[table]);
  lookup.states = costs_.table_states[table];
  lookup.dense = kernel == Kernel::dense;
  if (has_statistics(table)) {
    count_ids(table, parts, lookup);
  } else {
    assume_ids(table, parts, lookup);
  }
  return lookup;
}

// With statistics, where n = parts ids are those of the whole table:
//     unique = min(n U(n), rows of the table) / parts
//     misses = min(ids M(parts cache rows of the shard), unique)
// A cache of all rows misses nothing.
void HardwareModel::count_ids(std::size_t table, double parts, Lookup& lookup) const {
  const auto& curves = costs_.table_ids[table];
  const double all = lookup.ids * parts;
  const auto rows = static_cast<double>(input_.table_rows[table]);
  lookup.unique = std::min(all * curves.unique.at(all), rows) / parts;
  const double ratio = input_.table_cache_ratio[table];
  const double cached = parts * ratio * lookup.rows;
  const double share = ratio >= 1 ? 0.0 : cached > 0 ? curves.misses.at(cached) : 1.0;
  lookup.misses = std::min(lookup.ids * share, lookup.unique);
}

// Without statistics, all ids are equally likely, unless TorchRec's cache statistics say else.
void HardwareModel::assume_ids(std::size_t table, double parts, Lookup& lookup) const {
  const double known = input_.table_expected_lookups[table];
  lookup.unique =
      std::isnan(known) ? distinct(lookup.ids, lookup.rows) : std::min(known / parts, lookup.ids);
  const double miss_rate = input_.table_miss_rate[table];
  lookup.misses =
      lookup.unique *
      (std::isnan(miss_rate) ? 1.0 - std::min(input_.table_cache_ratio[table], 1.0) : miss_rate);
}

Perf HardwareModel::perf(std::size_t table, std::size_t menu_item, const ShardRun& run) const {
  const auto type = static_cast<ShardingType>(input_.menu_type[menu_item]);
  const auto kernel = static_cast<Kernel>(input_.menu_kernel[menu_item]);
  const KernelFamily family = family_of(kernel);
  const auto& c = costs_.constants;
  const Lookup lookup = lookup_of(table, type, kernel, run);
  const bool pooled = input_.table_pooled[table] != 0;
  const auto& exchange = exchanges(type, pooled);
  const auto dim = static_cast<double>(run.cols);
  Perf perf;
  perf.fwd_compute = forward_ms(c, family, lookup);
  perf.prefetch_compute = prefetch_ms(c, family, lookup);
  double gradients = 0, gradients_across = 0;
  if (type == ShardingType::data_parallel) {
    gradients = lookup.rows * dim * static_cast<double>(input_.table_element_size[table]);
  } else {
    const bool reduced = parts_of(type) > 1 && (pooled || type != ShardingType::row_wise);
    const double values = lookup.outputs * dim;
    // A reduce-scatter in the group leaves each rank its part of the values.
    const double across = values / static_cast<double>(input_.cluster.group_size);
    perf.fwd_comms = values * (reduced ? input_.table_fwd_sr : input_.table_fwd_a2a)[table] *
                         exchange.forward.byte +
                     across * input_.table_fwd_a2a[table] * exchange.forward_across.byte;
    gradients = values * (reduced ? input_.table_bwd_sr : input_.table_bwd_a2a)[table];
    gradients_across = across * input_.table_bwd_a2a[table];
    // Weighted features bring a weight for each id; every bag brings its length.
    const double ids = lookup.ids * (input_.table_weighted[table] ? 2 : 1);
    perf.input_dist_comms = (ids + lookup.outputs) * kIdBytes * exchange.input.byte;
  }
  if (!input_.model.inference) {
    perf.bwd_compute = backward_ms(c, family, lookup);
    perf.bwd_comms =
        gradients * exchange.backward.byte + gradients_across * exchange.backward_across.byte;
  }
  check(perf);
  return perf;
}

}  // namespace fastplan
