#include "improve/choices.h"

#include <algorithm>
#include <cmath>

namespace fastplan {
namespace {

// In cost and in every tier of memory.
bool at_most(const Run& a, const Run& b) {
  return a.total <= b.total && a.storage.fits_in(b.storage);
}

// Shard i of `a` costs and holds no more than shard i of `b`, for all shards of `a`.
bool shards_at_most(const Problem& problem, const Option& a, const Option& b) {
  if (a.shards > b.shards) return false;
  auto run_a = a.run_begin;
  auto run_b = b.run_begin;
  std::int64_t left_a = problem.runs[run_a].count;
  std::int64_t left_b = problem.runs[run_b].count;
  // Both options' runs are walked side by side, as far as the shorter of the two runs reaches.
  while (true) {
    if (!at_most(problem.runs[run_a], problem.runs[run_b])) return false;
    const auto step = std::min(left_a, left_b);
    left_a -= step;
    left_b -= step;
    if (left_a == 0) {
      if (++run_a == a.run_end) return true;
      left_a = problem.runs[run_a].count;
    }
    if (left_b == 0) left_b = problem.runs[++run_b].count;
  }
}

Spread spread_of(const Option& option) {
  switch (option.type) {
    case ShardingType::data_parallel:
    case ShardingType::row_wise:
      return Spread::everywhere;
    case ShardingType::table_wise:
    case ShardingType::column_wise:
      return Spread::ranks;
    case ShardingType::table_column_wise:
      return Spread::host_ranks;
    case ShardingType::table_row_wise:
    case ShardingType::grid_shard:
      return Spread::hosts;
  }
  throw std::invalid_argument("unknown sharding type");
}

bool on_distinct_ranks(const Option& option) {
  return option.kernel == Kernel::key_value && option.type == ShardingType::column_wise;
}

}  // namespace

Choices::Choices(const Problem& problem, std::span<const std::int32_t> keep)
    : problem_(problem), option_choice_(problem.options.size(), -1) {
  std::vector<std::uint8_t> wanted(problem.options.size(), 0);
  for (const auto o : keep) wanted[o] = 1;
  find_towers();
  double worst = 0;
  std::vector<std::int32_t> kept;
  for (std::size_t t = 0; t < problem.tables(); ++t) {
    const auto begin = static_cast<std::int32_t>(problem.table_option_begin[t]);
    const auto end = static_cast<std::int32_t>(problem.table_option_begin[t + 1]);
    kept.clear();
    for (auto o = begin; o < end; ++o) {
      if (!can_be_placed(problem.options[o])) continue;
      if (is_representable(problem.options[o])) {
        kept.push_back(o);
      } else {
        partial_ = true;
      }
    }
    double costliest = 0;
    for (const auto o : kept) {
      const auto& option = problem.options[o];
      // Of two that replace each other, the first stays.
      const bool replaced = std::any_of(kept.begin(), kept.end(), [&](std::int32_t other) {
        const auto& better = problem.options[other];
        return other != o && replaces(better, option) && (other < o || !replaces(option, better));
      });
      if (replaced && !wanted[o]) continue;
      costliest = std::max(costliest, option.perf_sum);
      add(o);
    }
    worst += costliest;
    complete_ = complete_ && !kept.empty();
    table_begin_.push_back(static_cast<std::int32_t>(choices_.size()));
  }
  // Even all shards on one rank stay below 2^60.
  if (worst > 0) shift_ = 59 - std::ilogb(worst);
  run_load_.reserve(problem.runs.size());
  for (const auto& run : problem.runs) {
    // Options that are left out may cost more than all others together.
    run_load_.push_back({run.total <= worst ? fixed(run.total) : 0, run.storage});
  }
}

// Rounded to the nearest: sums over ranks differ from TorchRec's by half a unit per shard, and what
// counts is rated with doubles at the end.
std::int64_t Choices::fixed(double cost) const {
  return static_cast<std::int64_t>(std::min(std::nearbyint(std::ldexp(cost, shift_)), 0x1p62));
}

// A group of one table is free: its host is nobody else's matter.
void Choices::find_towers() {
  const auto& groups = problem_.table_group;
  tower_.assign(problem_.tables(), -1);
  std::vector<std::int32_t> members(problem_.tables(), 0);
  std::vector<std::int32_t> number(problem_.tables(), -1);
  for (const auto group : groups) {
    if (group >= 0) ++members[group];
  }
  for (std::size_t t = 0; t < problem_.tables(); ++t) {
    if (groups[t] < 0 || members[groups[t]] < 2) continue;
    auto& tower = number[groups[t]];
    if (tower < 0) {
      tower = static_cast<std::int32_t>(tower_tables_.size());
      tower_tables_.emplace_back();
    }
    tower_[t] = tower;
    tower_tables_[tower].push_back(static_cast<std::int32_t>(t));
  }
}

bool Choices::fits_everywhere(const Option& option) const {
  std::size_t rank = 0;
  for (auto r = option.run_begin; r < option.run_end; ++r) {
    for (std::int64_t i = 0; i < problem_.runs[r].count; ++i, ++rank) {
      if (!problem_.runs[r].storage.fits_in(problem_.capacity[rank])) return false;
    }
  }
  return true;
}

// Whether some host can take the group_size shards from `first_shard` on, one per rank.
bool Choices::fits_block(const Option& option, std::int64_t first_shard) const {
  for (std::int64_t host = 0; host < problem_.hosts; ++host) {
    bool fits = true;
    std::int64_t shard = 0;
    for (auto r = option.run_begin; fits && r < option.run_end; ++r) {
      const Run& run = problem_.runs[r];
      for (std::int64_t i = 0; fits && i < run.count; ++i, ++shard) {
        if (shard < first_shard || shard >= first_shard + problem_.group_size) continue;
        const auto rank = host * problem_.group_size + shard % problem_.group_size;
        fits = run.storage.fits_in(problem_.capacity[rank]);
      }
    }
    if (fits) return true;
  }
  return false;
}

// A grid may be in a tower whose other tables are all uniform, on any hosts. Tables of a tower
// would no longer be free of each other's options: such grids are left to TorchRec's plans.
bool Choices::is_representable(const Option& option) const {
  return option.reach != Reach::multi_host || tower_[option.table] < 0;
}

// Whether the option could be in a plan if it were alone on the cluster.
bool Choices::can_be_placed(const Option& option) const {
  const auto ranks = static_cast<std::int64_t>(problem_.ranks());
  const std::int64_t size = problem_.group_size;
  const bool shares_host = tower_[option.table] >= 0;
  const auto fits_some = [&](std::int64_t end) {
    return std::all_of(problem_.runs.begin() + option.run_begin,
                       problem_.runs.begin() + option.run_end, [&](const Run& run) {
                         return std::any_of(
                             problem_.capacity.begin(), problem_.capacity.begin() + end,
                             [&](const Storage& s) { return run.storage.fits_in(s); });
                       });
  };
  switch (option.type) {
    case ShardingType::data_parallel:
    case ShardingType::row_wise:
      return option.shards == ranks && fits_everywhere(option);
    case ShardingType::table_wise:
    case ShardingType::column_wise:
      return !shares_host && !(on_distinct_ranks(option) && option.shards > ranks) &&
             fits_some(ranks);
    case ShardingType::table_column_wise:
      return problem_.hosts > 0 && fits_some(problem_.hosts * size);
    case ShardingType::table_row_wise:
      return option.shards == size && fits_block(option, 0);
    case ShardingType::grid_shard:
      if (option.shards % size != 0) return false;
      for (std::int64_t shard = 0; shard < option.shards; shard += size) {
        if (!fits_block(option, shard)) return false;
      }
      return true;
  }
  return false;
}

// Whether `a` can take the place of `b` in any plan without adding to any rank: there must be a
// legal place for each shard of `a` among those of `b`, and no shard may cost or hold more.
bool Choices::replaces(const Option& a, const Option& b) const {
  if (a.perf_sum > b.perf_sum || !a.storage_sum.fits_in(b.storage_sum)) return false;
  const Spread from = spread_of(b);
  const Spread to = spread_of(a);
  const bool shares_host = tower_[a.table] >= 0;
  const std::int64_t size = problem_.group_size;
  bool possible = false;
  switch (to) {
    case Spread::everywhere:
      possible = from == Spread::everywhere;
      break;
    case Spread::ranks:
      // Any ranks will do, unless they must be distinct and those of `b` may not be.
      possible = !on_distinct_ranks(a) || from == Spread::everywhere || on_distinct_ranks(b);
      break;
    case Spread::host_ranks:
      // The shards of `b` are on one host, or can be found on every host.
      possible = from == Spread::host_ranks || b.type == ShardingType::table_row_wise ||
                 (!shares_host && from == Spread::everywhere && a.shards <= size);
      break;
    case Spread::hosts:
      // Block by block on the hosts of `b`, or, from all ranks, on as many hosts as it takes.
      possible = (from == Spread::hosts && (a.shards == size || a.shards == b.shards)) ||
                 (!shares_host && from == Spread::everywhere && problem_.hosts > 0 &&
                  a.shards <= problem_.hosts * size);
      break;
  }
  return possible && shards_at_most(problem_, a, b);
}

void Choices::add(std::int32_t number) {
  const auto& option = problem_.options[number];
  Choice choice;
  choice.option = number;
  choice.table = option.table;
  choice.spread = spread_of(option);
  choice.shards = static_cast<std::int32_t>(option.shards);
  choice.shard_begin = static_cast<std::int64_t>(shard_run_.size());
  switch (choice.spread) {
    case Spread::everywhere:
      break;
    case Spread::ranks:
      choice.distinct = on_distinct_ranks(option);
      choice.pieces = choice.shards;
      break;
    case Spread::host_ranks:
      choice.pieces = choice.shards;
      break;
    case Spread::hosts:
      choice.pieces = static_cast<std::int32_t>(option.shards / problem_.group_size);
      // TorchRec's partitioner puts a grid's columns on hosts of their own while there are enough.
      choice.distinct = choice.pieces <= problem_.hosts;
      break;
  }
  if (choice.spread != Spread::everywhere) {
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      shard_run_.insert(shard_run_.end(), problem_.runs[r].count, static_cast<std::int32_t>(r));
    }
  }
  option_choice_[number] = static_cast<std::int32_t>(choices_.size());
  choices_.push_back(choice);
}

}  // namespace fastplan
