#include "improve/anneal.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fastplan {
namespace {

// Moves between two looks at the clock, at which the temperature falls, too.
constexpr std::int64_t kCheckEvery = 256;
// With a previous plan, one move in so many takes a table back to where that has it.
constexpr std::size_t kRestoreEvery = 8;
// How far a target comes down at a time.
constexpr double kTargetStep = 0.005;
// Ranks that are over their limits are where a placement must change: all moves but one in so many
// start there.
constexpr std::size_t kAnywhereEvery = 4;

}  // namespace

Annealer::Annealer(const Choices& choices, std::uint64_t seed)
    : context_(choices, seed, nullptr, nullptr) {}

Annealer::Annealer(const Choices& choices, std::uint64_t seed, const MovedBytes& bytes,
                   const Draft& previous)
    : context_(choices, seed, &bytes, &previous) {}

void Annealer::start_from(const Draft& draft) {
  context_.state.clear();
  for (std::size_t t = 0; t < context_.choices.tables(); ++t) {
    const auto& choice = context_.choices[draft.choice[t]];
    const auto& places = draft.places[t];
    context_.try_choice(choice, places);
    if (const auto tower = context_.choices.tower(t); tower >= 0 && choice.pieces > 0) {
      context_.state.set_tower_host(
          tower, choice.spread == Spread::hosts ? places[0] : places[0] / context_.group_size);
    }
    context_.state.set_choice(t, draft.choice[t], places);
  }
  context_.state.commit();
}

// Tables that keep their choice keep their places; the others are placed well.
void Annealer::start_from(const Draft& draft, std::span<const std::int32_t> chosen) {
  start_from(draft);
  // All leave before the first is placed, so that each sees what stays.
  for (std::size_t t = 0; t < context_.choices.tables(); ++t) {
    if (chosen[t] != draft.choice[t]) context_.state.try_without(t);
  }
  for (std::size_t t = 0; t < context_.choices.tables(); ++t) {
    if (chosen[t] == draft.choice[t]) continue;
    const auto& choice = context_.choices[chosen[t]];
    const auto tower = context_.choices.tower(t);
    if (choice.spread == Spread::everywhere) context_.state.try_everywhere(choice, true);
    context_.place_well(choice, MoveContext::kAllPlaces,
                        tower >= 0 ? context_.state.tower_host(tower) : MoveContext::kAnyHost,
                        context_.places);
    context_.state.set_choice(t, chosen[t], context_.places);
  }
  context_.state.commit();
}

// Longest processing time first, the classic start for a least makespan, with some noise so that
// rounds differ.
void Annealer::start_from(std::span<const std::int32_t> chosen, double noise) {
  context_.state.clear();
  for (std::size_t tower = 0; tower < context_.choices.towers().size(); ++tower) {
    context_.state.set_tower_host(tower, context_.random.below(context_.problem.hosts));
  }
  std::vector<std::pair<double, std::int32_t>> order;
  for (std::size_t t = 0; t < context_.choices.tables(); ++t) {
    const auto& choice = context_.choices[chosen[t]];
    if (choice.spread == Spread::everywhere) {
      context_.state.try_everywhere(choice, true);
      context_.state.set_choice(t, chosen[t], {});
      continue;
    }
    std::int64_t longest = 0;
    for (std::int32_t shard = 0; shard < choice.shards; ++shard) {
      longest = std::max(longest, context_.choices.shard_load(choice, shard).cost);
    }
    // A block needs room on every rank of a host.
    if (choice.spread == Spread::hosts) longest *= context_.group_size;
    const double length = static_cast<double>(longest) * (1 + noise * context_.random.real());
    order.emplace_back(-length, static_cast<std::int32_t>(t));
  }
  std::sort(order.begin(), order.end());
  for (const auto& [_, t] : order) {
    const auto tower = context_.choices.tower(t);
    const auto host = tower >= 0 ? context_.state.tower_host(tower) : MoveContext::kAnyHost;
    context_.place_well(context_.choices[chosen[t]], MoveContext::kAllPlaces, host,
                        context_.places);
    context_.state.set_choice(t, chosen[t], context_.places);
  }
  context_.state.commit();
}

Draft Annealer::take_best() { return std::exchange(best_, {}); }

void Annealer::swap_best(Draft& draft) {
  if (best_.empty()) return;
  std::swap(best_, draft);
  best_.choice.clear();
}

// Moves from hot to cold. `finished` sees every placement, and says when there can be no better
// one.
template <typename Finished>
std::int64_t Annealer::anneal(const Cooling& cooling, const std::function<bool()>& stopped,
                              const Finished& finished) {
  const double checks = static_cast<double>(cooling.moves) / kCheckEvery;
  const double factor = std::pow(cooling.cold / cooling.hot, 1 / std::max(checks, 1.0));
  double heat = cooling.hot;
  std::int64_t made = 0;
  for (; made < cooling.moves; ++made) {
    if (made % kCheckEvery == 0) {
      if (stopped()) break;
      if (made > 0) heat *= factor;
      context_.temperature = heat * static_cast<double>(context_.state.target());
    }
    if (finished()) break;
    move();
  }
  return made;
}

// Every plan lowers the target below itself, which takes the energy of the placement above 0 again.
std::int64_t Annealer::run(const Cooling& cooling, std::int64_t target, const Allowed& allowed,
                           const std::function<bool()>& stopped) {
  context_.allowed = &allowed;
  context_.state.set_target(target);
  return anneal(cooling, stopped, [&] {
    if (!context_.state.within_limits()) {
      if (cooling.keep_below > 0) note_plan_above_target(cooling.keep_below);
      return false;
    }
    note_plan(cooling);
    return context_.state.within_limits();  // nothing costs anything
  });
}

// Keeps the present plan if it is the best, and asks for a better one: lower by `step`, and by one
// unit of fixed point at least.
void Annealer::note_plan(const Cooling& cooling) {
  const auto lower = [&](std::int64_t value) {
    return static_cast<std::int64_t>(static_cast<double>(value) * (1 - cooling.step));
  };
  if (cooling.criterion == Criterion::bytes) {
    const auto moved = context_.state.moved();
    if (best_.empty() || moved < best_.moved) context_.state.write(best_);
    context_.state.set_move_budget(std::max<std::int64_t>(std::min(moved - 1, lower(moved)), 0),
                                   byte_price_);
    return;
  }
  const auto cost = context_.state.largest_cost();
  if (best_.empty() || cost < best_.cost) context_.state.write(best_);
  context_.state.set_target(std::min(context_.state.target() - 1, lower(cost)));
}

// A target far below the best plan may be out of reach, where a plan between the two is not.
void Annealer::note_plan_above_target(std::int64_t keep_below) {
  const auto known = best_.empty() ? keep_below : std::min(best_.cost, keep_below);
  if (context_.state.costs_less(known)) context_.state.write(best_);
}

// The limit stays; the goal is part of the energy, and the least value among plans within the limit
// is kept.
std::int64_t Annealer::refine(const Cooling& cooling, std::int64_t limit, std::int64_t value,
                              const Allowed& allowed, const std::function<bool()>& stopped) {
  context_.allowed = &allowed;
  context_.state.set_target(limit);
  return anneal(cooling, stopped, [&] {
    if (context_.state.within_limits() && context_.state.goal() < value) {
      context_.state.write(best_);
      value = best_.goal;
    }
    return value == 0;
  });
}

std::int64_t Annealer::save_bytes(const Cooling& cooling, std::int64_t limit, std::int64_t moved,
                                  const Allowed& allowed, const std::function<bool()>& stopped) {
  const auto lower = [](std::int64_t value, double part) {
    return static_cast<std::int64_t>(static_cast<double>(value) * (1 - part));
  };
  context_.allowed = &allowed;
  // Options settle better while the target comes down than far above it.
  context_.state.set_target(std::max(limit, context_.state.largest_cost()));
  return anneal(cooling, stopped, [&] {
    if (!context_.state.ranks_over().empty()) return false;
    if (context_.state.target() > limit) {
      context_.state.set_target(std::max(limit, lower(context_.state.largest_cost(), kTargetStep)));
    } else if (context_.state.moved() < moved) {
      context_.state.write(best_);
      moved = lower(best_.moved, cooling.step);
    }
    return context_.state.target() == limit && context_.state.within_limits();
  });
}

// Where the next move starts: mostly at a rank over its limits, else at one that the goal counts
// with, else anywhere.
std::int32_t Annealer::pick_rank() {
  const auto over = context_.state.ranks_over();
  if (!over.empty() && context_.random.below(kAnywhereEvery) != 0)
    return over[context_.random.below(over.size())];
  if (const auto* tally = context_.state.tally();
      tally && tally->channels() > 0 && context_.random.below(2) == 0) {
    return tally->pick_largest_rank(context_.random.real());
  }
  return context_.random.below(context_.problem.ranks());
}

// Something that is on the rank, in one way or another; -1 when there is nothing.
std::int32_t Annealer::pick_slot(std::int32_t rank) {
  const auto own = context_.state.on_rank(rank);
  const auto host = rank / context_.group_size;
  std::span<const std::int32_t> blocks;
  if (host < context_.problem.hosts) blocks = context_.state.on_host(host);
  const auto everywhere = context_.state.everywhere();
  const auto count = own.size() + blocks.size() + everywhere.size();
  if (count == 0) return -1;
  auto at = static_cast<std::size_t>(context_.random.below(count));
  if (at < own.size()) return own[at];
  at -= own.size();
  return at < blocks.size() ? blocks[at] : everywhere[at - blocks.size()];
}

void Annealer::move() {
  if (context_.previous != nullptr && context_.random.below(kRestoreEvery) == 0) {
    return restore_table(
        context_, static_cast<std::size_t>(context_.random.below(context_.choices.tables())));
  }
  const std::int32_t slot = pick_slot(pick_rank());
  if (slot < 0) return;
  const std::int32_t table = context_.state.slot_table(slot);
  const auto& moves = moves_for(context_.choices[context_.state.choice(table)].spread,
                                context_.choices.tower(table) >= 0);
  moves.pick(context_.random).apply(context_, slot);
}

}  // namespace fastplan
