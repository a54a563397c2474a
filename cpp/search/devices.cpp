#include "search/devices.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace fastplan {
namespace {

// Part by part: a rank's load is the total of summed parts, not the sum of totals, whose last bits
// differ. Input distribution is no part of it.
void add(Perf& sum, const Perf& perf) {
  sum.fwd_compute += perf.fwd_compute;
  sum.fwd_comms += perf.fwd_comms;
  sum.bwd_compute += perf.bwd_compute;
  sum.bwd_comms += perf.bwd_comms;
  sum.prefetch_compute += perf.prefetch_compute;
}

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();
constexpr Storage kNoRoom{kNone, kNone, kNone};

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

// kLargest if `need` does not fit in `room`: a tier is left with less than nothing. 0 otherwise.
std::int64_t barred_without(const Storage& need, const Storage& room) {
  const std::int64_t left = (room.hbm - need.hbm) | (room.ddr - need.ddr) | (room.ssd - need.ssd);
  return (left >> 63) & kLargest;
}

}  // namespace

Devices::Devices(const Problem& problem)
    : problem_(problem),
      perf_(problem.ranks()),
      total_(problem.ranks()),
      free_(problem.ranks()),
      uniform_change_(problem.ranks() + 1),
      leaf_rank_(problem.ranks()),
      rank_leaf_(problem.ranks()),
      ranks_(problem.ranks()),
      rank_stale_(problem.ranks()),
      is_full_(problem.ranks()),
      hosts_(std::max<std::int64_t>(1, problem.hosts)),
      rank_host_(problem.ranks(), -1),
      host_load_(problem.hosts),
      host_room_(problem.hosts),
      host_fresh_(problem.hosts) {
  // TorchRec's order among equal loads: smaller local rank first, then smaller rank.
  std::iota(leaf_rank_.begin(), leaf_rank_.end(), 0);
  std::stable_sort(leaf_rank_.begin(), leaf_rank_.end(), [&](std::int32_t a, std::int32_t b) {
    return a % problem.local_world_size < b % problem.local_world_size;
  });
  for (std::size_t leaf = 0; leaf < leaf_rank_.size(); ++leaf) {
    rank_leaf_[leaf_rank_[leaf]] = static_cast<std::int32_t>(leaf);
  }
  for (std::int64_t rank = 0; rank < problem.hosts * problem.group_size; ++rank) {
    rank_host_[rank] = static_cast<std::int32_t>(rank / problem.group_size);
  }
}

void Devices::reset(std::int64_t hbm) {
  free_ = problem_.capacity;
  if (hbm > 0) {
    for (auto& storage : free_) storage.hbm = hbm;
  }
  placed_.clear();
  uniform_any_ = false;
  uniform_same_ = true;
  uniform_perf_ = {};
  std::fill(uniform_change_.begin(), uniform_change_.end(), Storage{});
  outdate_hosts();
  ranks_ready_ = false;
}

void Devices::outdate_hosts() {
  std::fill(host_fresh_.begin(), host_fresh_.end(), 0);
  stale_hosts_.resize(host_fresh_.size());
  std::iota(stale_hosts_.begin(), stale_hosts_.end(), 0);
  hosts_ready_ = false;
}

// From here on each rank has its own sum, which begins with what all have in common: the same
// additions in the same order.
void Devices::expand() {
  std::fill(perf_.begin(), perf_.end(), uniform_perf_);
  uniform_same_ = false;
}

void Devices::add_uniform(const Option& option) {
  uniform_any_ = true;
  if (uniform_same_ && !option.same_perf) expand();
  if (uniform_same_) add(uniform_perf_, problem_.runs[option.run_begin].perf);
  // Storage by differences: a run adds where it begins and takes away behind its end, and
  // settle_uniform() adds all up once.
  std::int64_t rank = 0;
  for (auto r = option.run_begin; r < option.run_end; ++r) {
    const Run& run = problem_.runs[r];
    uniform_change_[rank] += run.storage;
    if (!uniform_same_) {
      for (std::int64_t i = 0; i < run.count; ++i) add(perf_[rank + i], run.perf);
    }
    rank += run.count;
    uniform_change_[rank] -= run.storage;
  }
}

bool Devices::settle_uniform() {
  if (uniform_same_) std::fill(perf_.begin(), perf_.end(), uniform_perf_);
  Storage used;
  for (std::size_t rank = 0; rank < perf_.size(); ++rank) {
    total_[rank] = perf_[rank].total();
    if (!uniform_any_) continue;
    used += uniform_change_[rank];
    if (!used.fits_in(free_[rank])) return false;
    free_[rank] -= used;
  }
  std::fill(host_room_.begin(), host_room_.end(), Storage{});
  for (std::size_t rank = 0; rank < perf_.size(); ++rank) {
    if (rank_host_[rank] >= 0) host_room_[rank_host_[rank]] += free_[rank];
  }
  return true;
}

void Devices::changed(std::int32_t rank) {
  total_[rank] = perf_[rank].total();
  const std::int32_t host = rank_host_[rank];
  if (host >= 0 && host_fresh_[host]) {
    host_fresh_[host] = 0;
    stale_hosts_.push_back(host);
  }
  if (ranks_ready_ && !rank_stale_[rank]) {
    rank_stale_[rank] = 1;
    stale_ranks_.push_back(rank);
  }
}

void Devices::place(std::int32_t rank, const Run& run) {
  placed_.push_back({perf_[rank], run.storage, rank});
  free_[rank] -= run.storage;
  if (rank_host_[rank] >= 0) host_room_[rank_host_[rank]] -= run.storage;
  add(perf_[rank], run.perf);
  changed(rank);
}

void Devices::undo(std::size_t count) {
  // All totals and a new tournament are cheaper than a path for each of many placements.
  const bool many = placed_.size() - count > leaf_rank_.size() / 4;
  while (placed_.size() > count) {
    const Placed& last = placed_.back();
    perf_[last.rank] = last.before;
    free_[last.rank] += last.storage;
    if (rank_host_[last.rank] >= 0) host_room_[rank_host_[last.rank]] += last.storage;
    if (!many) changed(last.rank);
    placed_.pop_back();
  }
  if (!many) {
    // least_load_of_others() counts on loads that only grow.
    if (ranks_ready_) update_tournament();
    return;
  }
  ranks_ready_ = false;
  for (std::size_t rank = 0; rank < perf_.size(); ++rank) total_[rank] = perf_[rank].total();
  outdate_hosts();
}

std::int32_t Devices::least_loaded(const Run& run, std::span<const std::uint8_t> taken) {
  if (!taken.empty()) {
    std::int32_t best = -1;
    for (const std::int32_t rank : leaf_rank_) {
      if (taken[rank]) continue;
      if ((best < 0 || total_[rank] < total_[best]) && fits(rank, run)) best = rank;
    }
    return best;
  }
  update_tournament();
  std::int32_t leaf = -1;
  while (ranks_.least() < Tournament::kOut) {
    leaf = ranks_.first();
    if (fits(leaf_rank_[leaf], run)) break;
    ranks_.set(leaf, Tournament::kOut);
    full_.push_back(leaf);
    is_full_[leaf] = 1;
    full_room_ = largest_of(full_room_, free_[leaf_rank_[leaf]]);
    leaf = -1;
  }
  if (!full_.empty() && run.storage.fits_in(full_room_)) {
    const std::int32_t full = least_loaded_full(run.storage);
    if (full >= 0 && (leaf < 0 || before(full, leaf))) leaf = full;
  }
  return leaf < 0 ? -1 : leaf_rank_[leaf];
}

// Which ranks have room, and which of them has the least load, changes with every shard. Loads are
// compared as whole numbers, as Tournament does, and a rank without room has the largest one: no
// branch depends on either.
std::int32_t Devices::least_loaded_of_host(const Run& run, std::int32_t host) const {
  const Storage need = run.storage;
  const auto begin = static_cast<std::int32_t>(host * problem_.group_size);
  const auto end = static_cast<std::int32_t>(begin + problem_.group_size);
  std::int64_t least = kLargest;
  std::int32_t best = -1;
  for (std::int32_t rank = begin; rank < end; ++rank) {
    const std::int64_t load =
        std::bit_cast<std::int64_t>(total_[rank]) | barred_without(need, free_[rank]);
    const bool take = load < least;
    least = take ? load : least;
    best = take ? rank : best;
  }
  return best;
}

double Devices::least_load(const Run& run) {
  if (!ranks_ready_) return 0;
  update_tournament();
  const double least = ranks_.least();
  if (full_.empty() || !run.storage.fits_in(full_room_)) return least;
  const std::int32_t full = least_loaded_full(run.storage);
  return full < 0 ? least : std::min(least, total_[leaf_rank_[full]]);
}

void Devices::build_tournament() {
  ranks_.set_all([&](std::size_t leaf) { return total_[leaf_rank_[leaf]]; });
  full_.clear();
  std::fill(is_full_.begin(), is_full_.end(), 0);
  full_room_ = kNoRoom;
  for (const std::int32_t rank : stale_ranks_) rank_stale_[rank] = 0;
  stale_ranks_.clear();
  ranks_ready_ = true;
}

void Devices::update_tournament() {
  if (!ranks_ready_ || stale_ranks_.size() > leaf_rank_.size() / 8) return build_tournament();
  for (const std::int32_t rank : stale_ranks_) {
    rank_stale_[rank] = 0;
    const std::int32_t leaf = rank_leaf_[rank];
    if (is_full_[leaf]) {
      full_room_ = largest_of(full_room_, free_[rank]);
    } else {
      ranks_.set(leaf, total_[rank]);
    }
  }
  stale_ranks_.clear();
}

std::int32_t Devices::least_loaded_full(const Storage& need) {
  std::int32_t best = -1;
  full_room_ = kNoRoom;
  for (const std::int32_t leaf : full_) {
    const Storage& room = free_[leaf_rank_[leaf]];
    full_room_ = largest_of(full_room_, room);
    if (need.fits_in(room) && (best < 0 || before(leaf, best))) best = leaf;
  }
  return best;
}

// Sums of ranks in order, as Python adds them; only hosts that changed since the last time.
std::span<const double> Devices::host_loads() {
  for (const std::int32_t host : stale_hosts_) {
    double sum = 0;
    const std::int64_t begin = host * problem_.group_size;
    for (std::int64_t i = 0; i < problem_.group_size; ++i) sum += total_[begin + i];
    host_load_[host] = sum;
    host_fresh_[host] = 1;
    if (hosts_ready_) hosts_.set(host, sum);
  }
  stale_hosts_.clear();
  if (!hosts_ready_) hosts_.set_all([&](std::size_t host) { return host_load_[host]; });
  hosts_ready_ = true;
  return host_load_;
}

std::int32_t Devices::least_loaded_host(const Storage& need, std::int32_t after) {
  if (problem_.hosts == 0) return -1;
  const auto loads = host_loads();
  if (after < 0 && need.fits_in(host_room_[hosts_.first()])) return hosts_.first();
  // The least loaded host is full: all are looked at.
  const double passed = after < 0 ? 0 : loads[after];
  std::int32_t best = -1;
  for (std::size_t h = 0; h < loads.size(); ++h) {
    const auto host = static_cast<std::int32_t>(h);
    if (best >= 0 && loads[host] >= loads[best]) continue;
    if (after >= 0 && (loads[host] < passed || (loads[host] == passed && host <= after))) continue;
    if (need.fits_in(host_room_[host])) best = host;
  }
  return best;
}

}  // namespace fastplan
