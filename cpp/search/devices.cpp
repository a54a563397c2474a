#include "search/devices.h"

#include <algorithm>
#include <bit>
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

}  // namespace

Devices::Devices(const Problem& problem)
    : problem_(problem),
      perf_(problem.ranks()),
      total_(problem.ranks()),
      free_(problem.ranks()),
      uniform_change_(problem.ranks() + 1),
      leaf_rank_(problem.ranks()),
      rank_leaf_(problem.ranks()),
      leaf_load_(problem.ranks()),
      host_load_(problem.hosts),
      host_fresh_(problem.hosts) {
  // TorchRec's order among equal loads: smaller local rank first, then smaller rank.
  std::iota(leaf_rank_.begin(), leaf_rank_.end(), 0);
  std::stable_sort(leaf_rank_.begin(), leaf_rank_.end(), [&](std::int32_t a, std::int32_t b) {
    return a % problem.local_world_size < b % problem.local_world_size;
  });
  for (std::size_t leaf = 0; leaf < leaf_rank_.size(); ++leaf) {
    rank_leaf_[leaf_rank_[leaf]] = static_cast<std::int32_t>(leaf);
  }
  leaves_ = std::bit_ceil(problem.ranks());
  winner_.resize(2 * leaves_);
}

// Hosts' sums and the tournament are made when somebody asks: many proposals fail before.
void Devices::reset(std::int64_t hbm) {
  free_ = problem_.capacity;
  if (hbm > 0) {
    for (auto& storage : free_) storage.hbm = hbm;
  }
  uniform_any_ = false;
  uniform_same_ = true;
  uniform_perf_ = {};
  std::fill(uniform_change_.begin(), uniform_change_.end(), Storage{});
  std::fill(host_fresh_.begin(), host_fresh_.end(), 0);
  stale_hosts_.resize(host_fresh_.size());
  std::iota(stale_hosts_.begin(), stale_hosts_.end(), 0);
  tree_ready_ = false;
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
  return true;
}

void Devices::changed(std::int32_t rank) {
  total_[rank] = perf_[rank].total();
  const std::int64_t host = rank / problem_.group_size;
  if (host < problem_.hosts && host_fresh_[host]) {
    host_fresh_[host] = 0;
    stale_hosts_.push_back(host);
  }
  if (!tree_ready_) return;
  leaf_load_[rank_leaf_[rank]] = total_[rank];
  for (std::size_t node = (leaves_ + rank_leaf_[rank]) / 2; node > 0; node /= 2) play(node);
}

void Devices::play(std::size_t node) {
  const std::int32_t left = winner_[2 * node];
  const std::int32_t right = winner_[2 * node + 1];
  // Equal loads go to the left, which comes first in tie order.
  winner_[node] = right < 0 || leaf_load_[left] <= leaf_load_[right] ? left : right;
}

void Devices::place(std::int32_t rank, const Run& run) {
  free_[rank] -= run.storage;
  add(perf_[rank], run.perf);
  changed(rank);
}

void Devices::build_tree() {
  const auto ranks = leaf_rank_.size();
  for (std::size_t leaf = 0; leaf < leaves_; ++leaf) {
    winner_[leaves_ + leaf] = leaf < ranks ? static_cast<std::int32_t>(leaf) : -1;
    if (leaf < ranks) leaf_load_[leaf] = total_[leaf_rank_[leaf]];
  }
  for (std::size_t node = leaves_ - 1; node > 0; --node) play(node);
  tree_ready_ = true;
}

std::int32_t Devices::least_loaded(const Run& run, std::span<const std::uint8_t> taken) {
  if (taken.empty()) {
    if (!tree_ready_) build_tree();
    const std::int32_t rank = leaf_rank_[winner_[1]];
    if (fits(rank, run)) return rank;
  }
  // The least loaded rank is full, which is rare: all are looked at.
  std::int32_t best = -1;
  for (const std::int32_t rank : leaf_rank_) {
    if (!taken.empty() && taken[rank]) continue;
    if ((best < 0 || total_[rank] < total_[best]) && fits(rank, run)) best = rank;
  }
  return best;
}

// Sums of ranks in order, as Python adds them; only hosts that changed since the last time.
std::span<const double> Devices::host_loads() {
  for (const std::int64_t host : stale_hosts_) {
    double sum = 0;
    const std::int64_t begin = host * problem_.group_size;
    for (std::int64_t i = 0; i < problem_.group_size; ++i) sum += total_[begin + i];
    host_load_[host] = sum;
    host_fresh_[host] = 1;
  }
  stale_hosts_.clear();
  return host_load_;
}

void Devices::save(std::int32_t begin, std::int32_t end, Snapshot& snapshot) const {
  snapshot.begin = begin;
  snapshot.perf.assign(perf_.begin() + begin, perf_.begin() + end);
  snapshot.free.assign(free_.begin() + begin, free_.begin() + end);
}

// Puts back the saved sums themselves: subtracting what was added would leave rounding behind.
void Devices::restore(const Snapshot& snapshot) {
  for (std::size_t i = 0; i < snapshot.perf.size(); ++i) {
    const auto rank = static_cast<std::int32_t>(snapshot.begin + i);
    perf_[rank] = snapshot.perf[i];
    free_[rank] = snapshot.free[i];
    changed(rank);
  }
}

}  // namespace fastplan
