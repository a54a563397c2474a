// Simulated annealing over placements: pieces move and swap, tables change their option.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "improve/anneal_state.h"
#include "improve/choices.h"
#include "improve/moves.h"

namespace fastplan {

// What each plan that is found must improve on: the cost of the costliest rank, or the bytes it
// moves.
enum class Criterion : std::uint8_t { cost, bytes };

// From hot to cold over so many moves, in a geometric series. Temperatures are parts of the target:
// a change of energy d is accepted with probability exp(-d / (heat x target)). Each plan found
// lowers the target, or the bytes it may move, by `step`, a part too, so that the search goes on
// below it.
struct Cooling {
  double hot = 0;
  double cold = 0;
  std::int64_t moves = 0;
  double step = 0;
  Criterion criterion = Criterion::cost;
  // A plan that costs less is kept, though it costs more than the target; 0 keeps none of these.
  std::int64_t keep_below = 0;
};

// Simulated annealing over placements that may break their limits. The energy of a placement is how
// far it is over them,
//     E = sum_r [ max(0, cost(r) - target) + sum_tier w(tier) max(0, bytes(r, tier) - capacity(r,
//     tier)) ]
//         + price max(0, moved - budget) + weight goal,
// so that a placement of energy 0 is a plan. The target comes down with every plan that is found.
class Annealer {
 public:
  Annealer(const Choices& choices, std::uint64_t seed);
  // Counts the bytes that move; now and then a table goes back to where `previous` has it.
  Annealer(const Choices& choices, std::uint64_t seed, const MovedBytes& bytes,
           const Draft& previous);

  // Starts from a plan, or from choices alone, which are placed longest first. `noise` is how much
  // of a shard's length is left to chance.
  void start_from(const Draft& draft);
  void start_from(std::span<const std::int32_t> chosen, double noise);
  // Starts from a plan with other choices.
  void start_from(const Draft& draft, std::span<const std::int32_t> chosen);

  // Whether no rank is over its memory or a cost.
  bool fits(std::int64_t cost) {
    context_.state.set_target(cost);
    return context_.state.ranks_over().empty();
  }

  void set_move_budget(std::int64_t budget, double price) {
    byte_price_ = price;
    context_.state.set_move_budget(budget, price);
  }

  // Looks for plans that cost at most `target`, and returns the moves made.
  std::int64_t run(const Cooling& cooling, std::int64_t target, const Allowed& allowed,
                   const std::function<bool()>& stopped);

  // Looks for plans that cost at most `limit` and move less than `moved`, where each byte beyond
  // the move budget has its price.
  std::int64_t save_bytes(const Cooling& cooling, std::int64_t limit, std::int64_t moved,
                          const Allowed& allowed, const std::function<bool()>& stopped);

  // Counts what placements come to, from the next start on; and how much that is as energy.
  void watch(Tally& tally) { context_.state.watch(tally); }
  void weigh(double weight) { context_.state.weigh(weight); }
  // Tables may also take other choices of the same shards on the same places.
  void resize() { context_.resizes = true; }
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
    context_.state.write(draft);
    return draft;
  }

 private:
  void note_plan(const Cooling& cooling);
  void note_plan_above_target(std::int64_t keep_below);
  template <typename Finished>
  std::int64_t anneal(const Cooling& cooling, const std::function<bool()>& stopped,
                      const Finished& finished);
  void move();
  std::int32_t pick_rank();
  std::int32_t pick_slot(std::int32_t rank);

  MoveContext context_;
  double byte_price_ = 0;
  Draft best_;
};

}  // namespace fastplan
