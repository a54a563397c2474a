// The parts of the partitioner that look at a placement when it has ended.
#include <algorithm>

#include "core/exact.h"
#include "search/partition.h"

namespace fastplan {
namespace {

// Two orders of adding the same costs differ by far less than this.
constexpr double kOrderMargin = 1e-9;

}  // namespace

// Placements are in the order of groups, ranks_ is in plan order.
void Partitioner::list_ranks(std::span<const std::int32_t> options) {
  std::int64_t shards = 0;
  for (std::size_t p = 0; p < options.size(); ++p) {
    const auto& option = problem_.options[options[p]];
    shard_begin_[p] = shards;
    if (option.reach != Reach::uniform) shards += option.shards;
  }
  shard_begin_[options.size()] = shards;
  ranks_.resize(shards);
  auto placed = devices_.placed().begin();
  for (const std::int32_t first : order_) {
    for (std::int32_t p = first; p >= 0; p = next_[p]) {
      for (auto s = shard_begin_[p]; s < shard_begin_[p + 1]; ++s) ranks_[s] = (placed++)->rank;
    }
  }
}

std::vector<std::int32_t> Partitioner::partial_ranks() const {
  if (settings_.memory_balanced || !uniform_fits_ || marks_.size() > order_.size()) return {};
  const std::int32_t failed = order_[marks_.size() - 1];
  if (pieces_[failed].reach != Reach::device || next_[failed] >= 0) return {};
  return ranks_of_groups(marks_.size());
}

std::vector<std::int32_t> Partitioner::ranks_before_failure() const {
  if (settings_.memory_balanced || !uniform_fits_ || marks_.size() > order_.size()) return {};
  return ranks_of_groups(marks_.size() - 1);
}

// Ranks of all shards that are not uniform, in plan order: of the first `groups` groups as far as
// they are placed, -1 for the others.
std::vector<std::int32_t> Partitioner::ranks_of_groups(std::size_t groups) const {
  std::vector<std::int64_t> begin(options_.size() + 1);
  for (std::size_t p = 0; p < options_.size(); ++p) {
    begin[p + 1] = begin[p] + (pieces_[p].reach == Reach::uniform ? 0 : pieces_[p].shards);
  }
  std::vector<std::int32_t> ranks(begin.back(), -1);
  auto placed = devices_.placed().begin();
  for (std::size_t g = 0; g < groups; ++g) {
    for (std::int32_t p = order_[g]; p >= 0; p = next_[p]) {
      for (auto s = begin[p]; s < begin[p + 1] && placed != devices_.placed().end(); ++s) {
        ranks[s] = (placed++)->rank;
      }
    }
  }
  return ranks;
}

// The sums must be taken in plan order to agree to the bit, but only ranks that may be the largest
// need one: a slot each. The devices' loads, the same costs in another order, say which.
double Partitioner::rate(std::span<const std::int32_t> options) const {
  const auto loads = devices_.loads();
  const double near = *std::max_element(loads.begin(), loads.end()) * (1 - kOrderMargin);
  constexpr std::int32_t kNone = -1;
  bool same = true;
  for (const std::int32_t o : options) {
    const auto& option = problem_.options[o];
    same = same && (option.reach != Reach::uniform || option.same_perf);
  }
  slot_.assign(loads.size(), kNone);
  if (same) {
    // Ranks that hold uniform shards only all have one and the same sum: slot 0.
    for (const std::int32_t rank : ranks_) slot_[rank] = 0;
  }
  std::int32_t slots = same ? 1 : 0;
  for (std::size_t rank = 0; rank < loads.size(); ++rank) {
    const bool alike = same && slot_[rank] == kNone;
    if (alike) {
      slot_[rank] = 0;
    } else {
      slot_[rank] = loads[rank] >= near ? slots++ : kNone;
    }
  }
  sums_.assign(slots, 0.0);
  for (std::size_t p = 0; p < options.size(); ++p) {
    const auto& option = problem_.options[options[p]];
    std::int64_t shard = shard_begin_[p];
    if (option.reach == Reach::uniform && same) {
      const double total = problem_.runs[option.run_begin].total;
      for (double& sum : sums_) sum += total;
      continue;
    }
    std::int64_t uniform_rank = 0;
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      const Run& run = problem_.runs[r];
      for (std::int64_t i = 0; i < run.count; ++i) {
        const std::int64_t rank = option.reach == Reach::uniform ? uniform_rank++ : ranks_[shard++];
        if (slot_[rank] != kNone) sums_[slot_[rank]] += run.total;
      }
    }
  }
  return *std::max_element(sums_.begin(), sums_.end());
}

// The hbm of the fullest rank, of all shards together, and of the largest shard.
std::int64_t Partitioner::largest_hbm(std::span<const std::int32_t> options, std::int64_t& total,
                                      std::int64_t& largest_shard) const {
  std::vector<std::int64_t> used(problem_.ranks(), 0);
  total = 0;
  largest_shard = 0;
  for (std::size_t p = 0; p < options.size(); ++p) {
    const auto& option = problem_.options[options[p]];
    std::int64_t shard = shard_begin_[p];
    std::int64_t uniform_rank = 0;
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      const Run& run = problem_.runs[r];
      largest_shard = std::max(largest_shard, run.storage.hbm);
      for (std::int64_t i = 0; i < run.count; ++i) {
        const std::int64_t rank = option.reach == Reach::uniform ? uniform_rank++ : ranks_[shard++];
        used[rank] += run.storage.hbm;
        total += run.storage.hbm;
      }
    }
  }
  return *std::max_element(used.begin(), used.end());
}

// Searches for the least hbm per rank whose greedy plan costs little more than the first one: a
// bisection between what must be there, the average and the largest shard, and what the first plan
// uses. The steps, and the 10 MiB at which they end, are TorchRec's.
Outcome Partitioner::memory_balanced(std::span<const std::int32_t> options) {
  if (greedy(options, 0, kNoLimit) != Outcome::placed) return Outcome::failed;
  const double original = rate(options);
  std::vector<std::int32_t> best = ranks_;
  rating_ = original;

  std::int64_t total = 0;
  std::int64_t largest_shard = 0;
  std::int64_t high = largest_hbm(options, total, largest_shard);
  const auto average =
      static_cast<std::int64_t>(static_cast<double>(total) / static_cast<double>(problem_.ranks()));
  std::int64_t low = std::max(average, largest_shard);
  constexpr std::int64_t kCloseEnough = 10 * 1024 * 1024;
  const double worst = original * (1 + settings_.tolerance);
  for (std::int64_t n = 0; n < settings_.max_search_count && low + kCloseEnough < high; ++n) {
    const std::int64_t middle = (high + low) / 2;
    bool accepted = false;
    // An attempt that costs too much is refused like one that fails, so it can end early.
    if (greedy(options, middle, worst * (1 + kOrderMargin)) == Outcome::placed) {
      const double rating = rate(options);
      if (!(rating > worst)) {
        accepted = true;
        best = ranks_;
        rating_ = rating;
      }
    }
    (accepted ? high : low) = middle;
  }
  ranks_ = best;
  return Outcome::placed;
}

}  // namespace fastplan
