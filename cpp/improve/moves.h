// The moves of the annealer over placements, as objects, and how often each is tried.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "improve/anneal_random.h"
#include "improve/anneal_state.h"
#include "improve/choices.h"

namespace fastplan {

// By table: the choices that may still be part of a better plan.
using Allowed = std::vector<std::vector<std::int32_t>>;

// What the moves work on: one placement, one stream of random numbers, one temperature. Every move
// draws its numbers in a fixed order, so that a seed stands for one plan.
class MoveContext {
 public:
  static constexpr std::int32_t kAnyHost = -1;
  // How many random places a piece tries; kAllPlaces tries every one.
  static constexpr std::int32_t kSomePlaces = 3;
  static constexpr std::int32_t kAllPlaces = 0;

  // With `bytes`, moved bytes are counted; with `previous`, tables may be restored to it.
  MoveContext(const Choices& choices, std::uint64_t seed, const MovedBytes* bytes,
              const Draft* previous);

  // Metropolis: a trial that changes the energy by d is kept if d <= 0, and with probability
  // exp(-d / temperature) otherwise. Draws a number only where chance decides.
  bool accept();

  // A place for a piece of the choice that is at `near`.
  std::int32_t random_place(const Choice& choice, std::int32_t near);
  // Adds the choice's pieces to the trial one by one, each where it does least harm: of all places,
  // or of a few random ones. `host` is where it must go, if that is settled.
  void place_well(const Choice& choice, std::int32_t samples, std::int32_t host,
                  std::vector<std::int32_t>& places);
  // Takes the table away and adds `number` in its stead, on `places` or where it does least harm.
  void change_choice(std::size_t table, std::int32_t number);
  // Takes another choice of the same shards, such as one with a cache of another size, on the same
  // places. Returns whether there is one.
  bool resize(std::size_t table);
  // Adds a choice whose places are known.
  void try_choice(const Choice& choice, std::span<const std::int32_t> places);
  // Whether the choice's pieces must not meet and one of them is there already.
  static bool taken(const Choice& choice, std::span<const std::int32_t> places,
                    std::int32_t place) {
    return choice.distinct && std::find(places.begin(), places.end(), place) != places.end();
  }

  const Choices& choices;
  const Problem& problem;
  const std::int32_t group_size;
  const Draft* const previous;  // where tables were before, or null
  Assignment state;
  Random random;
  const Allowed* allowed = nullptr;
  bool resizes = false;  // whether every second change of a choice keeps the places
  double temperature = 0;
  // Work space, kept so that moves allocate nothing.
  std::vector<std::int32_t> places;
  std::vector<std::vector<std::int32_t>> tower_places;

 private:
  std::int32_t least_loaded_host(const Choice& choice) const;
};

// A kind of change to a placement. Moves have no state of their own: all threads share them.
class Move {
 public:
  // Tries the move on what a slot of the placement stands for, and keeps it if it is accepted.
  virtual void apply(MoveContext& context, std::int32_t slot) const = 0;

 protected:
  ~Move() = default;
};

// One piece goes to another place.
class MovePiece final : public Move {
 public:
  void apply(MoveContext& context, std::int32_t slot) const override;
};

// One piece changes places with a piece of another table.
class SwapPieces final : public Move {
 public:
  void apply(MoveContext& context, std::int32_t slot) const override;
};

// All tables of a tower go to another host together.
class MoveTower final : public Move {
 public:
  void apply(MoveContext& context, std::int32_t slot) const override;
};

// All pieces of a table are placed again, under the same choice.
class PlaceAgain final : public Move {
 public:
  void apply(MoveContext& context, std::int32_t slot) const override;
};

// A table takes one of its allowed choices, which may be the one it has, and is placed again.
class ChangeChoice final : public Move {
 public:
  void apply(MoveContext& context, std::int32_t slot) const override;
};

struct WeightedMove {
  const Move* move = nullptr;
  std::int32_t weight = 0;
};

// Up to three moves with weights. A move of weight w out of a sum W is tried with probability w /
// W.
class MoveSet {
 public:
  constexpr MoveSet(WeightedMove first, WeightedMove second = {}, WeightedMove third = {})
      : entries_{first, second, third}, sum_(first.weight + second.weight + third.weight) {}

  // Draws one number, however many moves there are.
  const Move& pick(Random& random) const {
    auto at = random.below(sum_);
    std::size_t i = 0;
    while (at >= entries_[i].weight) at -= entries_[i++].weight;
    return *entries_[i].move;
  }

 private:
  std::array<WeightedMove, 3> entries_;
  std::int32_t sum_;
};

// The moves that suit a choice which is spread so. Tables of a tower share a host: what would part
// them is left out.
const MoveSet& moves_for(Spread spread, bool in_tower);

// Puts a table back to where it was, if it had a place and is elsewhere now. Not a Move: it starts
// from a table, wherever that is.
void restore_table(MoveContext& context, std::size_t table);

}  // namespace fastplan
