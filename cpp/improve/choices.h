// What the optimizer chooses from: every table's options that can be placed and that no other
// option of the table replaces at no cost.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"

namespace fastplan {

// What a shard puts on a rank. Costs are in fixed point: adding and taking away leaves no trace.
struct Load {
  std::int64_t cost = 0;
  Storage storage;

  Load& operator+=(const Load& other) {
    cost += other.cost;
    storage += other.storage;
    return *this;
  }
  Load& operator-=(const Load& other) {
    cost -= other.cost;
    storage -= other.storage;
    return *this;
  }
};

// How the shards of a choice go to places.
enum class Spread : std::uint8_t {
  everywhere,  // shard i on rank i; nothing to place
  ranks,       // each shard is a piece, placed on a rank
  host_ranks,  // the same, all on ranks of one host
  hosts,       // each block of group_size shards is a piece, placed on a host
};

// An option as the annealer places it: in pieces, each of which has a place.
struct Choice {
  std::int32_t option = 0;  // of the problem
  std::int32_t table = 0;
  Spread spread{};
  bool distinct = false;  // no two pieces on one place
  std::int32_t pieces = 0;
  std::int32_t shards = 0;
  std::int64_t shard_begin = 0;  // into Choices::shard_run, unless everywhere
};

// Options that are left out: those that can be in no plan, those that another option of the table
// replaces at no cost, and a few that the annealer has no way to represent (partial()).
class Choices {
 public:
  // Options of plans that are at hand already are kept whatever may replace them.
  Choices(const Problem& problem, std::span<const std::int32_t> keep);

  const Problem& problem() const { return problem_; }
  std::size_t tables() const { return table_begin_.size() - 1; }
  // Numbers of a table's choices: [first(t), first(t + 1)).
  std::int32_t first(std::size_t table) const { return table_begin_[table]; }
  const Choice& operator[](std::size_t number) const { return choices_[number]; }
  // The choice that stands for an option; -1 when the option was dropped.
  std::int32_t of_option(std::int32_t option) const { return option_choice_[option]; }
  // False when a table has nothing to choose: there is no plan, or none that choices can represent.
  bool complete() const { return complete_; }
  // Whether options that may be part of a plan are left out.
  bool partial() const { return partial_; }

  // Tables that must share a host; -1 for a table that is free of others.
  std::int32_t tower(std::size_t table) const { return tower_[table]; }
  const std::vector<std::vector<std::int32_t>>& towers() const { return tower_tables_; }

  // What shards put on a rank, by run of the problem, in fixed point.
  const Load& run_load(std::int64_t run) const { return run_load_[run]; }
  std::int32_t shard_run(const Choice& choice, std::int32_t shard) const {
    return shard_run_[choice.shard_begin + shard];
  }
  const Load& shard_load(const Choice& choice, std::int32_t shard) const {
    return run_load_[shard_run(choice, shard)];
  }
  // Fixed point: cost x 2^shift, with the shift such that all tables on one rank stay below 2^60.
  // Costs beyond all that the choices can come to are cut off.
  std::int64_t fixed(double cost) const;

 private:
  void find_towers();
  bool is_representable(const Option& option) const;
  bool can_be_placed(const Option& option) const;
  bool fits_everywhere(const Option& option) const;
  bool fits_block(const Option& option, std::int64_t first_shard) const;
  bool replaces(const Option& a, const Option& b) const;
  void add(std::int32_t option);

  const Problem& problem_;
  int shift_ = 0;
  bool complete_ = true;
  bool partial_ = false;
  std::vector<Choice> choices_;
  std::vector<std::int32_t> table_begin_{0};
  std::vector<std::int32_t> option_choice_;
  std::vector<std::int32_t> tower_;
  std::vector<std::vector<std::int32_t>> tower_tables_;
  std::vector<Load> run_load_;
  std::vector<std::int32_t> shard_run_;
};

}  // namespace fastplan
