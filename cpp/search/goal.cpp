#include "search/goal.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

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
      ranks_(problem.ranks()),
      channels_(goal.channels),
      charges_(goal.charges()),
      sum_((ranks_ + 1) * channels_),
      due_((ranks_ + 1) * charges_),
      counted_(channels_),
      least_(channels_),
      limit_(std::numeric_limits<double>::infinity()) {
  shared_ = std::ranges::any_of(goal.channel_ranks, [](std::int32_t ranks) { return ranks > 1; });
}

void GoalCounter::expect(std::span<const std::int32_t> options, std::span<const std::int64_t> least,
                         double limit) {
  if (least.empty()) {
    std::ranges::fill(least_, 0);
  } else {
    least_.assign(least.begin(), least.end());
  }
  of_options_ = 0;
  for (const std::int32_t o : options) of_options_ += goal_.option_amount[o];
  limit_ = limit;
}

// Largest sums only grow while shards are placed, and end at what is expected or above.
void GoalCounter::take_expected() {
  counted_ = least_;
  for (std::size_t i = 0; i < ranks_ * channels_; i += channels_) {
    for (std::size_t c = 0; c < channels_; ++c) counted_[c] = std::max(counted_[c], sum_[i + c]);
  }
  value_ = std::reduce(counted_.begin(), counted_.end(), of_options_);
}

void GoalCounter::start(std::span<const std::int32_t> options) {
  placed_.clear();
  std::ranges::fill(sum_, 0);
  std::ranges::fill(due_, 0);
  for (const std::int32_t o : options) {
    const auto& option = problem_.options[o];
    if (option.reach != Reach::uniform) continue;
    std::int64_t rank = 0;
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      add_uniform(r, rank, rank + problem_.runs[r].count);
      rank += problem_.runs[r].count;
    }
  }
  settle_uniform();
  uniform_sum_ = sum_;
  uniform_due_ = due_;
  take_expected();
}

// By differences: a run adds where it begins and takes away behind its end, and settle_uniform()
// adds all up once.
void GoalCounter::add_uniform(std::int64_t run, std::int64_t first, std::int64_t end) {
  for (const auto& part : goal_.run_parts(run)) {
    sum_[first * channels_ + part.channel] += part.amount;
    sum_[end * channels_ + part.channel] -= part.amount;
  }
  for (const auto charge : goal_.charges_of(run)) {
    ++due_[first * charges_ + charge];
    --due_[end * charges_ + charge];
  }
}

void GoalCounter::settle_uniform() {
  for (std::size_t i = channels_; i < ranks_ * channels_; ++i) sum_[i] += sum_[i - channels_];
  for (std::size_t i = charges_; i < ranks_ * charges_; ++i) due_[i] += due_[i - charges_];
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    const auto at = static_cast<std::int32_t>(rank);
    for (std::size_t charge = 0; charge < charges_; ++charge) {
      if (due_[rank * charges_ + charge] == 0) continue;
      for (const auto& part : goal_.parts_of(static_cast<std::int32_t>(charge))) {
        sum_[rank * channels_ + part.channel] += part.amount;
      }
    }
    // What ranks share counts with the first of them, which comes before.
    for (std::size_t c = 0; shared_ && c < channels_; ++c) {
      const auto channel = static_cast<std::int32_t>(c);
      if (goal_.owner(channel, at) == at) continue;
      sum(channel, at) += std::exchange(sum_[rank * channels_ + c], 0);
    }
  }
}

// Hardly ever do ranks share a channel: what a shard adds to is then in one row.
void GoalCounter::add(std::span<const Goal::Part> parts, std::int32_t rank) {
  if (shared_) {
    for (const auto& part : parts) count(part.channel, sum(part.channel, rank) += part.amount);
    return;
  }
  auto* row = sum_.data() + static_cast<std::size_t>(rank) * channels_;
  for (const auto& part : parts) count(part.channel, row[part.channel] += part.amount);
}

void GoalCounter::place(std::int64_t run, std::int32_t rank) {
  placed_.push_back({run, rank});
  add(goal_.run_parts(run), rank);
  auto* due = due_.data() + static_cast<std::size_t>(rank) * charges_;
  for (const auto charge : goal_.charges_of(run)) {
    if (due[charge]++ == 0) add(goal_.parts_of(charge), rank);
  }
}

// Of many shards, to place those that stay is cheaper than to take the others back.
void GoalCounter::undo(std::size_t count) {
  if (placed_.size() > 2 * count) {
    again_.assign(placed_.begin(), placed_.begin() + static_cast<std::ptrdiff_t>(count));
    placed_.clear();
    sum_ = uniform_sum_;
    due_ = uniform_due_;
    for (const auto& shard : again_) place(shard.run, shard.rank);
  }
  for (; placed_.size() > count; placed_.pop_back()) {
    const auto [run, rank] = placed_.back();
    for (const auto& part : goal_.run_parts(run)) sum(part.channel, rank) -= part.amount;
    for (const auto charge : goal_.charges_of(run)) {
      if (--due_[rank * charges_ + charge] > 0) continue;
      for (const auto& part : goal_.parts_of(charge)) sum(part.channel, rank) -= part.amount;
    }
  }
  take_expected();
}

std::int64_t GoalCounter::value(std::span<const std::int32_t> options,
                                std::span<const std::int32_t> ranks) {
  expect(options, {}, std::numeric_limits<double>::infinity());
  start(options);
  std::size_t shard = 0;
  for (const std::int32_t o : options) {
    const auto& option = problem_.options[o];
    if (option.reach == Reach::uniform) continue;
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      for (std::int64_t i = 0; i < problem_.runs[r].count; ++i) place(r, ranks[shard++]);
    }
  }
  return value_;
}

}  // namespace fastplan
