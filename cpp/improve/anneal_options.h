// Simulated annealing over options alone: what each table is, and on which hosts it is if that
// matters. Shards that go to single ranks are placed longest first, again for every trial.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "improve/anneal.h"
#include "improve/anneal_energy.h"
#include "improve/anneal_random.h"
#include "improve/anneal_state.h"
#include "improve/choices.h"

namespace fastplan {

// A trial costs O(pieces x ranks) instead of a few ranks, but sees what an option is worth once
// everything else has made room for it. Good where few shards share a rank and options matter most.
class OptionAnnealer {
 public:
  OptionAnnealer(const Choices& choices, std::uint64_t seed);

  // Starts from the choices and looks for plans that cost at most `target`; returns the moves made.
  std::int64_t run(std::span<const std::int32_t> chosen, const Cooling& cooling,
                   std::int64_t target, const Allowed& allowed,
                   const std::function<bool()>& stopped);

  // The best plan since it was last asked for; empty when there is none.
  Draft take_best();
  // What it has come to, over its limits or not.
  Draft present() const;

 private:
  struct Piece {  // a shard that goes to a single rank
    double length = 0;
    std::int32_t table = 0;
    std::int32_t number = 0;
    bool operator<(const Piece& other) const {  // longest first
      if (length != other.length) return length > other.length;
      return table != other.table ? table < other.table : number < other.number;
    }
  };
  struct Before {  // a table as it was before the trial
    std::int32_t table = 0;
    std::int32_t choice = 0;
    std::vector<std::int32_t> hosts;
  };

  void start(std::span<const std::int32_t> chosen);
  double length(const Choice& choice, std::int32_t shard) const;
  void put(std::size_t table, bool add);
  void set(std::size_t table, std::int32_t choice, std::span<const std::int32_t> hosts);
  void change(std::size_t table, std::int32_t choice);
  // One table or two get another choice, or other hosts. False when nothing has changed.
  bool mutate(const Allowed& allowed);
  void undo();
  void choose_hosts(const Choice& choice);
  double place_pieces();
  std::int32_t best_rank(const Piece& piece) const;

  const Choices& choices_;
  const Problem& problem_;
  Random random_;
  Limits limits_;
  Limits first_limits_;       // at the start: lengths must not change on the way
  double memory_weight_ = 0;  // how much a shard's memory counts as length
  std::vector<std::int32_t> choice_, tower_host_;
  std::vector<std::vector<std::int32_t>>
      hosts_;  // by table: of its blocks, or the one of its shards
  std::vector<std::vector<std::int32_t>> ranks_;  // by table: of its pieces
  std::vector<Load> base_, load_;                 // by rank: without and with the pieces
  std::vector<Piece> pieces_;
  std::vector<Before> before_;
  std::size_t changed_ = 0;  // of before_, the part in use
  std::vector<std::int32_t> new_hosts_;
  Draft best_;
};

}  // namespace fastplan
