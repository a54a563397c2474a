#include "improve/anneal_state.h"

#include <algorithm>

namespace fastplan {

Assignment::Assignment(const Choices& choices, const MovedBytes* bytes)
    : choices_(choices),
      problem_(choices.problem()),
      bytes_(bytes),
      ranks_(static_cast<std::int32_t>(problem_.ranks())),
      group_size_(static_cast<std::int32_t>(problem_.group_size)),
      limits_(problem_, 0),
      load_(ranks_),
      trial_load_(ranks_),
      rank_energy_(ranks_),
      over_index_(ranks_),
      stamp_(ranks_),
      table_choice_(choices.tables(), -1),
      tower_host_(choices.towers().size()),
      lists_(ranks_ + problem_.hosts + 1) {
  // A table has as many slots as its choices have pieces at most: a change of choice moves no slots
  // of other tables.
  for (std::size_t t = 0; t < choices.tables(); ++t) {
    slot_begin_.push_back(static_cast<std::int32_t>(slot_table_.size()));
    std::int32_t most = 1;
    for (auto c = choices.first(t); c < choices.first(t + 1); ++c) {
      most = std::max(most, choices[c].pieces);
    }
    slot_table_.insert(slot_table_.end(), most, static_cast<std::int32_t>(t));
  }
  slot_place_.resize(slot_table_.size());
  slot_index_.resize(slot_table_.size());
}

void Assignment::clear() {
  std::fill(load_.begin(), load_.end(), Load{});
  std::fill(table_choice_.begin(), table_choice_.end(), -1);
  for (auto& list : lists_) list.clear();
  moved_ = 0;
  if (tally_) tally_->clear();
  set_target(target());
}

void Assignment::set_move_budget(std::int64_t budget, double price) {
  move_budget_ = budget;
  byte_price_ = price;
}

void Assignment::set_target(std::int64_t target) {
  limits_ = Limits(problem_, target);
  over_.clear();
  std::fill(rank_energy_.begin(), rank_energy_.end(), 0.0);
  for (std::int32_t rank = 0; rank < ranks_; ++rank) {
    set_energy(rank, limits_.energy(rank, load_[rank]));
  }
  begin_trial();
}

// Keeps the list of ranks over their limits: a rank that leaves it changes places with the last.
void Assignment::set_energy(std::int32_t rank, double energy) {
  const bool was_over = rank_energy_[rank] > 0;
  rank_energy_[rank] = energy;
  if (was_over == (energy > 0)) return;
  if (was_over) {
    over_[over_index_[rank]] = over_.back();
    over_index_[over_.back()] = over_index_[rank];
    over_.pop_back();
  } else {
    over_index_[rank] = static_cast<std::int32_t>(over_.size());
    over_.push_back(rank);
  }
}

std::int64_t Assignment::largest_cost() const {
  std::int64_t largest = 0;
  for (const auto& load : load_) largest = std::max(largest, load.cost);
  return largest;
}

bool Assignment::costs_less(std::int64_t cost) const {
  return moved_ <= move_budget_ && std::ranges::all_of(over_, [&](std::int32_t rank) {
           return load_[rank].cost < cost && load_[rank].storage.fits_in(problem_.capacity[rank]);
         });
}

void Assignment::write(Draft& draft) const {
  draft.choice = table_choice_;
  draft.places.resize(table_choice_.size());
  for (std::size_t t = 0; t < table_choice_.size(); ++t) {
    draft.places[t].assign(places(t));
  }
  draft.cost = largest_cost();
  draft.moved = moved_;
  draft.goal = goal();
}

std::span<const std::int32_t> Assignment::places(std::size_t table) const {
  const auto pieces = choices_[table_choice_[table]].pieces;
  return std::span(slot_place_).subspan(slot_begin_[table], pieces);
}

void Assignment::begin_trial() {
  touched_.clear();
  trial_moved_ = moved_;
  ++trial_;
  if (tally_) tally_->begin_trial();
}

void Assignment::try_piece(const Choice& choice, std::int32_t piece, std::int32_t place, bool add) {
  // An option counts with its first piece: a piece that moves is taken away and added again.
  if (tally_ && piece == 0) tally_->add_option(choice.option, add ? 1 : -1);
  const bool block = choice.spread == Spread::hosts;
  const std::int32_t count = block ? group_size_ : 1;
  for (std::int32_t i = 0; i < count; ++i) {
    change(choices_.shard_run(choice, piece * count + i), place * count + i, add);
  }
  if (bytes_ != nullptr) {
    const auto moved = bytes_->of_piece(choice.option, piece, place);
    trial_moved_ += add ? moved : -moved;
  }
}

void Assignment::try_everywhere(const Choice& choice, bool add) {
  if (tally_) tally_->add_option(choice.option, add ? 1 : -1);
  const auto& option = problem_.options[choice.option];
  std::int32_t rank = 0;
  for (auto r = option.run_begin; r < option.run_end; ++r) {
    for (std::int64_t i = 0; i < problem_.runs[r].count; ++i, ++rank) change(r, rank, add);
  }
  if (bytes_ != nullptr) {
    const auto moved = bytes_->everywhere(choice.option);
    trial_moved_ += add ? moved : -moved;
  }
}

void Assignment::try_without(std::size_t table) {
  const auto& choice = choices_[table_choice_[table]];
  if (choice.spread == Spread::everywhere) return try_everywhere(choice, false);
  const auto own = places(table);
  for (std::int32_t piece = 0; piece < choice.pieces; ++piece) {
    try_piece(choice, piece, own[piece], false);
  }
}

// The energy of the trial less that of the placement; only ranks that were touched can differ.
double Assignment::trial_change() {
  double change = excess(trial_moved_) - excess(moved_);
  for (const auto rank : touched_) {
    change += limits_.energy(rank, trial_load_[rank]) - rank_energy_[rank];
  }
  if (tally_) {
    change += tally_weight_ * static_cast<double>(tally_->trial_value() - tally_->value());
  }
  return change;
}

Assignment::Fit Assignment::fit(const Choice& choice, std::int32_t piece,
                                std::int32_t place) const {
  Fit result;
  const std::int32_t count = choice.spread == Spread::hosts ? group_size_ : 1;
  for (std::int32_t i = 0; i < count; ++i) {
    // A block of shards lies on the ranks of its host in order.
    const std::int32_t rank = place * count + i;
    Load load = stamp_[rank] == trial_ ? trial_load_[rank] : load_[rank];
    const double before = limits_.energy(rank, load);
    load += choices_.shard_load(choice, piece * count + i);
    result.energy += limits_.energy(rank, load) - before;
    if (tally_) {
      const auto run = choices_.shard_run(choice, piece * count + i);
      result.energy += tally_weight_ * static_cast<double>(tally_->excess(run, rank));
    }
    result.cost = std::max(result.cost, load.cost);
  }
  if (bytes_ != nullptr) {
    const auto moved = trial_moved_ + bytes_->of_piece(choice.option, piece, place);
    result.energy += excess(moved) - excess(trial_moved_);
  }
  return result;
}

void Assignment::commit() {
  for (const auto rank : touched_) {
    load_[rank] = trial_load_[rank];
    set_energy(rank, limits_.energy(rank, load_[rank]));
  }
  moved_ = trial_moved_;
  if (tally_) tally_->commit();
  begin_trial();
}

std::int32_t Assignment::list_of(const Choice& choice, std::int32_t place) const {
  switch (choice.spread) {
    case Spread::everywhere:
      return static_cast<std::int32_t>(lists_.size()) - 1;
    case Spread::hosts:
      return ranks_ + place;
    default:
      return place;
  }
}

void Assignment::add_to_list(std::int32_t list, std::int32_t slot) {
  slot_index_[slot] = static_cast<std::int32_t>(lists_[list].size());
  lists_[list].push_back(slot);
}

// The last slot takes the place of the one that leaves: O(1), and the order does not matter, but it
// is the same for every run with the same seed.
void Assignment::remove_from_list(std::int32_t list, std::int32_t slot) {
  auto& slots = lists_[list];
  slots[slot_index_[slot]] = slots.back();
  slot_index_[slots.back()] = slot_index_[slot];
  slots.pop_back();
}

void Assignment::set_place(std::size_t table, std::int32_t piece, std::int32_t place) {
  const auto& choice = choices_[table_choice_[table]];
  const std::int32_t slot = slot_begin_[table] + piece;
  remove_from_list(list_of(choice, slot_place_[slot]), slot);
  slot_place_[slot] = place;
  add_to_list(list_of(choice, place), slot);
}

void Assignment::set_choice(std::size_t table, std::int32_t choice,
                            std::span<const std::int32_t> places) {
  const std::int32_t first = slot_begin_[table];
  if (const auto before = table_choice_[table]; before >= 0) {
    const auto& old = choices_[before];
    for (std::int32_t i = 0; i < std::max(old.pieces, 1); ++i) {
      remove_from_list(list_of(old, slot_place_[first + i]), first + i);
    }
  }
  table_choice_[table] = choice;
  const auto& now = choices_[choice];
  if (now.spread == Spread::everywhere) return add_to_list(list_of(now, 0), first);
  for (std::int32_t i = 0; i < now.pieces; ++i) {
    slot_place_[first + i] = places[i];
    add_to_list(list_of(now, places[i]), first + i);
  }
}

}  // namespace fastplan
