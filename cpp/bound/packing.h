// Where few shards share a rank, what fits on a rank together says more than averages do.
//
// Give every shard of an option a reward. A rank with U of uniform load holds other shards of cost
// T - U at most, so there is a most it can be rewarded for, the value of a knapsack. When all
// tables together, each with the option that is least in rewards and prices, are worth more than
// all ranks can take, there is no plan rated T.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "bound/certificate.h"
#include "bound/relaxation.h"
#include "bound/simplex.h"

namespace fastplan {

// Rewards are found by column generation: a linear program over patterns, sets of shards that fit
// on a rank together, asks how much of the tables R patterns can hold. Its multipliers are rewards;
// a knapsack finds the pattern that is worth most under them, which joins the program if it helps.
// The rewards are a proof as soon as surplus() is above zero, whatever the program says.
class Packing {
 public:
  Packing(const Problem& problem, const Relaxation& relaxation);

  // Whether the problem is small enough for it.
  bool worthwhile() const;

  // Looks for rewards that rule out plans rated below `threshold` with U in the slab, and leaves
  // them there. Knapsacks are counted down.
  bool prove(Slab& slab, double threshold, std::int64_t& knapsacks,
             const std::function<bool()>& stopped);

 private:
  struct Item {  // an option that is placed on ranks, and stands for others that are no lighter
    std::int32_t row = 0;
    std::int32_t table = 0;
  };
  struct Pattern {  // shards that are on one rank together
    std::vector<std::pair<std::int32_t, std::int32_t>> shards;  // item, how many
    double cost = 0;
  };
  struct Room {  // what a slab leaves of a threshold
    double shards = 0;
    double high = 0;
  };

  double knapsack(double room, Pattern& best);
  void read_pattern(double room, Pattern& pattern) const;
  double surplus(const Slab& slab, const Room& room, double filled) const;
  Simplex master(const Slab& slab, const Room& room) const;
  Simplex::Column column_of(std::int32_t table, std::int32_t row, double scale) const;
  Simplex::Column column_of(const Pattern& pattern) const;
  void take_prices(std::span<const double> price, const Room& room, Slab& slab);

  const Problem& problem_;
  const Relaxation& relaxation_;
  std::vector<Item> items_;
  std::vector<std::int32_t> row_item_;  // the item that stands for a row; -1 for uniform ones
  // Patterns of earlier proofs: neighbouring slabs have nearly the same room, so that most fit
  // again.
  std::vector<Pattern> pool_;  // found so far

  // Of the proof under way: rows of the linear program, and rewards.
  std::vector<std::int32_t> item_row_;  // -1 for items that are too large
  std::int32_t rank_row_ = 0;
  std::vector<double> item_reward_;
  // Of the knapsack: best values by room, and by table what was taken.
  std::vector<double> value_, before_;
  std::vector<std::int32_t> layer_item_, taken_;
};

}  // namespace fastplan
