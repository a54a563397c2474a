// Small problems, searched to the end.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bound/relaxation.h"
#include "improve/anneal_state.h"
#include "improve/choices.h"
#include "improve/moves.h"
#include "improve/rank_loads.h"

namespace fastplan {

// Branch and bound over choices and places, table by table. A node is a placement of some tables;
// it is cut off where the bound by averages (certificate.h), with the options that still fit, shows
// that no plan below it is good enough:
//     T >= sum_placed price(o(t)) + sum_others min { price(o) : o fits beside what is placed }
//          + waste / R - lambda M - max { mu U : U in the slab },
// where waste is what is left on ranks that no piece of the other tables fits on. Each slab of U is
// searched with its own multipliers.
//
// Ranks of a host that hold the same are interchangeable, and so are hosts: of each such set only
// the first is tried. A shard of a block, or of an option that is on all ranks, may be smaller than
// the others, which would tell ranks apart: all count like the smallest, and a placement that is
// complete is checked with the real sizes.
class Enumeration {
 public:
  Enumeration(const Choices& choices, const Relaxation& relaxation);

  // Whether the problem is one that may be finished.
  bool worthwhile() const { return worthwhile_; }

  // Looks for plans that cost at most `target`, and goes on below each that it finds. True: it has
  // seen all there is. Nodes are counted down; with none left, it ends.
  bool run(std::span<const Slab> slabs, const Allowed& allowed, double target, std::int64_t& nodes,
           const std::function<bool()>& stopped);

  // The best plan of the last run; empty when there is none.
  const Draft& best() const { return best_; }

 private:
  struct Item {  // a choice of a table, as a slab sees it
    double price = 0;
    double average = 0;
    double uniform = 0;
    std::int32_t choice = 0;
    Load least;  // of its shards, each part for itself
  };
  struct Node {
    double bound = 0;
    std::int32_t at = 0;     // of the table to place next, among those that wait
    std::int32_t first = 0;  // its cheapest item that fits
  };

  std::int64_t pieces() const;
  Item item_of(std::int32_t choice, const Slab& slab) const;
  bool prepare(const Slab& slab, const Allowed& allowed);
  void search_tables(std::int32_t depth);
  bool choose_table(std::int32_t depth, Node& node);
  double waste(std::int64_t smallest) const;
  void place(std::int32_t depth, const Item& item, std::int32_t piece);
  void place_everywhere(std::int32_t depth, const Item& item);
  void place_block(std::int32_t depth, const Item& item, std::int32_t piece);
  void place_shard(std::int32_t depth, const Item& item, std::int32_t piece);
  void note_plan();

  bool fits(const Item& item) const;
  bool ended();

  const Choices& choices_;
  const Problem& problem_;
  const Relaxation& relaxation_;
  const std::span<const OptionRow> rows_;
  bool worthwhile_ = false;
  std::vector<std::int32_t> choice_row_;  // rows of the relaxation by choice; -1 without one

  // Of a run.
  double limit_ = 0;  // the target as a rating
  std::int64_t* nodes_ = nullptr;
  const std::function<bool()>* stopped_ = nullptr;
  bool over_ = false;    // out of nodes or time
  bool missed_ = false;  // a placement fits but for the sizes that count like the smallest
  Draft best_;

  // Of a slab.
  std::vector<std::vector<Item>> items_;  // by table, the cheapest first
  std::vector<std::int64_t> smallest_;    // by table: the least cost of a shard
  bool exact_costs_ = false;              // no shard costs more than it counts for
  double low_ = 0, high_ = 0, constant_ = 0;

  // Of the placement.
  std::vector<std::int32_t> waiting_;  // tables; those from `depth` on are not placed
  RankLoads load_;                     // with the target
  Load room_;                          // on every rank
  std::vector<std::int32_t> choice_;
  std::vector<std::vector<std::int32_t>> places_;
  double price_ = 0, uniform_ = 0;
};

}  // namespace fastplan
