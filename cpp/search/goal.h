// Something else than the rating to keep small.
#pragma once

#include <cstdint>
#include <span>
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

// What plans come to by a goal, counted from the start for each. Reusable: counts many without
// allocating. A run of shards on neighbouring ranks is two additions, however many ranks it spans.
class GoalCounter {
 public:
  GoalCounter(const Problem& problem, const Goal& goal);

  // `options` are by plan position, `ranks` those of shards that are not uniform.
  std::int64_t value(std::span<const std::int32_t> options, std::span<const std::int32_t> ranks);

 private:
  void add_shards(std::int64_t run, std::int64_t first, std::int64_t end);
  void add(const Goal::Part& part, std::int64_t first, std::int64_t end);
  void add_charges();
  std::int64_t take_largest(std::int32_t channel);

  const Problem& problem_;
  const Goal& goal_;
  std::size_t stride_;  // ranks and an end
  // Differences between neighbouring ranks, by channel and rank: sums of amounts; by charge and
  // rank: how many shards bring the charge.
  std::vector<std::int64_t> sum_;
  std::vector<std::int32_t> due_;
  std::vector<std::uint8_t> channel_used_, charge_used_;
};

}  // namespace fastplan
