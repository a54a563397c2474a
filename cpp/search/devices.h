// The ranks while a proposal is placed: what each carries and what it has left.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"
#include "search/tournament.h"

namespace fastplan {

// TorchRec keeps a heap of devices by load, and copies of all of them for each attempt. Here loads
// are columns, uniform options cost O(runs) instead of O(ranks), a tournament finds the least
// loaded rank, and a journal takes placements back.
class Devices {
 public:
  explicit Devices(const Problem& problem);

  // Forgets all placements. A positive `hbm` replaces every rank's own.
  void reset(std::int64_t hbm);

  // Places one option on all ranks, shard i on rank i.
  void add_uniform(const Option& option);
  // Ends the uniform part. False when a rank can't hold it.
  bool settle_uniform();

  void place(std::int32_t rank, const Run& run);
  bool fits(std::int32_t rank, const Run& run) const { return run.storage.fits_in(free_[rank]); }

  // Placements since the uniform part, in order. Sums of doubles can't be undone by subtraction, so
  // each entry keeps the sum before it.
  struct Placed {
    Perf before;
    Storage storage;
    std::int32_t rank;
  };
  std::span<const Placed> placed() const { return placed_; }
  // Takes back all placements but the first `count`.
  void undo(std::size_t count);

  // The least loaded rank that can hold a shard like `run`; -1 when there is none. Ties go to the
  // smaller local rank, then to the smaller rank. `taken` ranks are passed over when given.
  std::int32_t least_loaded(const Run& run, std::span<const std::uint8_t> taken = {});
  // The same among a host's ranks, the smaller one of equals.
  std::int32_t least_loaded_of_host(const Run& run, std::int32_t host) const;
  // A lower bound on the load of every rank that can hold a shard like `run`. The second one costs
  // less: ranks that refused a shard are left out. Loads may have grown since somebody asked for a
  // rank; 0 while nobody has.
  double least_load(const Run& run);
  double least_load_of_others() const { return ranks_ready_ ? ranks_.least() : 0; }

  double load(std::int32_t rank) const { return total_[rank]; }
  std::span<const double> loads() const { return total_; }
  std::span<const Storage> free() const { return free_; }

  // Load of each host's ranks, added up in rank order.
  std::span<const double> host_loads();
  // The least loaded host whose ranks have room for `need` together; -1 is none. Ties go to the
  // smaller host. With `after`, only hosts that come after this one.
  std::int32_t least_loaded_host(const Storage& need, std::int32_t after);

 private:
  void changed(std::int32_t rank);
  void expand();
  void outdate_hosts();
  void build_tournament();
  void update_tournament();
  std::int32_t least_loaded_full(const Storage& need);
  // By load; the smaller leaf of equal ones.
  bool before(std::int32_t leaf, std::int32_t other) const {
    const double a = total_[leaf_rank_[leaf]];
    const double b = total_[leaf_rank_[other]];
    return a < b || (a == b && leaf < other);
  }

  const Problem& problem_;
  std::vector<Perf> perf_;
  std::vector<double> total_;
  std::vector<Storage> free_;
  std::vector<Placed> placed_;

  // Uniform options cost every rank the same until one does not; only then are they kept by rank.
  // Most models never get there, and a data-parallel table then costs one addition on any number of
  // ranks.
  bool uniform_any_ = false;
  bool uniform_same_ = true;
  Perf uniform_perf_;
  std::vector<Storage> uniform_change_;  // by rank, difference to the rank before

  // Ranks in tie order, by load. Made when somebody asks for a rank, and brought up to date when
  // somebody asks again: many proposals fail before, and shards may all go by host.
  std::vector<std::int32_t> leaf_rank_, rank_leaf_;
  Tournament ranks_;
  bool ranks_ready_ = false;
  std::vector<std::int32_t> stale_ranks_;
  std::vector<std::uint8_t> rank_stale_;
  // Ranks that refused a shard are taken out of the tournament, where they would be in the way of
  // every shard that follows. They are looked at one by one when one of them may have room.
  std::vector<std::int32_t> full_;     // leaves
  std::vector<std::uint8_t> is_full_;  // by leaf
  Storage full_room_;                  // no full rank has more, in any tier

  // Hosts, brought up to date when somebody asks.
  Tournament hosts_;
  bool hosts_ready_ = false;
  std::vector<std::int32_t> rank_host_;  // -1 is none
  std::vector<double> host_load_;
  std::vector<Storage> host_room_;
  std::vector<std::uint8_t> host_fresh_;
  std::vector<std::int32_t> stale_hosts_;
};

}  // namespace fastplan
