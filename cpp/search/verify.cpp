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

// Tables are numbered: the core has no names. Whoever shows it finds the name.
std::string about(const Option& option, const std::string& what) {
  return "table " + std::to_string(option.table) + ": " + what;
}

// Legal ranks by sharding type; `ranks` are those of the option's shards in order. These are the
// rules of TorchRec's partitioner, told by their result: nothing here places anything.
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

// Adds a plan up table by table, and says what is wrong with the first table that is wrong.
class Checker {
 public:
  explicit Checker(const Problem& problem)
      : used(problem.ranks()),
        cost(problem.ranks(), 0.0),
        problem_(problem),
        covered_(problem.tables(), 0),
        tower_host_(problem.tables(), kNoHost) {}

  // Takes the ranks of the option's shards from the front of `ranks`.
  std::string add(std::int32_t number, std::span<const std::int32_t>& ranks) {
    if (number < 0 || static_cast<std::size_t>(number) >= problem_.options.size()) {
      return "an option does not exist";
    }
    const auto& option = problem_.options[number];
    if (covered_[option.table]++) return about(option, "it is planned twice");
    if (auto complaint = take_ranks(option, ranks); !complaint.empty()) return complaint;
    std::size_t shard = 0;
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      const auto& run = problem_.runs[r];
      for (std::int64_t i = 0; i < run.count; ++i, ++shard) {
        used[own_[shard]] += run.storage;
        cost[own_[shard]] += run.total;
      }
    }
    return {};
  }

  // By rank. Costs are added in plan order, as TorchRec adds them: the last bit counts.
  std::vector<Storage> used;
  std::vector<double> cost;

 private:
  std::string take_ranks(const Option& option, std::span<const std::int32_t>& ranks) {
    own_.clear();
    if (option.reach == Reach::uniform) {
      const auto world = static_cast<std::int64_t>(problem_.ranks());
      if (option.shards != world) return about(option, "it does not have one shard per rank");
      for (std::int64_t rank = 0; rank < world; ++rank) {
        own_.push_back(static_cast<std::int32_t>(rank));
      }
      return {};
    }
    if (ranks.size() < static_cast<std::size_t>(option.shards)) {
      return about(option, "ranks are missing");
    }
    const auto shards = ranks.first(option.shards);
    ranks = ranks.subspan(option.shards);
    own_.assign(shards.begin(), shards.end());
    auto complaint = check_ranks(problem_, option, own_);
    return complaint.empty() ? check_tower(option) : complaint;
  }

  // Tables of a tower share a host; the first of them decides which.
  std::string check_tower(const Option& option) {
    const auto tower = problem_.table_group[option.table];
    if (tower < 0) return {};
    auto& known = tower_host_[tower];
    const bool grid = option.reach == Reach::multi_host;
    const std::int64_t host = grid ? kOwnHosts : own_[0] / problem_.group_size;
    if (known != kNoHost && (grid || known == kOwnHosts)) {
      return about(option, "a grid does not share the host of a tower");
    }
    if (known != kNoHost && known != host) {
      return about(option, "it is not on the host of its tower");
    }
    known = host;
    return {};
  }

  const Problem& problem_;
  std::vector<std::uint8_t> covered_;     // by table
  std::vector<std::int64_t> tower_host_;  // by tower
  std::vector<std::int32_t> own_;         // ranks of the option's shards
};

}  // namespace

std::string verify(const Problem& problem, std::span<const std::int32_t> options,
                   std::span<const std::int32_t> ranks, double rating,
                   ObjectiveFunction objective) {
  if (options.size() != problem.tables()) return "the plan does not cover every table";
  Checker checker(problem);
  auto left = ranks;
  for (const auto o : options) {
    if (auto complaint = checker.add(o, left); !complaint.empty()) return complaint;
  }
  if (!left.empty()) return "there are more ranks than shards";
  for (std::size_t rank = 0; rank < problem.ranks(); ++rank) {
    if (!checker.used[rank].fits_in(problem.capacity[rank])) {
      return "rank " + std::to_string(rank) + " is over its capacity";
    }
  }
  if (std::isnan(rating)) return {};
  const double found = objective ? Objective(problem, objective).rate(options, ranks)
                                 : *std::max_element(checker.cost.begin(), checker.cost.end());
  // As bits: 0.0 and -0.0 are different ratings.
  if (std::bit_cast<std::uint64_t>(found) != std::bit_cast<std::uint64_t>(rating)) {
    return "the rating is " + std::to_string(found) + ", not " + std::to_string(rating);
  }
  return {};
}

}  // namespace fastplan
