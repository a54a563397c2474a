#include "improve/goal.h"

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

// The largest option of every table, all on one rank and in one channel: no plan comes to more.
void check_goal(const Problem& problem, const Goal& goal) {
  std::int64_t sum = 0;
  for (std::size_t t = 0; t < problem.tables(); ++t) {
    __int128 largest = 0;
    for (auto o = problem.table_option_begin[t]; o < problem.table_option_begin[t + 1]; ++o) {
      largest = std::max<__int128>(largest, amount_of(problem, goal, o));
    }
    sum = checked_sum(sum + largest, kAmounts);
  }
}

Tally::Tally(const Goal& goal, std::size_t ranks)
    : goal_(goal),
      ranks_(ranks),
      largest_(goal.channels),
      sum_(goal.channels * ranks),
      trial_sum_(sum_.size()),
      stamp_(sum_.size()),
      channel_stamp_(goal.channels) {}

void Tally::clear() {
  std::fill(sum_.begin(), sum_.end(), 0);
  std::fill(largest_.begin(), largest_.end(), Largest{});
  value_ = options_ = 0;
  begin_trial();
}

void Tally::begin_trial() {
  cells_.clear();
  touched_.clear();
  trial_options_ = options_;
  ++trial_;
}

void Tally::add_shard(std::int64_t run, std::int32_t rank, std::int64_t sign) {
  for (auto p = goal_.run_part_begin[run]; p < goal_.run_part_begin[run + 1]; ++p) {
    const auto& part = goal_.parts[p];
    const auto cell = part.channel * ranks_ + rank;
    if (stamp_[cell] != trial_) {
      stamp_[cell] = trial_;
      trial_sum_[cell] = sum_[cell];
      cells_.push_back(cell);
    }
    trial_sum_[cell] += sign * part.amount;
    if (channel_stamp_[part.channel] != trial_) {
      channel_stamp_[part.channel] = trial_;
      touched_.push_back(part.channel);
    }
  }
}

void Tally::add_option(std::int32_t option, std::int64_t sign) {
  trial_options_ += sign * goal_.option_amount[option];
}

// A maximum that shrinks can't be kept up to date: all ranks are looked at, of channels that were
// touched only.
Tally::Largest Tally::trial_largest(std::int32_t channel) const {
  const auto first = channel * ranks_;
  Largest found{trial_sum(first), 0};
  for (std::size_t rank = 1; rank < ranks_; ++rank) {
    const auto sum = trial_sum(first + rank);
    if (sum > found.sum) found = {sum, static_cast<std::int32_t>(rank)};
  }
  return found;
}

std::int64_t Tally::trial_value() {
  std::int64_t value = value_ + trial_options_ - options_;
  for (const auto channel : touched_) {
    value += trial_largest(channel).sum - largest_[channel].sum;
  }
  return value;
}

void Tally::commit() {
  value_ = trial_value();
  options_ = trial_options_;
  for (const auto channel : touched_) largest_[channel] = trial_largest(channel);
  for (const auto cell : cells_) sum_[cell] = trial_sum_[cell];
  begin_trial();
}

}  // namespace fastplan
