// Simulated annealing over placements: pieces move and swap, tables change their option.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "improve/anneal_random.h"
#include "improve/anneal_state.h"
#include "improve/choices.h"

namespace fastplan {

// What each plan that is found lowers.
enum class Lowers : std::uint8_t { cost, bytes };

// From hot to cold over so many moves; temperatures are parts of the target. Each plan found lowers
// the target, or the bytes it may move, by `step`, a part too.
struct Cooling {
  double hot = 0;
  double cold = 0;
  std::int64_t moves = 0;
  double step = 0;
  Lowers lowers = Lowers::cost;
};

// By table: the choices that may still be part of a better plan.
using Allowed = std::vector<std::vector<std::int32_t>>;

class Annealer {
 public:
  Annealer(const Choices& choices, std::uint64_t seed);
  // Counts the bytes that move; now and then a table tries to go back to where `home` has it.
  Annealer(const Choices& choices, std::uint64_t seed, const MoveBytes& bytes, const Draft& home);

  // Starts from a plan, or from choices alone, which are placed longest first. `noise` is how much
  // of a shard's length is left to chance.
  void start_from(const Draft& draft);
  void start_from(std::span<const std::int32_t> chosen, double noise);

  // Whether no rank is over its memory or a cost.
  bool fits(std::int64_t cost) {
    state_.set_target(cost);
    return state_.ranks_over().empty();
  }

  void set_move_budget(std::int64_t budget, double price) {
    byte_price_ = price;
    state_.set_move_budget(budget, price);
  }

  // Looks for plans that cost at most `target`, and returns the moves made.
  std::int64_t run(const Cooling& cooling, std::int64_t target, const Allowed& allowed,
                   const std::function<bool()>& stopped);

  // Looks for plans that cost at most `limit` and move less than `moved`, where each byte beyond
  // the move budget has its price.
  std::int64_t save_bytes(const Cooling& cooling, std::int64_t limit, std::int64_t moved,
                          const Allowed& allowed, const std::function<bool()>& stopped);

  // Counts what placements come to, from the next start on; and how much that is as energy.
  void watch(Tally& tally) { state_.watch(tally); }
  void weigh(double weight) { state_.weigh(weight); }
  // Looks for plans that cost at most `limit` and come to less than `value` of the goal.
  std::int64_t refine(const Cooling& cooling, std::int64_t limit, std::int64_t value,
                      const Allowed& allowed, const std::function<bool()>& stopped);

  // The best plan since it was last asked for; empty when there is none.
  Draft take_best();
  // Swaps it with the draft, whose memory is used again, if there is one.
  void swap_best(Draft& draft);
  // What it has come to, over its limits or not.
  Draft present() const {
    Draft draft;
    state_.write(draft);
    return draft;
  }

 private:
  void note_plan(const Cooling& cooling);
  template <typename Settled>
  std::int64_t anneal(const Cooling& cooling, const std::function<bool()>& stopped,
                      const Settled& settled);
  void move();
  void go_home(std::size_t table);
  void move_piece(std::int32_t slot);
  void swap_pieces(std::int32_t slot);
  void move_tower(std::size_t tower);
  void change_choice(std::size_t table, std::int32_t number);
  void place_well(const Choice& choice, std::int32_t samples, std::int32_t host,
                  std::vector<std::int32_t>& places);
  std::int32_t least_loaded_host(const Choice& choice) const;
  bool taken(const Choice& choice, std::span<const std::int32_t> places, std::int32_t place) const {
    return choice.distinct && std::find(places.begin(), places.end(), place) != places.end();
  }
  std::int32_t random_place(const Choice& choice, std::int32_t near);
  std::int32_t pick_rank();
  std::int32_t pick_slot(std::int32_t rank);
  bool accept();

  const Choices& choices_;
  const Problem& problem_;
  const std::int32_t group_size_;
  const Allowed* allowed_ = nullptr;
  const Draft* home_ = nullptr;
  Assignment state_;
  Random random_;
  double byte_price_ = 0;
  double temperature_ = 0;
  Draft best_;
  std::vector<std::int32_t> places_;
  std::vector<std::vector<std::int32_t>> tower_places_;
};

}  // namespace fastplan
