#include "replan/start.h"

#include <algorithm>
#include <tuple>

namespace fastplan {
namespace {

constexpr std::int32_t kNoPlace = -1;

bool is_placed(std::span<const std::int32_t> places) {
  return std::ranges::find(places, kNoPlace) == places.end();
}

// Places of the pieces whose shards are on `ranks`.
Places places_on(const Problem& problem, const Choice& choice,
                 std::span<const std::int64_t> ranks) {
  const auto world = static_cast<std::int64_t>(problem.ranks());
  const auto size = problem.group_size;
  Places places(choice.pieces, kNoPlace);
  if (static_cast<std::int32_t>(ranks.size()) != choice.shards) return places;
  if (choice.spread != Spread::hosts) {
    const bool on_one_host =
        ranks[0] / size < problem.hosts &&
        std::ranges::all_of(ranks, [&](auto rank) { return rank / size == ranks[0] / size; });
    if (choice.spread == Spread::host_ranks && !on_one_host) return places;
    for (std::int32_t i = 0; i < choice.pieces; ++i) {
      if (ranks[i] < world) places[i] = static_cast<std::int32_t>(ranks[i]);
    }
    return places;
  }
  for (std::int32_t piece = 0; piece < choice.pieces; ++piece) {
    const auto block = ranks.subspan(piece * size, size);
    bool in_order = block[0] % size == 0 && block[0] / size < problem.hosts;
    for (std::int64_t i = 0; i < size; ++i) in_order = in_order && block[i] == block[0] + i;
    if (in_order) places[piece] = static_cast<std::int32_t>(block[0] / size);
  }
  return places;
}

// Tables that can stay do; the others are placed one by one, the longest first, under the choice
// and at the place that adds least energy.
class Repair {
 public:
  Repair(const Choices& choices, const MovedBytes& bytes, const Draft& previous,
         std::int64_t target)
      : choices_(choices),
        problem_(choices.problem()),
        previous_(previous),
        draft_(previous),
        state_(choices, &bytes),
        tower_host_(choices.towers().size(), kNoPlace) {
    state_.set_target(target);
    // Memory and cost come first; of places that do no harm, the one that moves least.
    const auto held = static_cast<double>(std::max<std::int64_t>(bytes.held(), 1));
    state_.set_move_budget(0, 1e-6 * static_cast<double>(target) / held);
  }

  Repaired run() {
    std::vector<std::pair<std::int64_t, std::size_t>> missing;
    state_.clear();
    for (std::size_t t = 0; t < choices_.tables(); ++t) {
      const bool kept =
          previous_.choice[t] >= 0 && is_placed(previous_.places[t]) && joins_tower(t);
      if (kept) {
        put(t, previous_.choice[t], previous_.places[t]);
        state_.commit();
      } else {
        missing.emplace_back(-length(t), t);
      }
    }
    std::sort(missing.begin(), missing.end());
    for (const auto& [_, t] : missing) place(t);
    draft_.cost = state_.largest_cost();
    draft_.moved = state_.moved();
    state_.set_move_budget(draft_.moved, 0);
    state_.set_target(draft_.cost);
    return {std::move(draft_), state_.within_limits()};
  }

 private:
  std::int32_t host_of(const Choice& choice, std::int32_t place) const {
    return choice.spread == Spread::hosts ? place
                                          : place / static_cast<std::int32_t>(problem_.group_size);
  }

  // Whether the table's old place is on the host of its tower; the first of a tower decides.
  bool joins_tower(std::size_t table) {
    const auto tower = choices_.tower(table);
    const auto& places = previous_.places[table];
    if (tower < 0 || places.empty()) return true;
    const auto host = host_of(choices_[previous_.choice[table]], places[0]);
    if (tower_host_[tower] == kNoPlace) tower_host_[tower] = host;
    return tower_host_[tower] == host;
  }

  // The costliest shard of any choice: such tables have the fewest places.
  std::int64_t length(std::size_t table) const {
    std::int64_t longest = 0;
    for (auto c = choices_.first(table); c < choices_.first(table + 1); ++c) {
      const auto& option = problem_.options[choices_[c].option];
      longest = std::max(longest, choices_.fixed(option.perf_max));
    }
    return longest;
  }

  void put(std::size_t table, std::int32_t number, std::span<const std::int32_t> places) {
    const auto& choice = choices_[number];
    if (choice.spread == Spread::everywhere) state_.try_everywhere(choice, true);
    for (std::int32_t piece = 0; piece < choice.pieces; ++piece) {
      state_.try_piece(choice, piece, places[piece], true);
    }
    draft_.choice[table] = number;
    draft_.places[table].assign(places);
  }

  // Tries every choice, the pieces that have a place there already; the best is made real.
  void place(std::size_t table) {
    // Energy first, then the option's cost, then the costliest rank.
    using Score = std::tuple<double, double, std::int64_t>;
    Score best{};
    std::int32_t best_number = -1;
    Places best_places, places;
    for (auto c = choices_.first(table); c < choices_.first(table + 1); ++c) {
      for (const auto host : hosts_for(table, choices_[c])) {
        state_.begin_trial();
        const auto costliest = fill(table, c, host, places);
        const auto& option = problem_.options[choices_[c].option];
        const Score score{state_.trial_change(), option.perf_sum, costliest};
        if (best_number >= 0 && !(score < best)) continue;
        best = score;
        best_number = c;
        best_places = places;
      }
    }
    state_.begin_trial();
    put(table, best_number, best_places);
    state_.commit();
    const auto& choice = choices_[best_number];
    if (const auto tower = choices_.tower(table); tower >= 0 && choice.pieces > 0) {
      tower_host_[tower] = host_of(choice, best_places[0]);
    }
  }

  // Hosts that all pieces of the choice must share; kNoPlace where they need not.
  std::vector<std::int32_t> hosts_for(std::size_t table, const Choice& choice) const {
    if (choice.spread == Spread::everywhere) return {kNoPlace};
    const auto tower = choices_.tower(table);
    if (tower >= 0 && tower_host_[tower] != kNoPlace) return {tower_host_[tower]};
    if (tower < 0 && choice.spread != Spread::host_ranks) return {kNoPlace};
    std::vector<std::int32_t> hosts(problem_.hosts);
    for (std::size_t i = 0; i < hosts.size(); ++i) hosts[i] = static_cast<std::int32_t>(i);
    return hosts;
  }

  // Adds the choice to the trial, piece by piece; returns the cost of the costliest rank it is on.
  std::int64_t fill(std::size_t table, std::int32_t number, std::int32_t host, Places& places) {
    const auto& choice = choices_[number];
    places.assign(choice.pieces, kNoPlace);
    if (choice.spread == Spread::everywhere) state_.try_everywhere(choice, true);
    if (number == previous_.choice[table] && host == kNoPlace) places = previous_.places[table];
    const bool blocks = choice.spread == Spread::hosts;
    const auto size = static_cast<std::int32_t>(problem_.group_size);
    std::int32_t begin = 0;
    auto count = static_cast<std::int32_t>(blocks ? problem_.hosts : problem_.ranks());
    if (host != kNoPlace) {
      begin = blocks ? host : host * size;
      count = blocks ? 1 : size;
    }
    std::int64_t costliest = 0;
    for (std::int32_t piece = 0; piece < choice.pieces; ++piece) {
      Assignment::Fit best_fit;
      std::int32_t best = places[piece];
      if (best != kNoPlace) {
        best_fit = state_.fit(choice, piece, best);
      } else {
        for (auto at = begin; at < begin + count; ++at) {
          if (choice.distinct && std::ranges::count(places, at) > 0) continue;
          const auto fit = state_.fit(choice, piece, at);
          if (best != kNoPlace && !(fit < best_fit)) continue;
          best = at;
          best_fit = fit;
        }
      }
      places[piece] = best;
      costliest = std::max(costliest, best_fit.cost);
      state_.try_piece(choice, piece, best, true);
    }
    return costliest;
  }

  const Choices& choices_;
  const Problem& problem_;
  const Draft& previous_;
  Draft draft_;
  Assignment state_;
  std::vector<std::int32_t> tower_host_;
};

}  // namespace

std::vector<std::int32_t> held_options(const Problem& problem, const HeldColumns& held) {
  std::vector<std::int32_t> options(problem.tables(), -1);
  for (std::size_t o = 0; o < problem.options.size(); ++o) {
    const auto& option = problem.options[o];
    if (options[option.table] < 0 &&
        static_cast<std::uint8_t>(option.type) == held.table_held_type[option.table] &&
        static_cast<std::uint8_t>(option.kernel) == held.table_held_kernel[option.table]) {
      options[option.table] = static_cast<std::int32_t>(o);
    }
  }
  return options;
}

Draft previous_draft(const Choices& choices, const HeldColumns& held,
                     const std::vector<std::int32_t>& options) {
  Draft previous;
  previous.choice.assign(choices.tables(), -1);
  previous.places.resize(choices.tables());
  for (std::size_t t = 0; t < choices.tables(); ++t) {
    if (options[t] < 0) continue;
    const auto number = choices.of_option(options[t]);
    if (number < 0) continue;  // it can't be placed any more
    const auto& choice = choices[number];
    const auto begin = held.table_held_begin[t];
    const auto ranks = held.held_rank.subspan(begin, held.table_held_begin[t + 1] - begin);
    previous.choice[t] = number;
    previous.places[t] = places_on(choices.problem(), choice, ranks);
  }
  return previous;
}

Repaired repair(const Choices& choices, const MovedBytes& bytes, const Draft& previous,
                std::int64_t target) {
  return Repair(choices, bytes, previous, target).run();
}

}  // namespace fastplan
