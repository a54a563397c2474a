// Something else than the rating to keep small.
#pragma once

#include <cstdint>
#include <vector>

#include "core/problem.h"

namespace fastplan {

// What plans come to: for each channel the largest sum of amounts over ranks, all channels added
// up, and the amounts of the options wherever they lie,
//     value = sum_channel max_r sum { amount : part of a shard on r, of the channel } + sum_t
//     amount(o(t))
// Amounts are in fixed point.
struct Goal {
  struct Part {
    std::int32_t channel = 0;
    std::int64_t amount = 0;
  };
  std::int32_t channels = 0;
  std::vector<std::int64_t> run_part_begin;  // parts of run r: [begin[r], begin[r + 1])
  std::vector<Part> parts;
  std::vector<std::int64_t> option_amount;
};

// Throws OutOfRange where an amount is negative, or amounts of a plan could leave 64 bits.
void check_goal(const Problem& problem, const Goal& goal);

// What a placement comes to, and what a change to it would. Like Assignment: integers, and trials
// on copies of what they touch.
class Tally {
 public:
  Tally(const Goal& goal, std::size_t ranks);

  void clear();
  std::int64_t value() const { return value_; }
  // The rank that a channel counts with.
  std::int32_t largest_rank(std::int32_t channel) const { return largest_[channel].rank; }
  std::int32_t channels() const { return goal_.channels; }

  // A trial: `sign` is 1 for what comes and -1 for what goes.
  void begin_trial();
  void add_shard(std::int64_t run, std::int32_t rank, std::int64_t sign);
  void add_option(std::int32_t option, std::int64_t sign);
  std::int64_t trial_value();
  void commit();

 private:
  struct Largest {
    std::int64_t sum = 0;
    std::int32_t rank = 0;
  };
  Largest trial_largest(std::int32_t channel) const;
  std::int64_t trial_sum(std::size_t cell) const {
    return stamp_[cell] == trial_ ? trial_sum_[cell] : sum_[cell];
  }

  const Goal& goal_;
  std::size_t ranks_;
  std::int64_t value_ = 0, options_ = 0, trial_options_ = 0;
  std::vector<Largest> largest_;               // by channel
  std::vector<std::int64_t> sum_, trial_sum_;  // cells: channel x rank
  std::vector<std::uint64_t> stamp_;           // the trial that touched a cell last
  std::vector<std::uint64_t> channel_stamp_;
  std::uint64_t trial_ = 1;
  std::vector<std::size_t> cells_;     // touched
  std::vector<std::int32_t> touched_;  // channels
};

}  // namespace fastplan
