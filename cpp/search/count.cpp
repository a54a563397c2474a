#include "search/count.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_set>
#include <utility>

#include "search/tracker.h"

namespace fastplan {
namespace {

// What placing a table takes, compared with looking at it.
constexpr std::int64_t kPlacing = 16;

Storage largest_of(const Storage& a, const Storage& b) {
  return {std::max(a.hbm, b.hbm), std::max(a.ddr, b.ddr), std::max(a.ssd, b.ssd)};
}

Storage smallest_of(const Storage& a, const Storage& b) {
  return {std::min(a.hbm, b.hbm), std::min(a.ddr, b.ddr), std::min(a.ssd, b.ssd)};
}

}  // namespace

Feasibility::Feasibility(const Problem& problem)
    : problem_(problem),
      smallest_rank_(problem.capacity.front()),
      largest_rank_(problem.capacity.front()),
      leaves_(std::bit_ceil(std::max<std::size_t>(1, problem.tables()))) {
  for (const auto& capacity : problem.capacity) {
    smallest_rank_ = smallest_of(smallest_rank_, capacity);
    largest_rank_ = largest_of(largest_rank_, capacity);
  }
  towers_ = std::any_of(problem.table_group.begin(), problem.table_group.end(),
                        [](std::int32_t group) { return group >= 0; });
  largest_.resize(2 * leaves_);
}

Storage Feasibility::largest_shard(const Option& option) const {
  Storage largest;
  for (auto r = option.run_begin; r < option.run_end; ++r) {
    largest = largest_of(largest, problem_.runs[r].storage);
  }
  return largest;
}

Feasibility::Need Feasibility::need_of(const Option& option) const {
  Need need;
  if (option.reach == Reach::uniform) return need;
  need.largest = largest_shard(option);
  if (option.type == ShardingType::table_row_wise) {
    need.by_rows = need.largest;
  } else if (option.type == ShardingType::table_column_wise) {
    // Column shards of one host may all end up on one of its ranks.
    need.by_columns = option.storage_sum;
  } else {
    need.anywhere = need.largest;
  }
  return need;
}

// Adds an option to the sums, or takes it away. Options whose placement has rules of its own make
// the proposal unclear.
void Feasibility::count(const Option& option, std::int64_t sign) {
  const auto ranks = static_cast<std::int64_t>(problem_.ranks());
  const bool by_rows = option.type == ShardingType::table_row_wise;
  const bool unclear =
      option.reach == Reach::multi_host ||
      (option.reach == Reach::uniform && option.shards != ranks) ||
      (by_rows && option.shards != problem_.group_size) ||
      (option.kernel == Kernel::key_value && option.type == ShardingType::column_wise);
  unclear_ += unclear ? sign : 0;
  by_rows_ += by_rows ? sign : 0;
  by_columns_ += option.type == ShardingType::table_column_wise ? sign : 0;
  total_ += sign * option.storage_sum;
  if (option.reach == Reach::uniform) {
    uniform_ += sign * largest_shard(option);
    return;
  }
  placed_ += sign * option.storage_sum;
  stacked_ += sign * (by_rows ? largest_shard(option) : option.storage_sum);
}

// Sums go up and down; maxima are a tournament over tables, as in ProposalBound.
void Feasibility::change(std::int32_t before, std::int32_t after) {
  if (before >= 0) count(problem_.options[before], -1);
  const auto& option = problem_.options[after];
  count(option, 1);
  std::size_t node = leaves_ + option.table;
  largest_[node] = need_of(option);
  for (node /= 2; node > 0; node /= 2) {
    const auto& left = largest_[2 * node];
    const auto& right = largest_[2 * node + 1];
    const Need both{
        largest_of(left.largest, right.largest), largest_of(left.anywhere, right.anywhere),
        largest_of(left.by_rows, right.by_rows), largest_of(left.by_columns, right.by_columns)};
    if (both == largest_[node]) break;
    largest_[node] = both;
  }
}

// No, if all shards together are too much, or one shard is for any rank. Yes, if surely_fits().
std::optional<bool> Feasibility::answer() const {
  if (!total_.fits_in(problem_.capacity_sum)) return false;
  if (!largest_[1].largest.fits_in(largest_rank_)) return false;
  if (surely_fits()) return true;
  return std::nullopt;
}

// A rank refuses a shard only when it holds more than its capacity less that shard already. What
// there is to hold can bring only so many ranks that far.
std::int64_t Feasibility::most_refusing(const Storage& shard, const Storage& held) const {
  const auto in_tier = [](std::int64_t capacity, std::int64_t uniform, std::int64_t shard,
                          std::int64_t held) -> std::int64_t {
    constexpr std::int64_t kAll = std::int64_t{1} << 40;
    // A rank that holds `slack` or less still takes the shard; held / (slack + 1) ranks can hold
    // more.
    const std::int64_t slack = capacity - uniform - shard;
    if (slack < 0) return kAll;
    return shard == 0 ? 0 : held / (slack + 1);
  };
  return in_tier(smallest_rank_.hbm, uniform_.hbm, shard.hbm, held.hbm) +
         in_tier(smallest_rank_.ddr, uniform_.ddr, shard.ddr, held.ddr) +
         in_tier(smallest_rank_.ssd, uniform_.ssd, shard.ssd, held.ssd);
}

// While some place is left that refuses nothing, every shard finds one, whatever the order. Shards
// by row need a host where no rank refuses: one rank spoils a host, and a table that is itself cut
// by row brings a rank no more than one of its shards. Shards by column need a host where some rank
// does not refuse.
bool Feasibility::surely_fits() const {
  if (unclear_ > 0 || towers_) return false;
  const auto& need = largest_[1];
  const auto ranks = static_cast<std::int64_t>(problem_.ranks());
  if (most_refusing(need.anywhere, placed_) >= ranks) return false;
  if (by_rows_ > 0 && most_refusing(need.by_rows, stacked_) >= problem_.hosts) return false;
  return by_columns_ == 0 ||
         most_refusing(need.by_columns, placed_) / problem_.group_size < problem_.hosts;
}

PlanCount count_plans(const Problem& problem, const SearchSettings& settings,
                      std::int64_t placements) {
  PlanCount count;
  Partitioner partitioner(problem, settings.partitioner);
  Tracker<Feasibility> tracker(problem);
  std::unordered_set<ProposalKey, ProposalKeyHash> seen;
  Poll poll(settings.interrupted);
  // Proposals that only an attempt can tell, with their proposer. Placing some of them would not
  // finish the count: where there are too many, none is placed. Without a limit none has to wait.
  const bool limited = placements < std::numeric_limits<std::int64_t>::max();
  std::vector<std::pair<std::size_t, std::vector<std::int32_t>>> waiting;
  const auto can_place = [&](std::span<const std::int32_t> options) {
    poll.after(kPlacing * static_cast<std::int64_t>(options.size()));
    return partitioner.can_place(options);
  };
  for (const auto& proposer : settings.proposers) {
    auto& plans = count.plans.emplace_back(0);
    const auto sequence = make_sequence(problem, proposer, settings.interrupted);
    sequence->walk([&](std::int64_t, auto changed, auto options) {
      poll.after(static_cast<std::int64_t>(options.size()));
      tracker.follow(*sequence, changed, options);
      if (!seen.insert(tracker.key()).second) return true;
      const auto plain = tracker.state().answer();
      if (plain) {
        plans += *plain;
      } else if (!limited) {
        plans += can_place(options);
      } else if (++count.undecided <= placements) {
        waiting.emplace_back(count.plans.size() - 1, std::vector(options.begin(), options.end()));
      }
      return true;
    });
  }
  if (count.undecided > placements) return count;
  for (const auto& [proposer, options] : waiting) count.plans[proposer] += can_place(options);
  count.undecided = 0;
  return count;
}

}  // namespace fastplan
