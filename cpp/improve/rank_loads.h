// What ranks hold while a placement grows, and which of them are the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/problem.h"
#include "improve/choices.h"

namespace fastplan {

// The less of both, part by part.
inline Storage least_of(const Storage& a, const Storage& b) {
  return {std::min(a.hbm, b.hbm), std::min(a.ddr, b.ddr), std::min(a.ssd, b.ssd)};
}
inline Load least_of(const Load& a, const Load& b) {
  return {std::min(a.cost, b.cost), least_of(a.storage, b.storage)};
}

class RankLoads {
 public:
  explicit RankLoads(const Problem& problem)
      : problem_(problem),
        ranks_(static_cast<std::int32_t>(problem.ranks())),
        size_(static_cast<std::int32_t>(problem.group_size)),
        hosts_(static_cast<std::int32_t>(problem.hosts)) {}

  std::int32_t ranks() const { return ranks_; }
  std::int32_t size() const { return size_; }
  std::int32_t hosts() const { return hosts_; }

  void clear() { load_.assign(ranks_, {}); }
  Load& operator[](std::int32_t rank) { return load_[rank]; }
  auto begin() const { return load_.begin(); }
  auto end() const { return load_.end(); }

  // What no rank may cost more than.
  std::int64_t target = 0;

  bool fits(std::int32_t rank, const Load& load) const {
    Storage sum = load_[rank].storage;
    sum += load.storage;
    return load_[rank].cost + load.cost <= target && sum.fits_in(problem_.capacity[rank]);
  }
  // Whether each rank of a host can take as much.
  bool fits_host(std::int32_t host, const Load& load) const {
    for (auto rank = host * size_; rank < (host + 1) * size_; ++rank) {
      if (!fits(rank, load)) return false;
    }
    return true;
  }
  // How many such loads fit on a rank, up to `most`.
  std::int32_t count(std::int32_t rank, const Load& load, std::int32_t most) const {
    std::int64_t count = most;
    const auto limit = [&](std::int64_t room, std::int64_t each) {
      if (each > 0) count = std::min(count, room < each ? 0 : room / each);
    };
    const auto& own = load_[rank];
    const auto& capacity = problem_.capacity[rank];
    limit(target - own.cost, load.cost);
    limit(capacity.hbm - own.storage.hbm, load.storage.hbm);
    limit(capacity.ddr - own.storage.ddr, load.storage.ddr);
    limit(capacity.ssd - own.storage.ssd, load.storage.ssd);
    return static_cast<std::int32_t>(count);
  }
  // What fits on every rank.
  Load room_on_all() const {
    Load room{target - load_[0].cost, problem_.capacity[0]};
    for (std::int32_t rank = 0; rank < ranks_; ++rank) {
      Storage free = problem_.capacity[rank];
      free -= load_[rank].storage;
      room = least_of(room, {target - load_[rank].cost, free});
    }
    return room;
  }

  // Whether an earlier rank of the host is the same.
  bool seen_rank(std::int32_t rank) const {
    for (auto other = rank / size_ * size_; other < rank; ++other) {
      if (same_ranks(other, rank)) return true;
    }
    return false;
  }
  // Whether an earlier host is.
  bool seen_host(std::int32_t host) const {
    for (std::int32_t other = 0; other < host; ++other) {
      if (same_hosts(other, host)) return true;
    }
    return false;
  }

 private:
  bool same_ranks(std::int32_t a, std::int32_t b) const {
    return load_[a].cost == load_[b].cost && load_[a].storage == load_[b].storage &&
           problem_.capacity[a] == problem_.capacity[b];
  }
  // But for the order of their ranks. Those beyond the last whole host are on none.
  bool same_hosts(std::int32_t a, std::int32_t b) const {
    if (a >= hosts_ || b >= hosts_) return false;
    std::int64_t difference = 0;
    for (std::int32_t i = 0; i < size_; ++i) {
      difference += load_[a * size_ + i].cost - load_[b * size_ + i].cost;
    }
    if (difference != 0) return false;
    const auto count = [this](std::int32_t host, std::int32_t rank) {
      std::int32_t found = 0;
      for (std::int32_t i = 0; i < size_; ++i) found += same_ranks(host * size_ + i, rank);
      return found;
    };
    for (auto rank = a * size_; rank < (a + 1) * size_; ++rank) {
      if (count(a, rank) != count(b, rank)) return false;
    }
    return true;
  }

  const Problem& problem_;
  std::int32_t ranks_, size_, hosts_;
  std::vector<Load> load_;
};

}  // namespace fastplan
