// The ranks while a proposal is placed: what each carries and what it has left.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"

namespace fastplan {

// TorchRec keeps a heap of devices by load, and copies of all of them for each attempt. Here loads
// are columns, uniform options cost O(runs) instead of O(ranks), and a tournament finds the least
// loaded rank.
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

  // The least loaded rank that can hold a shard like `run`; -1 when there is none. Ties go to the
  // smaller local rank, then to the smaller rank. `taken` ranks are passed over when given.
  std::int32_t least_loaded(const Run& run, std::span<const std::uint8_t> taken = {});

  double load(std::int32_t rank) const { return total_[rank]; }
  std::span<const double> loads() const { return total_; }
  const Storage& free(std::int32_t rank) const { return free_[rank]; }
  std::span<const Storage> free() const { return free_; }

  // Load of each host's ranks, added up in rank order.
  std::span<const double> host_loads();

  // Saved state of consecutive ranks, for a placement that may have to be undone. Sums of doubles
  // can't be undone by subtraction.
  struct Snapshot {
    std::int32_t begin = 0;
    std::vector<Perf> perf;
    std::vector<Storage> free;
  };
  void save(std::int32_t begin, std::int32_t end, Snapshot& snapshot) const;
  void restore(const Snapshot& snapshot);

 private:
  void changed(std::int32_t rank);
  void play(std::size_t node);
  void build_tree();
  void expand();

  const Problem& problem_;
  std::vector<Perf> perf_;
  std::vector<double> total_;
  std::vector<Storage> free_;

  // Uniform options cost every rank the same until one does not; only then are they kept by rank.
  // Most models never get there, and a data-parallel table then costs one addition on any number of
  // ranks.
  bool uniform_any_ = false;
  bool uniform_same_ = true;
  Perf uniform_perf_;
  std::vector<Storage> uniform_change_;  // by rank, difference to the rank before

  // A tournament over ranks in tie order, so that the left one wins an equal load.
  std::vector<std::int32_t> leaf_rank_, rank_leaf_;
  std::vector<double> leaf_load_;
  std::vector<std::int32_t> winner_;  // inner nodes and leaves: winning leaf; -1 is none
  std::size_t leaves_ = 1;
  bool tree_ready_ = false;

  std::vector<double> host_load_;
  std::vector<std::uint8_t> host_fresh_;
  std::vector<std::int64_t> stale_hosts_;
};

}  // namespace fastplan
