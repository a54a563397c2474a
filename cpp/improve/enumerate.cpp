#include "improve/enumerate.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace fastplan {
namespace {

// More tables x ranks than this have too many placements to see all of them.
constexpr std::size_t kMostPlaces = 160;
// A call on the stack for each piece.
constexpr std::int64_t kMostPieces = 512;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Nodes between two looks at the clock.
constexpr std::int64_t kCheckEvery = 1024;
// How much better a plan must be, as a part: less is rounding.
constexpr double kBetter = 1e-9;

}  // namespace

Enumeration::Enumeration(const Choices& choices, const Relaxation& relaxation)
    : choices_(choices),
      problem_(choices.problem()),
      relaxation_(relaxation),
      rows_(relaxation.rows()),
      load_(problem_) {
  worthwhile_ = choices.complete() && !choices.partial() && choices.towers().empty() &&
                problem_.tables() * problem_.ranks() <= kMostPlaces && pieces() <= kMostPieces;
  if (!worthwhile_) return;
  choice_row_.assign(choices.first(choices.tables()), -1);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const auto choice = choices.of_option(rows_[i].option);
    if (choice >= 0) choice_row_[choice] = static_cast<std::int32_t>(i);
  }
  items_.resize(choices.tables());
  smallest_.resize(choices.tables());
  waiting_.resize(choices.tables());
}

// The most that all tables together can be in.
std::int64_t Enumeration::pieces() const {
  std::int64_t sum = 0;
  for (std::size_t t = 0; t < choices_.tables(); ++t) {
    std::int32_t most = 0;
    for (auto c = choices_.first(t); c < choices_.first(t + 1); ++c) {
      most = std::max(most, choices_[c].pieces);
    }
    sum += most;
  }
  return sum;
}

bool Enumeration::run(std::span<const Slab> slabs, const Allowed& allowed, double target,
                      std::int64_t& nodes, const std::function<bool()>& stopped) {
  limit_ = target * (1 - kBetter);
  load_.target = choices_.fixed(limit_);
  nodes_ = &nodes;
  stopped_ = &stopped;
  over_ = missed_ = false;
  best_ = {};
  if (load_.target <= 0) return false;
  for (const auto& slab : slabs) {
    if (over_ || !prepare(slab, allowed)) continue;
    std::iota(waiting_.begin(), waiting_.end(), 0);
    load_.clear();
    choice_.assign(choices_.tables(), -1);
    places_.assign(choices_.tables(), {});
    price_ = uniform_ = 0;
    search_tables(0);
  }
  return !over_ && !missed_;
}

Enumeration::Item Enumeration::item_of(std::int32_t choice, const Slab& slab) const {
  const auto& row = rows_[choice_row_[choice]];
  const auto& option = problem_.options[row.option];
  Item item{price_of(row, slab), row.average, row.uniform, choice,
            choices_.run_load(option.run_begin)};
  for (auto r = option.run_begin + 1; r < option.run_end; ++r) {
    item.least = least_of(item.least, choices_.run_load(r));
  }
  return item;
}

// The prices of a slab. False: it has no plan within the target.
bool Enumeration::prepare(const Slab& slab, const Allowed& allowed) {
  low_ = slab.low;
  high_ = slab.high;
  constant_ = -slab.uniform * (slab.uniform > 0 ? std::min(slab.high, limit_) : slab.low);
  for (int m = 0; m < 3; ++m) constant_ -= slab.memory[m] * relaxation_.capacity()[m];
  exact_costs_ = true;
  double bound = constant_;
  for (std::size_t t = 0; t < choices_.tables(); ++t) {
    auto& own = items_[t];
    own.clear();
    smallest_[t] = std::numeric_limits<std::int64_t>::max();
    for (const auto number : allowed[t]) {
      if (choice_row_[number] < 0 || rows_[choice_row_[number]].largest > limit_ - low_) continue;
      own.push_back(item_of(number, slab));
      smallest_[t] = std::min(smallest_[t], own.back().least.cost);
      const auto spread = choices_[number].spread;
      const bool as_smallest = spread == Spread::everywhere || spread == Spread::hosts;
      if (as_smallest && !problem_.options[choices_[number].option].same_perf) exact_costs_ = false;
    }
    if (own.empty()) return false;
    std::ranges::stable_sort(own, {}, &Item::price);
    bound += own[0].price;
  }
  return bound <= limit_;
}

// Whether the choice could go beside what is placed, if it were the last.
bool Enumeration::fits(const Item& item) const {
  const auto& choice = choices_[item.choice];
  if (choice.spread == Spread::everywhere) {
    return item.least.cost <= room_.cost && item.least.storage.fits_in(room_.storage);
  }
  if (choice.spread == Spread::hosts) {
    std::int32_t found = 0;
    const auto wanted = choice.distinct ? choice.pieces : 1;
    for (std::int32_t host = 0; host < load_.hosts() && found < wanted; ++host) {
      found += load_.fits_host(host, item.least);
    }
    return found == wanted;
  }
  const auto enough = [&](std::int32_t begin, std::int32_t end) {
    auto left = choice.pieces;
    for (auto rank = begin; rank < end && left > 0; ++rank) {
      left -= load_.count(rank, item.least, choice.distinct ? 1 : left);
    }
    return left <= 0;
  };
  if (choice.spread == Spread::ranks) return enough(0, load_.ranks());
  const auto size = load_.size();
  for (std::int32_t host = 0; host < load_.hosts(); ++host) {
    if (enough(host * size, (host + 1) * size)) return true;
  }
  return false;
}

// Counts a node.
bool Enumeration::ended() {
  if (over_) return true;
  --*nodes_;
  over_ = *nodes_ <= 0 || (*nodes_ % kCheckEvery == 0 && (*stopped_)());
  return over_;
}

// What is left on ranks that no shard of the other tables fits on, as a cost per rank.
double Enumeration::waste(std::int64_t smallest) const {
  // Where shards cost more than they count for, ranks have less left than it seems.
  if (!exact_costs_) return 0;
  std::int64_t sum = 0;
  for (const auto& load : load_) {
    if (load_.target - load.cost < smallest) sum += load_.target - load.cost;
  }
  const double part = static_cast<double>(sum) / static_cast<double>(load_.target);
  return limit_ * part / load_.ranks();
}

// Chooses the table to place next: a large one, whose second choice costs much more than its first,
// or that has no second one. False: no plan is good enough.
bool Enumeration::choose_table(std::int32_t depth, Node& node) {
  room_ = load_.room_on_all();
  node.bound = constant_ + price_;
  auto smallest = std::numeric_limits<std::int64_t>::max();
  double least_uniform = uniform_;
  double most_uniform = uniform_;
  double heaviest = -kInfinity;
  for (auto i = static_cast<std::size_t>(depth); i < waiting_.size(); ++i) {
    const auto& items = items_[waiting_[i]];
    const auto does_fit = [this](const Item& item) { return fits(item); };
    const auto first = std::find_if(items.begin(), items.end(), does_fit);
    if (first == items.end()) return false;
    const auto second = std::find_if(first + 1, items.end(), does_fit);
    node.bound += first->price;
    smallest = std::min(smallest, smallest_[waiting_[i]]);
    const auto [low, high] = std::ranges::minmax(std::span(first, items.end()), {}, &Item::uniform);
    least_uniform += low.uniform;
    most_uniform += high.uniform;
    const double regret = second == items.end() ? kInfinity : second->price - first->price;
    const double weight = first->average + regret;
    if (weight > heaviest) {
      heaviest = weight;
      node.at = static_cast<std::int32_t>(i);
      node.first = static_cast<std::int32_t>(first - items.begin());
    }
  }
  if (least_uniform > high_ * (1 + kBetter) || most_uniform < low_ * (1 - kBetter)) return false;
  node.bound += waste(smallest);
  return node.bound <= limit_;
}

void Enumeration::search_tables(std::int32_t depth) {
  if (ended()) return;
  if (depth == static_cast<std::int32_t>(waiting_.size())) return note_plan();
  Node node;
  if (!choose_table(depth, node)) return;
  std::swap(waiting_[depth], waiting_[node.at]);
  const auto table = waiting_[depth];
  const auto& items = items_[table];
  const double others = node.bound - items[node.first].price;
  for (std::size_t k = node.first; k < items.size() && !over_; ++k) {
    const Item& item = items[k];
    // The choices after it cost no less.
    if (others + item.price > limit_) break;
    choice_[table] = item.choice;
    places_[table].assign(choices_[item.choice].pieces, -1);
    const auto [price, uniform] = std::pair(price_, uniform_);
    price_ += item.price;
    uniform_ += item.uniform;
    place(depth, item, 0);
    // Not by taking away, which would leave rounding behind.
    price_ = price;
    uniform_ = uniform;
  }
  std::swap(waiting_[depth], waiting_[node.at]);
}

void Enumeration::place(std::int32_t depth, const Item& item, std::int32_t piece) {
  const auto& choice = choices_[item.choice];
  if (choice.spread == Spread::everywhere) return place_everywhere(depth, item);
  if (piece == choice.pieces) return search_tables(depth + 1);
  if (piece > 0 && ended()) return;
  choice.spread == Spread::hosts ? place_block(depth, item, piece)
                                 : place_shard(depth, item, piece);
}

void Enumeration::place_everywhere(std::int32_t depth, const Item& item) {
  for (std::int32_t rank = 0; rank < load_.ranks(); ++rank) {
    if (!load_.fits(rank, item.least)) return;
  }
  for (std::int32_t rank = 0; rank < load_.ranks(); ++rank) load_[rank] += item.least;
  search_tables(depth + 1);
  for (std::int32_t rank = 0; rank < load_.ranks(); ++rank) load_[rank] -= item.least;
}

void Enumeration::place_block(std::int32_t depth, const Item& item, std::int32_t piece) {
  const auto& choice = choices_[item.choice];
  auto& places = places_[choice.table];
  const auto size = load_.size();
  Load load = choices_.shard_load(choice, piece * size);  // of the block's shards, the least
  bool alike = piece > 0;                                 // to the piece before
  for (auto shard = piece * size; shard < (piece + 1) * size; ++shard) {
    load = least_of(load, choices_.shard_load(choice, shard));
    alike = alike && choices_.shard_run(choice, shard) == choices_.shard_run(choice, shard - size);
  }
  for (auto host = alike ? places[piece - 1] : 0; host < load_.hosts() && !over_; ++host) {
    const auto before = std::span(places).first(piece);
    if (choice.distinct && std::ranges::find(before, host) != before.end()) continue;
    if (!load_.fits_host(host, load) || (piece == 0 && load_.seen_host(host))) continue;
    for (std::int32_t i = 0; i < size; ++i) load_[host * size + i] += load;
    places[piece] = host;
    place(depth, item, piece + 1);
    for (std::int32_t i = 0; i < size; ++i) load_[host * size + i] -= load;
  }
}

void Enumeration::place_shard(std::int32_t depth, const Item& item, std::int32_t piece) {
  const auto& choice = choices_[item.choice];
  auto& places = places_[choice.table];
  const Load& load = choices_.shard_load(choice, piece);
  const bool alike =
      piece > 0 && choices_.shard_run(choice, piece) == choices_.shard_run(choice, piece - 1);
  std::int32_t begin = 0;
  const auto size = load_.size();
  auto end = choice.spread == Spread::ranks ? load_.ranks() : load_.hosts() * size;
  // The first shard decides which host it is.
  const bool settled = choice.spread == Spread::host_ranks && piece > 0;
  if (settled) {
    begin = places[0] / size * size;
    end = begin + size;
  }
  if (alike) begin = std::max(begin, places[piece - 1]);
  for (auto rank = begin; rank < end && !over_; ++rank) {
    const auto before = std::span(places).first(piece);
    if (choice.distinct && std::ranges::find(before, rank) != before.end()) continue;
    if (!load_.fits(rank, load)) continue;
    // Where pieces must not meet, ranks of the same load differ by whether they hold one.
    const bool by_load = piece == 0 || !choice.distinct;
    if (by_load && (load_.seen_rank(rank) || (!settled && load_.seen_host(rank / size)))) continue;
    load_[rank] += load;
    places[piece] = rank;
    place(depth, item, piece + 1);
    load_[rank] -= load;
  }
}

// With the real sizes. Plans from here on must be better.
void Enumeration::note_plan() {
  const auto size = load_.size();
  std::vector<Load> load(load_.ranks());
  for (std::size_t t = 0; t < choices_.tables(); ++t) {
    const auto& choice = choices_[choice_[t]];
    const auto& option = problem_.options[choice.option];
    std::int32_t shard = 0;
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      for (std::int64_t i = 0; i < problem_.runs[r].count; ++i, ++shard) {
        auto rank = shard;
        if (choice.spread == Spread::hosts) {
          rank = places_[t][shard / size] * size + shard % size;
        } else if (choice.spread != Spread::everywhere) {
          rank = places_[t][shard];
        }
        load[rank] += choices_.run_load(r);
      }
    }
  }
  std::int64_t cost = 0;
  bool fit = true;
  for (std::int32_t rank = 0; rank < load_.ranks(); ++rank) {
    cost = std::max(cost, load[rank].cost);
    fit = fit && load[rank].storage.fits_in(problem_.capacity[rank]);
  }
  if (!fit || cost > load_.target) {
    missed_ = true;
    return;
  }
  best_.choice = choice_;
  best_.places.clear();
  for (const auto& own : places_) best_.places.emplace_back(own);
  best_.cost = cost;
  const double part = static_cast<double>(cost) / static_cast<double>(load_.target);
  limit_ *= part * (1 - kBetter);
  load_.target = std::min(cost - 1, choices_.fixed(limit_));
}

}  // namespace fastplan
