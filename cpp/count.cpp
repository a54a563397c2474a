#include "count.h"

#include <algorithm>
#include <bit>
#include <unordered_set>

#include "tracker.h"

namespace fastplan {
namespace {

constexpr std::int64_t kPollEvery = 64;        // proposals that are placed
constexpr std::int64_t kPollEverySum = 10000;  // and those that sums settle

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

Feasibility::Need Feasibility::need_of(const Option& option) const {
  Need need;
  if (option.reach == Reach::uniform) return need;
  for (auto r = option.run_begin; r < option.run_end; ++r) {
    need.largest = largest_of(need.largest, problem_.runs[r].storage);
  }
  // Column shards of one host may all end up on one of its ranks.
  need.asked = option.type == ShardingType::table_column_wise ? option.storage_sum : need.largest;
  return need;
}

void Feasibility::change(std::int32_t before, std::int32_t after) {
  const auto count = [this](const Option& option, std::int64_t sign) {
    const auto ranks = static_cast<std::int64_t>(problem_.ranks());
    const bool by_rows = option.type == ShardingType::table_row_wise;
    const bool unclear =
        option.reach == Reach::multi_host ||
        (option.reach == Reach::uniform && option.shards != ranks) ||
        (by_rows && option.shards != problem_.group_size) ||
        (option.kernel == Kernel::key_value && option.type == ShardingType::column_wise);
    unclear_ += unclear ? sign : 0;
    on_hosts_ += option.reach == Reach::host ? sign : 0;
    total_ += sign * option.storage_sum;
    if (option.reach != Reach::uniform) {
      placed_total_ += sign * option.storage_sum;
      return;
    }
    Storage each;
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      each = largest_of(each, problem_.runs[r].storage);
    }
    uniform_ += sign * each;
  };
  if (before >= 0) count(problem_.options[before], -1);
  const auto& option = problem_.options[after];
  count(option, 1);
  std::size_t node = leaves_ + option.table;
  largest_[node] = need_of(option);
  for (node /= 2; node > 0; node /= 2) {
    const auto& left = largest_[2 * node];
    const auto& right = largest_[2 * node + 1];
    largest_[node] = {largest_of(left.asked, right.asked), largest_of(left.largest, right.largest)};
  }
}

std::optional<bool> Feasibility::answer() const {
  if (!total_.fits_in(problem_.capacity_sum)) return false;
  if (!largest_[1].largest.fits_in(largest_rank_)) return false;
  if (surely_fits()) return true;
  return std::nullopt;
}

// A rank refuses a shard only when it holds more than its capacity less that shard already. All
// shards together can bring only so many ranks that far; while there are more ranks (or hosts,
// where one refusing rank spoils the host), one is left that takes it, whatever the order.
bool Feasibility::surely_fits() const {
  if (unclear_ > 0 || towers_) return false;
  const Storage asked = largest_[1].asked;
  std::int64_t refusing = 0;
  const auto most_refusing = [](std::int64_t capacity, std::int64_t uniform, std::int64_t asked,
                                std::int64_t total) -> std::int64_t {
    constexpr std::int64_t kAll = std::int64_t{1} << 40;
    const std::int64_t slack = capacity - uniform - asked;
    if (slack < 0) return kAll;
    return asked == 0 ? 0 : total / (slack + 1);
  };
  refusing += most_refusing(smallest_rank_.hbm, uniform_.hbm, asked.hbm, placed_total_.hbm);
  refusing += most_refusing(smallest_rank_.ddr, uniform_.ddr, asked.ddr, placed_total_.ddr);
  refusing += most_refusing(smallest_rank_.ssd, uniform_.ssd, asked.ssd, placed_total_.ssd);
  const auto places = on_hosts_ > 0 ? problem_.hosts : static_cast<std::int64_t>(problem_.ranks());
  return refusing < places;
}

std::vector<std::int64_t> count_plans(const Problem& problem, const SearchSettings& settings) {
  std::vector<std::int64_t> counts;
  Partitioner partitioner(problem, settings.partitioner);
  Tracker<Feasibility> tracker(problem);
  std::unordered_set<ProposalKey, ProposalKeyHash> seen;
  std::int64_t attempts = 0;
  for (const auto& proposer : settings.proposers) {
    auto& plans = counts.emplace_back(0);
    const auto sequence = make_sequence(problem, proposer, settings.interrupted);
    sequence->walk([&](std::int64_t index, auto changed, auto options) {
      tracker.follow(*sequence, changed, options);
      if (!seen.insert(tracker.key()).second) return true;
      const auto plain = tracker.state().answer();
      const bool asks = plain ? index % kPollEverySum == 0 : attempts++ % kPollEvery == 0;
      if (asks && settings.interrupted()) throw Interrupted{};
      plans += plain ? *plain : partitioner.can_place(options);
      return true;
    });
  }
  return counts;
}

}  // namespace fastplan
