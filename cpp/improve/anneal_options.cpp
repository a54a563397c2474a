#include "improve/anneal_options.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fastplan {
namespace {

// One trial in so many changes two tables, so that one can make room for another.
constexpr std::size_t kTwoTablesEvery = 3;
// One run in so many places shards by cost alone.
constexpr std::size_t kCostOnlyEvery = 3;

}  // namespace

OptionAnnealer::OptionAnnealer(const Choices& choices, std::uint64_t seed)
    : choices_(choices),
      problem_(choices.problem()),
      random_(seed),
      limits_(problem_, 0),
      first_limits_(problem_, 0),
      choice_(choices.tables(), -1),
      tower_host_(choices.towers().size()),
      hosts_(choices.tables()),
      ranks_(choices.tables()),
      base_(problem_.ranks()),
      load_(problem_.ranks()) {}

void OptionAnnealer::start(std::span<const std::int32_t> chosen) {
  std::fill(base_.begin(), base_.end(), Load{});
  std::fill(choice_.begin(), choice_.end(), -1);
  pieces_.clear();
  changed_ = 0;
  // Where memory is short, large shards must come early; where it is not, they need not.
  memory_weight_ = random_.below(kCostOnlyEvery) == 0 ? 0.0 : std::exp2(3 * random_.real() - 1);
  for (auto& host : tower_host_) host = random_.below(problem_.hosts);
  for (std::size_t t = 0; t < choices_.tables(); ++t) {
    choose_hosts(choices_[chosen[t]]);
    set(t, chosen[t], new_hosts_);
  }
}

// Random hosts for the choice's blocks or shards, or those of its tower.
void OptionAnnealer::choose_hosts(const Choice& choice) {
  new_hosts_.clear();
  std::int32_t count = 0;
  if (choice.spread == Spread::hosts) count = choice.pieces;
  if (choice.spread == Spread::host_ranks) count = 1;
  const auto tower = choices_.tower(choice.table);
  for (std::int32_t i = 0; i < count; ++i) {
    auto host = tower >= 0 ? tower_host_[tower] : random_.below(problem_.hosts);
    while (choice.distinct &&
           std::find(new_hosts_.begin(), new_hosts_.end(), host) != new_hosts_.end()) {
      host = static_cast<std::int32_t>((host + 1) % problem_.hosts);
    }
    new_hosts_.push_back(host);
  }
}

// What the pieces are sorted by: cost, or memory as cost where that is more.
double OptionAnnealer::length(const Choice& choice, std::int32_t shard) const {
  const Load& load = choices_.shard_load(choice, shard);
  return std::max(static_cast<double>(load.cost),
                  memory_weight_ * first_limits_.memory(load.storage));
}

// Adds a table's shards to the ranks and to the waiting pieces, or takes them away.
void OptionAnnealer::put(std::size_t table, bool add) {
  const auto& choice = choices_[choice_[table]];
  const auto change = [&](std::int64_t rank, const Load& load) {
    add ? base_[rank] += load : base_[rank] -= load;
  };
  if (choice.spread == Spread::everywhere) {
    const auto& option = problem_.options[choice.option];
    std::int64_t rank = 0;
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      const Load& load = choices_.run_load(r);
      for (std::int64_t i = 0; i < problem_.runs[r].count; ++i) change(rank++, load);
    }
    return;
  }
  if (choice.spread == Spread::hosts) {
    const auto size = problem_.group_size;
    for (std::int32_t shard = 0; shard < choice.shards; ++shard) {
      const auto rank = hosts_[table][shard / size] * size + shard % size;
      change(rank, choices_.shard_load(choice, shard));
    }
    return;
  }
  ranks_[table].resize(choice.pieces);
  for (std::int32_t i = 0; i < choice.pieces; ++i) {
    // Pieces that must not meet are placed in order, as if they were equally long.
    const Piece piece{length(choice, choice.distinct ? 0 : i), static_cast<std::int32_t>(table), i};
    // The pieces stay sorted: a trial inserts and erases a few instead of sorting all.
    const auto at = std::lower_bound(pieces_.begin(), pieces_.end(), piece);
    add ? pieces_.insert(at, piece) : pieces_.erase(at);
  }
}

void OptionAnnealer::set(std::size_t table, std::int32_t choice,
                         std::span<const std::int32_t> hosts) {
  if (choice_[table] >= 0) put(table, false);
  choice_[table] = choice;
  hosts_[table].assign(hosts.begin(), hosts.end());
  put(table, true);
}

void OptionAnnealer::change(std::size_t table, std::int32_t choice) {
  if (before_.size() == changed_) before_.emplace_back();
  auto& before = before_[changed_++];
  before.table = static_cast<std::int32_t>(table);
  before.choice = choice_[table];
  before.hosts = hosts_[table];
  choose_hosts(choices_[choice]);
  set(table, choice, new_hosts_);
}

// One table or two get another choice, or other hosts. False when nothing has changed.
bool OptionAnnealer::mutate(const Allowed& allowed) {
  changed_ = 0;
  const std::int32_t count = random_.below(kTwoTablesEvery) == 0 ? 2 : 1;
  for (std::int32_t i = 0; i < count; ++i) {
    const auto table = random_.below(choices_.tables());
    const auto tower = choices_.tower(table);
    if (hosts_[table].empty() || random_.below(2) == 0) {
      const auto choice = allowed[table][random_.below(allowed[table].size())];
      if (choice != choice_[table]) change(table, choice);
    } else if (tower < 0) {
      change(table, choice_[table]);
    } else if (i == 0) {  // undo() restores one host per tower
      tower_host_[tower] = random_.below(problem_.hosts);
      for (const auto member : choices_.towers()[tower]) change(member, choice_[member]);
    }
  }
  return changed_ > 0;
}

// In reverse order, so that a table that was changed twice ends as it began.
void OptionAnnealer::undo() {
  while (changed_ > 0) {
    const auto& before = before_[--changed_];
    set(before.table, before.choice, before.hosts);
    const auto tower = choices_.tower(before.table);
    if (tower >= 0 && !before.hosts.empty()) tower_host_[tower] = before.hosts[0];
  }
}

// The least loaded rank with room; without one, the rank that it does least harm to.
std::int32_t OptionAnnealer::best_rank(const Piece& piece) const {
  const auto& choice = choices_[choice_[piece.table]];
  const Load& load = choices_.shard_load(choice, piece.number);
  std::int32_t begin = 0;
  auto end = static_cast<std::int32_t>(problem_.ranks());
  if (choice.spread == Spread::host_ranks) {
    const auto size = static_cast<std::int32_t>(problem_.group_size);
    begin = hosts_[piece.table][0] * size;
    end = begin + size;
  }
  const auto placed = std::span(ranks_[piece.table]).first(piece.number);
  const auto taken = [&](std::int32_t rank) {
    return choice.distinct && std::find(placed.begin(), placed.end(), rank) != placed.end();
  };
  std::int32_t best = -1;
  for (auto rank = begin; rank < end; ++rank) {
    if (best >= 0 && load_[rank].cost >= load_[best].cost) continue;
    Storage sum = load_[rank].storage;
    sum += load.storage;
    if (sum.fits_in(problem_.capacity[rank]) && !taken(rank)) best = rank;
  }
  if (best >= 0) return best;
  double least = 0;
  for (auto rank = begin; rank < end; ++rank) {
    if (taken(rank)) continue;
    Load sum = load_[rank];
    sum += load;
    const double harm = limits_.energy(rank, sum) - limits_.energy(rank, load_[rank]);
    if (best < 0 || harm < least) {
      best = rank;
      least = harm;
    }
  }
  return best;
}

// List scheduling: the pieces, longest first, each on its best rank. Returns the energy.
double OptionAnnealer::place_pieces() {
  load_ = base_;
  for (const auto& piece : pieces_) {
    const auto rank = best_rank(piece);
    ranks_[piece.table][piece.number] = rank;
    load_[rank] += choices_.shard_load(choices_[choice_[piece.table]], piece.number);
  }
  double energy = 0;
  for (std::size_t rank = 0; rank < load_.size(); ++rank) {
    energy += limits_.energy(static_cast<std::int32_t>(rank), load_[rank]);
  }
  return energy;
}

Draft OptionAnnealer::present() const {
  Draft draft;
  draft.choice = choice_;
  for (std::size_t t = 0; t < choices_.tables(); ++t) {
    const auto spread = choices_[choice_[t]].spread;
    if (spread == Spread::everywhere) {
      draft.places.emplace_back();
    } else {
      draft.places.emplace_back(spread == Spread::hosts ? hosts_[t] : ranks_[t]);
    }
  }
  for (const auto& load : load_) draft.cost = std::max(draft.cost, load.cost);
  return draft;
}

Draft OptionAnnealer::take_best() { return std::exchange(best_, {}); }

std::int64_t OptionAnnealer::run(std::span<const std::int32_t> chosen, const Cooling& cooling,
                                 std::int64_t target, const Allowed& allowed,
                                 const std::function<bool()>& stopped) {
  limits_ = first_limits_ = Limits(problem_, target);
  start(chosen);
  double energy = place_pieces();
  const double factor =
      std::pow(cooling.cold / cooling.hot, 1 / std::max(static_cast<double>(cooling.moves), 1.0));
  double temperature = cooling.hot * static_cast<double>(target);
  std::int64_t made = 0;
  for (; made < cooling.moves && !stopped(); ++made, temperature *= factor) {
    if (energy == 0) {
      Draft found = present();
      if (best_.empty() || found.cost < best_.cost) best_ = std::move(found);
      const double lower = static_cast<double>(best_.cost) * (1 - cooling.step);
      // Below the best plan, as Annealer::note_plan does; the same placement then has energy again.
      limits_ = Limits(problem_, std::min(best_.cost - 1, static_cast<std::int64_t>(lower)));
      energy = place_pieces();
      if (energy == 0) break;
    }
    if (!mutate(allowed)) continue;
    const double next = place_pieces();
    const double change = next - energy;
    if (change <= 0 || change < -temperature * std::log(random_.real())) {
      energy = next;
    } else {
      undo();
    }
  }
  place_pieces();
  return made;
}

}  // namespace fastplan
