#include "search/partition.h"

#include <algorithm>
#include <numeric>

#include "search/goal.h"

namespace fastplan {

Partitioner::Partitioner(const Problem& problem, const PartitionerSettings& settings,
                         GoalCounter* counter)
    : problem_(problem),
      settings_(settings),
      sort_by_perf_(settings.sort_by_perf || settings.memory_balanced),
      devices_(problem),
      counter_(counter),
      pieces_(problem.tables()),
      groups_(problem.tables()),
      next_(problem.tables()),
      taken_(problem.ranks()),
      host_order_(problem.hosts) {
  std::int32_t groups = 0;
  for (auto group : problem.table_group) groups = std::max(groups, group + 1);
  group_of_.resize(groups);
  std::int32_t modules = 0;
  for (auto module : problem.table_module) modules = std::max(modules, module + 1);
  module_count_.resize(modules);
  shard_begin_.resize(problem.tables() + 1);
}

Outcome Partitioner::place(std::span<const std::int32_t> options, double limit) {
  if (settings_.memory_balanced) return memory_balanced(options);
  const Outcome outcome = greedy(options, 0, limit);
  if (outcome == Outcome::placed) rating_ = rate(options);
  return outcome;
}

// One attempt. A positive `hbm` replaces what every rank has. Loads only grow, so an attempt whose
// rank is above `limit` can end: its rating would be above it, too.
Outcome Partitioner::greedy(std::span<const std::int32_t> options, std::int64_t hbm, double limit) {
  constexpr std::size_t kAhead = 4;  // groups whose data are fetched while this one is placed
  limit_ = limit;
  const Change change = arrange(options);
  if (change.uniform || hbm != hbm_) {
    hbm_ = hbm;
    devices_.reset(hbm);
    marks_.assign(1, 0);
    uniform_fits_ = place_uniform();
    uniform_load_ = devices_.load(0);
    if (counter_ && uniform_fits_) counter_->start(options);
  } else {
    marks_.resize(std::min(change.order + 1, marks_.size()));
    devices_.undo(marks_.back());
    if (counter_) counter_->undo(marks_.back());
  }
  if (!uniform_fits_ || uniform_load_ > limit_) return Outcome::failed;
  if (counter_ && counter_->exceeds_limit()) return Outcome::failed;
  find_costliest(marks_.size() - 1);
  for (std::size_t g = marks_.size() - 1; g < order_.size(); ++g) {
    if (g + kAhead < order_.size()) {
      const auto* ahead = reinterpret_cast<const char*>(&pieces_[order_[g + kAhead]]);
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + 64);
      __builtin_prefetch(ahead + 128);
    }
    if (rest_ && rest_->surely_fits(g, devices_.free())) return Outcome::placed;
    if (must_exceed_limit(g) || !place_group(order_[g])) return Outcome::failed;
    if (counter_ && !count_group(order_[g])) return Outcome::failed;
    marks_.push_back(devices_.placed().size());
  }
  list_ranks(options);
  return Outcome::placed;
}

// For each group from `from` on: of it and those behind it, the one with the costliest shard.
void Partitioner::find_costliest(std::size_t from) {
  if (limit_ == kNoLimit) return;
  costliest_.resize(order_.size());
  double cost = -1;
  std::int32_t costliest = 0;
  for (std::size_t g = order_.size(); g-- > from;) {
    if (groups_[order_[g]].cost > cost) {
      costliest = order_[g];
      cost = groups_[costliest].cost;
    }
    costliest_[g] = costliest;
  }
}

// The costliest shard that is left goes to a rank that has room for it, and loads only grow.
bool Partitioner::must_exceed_limit(std::size_t g) {
  if (limit_ == kNoLimit) return false;
  const Group& group = groups_[costliest_[g]];
  if (!(devices_.least_load_of_others() + group.cost > limit_)) return false;
  return devices_.least_load(problem_.runs[group.costliest_run]) + group.cost > limit_;
}

// Takes over `options`. Proposals mostly differ in one table from the one before, and an attempt
// goes on from the first group that is new: everything before it is placed as it was.
Partitioner::Change Partitioner::arrange(std::span<const std::int32_t> options) {
  // Beyond this many tables a sort is cheaper.
  const std::size_t few = 16 + options.size() / 32;
  Change change{false, order_.size()};
  changed_.clear();
  bool sort = marks_.empty() || options.size() != options_.size();
  for (std::size_t p = 0; !sort && p < options.size(); ++p) {
    if (options[p] == options_[p]) continue;
    const auto& before = problem_.options[options_[p]];
    const auto& after = problem_.options[options[p]];
    const bool uniform = before.reach == Reach::uniform || after.reach == Reach::uniform;
    change.uniform = change.uniform || uniform;
    changed_.push_back(static_cast<std::int32_t>(p));
    // Towers and sizes of modules are of several tables.
    const bool alone = problem_.table_group[after.table] < 0 && before.table == after.table;
    sort = !alone || changed_.size() > few;
  }
  if (sort) {
    options_.assign(options.begin(), options.end());
    group_and_sort();
    return {true, 0};
  }
  const auto place_of = [&](std::int32_t p) {
    return std::lower_bound(order_.begin(), order_.end(), p,
                            [this](std::int32_t a, std::int32_t b) { return comes_first(a, b); });
  };
  for (const std::int32_t p : changed_) {
    if (pieces_[p].reach != Reach::uniform) {
      const auto at = place_of(p);
      change.order = std::min<std::size_t>(change.order, at - order_.begin());
      order_.erase(at);
    }
    options_[p] = options[p];
    read_piece(p);
    if (pieces_[p].reach != Reach::uniform) {
      start_group(p);
      const auto at = place_of(p);
      change.order = std::min<std::size_t>(change.order, at - order_.begin());
      order_.insert(at, p);
    }
  }
  return change;
}

// All of them before anything else, as TorchRec places them.
bool Partitioner::place_uniform() {
  constexpr std::size_t kAhead = 8;
  for (std::size_t p = 0; p < options_.size(); ++p) {
    if (p + kAhead < options_.size() && pieces_[p + kAhead].reach == Reach::uniform) {
      __builtin_prefetch(&problem_.runs[pieces_[p + kAhead].run_begin]);
      __builtin_prefetch(&problem_.options[options_[p + kAhead]]);
    }
    if (pieces_[p].reach != Reach::uniform) continue;
    if (pieces_[p].shards != static_cast<std::int64_t>(problem_.ranks())) return false;
    devices_.add_uniform(problem_.options[options_[p]]);
  }
  return devices_.settle_uniform();
}

// Tables that must share a host form one group, every other table its own; largest first, ties in
// plan order.
void Partitioner::group_and_sort() {
  order_.clear();
  if (settings_.balance_modules) {
    std::fill(module_count_.begin(), module_count_.end(), 0);
    for (const std::int32_t o : options_) {
      ++module_count_[problem_.table_module[problem_.options[o].table]];
    }
  }
  std::fill(group_of_.begin(), group_of_.end(), -1);
  for (std::size_t p = 0; p < options_.size(); ++p) {
    const auto position = static_cast<std::int32_t>(p);
    read_piece(position);
    const auto& option = problem_.options[options_[p]];
    if (option.reach == Reach::uniform) continue;
    const std::int32_t shared = problem_.table_group[option.table];
    if (shared >= 0 && group_of_[shared] >= 0) {
      auto& group = groups_[group_of_[shared]];
      add_table(group, position);
      next_[group.last] = position;
      group.last = position;
      continue;
    }
    if (shared >= 0) group_of_[shared] = position;
    start_group(position);
    order_.push_back(position);
  }
  std::sort(order_.begin(), order_.end(),
            [this](std::int32_t a, std::int32_t b) { return comes_first(a, b); });
}

void Partitioner::read_piece(std::int32_t p) {
  const auto& option = problem_.options[options_[p]];
  pieces_[p] = {problem_.runs[option.run_begin],
                option.run_begin,
                option.run_end,
                option.shards,
                option.type,
                option.kernel,
                option.reach};
}

// A group that begins at plan position `p`.
void Partitioner::start_group(std::int32_t p) {
  groups_[p] = {};
  if (settings_.balance_modules) {
    groups_[p].modules = module_count_[problem_.table_module[problem_.options[options_[p]].table]];
  }
  groups_[p].last = p;
  add_table(groups_[p], p);
}

void Partitioner::add_table(Group& group, std::int32_t p) {
  const auto& option = problem_.options[options_[p]];
  next_[p] = -1;
  group.storage += option.storage_sum;
  group.perf += option.perf_sum;
  if (option.perf_max <= group.cost) return;
  group.cost = option.perf_max;
  group.costliest_run = option.run_begin;
  while (problem_.runs[group.costliest_run].total != option.perf_max) ++group.costliest_run;
}

bool Partitioner::comes_first(std::int32_t p, std::int32_t q) const {
  const Group& a = groups_[p];
  const Group& b = groups_[q];
  if (a.modules != b.modules) return a.modules < b.modules;
  if (sort_by_perf_) {
    if (a.perf != b.perf) return a.perf > b.perf;
  } else if (a.storage != b.storage) {
    return a.storage > b.storage;
  }
  return p < q;
}

bool Partitioner::place_group(std::int32_t first) {
  const Piece& piece = pieces_[first];
  switch (piece.reach) {
    case Reach::device:
      // TorchRec gives each shard of a key-value table a rank of its own.
      if (piece.kernel == Kernel::key_value && piece.type == ShardingType::column_wise) {
        return place_on_distinct_devices(piece);
      }
      return place_on_devices(piece);
    case Reach::host:
      return place_on_host(first);
    case Reach::multi_host:
      // TorchRec places a grid on hosts only where it is alone in its group.
      return next_[first] < 0 && place_on_hosts(piece);
    case Reach::uniform:
      break;
  }
  throw std::invalid_argument("a uniform option is in a group");
}

// False where the plan comes to more than the counter's limit.
bool Partitioner::count_group(std::int32_t first) {
  auto placed = devices_.placed().begin() + static_cast<std::ptrdiff_t>(marks_.back());
  for (std::int32_t p = first; p >= 0; p = next_[p]) {
    for (auto r = pieces_[p].run_begin; r < pieces_[p].run_end; ++r) {
      const auto count = run_of(pieces_[p], r).count;
      for (std::int64_t i = 0; i < count; ++i) counter_->place(r, (placed++)->rank);
    }
  }
  return !counter_->exceeds_limit();
}

// Each shard on the least loaded rank that has room; the next shard sees its load.
bool Partitioner::place_on_devices(const Piece& piece) {
  for (auto r = piece.run_begin; r < piece.run_end; ++r) {
    const Run& run = run_of(piece, r);
    for (std::int64_t i = 0; i < run.count; ++i) {
      const std::int32_t rank = devices_.least_loaded(run);
      if (rank < 0) return false;
      devices_.place(rank, run);
      if (devices_.load(rank) > limit_) return false;
    }
  }
  return true;
}

bool Partitioner::place_on_distinct_devices(const Piece& piece) {
  if (piece.shards > static_cast<std::int64_t>(problem_.ranks())) return false;
  std::fill(taken_.begin(), taken_.end(), 0);
  for (auto r = piece.run_begin; r < piece.run_end; ++r) {
    const Run& run = run_of(piece, r);
    for (std::int64_t i = 0; i < run.count; ++i) {
      const std::int32_t rank = devices_.least_loaded(run, taken_);
      if (rank < 0) return false;
      devices_.place(rank, run);
      taken_[rank] = 1;
      if (devices_.load(rank) > limit_) return false;
    }
  }
  return true;
}

// The least loaded host that can take the whole group. A sum that does not fit can't be placed, so
// that most full hosts are never tried; an attempt that fails leaves a host as it was.
bool Partitioner::place_on_host(std::int32_t first) {
  const Storage& storage = groups_[first].storage;
  std::int32_t host = devices_.least_loaded_host(storage, -1);
  while (host >= 0 && !try_host(first, host)) {
    host = devices_.least_loaded_host(storage, host);
  }
  if (host < 0) return false;
  for (std::int64_t i = 0; i < problem_.group_size; ++i) {
    const auto rank = static_cast<std::int32_t>(host * problem_.group_size + i);
    if (devices_.load(rank) > limit_) return false;
  }
  return true;
}

// Row shards go to the host's ranks in order, column shards each to its least loaded rank with
// room. All or nothing: on failure the host is as it was.
bool Partitioner::try_host(std::int32_t first, std::int32_t host) {
  const std::size_t before = devices_.placed().size();
  for (std::int32_t p = first; p >= 0; p = next_[p]) {
    const Piece& piece = pieces_[p];
    const bool columns = piece.type == ShardingType::table_column_wise;
    if (columns ? place_columns(piece, host) : place_rows(piece, host)) continue;
    devices_.undo(before);
    return false;
  }
  return true;
}

bool Partitioner::place_columns(const Piece& piece, std::int32_t host) {
  for (auto r = piece.run_begin; r < piece.run_end; ++r) {
    const Run& run = run_of(piece, r);
    for (std::int64_t i = 0; i < run.count; ++i) {
      const std::int32_t rank = devices_.least_loaded_of_host(run, host);
      if (rank < 0) return false;
      devices_.place(rank, run);
    }
  }
  return true;
}

bool Partitioner::place_rows(const Piece& piece, std::int32_t host) {
  if (piece.type != ShardingType::table_row_wise || piece.shards != problem_.group_size) {
    return false;
  }
  auto rank = static_cast<std::int32_t>(host * problem_.group_size);
  for (auto r = piece.run_begin; r < piece.run_end; ++r) {
    const Run& run = run_of(piece, r);
    for (std::int64_t i = 0; i < run.count; ++i, ++rank) {
      if (!devices_.fits(rank, run)) return false;
      devices_.place(rank, run);
    }
  }
  return true;
}

void Partitioner::sort_hosts() {
  std::iota(host_order_.begin(), host_order_.end(), 0);
  const auto loads = devices_.host_loads();
  std::stable_sort(host_order_.begin(), host_order_.end(),
                   [&](std::int64_t a, std::int64_t b) { return loads[a] < loads[b]; });
}

// A grid's columns go to neighbouring hosts in order of load, or round and round when there are
// more columns than hosts.
bool Partitioner::place_on_hosts(const Piece& piece) {
  if (piece.shards % problem_.group_size != 0) return false;
  const std::int64_t wanted = piece.shards / problem_.group_size;
  sort_hosts();
  const auto hosts = static_cast<std::int64_t>(host_order_.size());
  const std::int64_t last = wanted >= hosts ? 0 : hosts - wanted;
  for (std::int64_t from = 0; from <= last; ++from) {
    if (try_hosts(piece, std::span(host_order_).subspan(from), wanted)) {
      const auto loads = devices_.loads();
      return *std::max_element(loads.begin(), loads.end()) <= limit_;
    }
  }
  return false;
}

// Shard i of the grid goes to rank i mod group_size of host i / group_size, round and round.
bool Partitioner::try_hosts(const Piece& piece, std::span<const std::int64_t> hosts,
                            std::int64_t wanted) {
  const auto distinct = std::min<std::int64_t>(wanted, hosts.size());
  const std::size_t before = devices_.placed().size();
  std::int64_t shard = 0;
  for (auto r = piece.run_begin; r < piece.run_end; ++r) {
    const Run& run = run_of(piece, r);
    for (std::int64_t i = 0; i < run.count; ++i, ++shard) {
      const std::int64_t host = hosts[shard / problem_.group_size % distinct];
      const auto rank =
          static_cast<std::int32_t>(host * problem_.group_size + shard % problem_.group_size);
      if (!devices_.fits(rank, run)) {
        devices_.undo(before);
        return false;
      }
      devices_.place(rank, run);
    }
  }
  return true;
}

}  // namespace fastplan
