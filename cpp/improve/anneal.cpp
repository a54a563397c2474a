#include "improve/anneal.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fastplan {
namespace {

constexpr std::int64_t kCheckEvery = 256;
// A table that changes places tries this many at random, or all of them.
constexpr std::int32_t kSamples = 3;
constexpr std::int32_t kAll = 0;
constexpr std::int32_t kAnyHost = -1;
// One move in so many is a way home, where there is a home.
constexpr std::size_t kHomeward = 8;
constexpr std::int32_t kRivals = 3;
// How far a target comes down at a time.
constexpr double kTargetStep = 0.005;

}  // namespace

Annealer::Annealer(const Choices& choices, std::uint64_t seed)
    : choices_(choices),
      problem_(choices.problem()),
      group_size_(static_cast<std::int32_t>(problem_.group_size)),
      state_(choices),
      random_(seed) {}

Annealer::Annealer(const Choices& choices, std::uint64_t seed, const MoveBytes& bytes,
                   const Draft& home)
    : choices_(choices),
      problem_(choices.problem()),
      group_size_(static_cast<std::int32_t>(problem_.group_size)),
      home_(&home),
      state_(choices, &bytes),
      random_(seed) {}

void Annealer::start_from(const Draft& draft) {
  state_.clear();
  for (std::size_t t = 0; t < choices_.tables(); ++t) {
    const auto& choice = choices_[draft.choice[t]];
    const auto& places = draft.places[t];
    if (choice.spread == Spread::everywhere) state_.try_everywhere(choice, true);
    for (std::int32_t piece = 0; piece < choice.pieces; ++piece) {
      state_.try_piece(choice, piece, places[piece], true);
    }
    if (const auto tower = choices_.tower(t); tower >= 0 && choice.pieces > 0) {
      state_.set_tower_host(tower,
                            choice.spread == Spread::hosts ? places[0] : places[0] / group_size_);
    }
    state_.set_choice(t, draft.choice[t], places);
  }
  state_.commit();
}

void Annealer::start_from(std::span<const std::int32_t> chosen, double noise) {
  state_.clear();
  for (std::size_t tower = 0; tower < choices_.towers().size(); ++tower) {
    state_.set_tower_host(tower, random_.below(problem_.hosts));
  }
  std::vector<std::pair<double, std::int32_t>> order;
  for (std::size_t t = 0; t < choices_.tables(); ++t) {
    const auto& choice = choices_[chosen[t]];
    if (choice.spread == Spread::everywhere) {
      state_.try_everywhere(choice, true);
      state_.set_choice(t, chosen[t], {});
      continue;
    }
    std::int64_t longest = 0;
    for (std::int32_t shard = 0; shard < choice.shards; ++shard) {
      longest = std::max(longest, choices_.shard_load(choice, shard).cost);
    }
    // A block needs room on every rank of a host.
    if (choice.spread == Spread::hosts) longest *= group_size_;
    const double length = static_cast<double>(longest) * (1 + noise * random_.real());
    order.emplace_back(-length, static_cast<std::int32_t>(t));
  }
  std::sort(order.begin(), order.end());
  for (const auto& [_, t] : order) {
    const auto tower = choices_.tower(t);
    const auto host = tower >= 0 ? state_.tower_host(tower) : kAnyHost;
    place_well(choices_[chosen[t]], kAll, host, places_);
    state_.set_choice(t, chosen[t], places_);
  }
  state_.commit();
}

Draft Annealer::take_best() { return std::exchange(best_, {}); }

void Annealer::swap_best(Draft& draft) {
  if (best_.empty()) return;
  std::swap(best_, draft);
  best_.choice.clear();
}

// Moves from hot to cold. `settled` sees every placement, and tells when it can be no better.
template <typename Settled>
std::int64_t Annealer::anneal(const Cooling& cooling, const std::function<bool()>& stopped,
                              const Settled& settled) {
  const double checks = static_cast<double>(cooling.moves) / kCheckEvery;
  const double factor = std::pow(cooling.cold / cooling.hot, 1 / std::max(checks, 1.0));
  double heat = cooling.hot;
  std::int64_t made = 0;
  for (; made < cooling.moves; ++made) {
    if (made % kCheckEvery == 0) {
      if (stopped()) break;
      if (made > 0) heat *= factor;
      temperature_ = heat * static_cast<double>(state_.target());
    }
    if (settled()) break;
    move();
  }
  return made;
}

std::int64_t Annealer::run(const Cooling& cooling, std::int64_t target, const Allowed& allowed,
                           const std::function<bool()>& stopped) {
  allowed_ = &allowed;
  state_.set_target(target);
  return anneal(cooling, stopped, [&] {
    if (!state_.within_limits()) return false;
    note_plan(cooling);
    return state_.within_limits();  // nothing costs anything
  });
}

// Keeps the present plan if it is the best, and asks for a better one.
void Annealer::note_plan(const Cooling& cooling) {
  const auto lower = [&](std::int64_t value) {
    return static_cast<std::int64_t>(static_cast<double>(value) * (1 - cooling.step));
  };
  if (cooling.lowers == Lowers::bytes) {
    const auto moved = state_.moved();
    if (best_.empty() || moved < best_.moved) state_.write(best_);
    state_.set_move_budget(std::max<std::int64_t>(std::min(moved - 1, lower(moved)), 0),
                           byte_price_);
    return;
  }
  const auto cost = state_.largest_cost();
  if (best_.empty() || cost < best_.cost) state_.write(best_);
  state_.set_target(std::min(state_.target() - 1, lower(cost)));
}

std::int64_t Annealer::refine(const Cooling& cooling, std::int64_t limit, std::int64_t value,
                              const Allowed& allowed, const std::function<bool()>& stopped) {
  allowed_ = &allowed;
  state_.set_target(limit);
  return anneal(cooling, stopped, [&] {
    if (state_.within_limits() && state_.goal() < value) {
      state_.write(best_);
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
  allowed_ = &allowed;
  // Options settle better while the target comes down than far above it.
  state_.set_target(std::max(limit, state_.largest_cost()));
  return anneal(cooling, stopped, [&] {
    if (!state_.ranks_over().empty()) return false;
    if (state_.target() > limit) {
      state_.set_target(std::max(limit, lower(state_.largest_cost(), kTargetStep)));
    } else if (state_.moved() < moved) {
      state_.write(best_);
      moved = lower(best_.moved, cooling.step);
    }
    return state_.target() == limit && state_.within_limits();
  });
}

bool Annealer::accept() {
  const double change = state_.trial_change();
  const bool yes = change <= 0 || change < -temperature_ * std::log(random_.real());
  if (yes) state_.commit();
  return yes;
}

std::int32_t Annealer::pick_rank() {
  const auto over = state_.ranks_over();
  if (!over.empty() && random_.below(4) != 0) return over[random_.below(over.size())];
  if (const auto* tally = state_.tally(); tally && tally->channels() > 0 && random_.below(2) == 0) {
    return tally->largest_rank(random_.below(tally->channels()));
  }
  return random_.below(problem_.ranks());
}

// Something that is on the rank, in one way or another; -1 when there is nothing.
std::int32_t Annealer::pick_slot(std::int32_t rank) {
  const auto own = state_.on_rank(rank);
  const auto host = rank / group_size_;
  std::span<const std::int32_t> blocks;
  if (host < problem_.hosts) blocks = state_.on_host(host);
  const auto everywhere = state_.everywhere();
  const auto count = own.size() + blocks.size() + everywhere.size();
  if (count == 0) return -1;
  auto at = static_cast<std::size_t>(random_.below(count));
  if (at < own.size()) return own[at];
  at -= own.size();
  return at < blocks.size() ? blocks[at] : everywhere[at - blocks.size()];
}

void Annealer::move() {
  if (home_ != nullptr && random_.below(kHomeward) == 0) {
    return go_home(static_cast<std::size_t>(random_.below(choices_.tables())));
  }
  const std::int32_t slot = pick_slot(pick_rank());
  if (slot < 0) return;
  const std::int32_t table = state_.slot_table(slot);
  const auto& choice = choices_[state_.choice(table)];
  const std::int32_t tower = choices_.tower(table);
  const std::int32_t dice = random_.below(100);
  // The last resort of every kind: another choice, or the same one placed anew.
  const auto& allowed = (*allowed_)[table];
  const auto other = [&] { return allowed[random_.below(allowed.size())]; };
  switch (choice.spread) {
    case Spread::everywhere:
      return change_choice(table, other());
    case Spread::ranks:
      if (dice < 35) return move_piece(slot);
      return dice < 80 ? swap_pieces(slot) : change_choice(table, other());
    case Spread::host_ranks:
      if (dice < 30) return move_piece(slot);
      if (dice < 60 && tower >= 0) return move_tower(tower);
      return change_choice(table, dice < 60 ? state_.choice(table) : other());
    case Spread::hosts:
      if (dice < 35) return tower >= 0 ? move_tower(tower) : move_piece(slot);
      return dice < 60 && tower < 0 ? swap_pieces(slot) : change_choice(table, other());
  }
}

// Puts a table back to where it was, if it had a place and is elsewhere now.
void Annealer::go_home(std::size_t table) {
  const auto number = home_->choice[table];
  const auto& places = home_->places[table];
  if (number < 0 || choices_.tower(table) >= 0 || std::ranges::count(places, -1) > 0) return;
  if (number == state_.choice(table) && std::ranges::equal(places, state_.places(table))) return;
  const auto& choice = choices_[number];
  state_.begin_trial();
  state_.try_without(table);
  if (choice.spread == Spread::everywhere) state_.try_everywhere(choice, true);
  for (std::int32_t piece = 0; piece < choice.pieces; ++piece) {
    state_.try_piece(choice, piece, places[piece], true);
  }
  if (accept()) state_.set_choice(table, number, places);
}

// A place for a piece of the choice that is at `near`.
std::int32_t Annealer::random_place(const Choice& choice, std::int32_t near) {
  switch (choice.spread) {
    case Spread::host_ranks:
      return near / group_size_ * group_size_ + random_.below(group_size_);
    case Spread::hosts:
      return random_.below(problem_.hosts);
    default:
      break;
  }
  auto rank = random_.below(problem_.ranks());
  if (home_ == nullptr) return rank;
  // Most ranks of a plan that is nearly good are full: the emptier of some is worth more than any.
  for (std::int32_t i = 0; i < kRivals; ++i) {
    const auto other = random_.below(problem_.ranks());
    if (state_.cost(other) < state_.cost(rank)) rank = other;
  }
  return rank;
}

void Annealer::move_piece(std::int32_t slot) {
  const auto table = state_.slot_table(slot);
  const auto piece = state_.slot_piece(slot);
  const auto& choice = choices_[state_.choice(table)];
  const auto from = state_.slot_place(slot);
  const auto to = random_place(choice, from);
  if (to == from || taken(choice, state_.places(table), to)) return;
  state_.begin_trial();
  state_.try_piece(choice, piece, from, false);
  state_.try_piece(choice, piece, to, true);
  if (accept()) state_.set_place(table, piece, to);
}

void Annealer::swap_pieces(std::int32_t slot) {
  const auto table = state_.slot_table(slot);
  const auto& choice = choices_[state_.choice(table)];
  const auto from = state_.slot_place(slot);
  const auto to = random_place(choice, from);
  const auto others = choice.spread == Spread::hosts ? state_.on_host(to) : state_.on_rank(to);
  if (to == from || others.empty()) return;
  const auto other = others[random_.below(others.size())];
  const auto other_table = state_.slot_table(other);
  const auto& other_choice = choices_[state_.choice(other_table)];
  if (table == other_table || other_choice.spread != choice.spread ||
      choices_.tower(other_table) >= 0 || taken(choice, state_.places(table), to) ||
      taken(other_choice, state_.places(other_table), from)) {
    return;
  }
  const auto piece = state_.slot_piece(slot);
  const auto other_piece = state_.slot_piece(other);
  state_.begin_trial();
  state_.try_piece(choice, piece, from, false);
  state_.try_piece(choice, piece, to, true);
  state_.try_piece(other_choice, other_piece, to, false);
  state_.try_piece(other_choice, other_piece, from, true);
  if (!accept()) return;
  state_.set_place(table, piece, to);
  state_.set_place(other_table, other_piece, from);
}

void Annealer::move_tower(std::size_t tower) {
  const auto& members = choices_.towers()[tower];
  const auto host = random_.below(problem_.hosts);
  tower_places_.resize(members.size());
  state_.begin_trial();
  for (const auto table : members) {
    if (choices_[state_.choice(table)].pieces > 0) state_.try_without(table);
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    place_well(choices_[state_.choice(members[i])], kSamples, host, tower_places_[i]);
  }
  if (!accept()) return;
  state_.set_tower_host(tower, host);
  for (std::size_t i = 0; i < members.size(); ++i) {
    state_.set_choice(members[i], state_.choice(members[i]), tower_places_[i]);
  }
}

void Annealer::change_choice(std::size_t table, std::int32_t number) {
  const auto& choice = choices_[number];
  if (choice.spread == Spread::everywhere && number == state_.choice(table)) return;
  const auto tower = choices_.tower(table);
  std::int32_t host = kAnyHost;
  if (tower >= 0) {
    host = state_.tower_host(tower);
  } else if (choice.spread == Spread::host_ranks) {
    host = random_.below(problem_.hosts);
  }
  state_.begin_trial();
  state_.try_without(table);
  if (choice.spread == Spread::everywhere) state_.try_everywhere(choice, true);
  place_well(choice, kSamples, host, places_);
  if (accept()) state_.set_choice(table, number, places_);
}

std::int32_t Annealer::least_loaded_host(const Choice& choice) const {
  std::int32_t best = 0;
  std::int64_t least = 0;
  for (std::int32_t host = 0; host < problem_.hosts; ++host) {
    std::int64_t sum = 0;
    for (std::int32_t i = 0; i < group_size_; ++i) {
      sum += state_.fit(choice, 0, host * group_size_ + i).cost;
    }
    if (host == 0 || sum < least) {
      best = host;
      least = sum;
    }
  }
  return best;
}

// Adds the choice's pieces to the trial one by one, each where it does least harm: of all places,
// or of a few random ones. `host` is where it must go, if that is settled.
void Annealer::place_well(const Choice& choice, std::int32_t samples, std::int32_t host,
                          std::vector<std::int32_t>& places) {
  places.clear();
  if (choice.spread == Spread::host_ranks && host == kAnyHost) host = least_loaded_host(choice);
  const bool blocks = choice.spread == Spread::hosts;
  std::int32_t begin = 0;
  auto count = static_cast<std::int32_t>(blocks ? problem_.hosts : problem_.ranks());
  if (host != kAnyHost) {
    begin = blocks ? host : host * group_size_;
    count = blocks ? 1 : group_size_;
  }
  for (std::int32_t piece = 0; piece < choice.pieces; ++piece) {
    std::int32_t best = -1;
    Assignment::Fit best_fit;
    const auto consider = [&](std::int32_t place) {
      if (taken(choice, places, place)) return;
      const auto fit = state_.fit(choice, piece, place);
      if (best >= 0 && !(fit < best_fit)) return;
      best = place;
      best_fit = fit;
    };
    if (samples != kAll && count > samples) {
      for (std::int32_t i = 0; i < samples; ++i) consider(begin + random_.below(count));
    }
    if (best < 0) {
      for (std::int32_t i = 0; i < count; ++i) consider(begin + i);
    }
    places.push_back(best);
    state_.try_piece(choice, piece, best, true);
  }
}

}  // namespace fastplan
