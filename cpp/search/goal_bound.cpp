#include "search/goal_bound.h"

#include <algorithm>
#include <bit>
#include <span>

namespace fastplan {
namespace {

// What one run brings to a channel.
struct Brought {
  std::int32_t channel = 0;
  std::int64_t amount = 0;
  std::int64_t charges = 0;
};

Brought& brought_to(std::vector<Brought>& all, std::int32_t channel) {
  const auto found = std::ranges::find(all, channel, &Brought::channel);
  return found != all.end() ? *found : all.emplace_back(Brought{channel, 0, 0});
}

std::vector<Brought> brought_by(const Goal& goal, std::int64_t run) {
  std::vector<Brought> all;
  for (auto p = goal.run_part_begin[run]; p < goal.run_part_begin[run + 1]; ++p) {
    brought_to(all, goal.parts[p].channel).amount += goal.parts[p].amount;
  }
  for (auto i = goal.run_charge_begin[run]; i < goal.run_charge_begin[run + 1]; ++i) {
    const auto charge = goal.run_charges[i];
    for (auto p = goal.charge_part_begin[charge]; p < goal.charge_part_begin[charge + 1]; ++p) {
      brought_to(all, goal.charge_parts[p].channel).charges += goal.charge_parts[p].amount;
    }
  }
  return all;
}

}  // namespace

GoalBound::GoalBound(const Problem& problem, const Goal& goal)
    : problem_(problem), goal_(goal), channels_(goal.channels) {
  for (const auto& option : problem.options) {
    const auto own = shares_of(option);
    shares_.insert(shares_.end(), own.begin(), own.end());
    share_begin_.push_back(shares_.size());
  }
  grow_tournaments();
}

std::vector<GoalBound::Share> GoalBound::shares_of(const Option& option) const {
  const bool uniform = option.reach == Reach::uniform;
  std::vector<Share> shares;
  std::vector<std::int64_t> runs;  // that bring something to the channel of a share
  for (auto r = option.run_begin; r < option.run_end; ++r) {
    for (const auto& brought : brought_by(goal_, r)) {
      auto found = std::ranges::find(shares, brought.channel, &Share::channel);
      if (found == shares.end()) {
        shares.push_back({.channel = brought.channel});
        runs.push_back(0);
        found = shares.end() - 1;
      }
      const auto at = static_cast<std::size_t>(found - shares.begin());
      const bool first = runs[at]++ == 0;
      found->all += brought.amount * problem_.runs[r].count;
      if (uniform) {
        found->uniform = first ? brought.amount : std::min(found->uniform, brought.amount);
        found->largest = first ? brought.charges : std::min(found->largest, brought.charges);
      } else {
        found->largest = std::max(found->largest, brought.amount + brought.charges);
      }
    }
  }
  // Ranks whose shard brings nothing to a channel have nothing of this option there.
  for (std::size_t i = 0; uniform && i < shares.size(); ++i) {
    if (runs[i] < option.run_end - option.run_begin) shares[i].uniform = shares[i].largest = 0;
  }
  return shares;
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

void GoalBound::refresh(Channel& channel) {
  value_ -= channel.bound;
  const auto average = channel.all / static_cast<std::int64_t>(problem_.ranks());
  channel.bound = std::max(average, channel.uniform + nodes_[channel.begin + 1]);
  value_ += channel.bound;
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
    refresh(channel);
  }
  for (const auto& share : new_shares) {
    auto& channel = channels_[share.channel];
    channel.all += share.all;
    channel.uniform += share.uniform;
    set_leaf(channel, share.leaf, share.largest);
    refresh(channel);
  }
  if (before >= 0) {
    value_ -= goal_.option_amount[before];
    storage_ -= problem_.options[before].storage_sum;
  }
  value_ += goal_.option_amount[after];
  storage_ += problem_.options[after].storage_sum;
}

}  // namespace fastplan
