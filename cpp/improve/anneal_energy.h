// How far a rank is over its limits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/problem.h"
#include "improve/choices.h"

namespace fastplan {

// A plan that fits and costs no more than the target on any rank has no energy. A rank that is over
// its memory by some part of the average rank's counts like one over its cost by that part of the
// target:
//     w(tier) = target R / capacity(tier)
class Limits {
 public:
  Limits(const Problem& problem, std::int64_t target) : problem_(&problem), target_(target) {
    // Where plans cost nothing, memory counts all the same.
    const auto unit = static_cast<double>(std::max<std::int64_t>(target, 1));
    const auto weight = [&](std::int64_t sum) {
      return unit * static_cast<double>(problem.ranks()) /
             static_cast<double>(std::max<std::int64_t>(sum, 1));
    };
    hbm_ = weight(problem.room.hbm);
    ddr_ = weight(problem.room.ddr);
    ssd_ = weight(problem.room.ssd);
  }

  std::int64_t target() const { return target_; }

  double energy(std::int32_t rank, const Load& load) const {
    const auto& capacity = problem_->capacity[rank];
    double sum = 0;
    if (load.cost > target_) sum += static_cast<double>(load.cost - target_);
    if (load.storage.hbm > capacity.hbm) {
      sum += hbm_ * static_cast<double>(load.storage.hbm - capacity.hbm);
    }
    if (load.storage.ddr > capacity.ddr) {
      sum += ddr_ * static_cast<double>(load.storage.ddr - capacity.ddr);
    }
    if (load.storage.ssd > capacity.ssd) {
      sum += ssd_ * static_cast<double>(load.storage.ssd - capacity.ssd);
    }
    return sum;
  }

  // Memory as cost: the largest part of an average rank that a shard takes.
  double memory(const Storage& storage) const {
    return std::max({hbm_ * static_cast<double>(storage.hbm),
                     ddr_ * static_cast<double>(storage.ddr),
                     ssd_ * static_cast<double>(storage.ssd)});
  }

 private:
  const Problem* problem_;
  std::int64_t target_;
  double hbm_ = 0, ddr_ = 0, ssd_ = 0;
};

}  // namespace fastplan
