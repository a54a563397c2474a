#include "search/partition.h"

#include <algorithm>
#include <numeric>

namespace fastplan {

Partitioner::Partitioner(const Problem& problem, const PartitionerSettings& settings)
    : problem_(problem),
      settings_(settings),
      sort_by_perf_(settings.sort_by_perf || settings.memory_balanced),
      devices_(problem),
      next_(problem.tables()),
      taken_(problem.ranks()),
      host_order_(problem.hosts),
      host_tried_(problem.hosts) {
  std::int32_t groups = 0;
  for (auto group : problem.table_group) groups = std::max(groups, group + 1);
  group_of_.resize(groups);
  std::int32_t modules = 0;
  for (auto module : problem.table_module) modules = std::max(modules, module + 1);
  module_count_.resize(modules);
  shard_begin_.resize(problem.tables() + 1);
}

Outcome Partitioner::place(std::span<const std::int32_t> options, double limit) {
  if (settings_.memory_balanced) return memory_balanced(options);
  const Outcome outcome = greedy(options, 0, limit);
  if (outcome == Outcome::placed) rating_ = rate(options);
  return outcome;
}

// One attempt. A positive `hbm` replaces what every rank has. Loads only grow, so an attempt whose
// rank is above `limit` can end: its rating would be above it, too.
Outcome Partitioner::greedy(std::span<const std::int32_t> options, std::int64_t hbm, double limit) {
  limit_ = limit;
  devices_.reset(hbm);
  std::int64_t shards = 0;
  for (std::size_t p = 0; p < options.size(); ++p) {
    const auto& option = problem_.options[options[p]];
    shard_begin_[p] = shards;
    if (option.reach != Reach::uniform) shards += option.shards;
  }
  shard_begin_[options.size()] = shards;
  ranks_.resize(shards);

  if (!place_uniform(options)) return Outcome::failed;
  if (devices_.loads()[0] > limit_) return Outcome::over_limit;
  group_and_sort(options);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (rest_ && rest_->surely_fits(g, devices_.free())) return Outcome::placed;
    if (!place_group(options, groups_[g])) {
      // A rank over the limit and a shard without a place both end the attempt here; only the
      // first leaves a load above the limit behind.
      const auto loads = devices_.loads();
      const bool over = *std::max_element(loads.begin(), loads.end()) > limit_;
      return over ? Outcome::over_limit : Outcome::failed;
    }
  }
  return Outcome::placed;
}

// All of them before anything else, as TorchRec places them.
bool Partitioner::place_uniform(std::span<const std::int32_t> options) {
  for (const std::int32_t o : options) {
    const auto& option = problem_.options[o];
    if (option.reach != Reach::uniform) continue;
    if (option.shards != static_cast<std::int64_t>(problem_.ranks())) return false;
    devices_.add_uniform(option);
  }
  return devices_.settle_uniform();
}

// Tables that must share a host form one group, every other table its own; largest first, ties in
// plan order.
void Partitioner::group_and_sort(std::span<const std::int32_t> options) {
  groups_.clear();
  if (settings_.balance_modules) {
    std::fill(module_count_.begin(), module_count_.end(), 0);
    for (const std::int32_t o : options) {
      ++module_count_[problem_.table_module[problem_.options[o].table]];
    }
  }
  std::fill(group_of_.begin(), group_of_.end(), -1);
  for (std::size_t p = 0; p < options.size(); ++p) {
    const auto& option = problem_.options[options[p]];
    if (option.reach == Reach::uniform) continue;
    const auto position = static_cast<std::int32_t>(p);
    next_[p] = -1;
    const std::int32_t shared = problem_.table_group[option.table];
    if (shared >= 0 && group_of_[shared] >= 0) {
      auto& group = groups_[group_of_[shared]];
      group.storage += option.storage_sum;
      group.perf += option.perf_sum;
      next_[group.last] = position;
      group.last = position;
      continue;
    }
    if (shared >= 0) group_of_[shared] = static_cast<std::int32_t>(groups_.size());
    const std::int32_t modules =
        settings_.balance_modules ? module_count_[problem_.table_module[option.table]] : 0;
    groups_.push_back({option.storage_sum, option.perf_sum, modules, position, position});
  }
  std::sort(groups_.begin(), groups_.end(), [this](const Group& a, const Group& b) {
    if (a.modules != b.modules) return a.modules < b.modules;
    if (sort_by_perf_) {
      if (a.perf != b.perf) return a.perf > b.perf;
    } else if (a.storage != b.storage) {
      return a.storage > b.storage;
    }
    return a.first < b.first;
  });
}

bool Partitioner::place_group(std::span<const std::int32_t> options, const Group& group) {
  const auto& option = problem_.options[options[group.first]];
  const std::int64_t first_shard = shard_begin_[group.first];
  const bool alone = group.first == group.last;
  switch (option.reach) {
    case Reach::device:
      // TorchRec gives each shard of a key-value table a rank of its own.
      if (option.kernel == Kernel::key_value && option.type == ShardingType::column_wise) {
        return place_on_distinct_devices(option, first_shard);
      }
      return place_on_devices(option, first_shard);
    case Reach::host:
      return place_on_host(options, group);
    case Reach::multi_host:
      // TorchRec places a grid on hosts only where it is alone in its group.
      return alone && place_on_hosts(option, first_shard);
    case Reach::uniform:
      break;
  }
  throw std::invalid_argument("a uniform option is in a group");
}

// Each shard on the least loaded rank that has room; the next shard sees its load.
bool Partitioner::place_on_devices(const Option& option, std::int64_t first_shard) {
  for (auto r = option.run_begin; r < option.run_end; ++r) {
    const Run& run = problem_.runs[r];
    for (std::int64_t i = 0; i < run.count; ++i) {
      const std::int32_t rank = devices_.least_loaded(run);
      if (rank < 0) return false;
      devices_.place(rank, run);
      ranks_[first_shard++] = rank;
      if (devices_.load(rank) > limit_) return false;
    }
  }
  return true;
}

bool Partitioner::place_on_distinct_devices(const Option& option, std::int64_t first_shard) {
  if (option.shards > static_cast<std::int64_t>(problem_.ranks())) return false;
  std::fill(taken_.begin(), taken_.end(), 0);
  for (auto r = option.run_begin; r < option.run_end; ++r) {
    const Run& run = problem_.runs[r];
    for (std::int64_t i = 0; i < run.count; ++i) {
      const std::int32_t rank = devices_.least_loaded(run, taken_);
      if (rank < 0) return false;
      devices_.place(rank, run);
      taken_[rank] = 1;
      ranks_[first_shard++] = rank;
      if (devices_.load(rank) > limit_) return false;
    }
  }
  return true;
}

// The least loaded host that can take the whole group.
bool Partitioner::place_on_host(std::span<const std::int32_t> options, const Group& group) {
  // A failed attempt leaves a host as it was, so the loads stand for the whole search.
  const auto loads = devices_.host_loads();
  std::fill(host_tried_.begin(), host_tried_.end(), 0);
  for (std::int64_t attempt = 0; attempt < problem_.hosts; ++attempt) {
    std::int64_t host = -1;
    for (std::int64_t h = 0; h < problem_.hosts; ++h) {
      if ((host < 0 || loads[h] < loads[host]) && !host_tried_[h]) host = h;
    }
    host_tried_[host] = 1;
    if (try_host(options, group, host)) {
      for (std::int64_t i = 0; i < problem_.group_size; ++i) {
        const auto rank = static_cast<std::int32_t>(host * problem_.group_size + i);
        if (devices_.load(rank) > limit_) return false;
      }
      return true;
    }
  }
  return false;
}

// Row shards go to the host's ranks in order, column shards each to its least loaded rank with
// room. All or nothing: on failure the host is as it was.
bool Partitioner::try_host(std::span<const std::int32_t> options, const Group& group,
                           std::int64_t host) {
  const auto begin = static_cast<std::int32_t>(host * problem_.group_size);
  const auto end = static_cast<std::int32_t>(begin + problem_.group_size);
  Storage free;
  for (std::int32_t rank = begin; rank < end; ++rank) free += devices_.free(rank);
  // A sum that does not fit can't be placed; most full hosts are passed over here.
  if (!group.storage.fits_in(free)) return false;

  devices_.save(begin, end, snapshot_);
  for (std::int32_t p = group.first; p >= 0; p = next_[p]) {
    const auto& option = problem_.options[options[p]];
    std::int64_t shard = shard_begin_[p];
    bool placed =
        option.type == ShardingType::table_column_wise ||
        (option.type == ShardingType::table_row_wise && option.shards == problem_.group_size);
    std::int32_t rank = begin;
    for (auto r = option.run_begin; placed && r < option.run_end; ++r) {
      const Run& run = problem_.runs[r];
      for (std::int64_t i = 0; placed && i < run.count; ++i) {
        if (option.type == ShardingType::table_column_wise) {
          rank = -1;
          for (std::int32_t c = begin; c < end; ++c) {
            if ((rank < 0 || devices_.load(c) < devices_.load(rank)) && devices_.fits(c, run)) {
              rank = c;
            }
          }
        }
        placed = rank >= 0 && devices_.fits(rank, run);
        if (!placed) break;
        devices_.place(rank, run);
        ranks_[shard++] = rank;
        if (option.type == ShardingType::table_row_wise) ++rank;
      }
    }
    if (!placed) {
      devices_.restore(snapshot_);
      return false;
    }
  }
  return true;
}

void Partitioner::sort_hosts() {
  std::iota(host_order_.begin(), host_order_.end(), 0);
  const auto loads = devices_.host_loads();
  std::stable_sort(host_order_.begin(), host_order_.end(),
                   [&](std::int64_t a, std::int64_t b) { return loads[a] < loads[b]; });
}

// A grid's columns go to neighbouring hosts in order of load, or round and round when there are
// more columns than hosts.
bool Partitioner::place_on_hosts(const Option& option, std::int64_t first_shard) {
  if (option.shards % problem_.group_size != 0) return false;
  const std::int64_t wanted = option.shards / problem_.group_size;
  sort_hosts();
  const auto hosts = static_cast<std::int64_t>(host_order_.size());
  const std::int64_t last = wanted >= hosts ? 0 : hosts - wanted;
  for (std::int64_t from = 0; from <= last; ++from) {
    if (try_hosts(option, first_shard, std::span(host_order_).subspan(from), wanted)) {
      const auto loads = devices_.loads();
      return *std::max_element(loads.begin(), loads.end()) <= limit_;
    }
  }
  return false;
}

// Shard i of the grid goes to rank i mod group_size of host i / group_size, round and round.
bool Partitioner::try_hosts(const Option& option, std::int64_t first_shard,
                            std::span<const std::int64_t> hosts, std::int64_t wanted) {
  const auto distinct = std::min<std::int64_t>(wanted, hosts.size());
  snapshots_.resize(distinct);
  for (std::int64_t i = 0; i < distinct; ++i) {
    const auto begin = static_cast<std::int32_t>(hosts[i] * problem_.group_size);
    devices_.save(begin, static_cast<std::int32_t>(begin + problem_.group_size), snapshots_[i]);
  }
  std::int64_t shard = 0;
  for (auto r = option.run_begin; r < option.run_end; ++r) {
    const Run& run = problem_.runs[r];
    for (std::int64_t i = 0; i < run.count; ++i, ++shard) {
      const std::int64_t host = hosts[shard / problem_.group_size % distinct];
      const auto rank =
          static_cast<std::int32_t>(host * problem_.group_size + shard % problem_.group_size);
      if (!devices_.fits(rank, run)) {
        for (const auto& snapshot : snapshots_) devices_.restore(snapshot);
        return false;
      }
      devices_.place(rank, run);
      ranks_[first_shard + shard] = rank;
    }
  }
  return true;
}

}  // namespace fastplan
