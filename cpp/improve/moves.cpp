#include "improve/moves.h"

#include <cmath>
#include <stdexcept>

namespace fastplan {
namespace {

// Candidates for a place beside the first, where there is a previous plan.
constexpr std::int32_t kOtherCandidates = 3;

constexpr MovePiece kMovePiece;
constexpr SwapPieces kSwapPieces;
constexpr MoveTower kMoveTower;
constexpr PlaceAgain kPlaceAgain;
constexpr ChangeChoice kChangeChoice;

// Weights are percent. Moves of single pieces are cheap and repair most; a change of choice costs
// more time, and is what leads out of a local optimum.
constexpr MoveSet kEverywhere{{&kChangeChoice, 100}};
constexpr MoveSet kRanks{{&kMovePiece, 35}, {&kSwapPieces, 45}, {&kChangeChoice, 20}};
// Pieces of one host: a table that is placed again may go to another one.
constexpr MoveSet kHostRanks{{&kMovePiece, 30}, {&kPlaceAgain, 30}, {&kChangeChoice, 40}};
constexpr MoveSet kTowerRanks{{&kMovePiece, 30}, {&kMoveTower, 30}, {&kChangeChoice, 40}};
constexpr MoveSet kHosts{{&kMovePiece, 35}, {&kSwapPieces, 25}, {&kChangeChoice, 40}};
// A block is on all ranks of its host: in a tower it can only move with the others.
constexpr MoveSet kTowerHosts{{&kMoveTower, 35}, {&kChangeChoice, 65}};

}  // namespace

MoveContext::MoveContext(const Choices& own_choices, std::uint64_t seed, const MovedBytes* bytes,
                         const Draft* own_previous)
    : choices(own_choices),
      problem(own_choices.problem()),
      group_size(static_cast<std::int32_t>(problem.group_size)),
      previous(own_previous),
      state(own_choices, bytes),
      random(seed) {}

bool MoveContext::accept() {
  const double change = state.trial_change();
  const bool yes = change <= 0 || change < -temperature * std::log(random.real());
  if (yes) state.commit();
  return yes;
}

std::int32_t MoveContext::random_place(const Choice& choice, std::int32_t near) {
  switch (choice.spread) {
    case Spread::host_ranks:
      return near / group_size * group_size + random.below(group_size);
    case Spread::hosts:
      return random.below(problem.hosts);
    default:
      break;
  }
  auto rank = random.below(problem.ranks());
  if (previous == nullptr) return rank;
  // Most ranks of a plan that is nearly good are full: the emptier of some is worth more than any.
  for (std::int32_t i = 0; i < kOtherCandidates; ++i) {
    const auto other = random.below(problem.ranks());
    if (state.cost(other) < state.cost(rank)) rank = other;
  }
  return rank;
}

std::int32_t MoveContext::least_loaded_host(const Choice& choice) const {
  std::int32_t best = 0;
  std::int64_t least = 0;
  for (std::int32_t host = 0; host < problem.hosts; ++host) {
    std::int64_t sum = 0;
    for (std::int32_t i = 0; i < group_size; ++i) {
      sum += state.fit(choice, 0, host * group_size + i).cost;
    }
    if (host == 0 || sum < least) {
      best = host;
      least = sum;
    }
  }
  return best;
}

void MoveContext::place_well(const Choice& choice, std::int32_t samples, std::int32_t host,
                             std::vector<std::int32_t>& found) {
  found.clear();
  if (choice.spread == Spread::host_ranks && host == kAnyHost) host = least_loaded_host(choice);
  const bool blocks = choice.spread == Spread::hosts;
  std::int32_t begin = 0;
  auto count = static_cast<std::int32_t>(blocks ? problem.hosts : problem.ranks());
  if (host != kAnyHost) {
    begin = blocks ? host : host * group_size;
    count = blocks ? 1 : group_size;
  }
  for (std::int32_t piece = 0; piece < choice.pieces; ++piece) {
    std::int32_t best = -1;
    Assignment::Fit best_fit;
    const auto consider = [&](std::int32_t place) {
      if (taken(choice, found, place)) return;
      const auto fit = state.fit(choice, piece, place);
      if (best >= 0 && !(fit < best_fit)) return;
      best = place;
      best_fit = fit;
    };
    if (samples != kAllPlaces && count > samples) {
      for (std::int32_t i = 0; i < samples; ++i) consider(begin + random.below(count));
    }
    // All random places may have been taken: then every place is looked at.
    if (best < 0) {
      for (std::int32_t i = 0; i < count; ++i) consider(begin + i);
    }
    found.push_back(best);
    state.try_piece(choice, piece, best, true);
  }
}

void MoveContext::try_choice(const Choice& choice, std::span<const std::int32_t> own) {
  if (choice.spread == Spread::everywhere) state.try_everywhere(choice, true);
  for (std::int32_t piece = 0; piece < choice.pieces; ++piece) {
    state.try_piece(choice, piece, own[piece], true);
  }
}

void MoveContext::change_choice(std::size_t table, std::int32_t number) {
  const auto& choice = choices[number];
  // What is on all ranks has one place only: there is nothing to change.
  if (choice.spread == Spread::everywhere && number == state.choice(table)) return;
  const auto tower = choices.tower(table);
  std::int32_t host = kAnyHost;
  if (tower >= 0) {
    host = state.tower_host(tower);
  } else if (choice.spread == Spread::host_ranks) {
    host = random.below(problem.hosts);
  }
  state.begin_trial();
  state.try_without(table);
  if (choice.spread == Spread::everywhere) state.try_everywhere(choice, true);
  place_well(choice, kSomePlaces, host, places);
  if (accept()) state.set_choice(table, number, places);
}

bool MoveContext::resize(std::size_t table) {
  const auto& own = (*allowed)[table];
  const auto now = state.choice(table);
  const auto type = problem.options[choices[now].option].type;
  const auto first = random.below(own.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto number = own[(first + i) % own.size()];
    const auto& choice = choices[number];
    if (number == now || problem.options[choice.option].type != type ||
        choice.pieces != choices[now].pieces) {
      continue;
    }
    places.assign(state.places(table).begin(), state.places(table).end());
    state.begin_trial();
    state.try_without(table);
    try_choice(choice, places);
    if (accept()) state.set_choice(table, number, places);
    return true;
  }
  return false;
}

void MovePiece::apply(MoveContext& context, std::int32_t slot) const {
  auto& state = context.state;
  const auto table = state.slot_table(slot);
  const auto piece = state.slot_piece(slot);
  const auto& choice = context.choices[state.choice(table)];
  const auto from = state.slot_place(slot);
  const auto to = context.random_place(choice, from);
  if (to == from || MoveContext::taken(choice, state.places(table), to)) return;
  state.begin_trial();
  state.try_piece(choice, piece, from, false);
  state.try_piece(choice, piece, to, true);
  if (context.accept()) state.set_place(table, piece, to);
}

void SwapPieces::apply(MoveContext& context, std::int32_t slot) const {
  auto& state = context.state;
  const auto& choices = context.choices;
  const auto taken = MoveContext::taken;
  const auto table = state.slot_table(slot);
  const auto& choice = choices[state.choice(table)];
  const auto from = state.slot_place(slot);
  const auto to = context.random_place(choice, from);
  const auto others = choice.spread == Spread::hosts ? state.on_host(to) : state.on_rank(to);
  if (to == from || others.empty()) return;
  const auto other = others[context.random.below(others.size())];
  const auto other_table = state.slot_table(other);
  const auto& other_choice = choices[state.choice(other_table)];
  // A rank holds pieces of every kind: one that is bound to its host or to its tower's can't leave.
  if (table == other_table || other_choice.spread != choice.spread ||
      choices.tower(other_table) >= 0 || taken(choice, state.places(table), to) ||
      taken(other_choice, state.places(other_table), from)) {
    return;
  }
  const auto piece = state.slot_piece(slot);
  const auto other_piece = state.slot_piece(other);
  state.begin_trial();
  state.try_piece(choice, piece, from, false);
  state.try_piece(choice, piece, to, true);
  state.try_piece(other_choice, other_piece, to, false);
  state.try_piece(other_choice, other_piece, from, true);
  if (!context.accept()) return;
  state.set_place(table, piece, to);
  state.set_place(other_table, other_piece, from);
}

void MoveTower::apply(MoveContext& context, std::int32_t slot) const {
  auto& state = context.state;
  const auto& choices = context.choices;
  const auto tower = choices.tower(state.slot_table(slot));
  const auto& members = choices.towers()[tower];
  const auto host = context.random.below(context.problem.hosts);
  auto& places = context.tower_places;
  places.resize(members.size());
  state.begin_trial();
  // All members leave before the first is placed, so that each sees the host without the old ones.
  for (const auto table : members) {
    if (choices[state.choice(table)].pieces > 0) state.try_without(table);
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    context.place_well(choices[state.choice(members[i])], MoveContext::kSomePlaces, host,
                       places[i]);
  }
  if (!context.accept()) return;
  state.set_tower_host(tower, host);
  for (std::size_t i = 0; i < members.size(); ++i) {
    state.set_choice(members[i], state.choice(members[i]), places[i]);
  }
}

// Random places and, for shards of one host, a random host: as good as a move of all pieces at
// once.
void PlaceAgain::apply(MoveContext& context, std::int32_t slot) const {
  const auto table = context.state.slot_table(slot);
  context.change_choice(table, context.state.choice(table));
}

void ChangeChoice::apply(MoveContext& context, std::int32_t slot) const {
  const auto table = context.state.slot_table(slot);
  if (context.resizes && context.random.below(2) == 0 && context.resize(table)) return;
  const auto& allowed = (*context.allowed)[table];
  context.change_choice(table, allowed[context.random.below(allowed.size())]);
}

const MoveSet& moves_for(Spread spread, bool in_tower) {
  switch (spread) {
    case Spread::everywhere:
      return kEverywhere;
    case Spread::ranks:
      return kRanks;
    case Spread::host_ranks:
      return in_tower ? kTowerRanks : kHostRanks;
    case Spread::hosts:
      return in_tower ? kTowerHosts : kHosts;
  }
  throw std::invalid_argument("unknown spread");
}

void restore_table(MoveContext& context, std::size_t table) {
  auto& state = context.state;
  const auto number = context.previous->choice[table];
  const auto& places = context.previous->places[table];
  // A tower has one host, which the old place of a single member can't decide.
  if (number < 0 || context.choices.tower(table) >= 0 || std::ranges::count(places, -1) > 0) return;
  if (number == state.choice(table) && std::ranges::equal(places, state.places(table))) return;
  state.begin_trial();
  state.try_without(table);
  context.try_choice(context.choices[number], places);
  if (context.accept()) state.set_choice(table, number, places);
}

}  // namespace fastplan
