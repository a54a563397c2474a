// Something else than the rating to keep small.
#pragma once

#include <cstdint>
#include <vector>

#include "core/problem.h"

namespace fastplan {

// What plans come to: for each channel the largest sum of amounts over ranks, all channels added
// up, and the amounts of the options wherever they lie,
//     value = sum_channel max_r [ sum { amount : part of a shard on r, of the channel }
//                                 + sum { amount : part of a charge due on r, of the channel } ]
//             + sum_t amount(o(t))
// A charge is due on a rank once, however many shards on it bring the charge: tables that one
// kernel looks up share its latency. Amounts are in fixed point.
// Ranks may share what a channel stands for, such as the link of their host: with k =
// channel_ranks, ranks [0, k), [k, 2 k) and so on have one sum each, which counts as that of the
// first of them.
struct Goal {
  struct Part {
    std::int32_t channel = 0;
    std::int64_t amount = 0;
  };
  std::int32_t channels = 0;
  std::vector<std::int32_t> channel_ranks;   // by channel, at least 1
  std::vector<std::int64_t> run_part_begin;  // parts of run r: [begin[r], begin[r + 1])
  std::vector<Part> parts;
  std::vector<std::int64_t> option_amount;
  std::vector<std::int64_t> run_charge_begin;  // charges that a shard of run r brings
  std::vector<std::int32_t> run_charges;
  std::vector<std::int64_t> charge_part_begin;  // parts of charge c
  std::vector<Part> charge_parts;

  std::size_t charges() const { return charge_part_begin.size() - 1; }
  // The rank whose sum counts what a rank adds to a channel.
  std::int32_t owner(std::int32_t channel, std::int32_t rank) const {
    return rank - rank % channel_ranks[channel];
  }
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
