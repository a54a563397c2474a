#include "search/verify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <vector>

namespace fastplan {
namespace {

// Of a tower. A grid is placed where it is its tower's only table that is not uniform.
constexpr std::int64_t kNoHost = -1;
constexpr std::int64_t kOwnHosts = -2;

std::string about(const Option& option, const std::string& what) {
  return "table " + std::to_string(option.table) + ": " + what;
}

// Legal ranks by sharding type; `ranks` are those of the option's shards in order.
std::string check_ranks(const Problem& problem, const Option& option,
                        std::span<const std::int32_t> ranks) {
  const auto count = static_cast<std::int64_t>(problem.ranks());
  for (const auto rank : ranks) {
    if (rank < 0 || rank >= count) return about(option, "a rank is outside the cluster");
  }
  const std::int64_t size = problem.group_size;
  const auto host_of = [&](std::int32_t rank) { return rank / size; };
  if (option.reach == Reach::host || option.reach == Reach::multi_host) {
    for (const auto rank : ranks) {
      if (host_of(rank) >= problem.hosts) return about(option, "a rank is on no whole host");
    }
  }
  if (option.reach == Reach::host) {
    for (const auto rank : ranks) {
      if (host_of(rank) != host_of(ranks[0])) return about(option, "its shards leave the host");
    }
  }
  if (option.type == ShardingType::table_row_wise || option.reach == Reach::multi_host) {
    if (option.shards % size != 0) return about(option, "its shards don't fill whole hosts");
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto first = ranks[i - i % size];
      if (first % size != 0 || ranks[i] != first + static_cast<std::int64_t>(i % size)) {
        return about(option, "its row shards are not one per rank of a host");
      }
    }
  }
  if (option.kernel == Kernel::key_value && option.type == ShardingType::column_wise) {
    if (std::set<std::int32_t>(ranks.begin(), ranks.end()).size() != ranks.size()) {
      return about(option, "two of its key-value shards share a rank");
    }
  }
  return {};
}

}  // namespace

std::string verify(const Problem& problem, std::span<const std::int32_t> options,
                   std::span<const std::int32_t> ranks, double rating,
                   ObjectiveFunction objective) {
  const auto world = static_cast<std::int64_t>(problem.ranks());
  if (options.size() != problem.tables()) return "the plan does not cover every table";
  std::vector<std::uint8_t> covered(problem.tables(), 0);
  std::vector<Storage> used(problem.ranks());
  std::vector<double> cost(problem.ranks(), 0.0);
  std::vector<std::int64_t> group_host(problem.tables(), kNoHost);
  std::size_t next = 0;
  std::vector<std::int32_t> own;
  for (const auto o : options) {
    if (o < 0 || static_cast<std::size_t>(o) >= problem.options.size()) {
      return "an option does not exist";
    }
    const auto& option = problem.options[o];
    if (covered[option.table]++) return about(option, "it is planned twice");
    own.clear();
    if (option.reach == Reach::uniform) {
      if (option.shards != world) return about(option, "it does not have one shard per rank");
      for (std::int64_t rank = 0; rank < world; ++rank) {
        own.push_back(static_cast<std::int32_t>(rank));
      }
    } else {
      if (ranks.size() - next < static_cast<std::size_t>(option.shards)) {
        return about(option, "ranks are missing");
      }
      const auto shards = ranks.subspan(next, option.shards);
      own.assign(shards.begin(), shards.end());
      next += option.shards;
      if (auto wrong = check_ranks(problem, option, own); !wrong.empty()) return wrong;
      const auto group = problem.table_group[option.table];
      if (group >= 0) {
        const bool grid = option.reach == Reach::multi_host;
        const std::int64_t host = grid ? kOwnHosts : own[0] / problem.group_size;
        if (group_host[group] != kNoHost && (grid || group_host[group] == kOwnHosts)) {
          return about(option, "a grid does not share the host of a tower");
        }
        if (group_host[group] != kNoHost && group_host[group] != host) {
          return about(option, "it is not on the host of its tower");
        }
        group_host[group] = host;
      }
    }
    std::size_t shard = 0;
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      const auto& run = problem.runs[r];
      for (std::int64_t i = 0; i < run.count; ++i, ++shard) {
        used[own[shard]] += run.storage;
        cost[own[shard]] += run.total;
      }
    }
  }
  if (next != ranks.size()) return "there are more ranks than shards";
  for (std::size_t rank = 0; rank < used.size(); ++rank) {
    if (!used[rank].fits_in(problem.capacity[rank])) {
      return "rank " + std::to_string(rank) + " is over its capacity";
    }
  }
  if (std::isnan(rating)) return {};
  const double found = objective ? Objective(problem, objective).rate(options, ranks)
                                 : *std::max_element(cost.begin(), cost.end());
  if (std::bit_cast<std::uint64_t>(found) != std::bit_cast<std::uint64_t>(rating)) {
    return "the rating is " + std::to_string(found) + ", not " + std::to_string(rating);
  }
  return {};
}

}  // namespace fastplan
