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
  std::span<const Part> run_parts(std::int64_t run) const {
    return {parts.data() + run_part_begin[run], parts.data() + run_part_begin[run + 1]};
  }
  std::span<const std::int32_t> charges_of(std::int64_t run) const {
    return {run_charges.data() + run_charge_begin[run],
            run_charges.data() + run_charge_begin[run + 1]};
  }
  std::span<const Part> parts_of(std::int32_t charge) const {
    return {charge_parts.data() + charge_part_begin[charge],
            charge_parts.data() + charge_part_begin[charge + 1]};
  }
  // The rank whose sum counts what a rank adds to a channel.
  std::int32_t owner(std::int32_t channel, std::int32_t rank) const {
    return rank - rank % channel_ranks[channel];
  }
};

// Throws OutOfRange where an amount is negative, or amounts of a plan could leave 64 bits.
void check_goal(const Problem& problem, const Goal& goal);

// What a plan comes to by a goal while its shards are placed one after another. Reusable: counts
// many plans without allocating, each from where it differs from the one before. A run of uniform
// shards is two additions by part, however many ranks it spans.
class GoalCounter {
 public:
  GoalCounter(const Problem& problem, const Goal& goal);

  // Of the next plan, from start() or undo() on: its options, what it comes to at least by channel
  // (none: not known), and the limit above which it may be given up.
  void expect(std::span<const std::int32_t> options, std::span<const std::int64_t> least,
              double limit);
  // Forgets all shards and places the uniform ones of `options`.
  void start(std::span<const std::int32_t> options);
  // Places a shard of a run. Not for uniform ones.
  void place(std::int64_t run, std::int32_t rank);
  // Takes back all shards but the uniform ones and the first `count`.
  void undo(std::size_t count);

  // No plan that goes on from here comes to less; of a whole plan, this is what it comes to.
  std::int64_t value() const { return value_; }
  bool exceeds_limit() const { return static_cast<double>(value_) > limit_; }

  // Of a whole plan from the start: `options` by plan position, `ranks` of shards that are not
  // uniform.
  std::int64_t value(std::span<const std::int32_t> options, std::span<const std::int32_t> ranks);

 private:
  // What is needed to take a shard back.
  struct Placed {
    std::int64_t run = 0;
    std::int32_t rank = 0;
  };
  // Ranks are rows: what one shard adds to is close together.
  std::int64_t& sum(std::int32_t channel, std::int32_t rank) {
    const auto row = static_cast<std::size_t>(shared_ ? goal_.owner(channel, rank) : rank);
    return sum_[row * channels_ + channel];
  }
  void add(std::span<const Goal::Part> parts, std::int32_t rank);
  void count(std::int32_t channel, std::int64_t sum) {
    auto& counted = counted_[channel];
    if (sum <= counted) return;
    value_ += sum - counted;
    counted = sum;
  }
  void add_uniform(std::int64_t run, std::int64_t first, std::int64_t end);
  void settle_uniform();
  void take_expected();

  const Problem& problem_;
  const Goal& goal_;
  std::size_t ranks_, channels_, charges_;
  bool shared_ = false;  // whether ranks share a channel
  // By rank and channel: sums of amounts; by rank and charge: how many shards bring the charge.
  std::vector<std::int64_t> sum_;
  std::vector<std::int32_t> due_;
  std::vector<std::int64_t> counted_;  // by channel: the largest sum, or what is expected if more
  std::vector<std::int64_t> least_;
  std::int64_t of_options_ = 0;
  double limit_;
  std::int64_t value_ = 0;
  std::vector<Placed> placed_, again_;
  // With uniform shards only.
  std::vector<std::int64_t> uniform_sum_;
  std::vector<std::int32_t> uniform_due_;
};

}  // namespace fastplan
