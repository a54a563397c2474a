#include "bound/packing.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fastplan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// The knapsack's costs are rounded down to this many steps per rank.
constexpr std::int32_t kGrid = 4096;
// Larger problems have many shards per rank, where averages are nearly all there is to say.
constexpr std::size_t kMostItems = 400;
constexpr std::size_t kMostTables = 128;
// More shards of one option on a rank are counted as all of them, which only makes a rank worth
// more.
constexpr std::int32_t kMostOnRank = 64;
constexpr std::size_t kPool = 256;
constexpr std::int64_t kPivots = 4000;
// Below this the linear program has nothing left over.
constexpr double kNothing = 1e-6;

// Rounded down, and by kRounding more: a knapsack that takes shards for smaller than they are is
// worth more, so what it proves holds for the real ones.
std::int32_t grid_steps(double cost, double room) {
  return static_cast<std::int32_t>(cost / room * (1 - kRounding) * kGrid);
}

}  // namespace

Packing::Packing(const Problem& problem, const Relaxation& relaxation)
    : problem_(problem), relaxation_(relaxation), row_item_(relaxation.rows().size(), -1) {
  const auto rows = relaxation.rows();
  for (std::size_t t = 0; t < problem.tables(); ++t) {
    const auto first = items_.size();
    for (auto r = relaxation.first(t); r < relaxation.first(t + 1); ++r) {
      const auto& row = rows[r];
      if (row.most == 0) continue;
      // An option whose shards are no smaller, no fewer and hold no less than another's of the
      // table can take the other's reward: one item stands for both, and the program gets smaller.
      const auto no_heavier = [&](const Item& item) {
        const auto& other = rows[item.row];
        return other.shards == row.shards && other.most >= row.most &&
               other.smallest <= row.smallest && other.largest <= row.largest &&
               other.memory[0] <= row.memory[0] && other.memory[1] <= row.memory[1] &&
               other.memory[2] <= row.memory[2];
      };
      const auto twin = std::find_if(items_.begin() + first, items_.end(), no_heavier);
      row_item_[r] = static_cast<std::int32_t>(twin - items_.begin());
      if (twin == items_.end()) items_.push_back({r, static_cast<std::int32_t>(t)});
    }
  }
}

// The program has a row for each table and item, and a dense inverse.
bool Packing::worthwhile() const {
  return !items_.empty() && items_.size() <= kMostItems && problem_.tables() <= kMostTables;
}

// K of certificate.h, with one option per table: value_[x] is the most reward for x steps of room,
// built table by table from before_. Costs are rounded down, which makes it more, never less.
double Packing::knapsack(double room, Pattern& best) {
  const auto rows = relaxation_.rows();
  value_.assign(kGrid + 1, 0.0);
  layer_item_.clear();
  taken_.clear();
  for (std::size_t i = 0; i < items_.size();) {
    const auto first = i;
    const auto layer = taken_.size();
    before_ = value_;
    layer_item_.push_back(static_cast<std::int32_t>(first));
    taken_.resize(layer + kGrid + 1, -1);
    for (; i < items_.size() && items_[i].table == items_[first].table; ++i) {
      const auto& row = rows[items_[i].row];
      const auto most = std::min<std::int64_t>(row.most, kMostOnRank);
      for (std::int32_t count = 1; item_reward_[i] > 0 && count <= most; ++count) {
        // Whoever can have that many may have all.
        const bool last = count == kMostOnRank;
        const double reward = item_reward_[i] * static_cast<double>(last ? row.most : count);
        const auto steps = grid_steps(row.smallest * count, room);
        // What a cell took, in one number, to read the pattern back from the last cell.
        const auto code = static_cast<std::int32_t>((i - first) * (kMostOnRank + 1)) + count;
        for (std::int32_t x = steps; x <= kGrid; ++x) {
          const double sum = before_[x - steps] + reward;
          if (sum <= value_[x]) continue;
          value_[x] = sum;
          taken_[layer + x] = code;
        }
      }
    }
  }
  read_pattern(room, best);
  return value_[kGrid];
}

// Back from the last cell, table by table.
void Packing::read_pattern(double room, Pattern& pattern) const {
  const auto rows = relaxation_.rows();
  pattern = {};
  std::int32_t x = kGrid;
  for (auto layer = layer_item_.size(); layer-- > 0;) {
    const auto code = taken_[layer * (kGrid + 1) + x];
    if (code < 0) continue;
    const auto item = layer_item_[layer] + code / (kMostOnRank + 1);
    const auto count = code % (kMostOnRank + 1);
    const auto& row = rows[items_[item].row];
    const double cost = row.smallest * count;
    pattern.shards.emplace_back(item,
                                count == kMostOnRank ? static_cast<std::int32_t>(row.most) : count);
    pattern.cost += cost;
    x -= grid_steps(cost, room);
  }
}

// The right side of the bound by packing: how much more the tables are worth than the ranks can
// take, after all rounding. Above zero it is a proof.
double Packing::surplus(const Slab& slab, const Room& room, double filled) const {
  const auto rows = relaxation_.rows();
  const double edge = slab.uniform * (slab.uniform > 0 ? room.high : slab.low);
  double sum = -static_cast<double>(problem_.ranks()) * filled - edge;
  double size = static_cast<double>(problem_.ranks()) * filled + std::fabs(edge);
  for (int m = 0; m < 3; ++m) {
    sum -= slab.memory[m] * relaxation_.capacity()[m];
    size += slab.memory[m] * relaxation_.capacity()[m];
  }
  for (std::size_t t = 0; t < problem_.tables(); ++t) {
    double least = kInfinity;
    double least_size = 0;
    for (auto r = relaxation_.first(t); r < relaxation_.first(t + 1); ++r) {
      const auto& row = rows[r];
      if (row.largest > room.shards) continue;
      double price = 0;
      if (row.most > 0) price += slab.reward[row.option] * static_cast<double>(row.shards);
      for (int m = 0; m < 3; ++m) price += slab.memory[m] * row.memory[m];
      const double uniform = slab.uniform * row.uniform;
      const double own_size = price + std::fabs(uniform);
      price += uniform - kRounding * own_size;
      if (price >= least) continue;
      least = price;
      least_size = own_size;
    }
    if (std::isinf(least)) return kInfinity;
    sum += least;
    size += least_size;
  }
  return sum - kRounding * size;
}

// The program, with z(o) how much of a table is option o, p(k) how many ranks have pattern k, and a
// what is missing (cost 1 each):
//     table t        sum_o z(o) + a(t)                       = 1
//     item i         shards(i) z(i) - sum_k n(i,k) p(k)     <= 0
//     ranks          sum_k p(k) / R                         <= 1
//     memory m       sum_o m(o) z(o) / M                    <= 1
//     U from above   sum_o u(o) z(o) / high                 <= 1
//     U from below   sum_o u(o) z(o) / high + a             >= low / high
// An optimum above zero says that no plan has all tables; its multipliers are the prices of the
// proof.
Simplex Packing::master(const Slab& slab, const Room& room) const {
  const auto tables = static_cast<std::int32_t>(problem_.tables());
  std::vector<double> right(rank_row_ + 6, 1.0), cost(rank_row_ + 6, 0.0);
  for (std::int32_t t = 0; t < tables; ++t) cost[t] = 1;
  // Nearly nothing instead of nothing: ties in the ratio test would stall the pivots.
  for (auto i = tables; i < rank_row_; ++i) right[i] = 1e-7 * (1 + 0.37 * (i % 17));
  right[rank_row_ + 5] = slab.low / room.high;
  cost[rank_row_ + 5] = 1;
  Simplex program(right, cost);
  program.add({{rank_row_ + 5, -1.0}}, 0);
  for (std::int32_t t = 0; t < tables; ++t) {
    for (auto r = relaxation_.first(t); r < relaxation_.first(t + 1); ++r) {
      const auto item = row_item_[r];
      const bool stands_for_itself = item < 0 || items_[item].row == r;
      if (relaxation_.rows()[r].largest <= room.shards && stands_for_itself) {
        program.add(column_of(t, r, room.high), 0);
      }
    }
  }
  for (const auto& pattern : pool_) {
    const bool possible = pattern.cost <= room.shards &&
                          std::all_of(pattern.shards.begin(), pattern.shards.end(),
                                      [&](const auto& part) { return item_row_[part.first] >= 0; });
    if (possible) program.add(column_of(pattern), 0);
  }
  return program;
}

Simplex::Column Packing::column_of(std::int32_t table, std::int32_t row, double scale) const {
  const auto& own = relaxation_.rows()[row];
  Simplex::Column column{{table, 1.0}};
  if (row_item_[row] >= 0) {
    column.emplace_back(item_row_[row_item_[row]], static_cast<double>(own.shards));
  }
  for (int m = 0; m < 3; ++m) {
    if (!relaxation_.scarce(m)) continue;
    column.emplace_back(rank_row_ + 1 + m, own.memory[m] / relaxation_.capacity()[m]);
  }
  if (own.uniform > 0) {
    column.emplace_back(rank_row_ + 4, own.uniform / scale);
    column.emplace_back(rank_row_ + 5, own.uniform / scale);
  }
  return column;
}

Simplex::Column Packing::column_of(const Pattern& pattern) const {
  Simplex::Column column{{rank_row_, 1 / static_cast<double>(problem_.ranks())}};
  for (const auto& [item, count] : pattern.shards) {
    column.emplace_back(item_row_[item], -static_cast<double>(count));
  }
  return column;
}

// The program's multipliers as rewards and as those of the slab. Signs turn: a row that is at most
// its right side has a multiplier of at most zero, and a price is not negative.
void Packing::take_prices(std::span<const double> price, const Room& room, Slab& slab) {
  const auto rows = relaxation_.rows();
  for (std::size_t i = 0; i < items_.size(); ++i) {
    item_reward_[i] = item_row_[i] < 0 ? 0.0 : std::max(0.0, -price[item_row_[i]]);
  }
  for (int m = 0; m < 3; ++m) {
    slab.memory[m] = 0;
    if (!relaxation_.scarce(m)) continue;
    slab.memory[m] = std::max(0.0, -price[rank_row_ + 1 + m]) / relaxation_.capacity()[m];
  }
  slab.uniform = (-price[rank_row_ + 4] - price[rank_row_ + 5]) / room.high;
  slab.reward.assign(problem_.options.size(), 0.0);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (row_item_[r] >= 0) slab.reward[rows[r].option] = item_reward_[row_item_[r]];
  }
}

// Column generation until the slab is proven, nothing helps, or the effort is spent.
bool Packing::prove(Slab& slab, double threshold, std::int64_t& knapsacks,
                    const std::function<bool()>& stopped) {
  const double ceiling = threshold * (1 + kRounding);
  const Room room{ceiling - slab.low, std::min(slab.high, ceiling)};
  if (room.shards <= 0 || room.high <= slab.low) return false;
  item_row_.assign(items_.size(), -1);
  item_reward_.assign(items_.size(), 0.0);
  rank_row_ = static_cast<std::int32_t>(problem_.tables());
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (relaxation_.rows()[items_[i].row].largest <= room.shards) item_row_[i] = rank_row_++;
  }
  Simplex program = master(slab, room);
  while (knapsacks > 0 && !stopped()) {
    if (!program.solve(kPivots) || program.objective() < kNothing) return false;
    const auto price = program.multipliers();
    take_prices(price, room, slab);
    Pattern best;
    const double filled = knapsack(room.shards, best);
    --knapsacks;
    if (surplus(slab, room, filled) > 0) return true;
    // Without a better pattern the ranks can take it all, as far as this bound tells.
    if (filled * static_cast<double>(problem_.ranks()) <= -price[rank_row_] + kNothing)
      return false;
    program.add(column_of(best), 0);
    // The oldest go: they are of slabs far away.
    if (pool_.size() == kPool) pool_.erase(pool_.begin());
    pool_.push_back(std::move(best));
  }
  return false;
}

}  // namespace fastplan
