// A placement of all tables that may be over its limits, and what a change to it would do.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "improve/anneal_energy.h"
#include "improve/choices.h"
#include "improve/moved_bytes.h"
#include "improve/places.h"
#include "improve/tally.h"

namespace fastplan {

// A plan in terms of choices. Unlike a Plan it has no order of tables, and its cost is in fixed
// point.
struct Draft {
  std::vector<std::int32_t> choice;  // by table
  std::vector<Places> places;        // by table: of its pieces
  std::int64_t cost = 0;             // of the costliest rank
  std::int64_t moved = 0;            // bytes, where they are counted
  std::int64_t goal = 0;             // what it comes to, where there is a goal
  bool empty() const { return choice.empty(); }
};

// All sums are integers, in fixed point for costs: millions of moves add and take away, and the
// sums are exact all the time. A trial works on copies of the few ranks it touches, so that a move
// which is not accepted, as most are, costs nothing to undo.
class Assignment {
 public:
  // With `bytes`, what the placement moves is counted too.
  explicit Assignment(const Choices& choices, const MovedBytes* bytes = nullptr);

  // What there is beside limits: a goal, and how much it counts as energy.
  void watch(Tally& tally) { tally_ = &tally; }
  void weigh(double weight) { tally_weight_ = weight; }
  const Tally* tally() const { return tally_; }
  std::int64_t goal() const { return tally_ ? tally_->value() : 0; }

  // Nothing is placed.
  void clear();
  void set_target(std::int64_t target);
  std::int64_t target() const { return limits_.target(); }

  // Each byte that moves beyond the budget costs so much energy.
  void set_move_budget(std::int64_t budget, double price);
  std::int64_t moved() const { return moved_; }

  bool within_limits() const { return over_.empty() && moved_ <= move_budget_; }
  std::span<const std::int32_t> ranks_over() const { return over_; }
  std::int64_t largest_cost() const;
  // Whether it fits, and every rank costs less; for costs above the target.
  bool costs_less(std::int64_t cost) const;
  std::int64_t cost(std::int32_t rank) const { return load_[rank].cost; }
  // Overwrites a draft, whose memory is used again: plans are noted often.
  void write(Draft& draft) const;

  std::int32_t choice(std::size_t table) const { return table_choice_[table]; }
  std::span<const std::int32_t> places(std::size_t table) const;
  std::int32_t tower_host(std::size_t tower) const { return tower_host_[tower]; }

  // What is where. A slot stands for a piece of a table, or for a table that is everywhere.
  std::span<const std::int32_t> on_rank(std::int32_t rank) const { return lists_[rank]; }
  std::span<const std::int32_t> on_host(std::int32_t host) const { return lists_[ranks_ + host]; }
  std::span<const std::int32_t> everywhere() const { return lists_.back(); }
  std::int32_t slot_table(std::int32_t slot) const { return slot_table_[slot]; }
  std::int32_t slot_piece(std::int32_t slot) const { return slot - slot_begin_[slot_table_[slot]]; }
  std::int32_t slot_place(std::int32_t slot) const { return slot_place_[slot]; }

  // A trial: changes to a copy of the ranks they touch.
  void begin_trial();
  void try_piece(const Choice& choice, std::int32_t piece, std::int32_t place, bool add);
  void try_everywhere(const Choice& choice, bool add);
  void try_without(std::size_t table);
  double trial_change();

  // What one more piece would do to the trial: energy added, and cost of the costliest rank it is
  // on, which decides among places that do no harm.
  struct Fit {
    double energy = 0;
    std::int64_t cost = 0;
    bool operator<(const Fit& other) const {
      return energy != other.energy ? energy < other.energy : cost < other.cost;
    }
  };
  Fit fit(const Choice& choice, std::int32_t piece, std::int32_t place) const;

  // Makes the trial's loads real. The caller then tells what is where.
  void commit();
  void set_place(std::size_t table, std::int32_t piece, std::int32_t place);
  void set_choice(std::size_t table, std::int32_t choice, std::span<const std::int32_t> places);
  void set_tower_host(std::size_t tower, std::int32_t host) { tower_host_[tower] = host; }

 private:
  // A stamp says whether a rank's copy belongs to this trial: no copy has to be cleared.
  Load& touched(std::int32_t rank) {
    if (stamp_[rank] != trial_) {
      stamp_[rank] = trial_;
      trial_load_[rank] = load_[rank];
      touched_.push_back(rank);
    }
    return trial_load_[rank];
  }
  void change(std::int64_t run, std::int32_t rank, bool add) {
    const Load& load = choices_.run_load(run);
    add ? touched(rank) += load : touched(rank) -= load;
    if (tally_) tally_->add_shard(run, rank, add ? 1 : -1);
  }
  void set_energy(std::int32_t rank, double energy);
  double excess(std::int64_t moved) const {
    return moved > move_budget_ ? byte_price_ * static_cast<double>(moved - move_budget_) : 0;
  }
  std::int32_t list_of(const Choice& choice, std::int32_t place) const;
  void add_to_list(std::int32_t list, std::int32_t slot);
  void remove_from_list(std::int32_t list, std::int32_t slot);

  const Choices& choices_;
  const Problem& problem_;
  const MovedBytes* bytes_;
  std::int32_t ranks_;
  std::int32_t group_size_;
  Limits limits_;
  // Not owned; null where plans are only to be cheap.
  Tally* tally_ = nullptr;
  double tally_weight_ = 0;
  std::vector<Load> load_, trial_load_;
  std::vector<double> rank_energy_;
  std::vector<std::int32_t> over_, over_index_;
  std::vector<std::uint64_t> stamp_;  // the trial that touched a rank last
  std::uint64_t trial_ = 1;
  std::vector<std::int32_t> touched_;
  std::int64_t moved_ = 0, trial_moved_ = 0;
  std::int64_t move_budget_ = std::numeric_limits<std::int64_t>::max();
  double byte_price_ = 0;

  std::vector<std::int32_t> table_choice_, tower_host_;
  std::vector<std::int32_t> slot_begin_;  // by table; as many slots as its choices have pieces
  std::vector<std::int32_t> slot_table_, slot_place_, slot_index_;
  std::vector<std::vector<std::int32_t>> lists_;  // slots by rank, then by host, then everywhere
};

}  // namespace fastplan
