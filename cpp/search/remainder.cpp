#include "search/remainder.h"

#include <algorithm>

namespace fastplan {
namespace {

bool is_negative(const Storage& free) { return std::min({free.hbm, free.ddr, free.ssd}) < 0; }

}  // namespace

Need Need::of(const Problem& problem, const Option& option) {
  Need need;
  need.all = need.stacked = option.storage_sum;
  for (auto r = option.run_begin; r < option.run_end; ++r) {
    need.room = largest_of(need.room, problem.runs[r].storage);
  }
  if (option.type == ShardingType::table_row_wise) {
    // One shard for each rank of a host, and no other host gets any.
    need.stacked = need.room;
    need.place = option.shards == problem.group_size ? Place::by_rows : Place::unclear;
  } else if (option.type == ShardingType::table_column_wise) {
    need.room = option.storage_sum;
    need.place = Place::by_columns;
  } else if (option.reach == Reach::device) {
    // Shards of a key-value table that is cut by column go to different ranks.
    const bool distinct =
        option.kernel == Kernel::key_value && option.type == ShardingType::column_wise;
    need.place = distinct ? Place::unclear : Place::anywhere;
  } else {
    need.place = Place::unclear;
  }
  return need;
}

Remainder::Remainder(const Problem& problem) : problem_(problem), host_free_(problem.hosts) {}

void Remainder::clear() {
  rests_.assign(1, Rest{});
  next_look_ = 0;
}

void Remainder::add(const Need& need) {
  Rest rest = rests_.back();
  rest.all += need.all;
  rest.stacked += need.stacked;
  switch (need.place) {
    case Need::Place::anywhere:
      rest.anywhere = largest_of(rest.anywhere, need.room);
      break;
    case Need::Place::by_rows:
      rest.by_rows = largest_of(rest.by_rows, need.room);
      rest.rows = true;
      break;
    case Need::Place::by_columns:
      rest.by_columns = largest_of(rest.by_columns, need.room);
      rest.columns = true;
      break;
    case Need::Place::unclear:
      rest.clear = false;
  }
  rests_.push_back(rest);
}

// Tables come largest first, so that what is left soon needs little.
bool Remainder::surely_fits(std::size_t placed, std::span<const Storage> free) {
  if (placed < next_look_) return false;
  constexpr std::size_t kFirst = 8;
  next_look_ = std::max(kFirst, placed + placed / 4);
  return fits(rests_[rests_.size() - 1 - placed], free);
}

// How many of the places with `free` left may refuse `room` after `held` has gone to them: in each
// tier those that need the least for it.
std::size_t Remainder::refusing(const Storage& room, const Storage& held,
                                std::span<const Storage> free) {
  std::size_t count = 0;
  for (const auto tier : {&Storage::hbm, &Storage::ddr, &Storage::ssd}) {
    if (room.*tier == 0) {
      // Refused only where more is reserved than there is.
      count += std::count_if(free.begin(), free.end(), [&](auto& each) { return each.*tier < 0; });
      continue;
    }
    missing_.clear();
    std::int64_t sum = 0;
    for (const auto& each : free) {
      missing_.push_back(std::max<std::int64_t>(0, each.*tier - room.*tier + 1));
      sum += missing_.back();
    }
    if (sum <= held.*tier) return free.size();
    std::sort(missing_.begin(), missing_.end());
    std::int64_t left = held.*tier;
    for (const std::int64_t missing : missing_) {
      if ((left -= missing) < 0) break;
      ++count;
    }
  }
  return count;
}

bool Remainder::fits(const Rest& rest, std::span<const Storage> free) {
  if (!rest.clear) return false;
  if (refusing(rest.anywhere, rest.all, free) >= free.size()) return false;
  const auto on_hosts = free.first(problem_.hosts * problem_.group_size);
  if (rest.columns) {
    // A host must have room for all columns, and a rank with less than no memory takes some away.
    if (std::any_of(on_hosts.begin(), on_hosts.end(), is_negative)) return false;
    if (refusing(rest.by_columns, rest.all, on_hosts) >= on_hosts.size()) return false;
  }
  if (!rest.rows) return true;
  for (std::int64_t host = 0; host < problem_.hosts; ++host) {
    const auto ranks = on_hosts.subspan(host * problem_.group_size, problem_.group_size);
    host_free_[host] = ranks.front();
    for (const auto& rank : ranks) host_free_[host] = smallest_of(host_free_[host], rank);
  }
  return refusing(rest.by_rows, rest.stacked, host_free_) < host_free_.size();
}

}  // namespace fastplan
