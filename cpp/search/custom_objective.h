// Objectives that users bring in place of the largest rank: compiled elsewhere, called by address.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "core/problem.h"

namespace fastplan {

// What an objective may read of a rank. The names are public, as those of ShardRecord.
struct RankRecord {
  // Sums over the rank's shards in plan order.
  double fwd_compute, fwd_comms, bwd_compute, bwd_comms, input_dist_comms, prefetch_compute;
  double total;  // what TorchRec rates a plan by, when it is the largest
  std::int64_t hbm, ddr, ssd;
  std::int64_t host;
};

// Returns whether the plan was rated, rather than raising.
using ObjectiveFunction = std::int64_t (*)(const RankRecord* ranks, std::int64_t count,
                                           double* rating);

// An objective raised, or gave what is no rating.
struct ObjectiveFailed : std::exception {
  bool raised = false;
  double rating = 0;
  std::vector<RankRecord> ranks;

  const char* what() const noexcept override { return "a custom objective failed"; }
};

// Reusable: rates many plans without allocating.
class Objective {
 public:
  Objective(const Problem& problem, ObjectiveFunction function);

  // The rating of `options` by plan position; `ranks` are those of shards that are not uniform.
  // Throws ObjectiveFailed.
  double rate(std::span<const std::int32_t> options, std::span<const std::int32_t> ranks);

 private:
  void gather(std::span<const std::int32_t> options, std::span<const std::int32_t> ranks);

  const Problem& problem_;
  ObjectiveFunction function_;
  std::vector<RankRecord> ranks_;
};

}  // namespace fastplan
