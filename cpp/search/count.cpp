#include "search/count.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

#include "search/key_set.h"
#include "search/tracker.h"

namespace fastplan {
namespace {

// What placing a table takes, compared with looking at it.
constexpr std::int64_t kPlacing = 16;

bool has_towers(const Problem& problem) {
  return std::any_of(problem.table_group.begin(), problem.table_group.end(),
                     [](std::int32_t group) { return group >= 0; });
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
  towers_ = has_towers(problem);
  largest_.resize(2 * leaves_);
  for (const auto& option : problem.options) needs_.push_back(Need::of(problem, option));
}

// Adds an option to the sums, or takes it away. Options whose placement has rules of its own make
// the proposal unclear.
void Feasibility::count(const Option& option, const Need& need, std::int64_t sign) {
  total_ += sign * option.storage_sum;
  if (option.reach == Reach::uniform) {
    unclear_ += option.shards == static_cast<std::int64_t>(problem_.ranks()) ? 0 : sign;
    uniform_ += sign * need.room;
    return;
  }
  unclear_ += need.place == Need::Place::unclear ? sign : 0;
  by_rows_ += need.place == Need::Place::by_rows ? sign : 0;
  by_columns_ += need.place == Need::Place::by_columns ? sign : 0;
  placed_ += sign * need.all;
  stacked_ += sign * need.stacked;
}

// Sums go up and down; maxima are a tournament over tables, as in ProposalBound.
void Feasibility::change(std::int32_t before, std::int32_t after) {
  if (before >= 0) count(problem_.options[before], needs_[before], -1);
  const auto& option = problem_.options[after];
  const auto& need = needs_[after];
  count(option, need, 1);
  Largest own;
  if (option.reach != Reach::uniform) {
    own.shard = need.place == Need::Place::by_columns ? Storage{} : need.room;
    if (need.place == Need::Place::anywhere) own.anywhere = need.room;
    if (need.place == Need::Place::by_rows) own.by_rows = need.room;
    if (need.place == Need::Place::by_columns) own.by_columns = need.room;
  }
  std::size_t node = leaves_ + option.table;
  largest_[node] = own;
  for (node /= 2; node > 0; node /= 2) {
    const auto& left = largest_[2 * node];
    const auto& right = largest_[2 * node + 1];
    const Largest both{
        largest_of(left.shard, right.shard), largest_of(left.anywhere, right.anywhere),
        largest_of(left.by_rows, right.by_rows), largest_of(left.by_columns, right.by_columns)};
    if (both == largest_[node]) break;
    largest_[node] = both;
  }
}

// No, if all shards together are too much, or one shard is for any rank. Yes, if surely_fits().
std::optional<bool> Feasibility::answer() const {
  if (!total_.fits_in(problem_.room)) return false;
  if (!largest_[1].shard.fits_in(largest_rank_)) return false;
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
  const auto& largest = largest_[1];
  const auto ranks = static_cast<std::int64_t>(problem_.ranks());
  if (most_refusing(largest.anywhere, placed_) >= ranks) return false;
  if (by_rows_ > 0 && most_refusing(largest.by_rows, stacked_) >= problem_.hosts) return false;
  return by_columns_ == 0 ||
         most_refusing(largest.by_columns, placed_) / problem_.group_size < problem_.hosts;
}

// As surely_fits(), but a table has to share the ranks with those before it only.
bool Feasibility::surely_fits_in_order(std::span<const Need* const> needs) const {
  if (unclear_ > 0 || towers_ || !uniform_.fits_in(smallest_rank_)) return false;
  const auto ranks = static_cast<std::int64_t>(problem_.ranks());
  Storage placed, stacked;
  for (const Need* need : needs) {
    bool fits = false;
    if (need->place == Need::Place::by_rows) {
      fits = most_refusing(need->room, stacked) < problem_.hosts;
    } else if (need->place == Need::Place::by_columns) {
      fits = most_refusing(need->room, placed) / problem_.group_size < problem_.hosts;
    }
    placed += need->all;
    stacked += need->stacked;
    // A table's shards share the ranks with each other, too.
    if (need->place == Need::Place::anywhere) fits = most_refusing(need->room, placed) < ranks;
    if (!fits) return false;
  }
  return true;
}

PlacementOrder::PlacementOrder(const Problem& problem, const PartitionerSettings& settings,
                               std::span<const std::int32_t> plan_order)
    : problem_(problem), place_(problem.options.size()), set_(problem.options.size() / 64 + 1) {
  std::vector<std::int32_t> position(problem.tables());
  for (std::size_t p = 0; p < plan_order.size(); ++p) {
    position[plan_order[p]] = static_cast<std::int32_t>(p);
  }
  std::vector<std::int32_t> order(problem.options.size());
  std::iota(order.begin(), order.end(), 0);
  const bool by_perf = settings.sort_by_perf || settings.memory_balanced;
  // Partitioner::group_and_sort() has the same order.
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const auto& left = problem.options[a];
    const auto& right = problem.options[b];
    if (by_perf) {
      if (left.perf_sum != right.perf_sum) return left.perf_sum > right.perf_sum;
    } else if (left.storage_sum != right.storage_sum) {
      return left.storage_sum > right.storage_sum;
    }
    return position[left.table] < position[right.table];
  });
  needs_.reserve(order.size());
  for (const std::int32_t o : order) {
    place_[o] = static_cast<std::int32_t>(needs_.size());
    needs_.push_back(Need::of(problem, problem.options[o]));
  }
}

bool PlacementOrder::exists(const Problem& problem, const PartitionerSettings& settings) {
  return !settings.balance_modules && !has_towers(problem);
}

std::span<const Need* const> PlacementOrder::sort(std::span<const std::int32_t> options) {
  for (const std::int32_t o : options) {
    if (problem_.options[o].reach == Reach::uniform) continue;
    set_[place_[o] / 64] |= std::uint64_t{1} << (place_[o] % 64);
  }
  sorted_.clear();
  for (std::size_t word = 0; word < set_.size(); ++word) {
    for (std::uint64_t bits = std::exchange(set_[word], 0); bits != 0; bits &= bits - 1) {
      sorted_.push_back(&needs_[64 * word + std::countr_zero(bits)]);
    }
  }
  return sorted_;
}

PlanCount count_plans(const Problem& problem, const SearchSettings& settings) {
  PlanCount count;
  Partitioner partitioner(problem, settings.partitioner);
  Remainder rest(problem);
  Tracker tracker(problem, Feasibility(problem));
  KeySet seen;
  Poll poll(settings.interrupted);
  const bool ordered = PlacementOrder::exists(problem, settings.partitioner);
  for (const auto& proposer : settings.proposers) {
    auto& plans = count.plans.emplace_back(0);
    const auto sequence = make_sequence(problem, proposer, settings.interrupted);
    std::optional<PlacementOrder> order;
    // For proposals whose answer is not plain.
    const auto can_place = [&](std::span<const std::int32_t> options) {
      std::span<const Need* const> needs;
      if (ordered) {
        if (!order) order.emplace(problem, settings.partitioner, sequence->order());
        needs = order->sort(options);
        if (tracker.state().surely_fits_in_order(needs)) return true;
        rest.clear();
        for (auto need = needs.rbegin(); need != needs.rend(); ++need) rest.add(**need);
      }
      ++count.placed;
      poll.after(kPlacing * static_cast<std::int64_t>(options.size()));
      return partitioner.can_place(options, ordered ? &rest : nullptr);
    };
    sequence->walk([&](std::int64_t, auto changed, auto options) {
      poll.after(static_cast<std::int64_t>(options.size()));
      tracker.follow(*sequence, changed, options);
      if (!seen.insert(tracker.key())) return true;
      const auto plain = tracker.state().answer();
      plans += plain ? *plain : can_place(options);
      return true;
    });
  }
  return count;
}

}  // namespace fastplan
