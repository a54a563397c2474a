#include "search/custom_objective.h"

#include <limits>

namespace fastplan {
namespace {

void add(RankRecord& rank, const Run& run) {
  rank.fwd_compute += run.perf.fwd_compute;
  rank.fwd_comms += run.perf.fwd_comms;
  rank.bwd_compute += run.perf.bwd_compute;
  rank.bwd_comms += run.perf.bwd_comms;
  rank.input_dist_comms += run.perf.input_dist_comms;
  rank.prefetch_compute += run.perf.prefetch_compute;
  rank.total += run.total;
  rank.hbm += run.storage.hbm;
  rank.ddr += run.storage.ddr;
  rank.ssd += run.storage.ssd;
}

}  // namespace

Objective::Objective(const Problem& problem, ObjectiveFunction function)
    : problem_(problem), function_(function), ranks_(problem.ranks()) {}

// What each rank carries, in plan order, so that an objective which is the largest total gives
// TorchRec's rating to the bit.
void Objective::gather(std::span<const std::int32_t> options, std::span<const std::int32_t> ranks) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank] = {};
    ranks_[rank].host = static_cast<std::int64_t>(rank) / problem_.local_world_size;
  }
  std::size_t shard = 0;
  for (const std::int32_t o : options) {
    const auto& option = problem_.options[o];
    std::size_t uniform_rank = 0;
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      const Run& run = problem_.runs[r];
      for (std::int64_t i = 0; i < run.count; ++i) {
        add(ranks_[option.reach == Reach::uniform ? uniform_rank++ : ranks[shard++]], run);
      }
    }
  }
}

double Objective::rate(std::span<const std::int32_t> options, std::span<const std::int32_t> ranks) {
  gather(options, ranks);
  double rating = std::numeric_limits<double>::quiet_NaN();
  const auto count = static_cast<std::int64_t>(ranks_.size());
  const bool raised = function_(ranks_.data(), count, &rating) == 0;
  // TorchRec would never take a plan that is rated beyond the largest int64.
  if (raised || !(rating >= 0 && rating < kWorstRating)) {
    ObjectiveFailed failed;
    failed.raised = raised;
    failed.rating = rating;
    failed.ranks = ranks_;
    throw failed;
  }
  return rating;
}

}  // namespace fastplan
