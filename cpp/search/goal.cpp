#include "search/goal.h"

#include <algorithm>

#include "core/exact.h"

namespace fastplan {
namespace {

constexpr const char* kAmounts = "the amounts of a goal";

__int128 amount(std::int64_t value) {
  if (value < 0) throw OutOfRange(std::string(kAmounts) + " must not be negative");
  return value;
}

std::int64_t amount_of(const Problem& problem, const Goal& goal, std::size_t o) {
  const auto& option = problem.options[o];
  auto sum = checked_sum(amount(goal.option_amount[o]), kAmounts);
  for (auto r = option.run_begin; r < option.run_end; ++r) {
    for (auto p = goal.run_part_begin[r]; p < goal.run_part_begin[r + 1]; ++p) {
      const auto shards = problem.runs[r].count * amount(goal.parts[p].amount);
      sum = checked_sum(sum + shards, kAmounts);
    }
  }
  return sum;
}

}  // namespace

// The largest option of every table, all on one rank and in one channel, and every charge on the
// rank that each of its channels counts with: no plan comes to more.
void check_goal(const Problem& problem, const Goal& goal) {
  std::int64_t sum = 0;
  for (std::size_t t = 0; t < problem.tables(); ++t) {
    __int128 largest = 0;
    for (auto o = problem.table_option_begin[t]; o < problem.table_option_begin[t + 1]; ++o) {
      largest = std::max<__int128>(largest, amount_of(problem, goal, o));
    }
    sum = checked_sum(sum + largest, kAmounts);
  }
  for (const auto& part : goal.charge_parts) {
    sum = checked_sum(sum + amount(part.amount), kAmounts);
  }
}

GoalCounter::GoalCounter(const Problem& problem, const Goal& goal)
    : problem_(problem),
      goal_(goal),
      stride_(problem.ranks() + 1),
      sum_(goal.channels * stride_),
      due_(goal.charges() * stride_),
      channel_used_(goal.channels),
      charge_used_(goal.charges()) {}

std::int64_t GoalCounter::value(std::span<const std::int32_t> options,
                                std::span<const std::int32_t> ranks) {
  std::int64_t value = 0;
  std::size_t shard = 0;
  for (const std::int32_t o : options) {
    const auto& option = problem_.options[o];
    value += goal_.option_amount[o];
    std::int64_t uniform_rank = 0;
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      const auto count = problem_.runs[r].count;
      if (option.reach == Reach::uniform) {
        add_shards(r, uniform_rank, uniform_rank + count);
        uniform_rank += count;
        continue;
      }
      for (std::int64_t i = 0; i < count; ++i, ++shard)
        add_shards(r, ranks[shard], ranks[shard] + 1);
    }
  }
  add_charges();
  for (std::int32_t channel = 0; channel < goal_.channels; ++channel) {
    if (channel_used_[channel]) value += take_largest(channel);
  }
  return value;
}

// The largest sum of a channel, over ranks that share one; leaves the channel empty.
std::int64_t GoalCounter::take_largest(std::int32_t channel) {
  channel_used_[channel] = 0;
  auto* differences = sum_.data() + channel * stride_;
  const auto shared = static_cast<std::size_t>(goal_.channel_ranks[channel]);
  std::int64_t of_rank = 0, largest = 0, sum = 0;
  for (std::size_t rank = 0; rank < stride_; ++rank) {
    if (rank % shared == 0) sum = 0;
    of_rank += differences[rank];
    sum += of_rank;
    largest = std::max(largest, sum);
    differences[rank] = 0;
  }
  return largest;
}

void GoalCounter::add(const Goal::Part& part, std::int64_t first, std::int64_t end) {
  auto* sums = sum_.data() + part.channel * stride_;
  sums[first] += part.amount;
  sums[end] -= part.amount;
  channel_used_[part.channel] = 1;
}

void GoalCounter::add_shards(std::int64_t run, std::int64_t first, std::int64_t end) {
  for (auto p = goal_.run_part_begin[run]; p < goal_.run_part_begin[run + 1]; ++p) {
    add(goal_.parts[p], first, end);
  }
  for (auto i = goal_.run_charge_begin[run]; i < goal_.run_charge_begin[run + 1]; ++i) {
    const auto charge = goal_.run_charges[i];
    ++due_[charge * stride_ + first];
    --due_[charge * stride_ + end];
    charge_used_[charge] = 1;
  }
}

// A charge is due on neighbouring ranks mostly: each such range is added once.
void GoalCounter::add_charges() {
  for (std::size_t charge = 0; charge < charge_used_.size(); ++charge) {
    if (!charge_used_[charge]) continue;
    charge_used_[charge] = 0;
    auto* due = due_.data() + charge * stride_;
    std::int64_t count = 0, first = -1;
    for (std::size_t rank = 0; rank < stride_; ++rank) {
      count += due[rank];
      due[rank] = 0;
      if (count > 0 && first < 0) first = static_cast<std::int64_t>(rank);
      if (count > 0 || first < 0) continue;
      for (auto p = goal_.charge_part_begin[charge]; p < goal_.charge_part_begin[charge + 1]; ++p) {
        add(goal_.charge_parts[p], first, static_cast<std::int64_t>(rank));
      }
      first = -1;
    }
  }
}

}  // namespace fastplan
