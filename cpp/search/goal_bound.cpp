#include "search/goal_bound.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

namespace fastplan {

GoalMean::GoalMean(const Problem& problem, const Goal& goal)
    : problem_(problem), goal_(goal), option_all_(problem.options.size()) {
  for (std::size_t o = 0; o < problem.options.size(); ++o) {
    const auto& option = problem.options[o];
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      std::int64_t shard = 0;
      for (auto p = goal.run_part_begin[r]; p < goal.run_part_begin[r + 1]; ++p) {
        shard += goal.parts[p].amount;
      }
      option_all_[o] += shard * problem.runs[r].count;
    }
  }
}

void GoalMean::change(std::int32_t before, std::int32_t after) {
  if (before >= 0) {
    all_ -= option_all_[before];
    own_ -= goal_.option_amount[before];
    storage_ -= problem_.options[before].storage_sum;
  }
  all_ += option_all_[after];
  own_ += goal_.option_amount[after];
  storage_ += problem_.options[after].storage_sum;
}

GoalBound::GoalBound(const Problem& problem, const Goal& goal)
    : problem_(problem),
      goal_(goal),
      channels_(goal.channels),
      bounds_(goal.channels),
      brought_(goal.channels) {
  shares_.reserve(8 * problem.options.size());
  share_begin_.reserve(problem.options.size() + 1);
  for (const auto& option : problem.options) {
    add_shares(option);
    share_begin_.push_back(shares_.size());
  }
  grow_tournaments();
}

void GoalBound::add_shares(const Option& option) {
  const auto first = shares_.size();
  for (auto r = option.run_begin; r < option.run_end; ++r) add_brought(option, r);
  // Ranks whose shard brings nothing to a channel have nothing of this option there.
  if (option.reach != Reach::uniform) return;
  for (auto s = first; s < shares_.size(); ++s) {
    if (brought_[shares_[s].channel].runs < option.run_end - option.run_begin) {
      shares_[s].uniform = shares_[s].largest = 0;
    }
  }
}

// What one run brings, first summed up by channel.
void GoalBound::add_brought(const Option& option, std::int64_t run) {
  const auto list = [this](std::int32_t channel) -> Brought& {
    auto& brought = brought_[channel];
    if (!std::exchange(brought.listed, true)) listed_.push_back(channel);
    return brought;
  };
  for (auto p = goal_.run_part_begin[run]; p < goal_.run_part_begin[run + 1]; ++p) {
    list(goal_.parts[p].channel).amount += goal_.parts[p].amount;
  }
  for (auto i = goal_.run_charge_begin[run]; i < goal_.run_charge_begin[run + 1]; ++i) {
    const auto charge = goal_.run_charges[i];
    for (auto p = goal_.charge_part_begin[charge]; p < goal_.charge_part_begin[charge + 1]; ++p) {
      list(goal_.charge_parts[p].channel).charges += goal_.charge_parts[p].amount;
    }
  }
  for (const auto channel : listed_) {
    auto& brought = brought_[channel];
    const auto share_at = [&](std::size_t s) {
      return s >= share_begin_.back() && s < shares_.size() && shares_[s].channel == channel;
    };
    const bool first = !share_at(brought.share);
    if (first) {
      brought.share = shares_.size();
      brought.runs = 0;
      shares_.push_back({.channel = channel});
    }
    auto& share = shares_[brought.share];
    ++brought.runs;
    share.all += brought.amount * problem_.runs[run].count;
    if (option.reach == Reach::uniform) {
      share.uniform = first ? brought.amount : std::min(share.uniform, brought.amount);
      share.largest = first ? brought.charges : std::min(share.largest, brought.charges);
    } else {
      share.largest = std::max(share.largest, brought.amount + brought.charges);
    }
    brought.amount = brought.charges = 0;
    brought.listed = false;
  }
  listed_.clear();
}

void GoalBound::grow_tournaments() {
  std::vector<std::size_t> tables(channels_.size());  // that have a leaf so far
  std::vector<std::int32_t> last(channels_.size(), -1);
  for (std::size_t o = 0; o < problem_.options.size(); ++o) {
    for (auto s = share_begin_[o]; s < share_begin_[o + 1]; ++s) {
      auto& share = shares_[s];
      if (last[share.channel] != problem_.options[o].table) ++tables[share.channel];
      last[share.channel] = problem_.options[o].table;
      share.leaf = tables[share.channel] - 1;
    }
  }
  std::size_t nodes = 0;
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    channels_[c].leaves = std::bit_ceil(std::max<std::size_t>(1, tables[c]));
    channels_[c].begin = nodes;
    nodes += 2 * channels_[c].leaves;
  }
  nodes_.assign(nodes, 0);
}

void GoalBound::refresh(std::int32_t c) {
  const auto& channel = channels_[c];
  value_ -= bounds_[c];
  const auto average = channel.all / static_cast<std::int64_t>(problem_.ranks());
  bounds_[c] = std::max(average, channel.uniform + nodes_[channel.begin + 1]);
  value_ += bounds_[c];
}

// Above a node that stays as it was, nothing changes.
void GoalBound::set_leaf(const Channel& channel, std::size_t leaf, std::int64_t largest) {
  auto* nodes = nodes_.data() + channel.begin;
  std::size_t node = channel.leaves + leaf;
  if (nodes[node] == largest) return;
  nodes[node] = largest;
  for (node /= 2; node > 0; node /= 2) {
    const auto now = std::max(nodes[2 * node], nodes[2 * node + 1]);
    if (nodes[node] == now) return;
    nodes[node] = now;
  }
}

void GoalBound::change(std::int32_t before, std::int32_t after) {
  const auto shares_of = [this](std::int32_t o) {
    return std::span(shares_).subspan(share_begin_[o], share_begin_[o + 1] - share_begin_[o]);
  };
  const auto old_shares = before < 0 ? std::span<const Share>{} : shares_of(before);
  const auto new_shares = shares_of(after);
  for (const auto& share : old_shares) {
    auto& channel = channels_[share.channel];
    channel.all -= share.all;
    channel.uniform -= share.uniform;
    if (std::ranges::find(new_shares, share.channel, &Share::channel) != new_shares.end()) continue;
    set_leaf(channel, share.leaf, 0);
    refresh(share.channel);
  }
  for (const auto& share : new_shares) {
    auto& channel = channels_[share.channel];
    channel.all += share.all;
    channel.uniform += share.uniform;
    set_leaf(channel, share.leaf, share.largest);
    refresh(share.channel);
  }
  if (before >= 0) own_ -= goal_.option_amount[before];
  own_ += goal_.option_amount[after];
}

}  // namespace fastplan
