#include "improve/tally.h"

#include <algorithm>

namespace fastplan {

Tally::Tally(const Goal& goal, std::size_t ranks)
    : goal_(goal),
      ranks_(ranks),
      largest_(goal.channels),
      trial_largest_(goal.channels),
      sum_(goal.channels * ranks),
      trial_sum_(sum_.size()),
      stamp_(sum_.size()),
      channel_stamp_(goal.channels),
      count_(goal.charges() * ranks),
      trial_count_(count_.size()) {}

void Tally::clear() {
  begin_trial();
  std::fill(sum_.begin(), sum_.end(), 0);
  std::fill(trial_sum_.begin(), trial_sum_.end(), 0);
  std::fill(count_.begin(), count_.end(), 0);
  std::fill(trial_count_.begin(), trial_count_.end(), 0);
  std::fill(largest_.begin(), largest_.end(), Largest{});
  value_ = options_ = trial_options_ = 0;
}

void Tally::begin_trial() {
  for (const auto& cell : cells_) trial_sum_[at(cell)] = sum_[at(cell)];
  for (const auto cell : counts_) trial_count_[cell] = count_[cell];
  cells_.clear();
  counts_.clear();
  touched_.clear();
  trial_options_ = options_;
  ++trial_;
}

void Tally::add(const Goal::Part& part, std::int32_t shard_rank, std::int64_t sign) {
  const auto rank = goal_.owner(part.channel, shard_rank);
  const auto cell = part.channel * ranks_ + rank;
  if (stamp_[cell] != trial_) {
    stamp_[cell] = trial_;
    cells_.push_back({part.channel, rank});
  }
  trial_sum_[cell] += sign * part.amount;
  if (channel_stamp_[part.channel] != trial_) {
    channel_stamp_[part.channel] = trial_;
    touched_.push_back(part.channel);
  }
}

void Tally::add_shard(std::int64_t run, std::int32_t rank, std::int64_t sign) {
  for (auto p = goal_.run_part_begin[run]; p < goal_.run_part_begin[run + 1]; ++p) {
    add(goal_.parts[p], rank, sign);
  }
  for (auto i = goal_.run_charge_begin[run]; i < goal_.run_charge_begin[run + 1]; ++i) {
    const auto charge = goal_.run_charges[i];
    const auto cell = charge * ranks_ + rank;
    counts_.push_back(cell);
    auto& count = trial_count_[cell];
    const bool was_due = count > 0;
    count += static_cast<std::int32_t>(sign);
    if (was_due == (count > 0)) continue;
    for (auto p = goal_.charge_part_begin[charge]; p < goal_.charge_part_begin[charge + 1]; ++p) {
      add(goal_.charge_parts[p], rank, sign);
    }
  }
}

// An estimate, for the choice among places: a part and a charge of one channel are compared with
// the channel one by one, and the channel may have shrunk in the trial.
std::int64_t Tally::excess(std::int64_t run, std::int32_t rank) const {
  std::int64_t sum = 0;
  const auto over = [&](const Goal::Part& part) {
    const auto owner = goal_.owner(part.channel, rank);
    const auto now = trial_sum_[part.channel * ranks_ + owner] + part.amount;
    if (now > largest_[part.channel].sum) sum += now - largest_[part.channel].sum;
  };
  for (auto p = goal_.run_part_begin[run]; p < goal_.run_part_begin[run + 1]; ++p) {
    over(goal_.parts[p]);
  }
  for (auto i = goal_.run_charge_begin[run]; i < goal_.run_charge_begin[run + 1]; ++i) {
    const auto charge = goal_.run_charges[i];
    if (trial_count_[charge * ranks_ + rank] > 0) continue;
    for (auto p = goal_.charge_part_begin[charge]; p < goal_.charge_part_begin[charge + 1]; ++p) {
      over(goal_.charge_parts[p]);
    }
  }
  return sum;
}

void Tally::add_option(std::int32_t option, std::int64_t sign) {
  trial_options_ += sign * goal_.option_amount[option];
}

// Where the rank that a channel counts with has not shrunk, only ranks that were touched can be
// larger. Else all ranks are looked at.
void Tally::find_trial_largest() {
  for (const auto channel : touched_) {
    const auto now = trial_sum_[channel * ranks_ + largest_[channel].rank];
    trial_largest_[channel] = {now, largest_[channel].rank};
    if (now >= largest_[channel].sum) continue;
    const auto* sums = trial_sum_.data() + channel * ranks_;
    const auto* found = std::max_element(sums, sums + ranks_);
    trial_largest_[channel] = {*found, static_cast<std::int32_t>(found - sums)};
  }
  for (const auto& cell : cells_) {
    auto& largest = trial_largest_[cell.channel];
    if (const auto sum = trial_sum_[at(cell)]; largest.below(sum, cell.rank)) {
      largest = {sum, cell.rank};
    }
  }
}

std::int64_t Tally::trial_value() {
  find_trial_largest();
  std::int64_t value = value_ + trial_options_ - options_;
  for (const auto channel : touched_) {
    value += trial_largest_[channel].sum - largest_[channel].sum;
  }
  return value;
}

void Tally::commit() {
  value_ = trial_value();
  options_ = trial_options_;
  for (const auto channel : touched_) largest_[channel] = trial_largest_[channel];
  for (const auto& cell : cells_) sum_[at(cell)] = trial_sum_[at(cell)];
  for (const auto cell : counts_) count_[cell] = trial_count_[cell];
  begin_trial();
}

std::int32_t Tally::pick_largest_rank(double draw) const {
  auto left = static_cast<std::int64_t>(draw * static_cast<double>(value_ - options_));
  for (const auto& largest : largest_) {
    if (left < largest.sum) return largest.rank;
    left -= largest.sum;
  }
  return largest_.back().rank;
}

std::vector<std::int64_t> Tally::charge_sums() const {
  std::vector<std::int64_t> sums(sum_.size());
  for (std::size_t charge = 0; charge < goal_.charges(); ++charge) {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (count_[charge * ranks_ + rank] == 0) continue;
      for (auto p = goal_.charge_part_begin[charge]; p < goal_.charge_part_begin[charge + 1]; ++p) {
        const auto& part = goal_.charge_parts[p];
        const auto owner = goal_.owner(part.channel, static_cast<std::int32_t>(rank));
        sums[part.channel * ranks_ + owner] += part.amount;
      }
    }
  }
  return sums;
}

}  // namespace fastplan
