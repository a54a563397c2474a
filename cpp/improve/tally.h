// What a placement comes to by a goal, and what a change to it would.
#pragma once

#include <cstdint>
#include <vector>

#include "search/goal.h"

namespace fastplan {

// Like Assignment: integers, and trials on copies of what they touch.
class Tally {
 public:
  Tally(const Goal& goal, std::size_t ranks);

  void clear();
  std::int64_t value() const { return value_; }
  // The rank that a channel counts with. The channel is picked with probability
  //     largest sum of the channel / largest sums of all channels,
  // since where little is counted, little can be gained. `draw` is in [0, 1).
  std::int32_t pick_largest_rank(double draw) const;
  std::int32_t channels() const { return goal_.channels; }
  // By channel and rank: all amounts, and those of charges alone.
  const std::vector<std::int64_t>& sums() const { return sum_; }
  std::vector<std::int64_t> charge_sums() const;

  // A trial: `sign` is 1 for what comes and -1 for what goes.
  void begin_trial();
  void add_shard(std::int64_t run, std::int32_t rank, std::int64_t sign);
  void add_option(std::int32_t option, std::int64_t sign);
  // How much a shard more on a rank of the trial would put above what channels count now.
  std::int64_t excess(std::int64_t run, std::int32_t rank) const;
  std::int64_t trial_value();
  void commit();

 private:
  struct Largest {
    std::int64_t sum = 0;
    std::int32_t rank = 0;
    // Of equal sums the first rank counts.
    bool below(std::int64_t other, std::int32_t other_rank) const {
      return other > sum || (other == sum && other_rank < rank);
    }
  };
  struct Cell {
    std::int32_t channel = 0;
    std::int32_t rank = 0;
  };
  std::size_t at(const Cell& cell) const { return cell.channel * ranks_ + cell.rank; }
  void add(const Goal::Part& part, std::int32_t shard_rank, std::int64_t sign);
  void find_trial_largest();

  const Goal& goal_;
  std::size_t ranks_;
  std::int64_t value_ = 0, options_ = 0, trial_options_ = 0;
  std::vector<Largest> largest_, trial_largest_;  // by channel
  // Cells are channel x rank. Cells that a trial has not touched are equal in both.
  std::vector<std::int64_t> sum_, trial_sum_;
  std::vector<std::uint64_t> stamp_;  // the trial that touched a cell last
  std::vector<std::uint64_t> channel_stamp_;
  std::uint64_t trial_ = 1;
  std::vector<Cell> cells_;            // touched
  std::vector<std::int32_t> touched_;  // channels
  // The same for charge x rank: how many shards bring the charge.
  std::vector<std::int32_t> count_, trial_count_;
  std::vector<std::size_t> counts_;  // touched, some twice
};

}  // namespace fastplan
