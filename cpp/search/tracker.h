// What a walk over proposals knows about the one it stands at, kept up to date table by table.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/problem.h"
#include "search/proposal_bound.h"
#include "search/proposals.h"

namespace fastplan {

// Identifies a set of options, whatever their order: a sum of mixed keys, so that one table's
// change costs one subtraction and one addition. 128 bits of well mixed sums: two different
// proposals of one search do not meet in practice, and if they did only a counter would be off.
struct ProposalKey {
  std::uint64_t a = 0, b = 0;
  bool operator==(const ProposalKey&) const = default;

  void add(std::uint64_t option_key) {
    a += mix(option_key, 0x9e3779b97f4a7c15ull);
    b += mix(option_key, 0xc2b2ae3d27d4eb4full);
  }
  void remove(std::uint64_t option_key) {
    a -= mix(option_key, 0x9e3779b97f4a7c15ull);
    b -= mix(option_key, 0xc2b2ae3d27d4eb4full);
  }

 private:
  static std::uint64_t mix(std::uint64_t x, std::uint64_t seed) {
    x += seed;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }
};

struct ProposalKeyHash {
  std::size_t operator()(const ProposalKey& key) const { return key.a ^ (key.b << 1); }
};

// `State` hears of every change: change(option before, or -1; option after). A walk's steps mostly
// change one table, so that a proposal costs O(log tables) instead of O(tables).
template <typename State>
class Tracker {
 public:
  Tracker(const Problem& problem, State state)
      : problem_(problem), state_(std::move(state)), now_(problem.tables(), -1) {}

  // A walk's step: plan positions that changed, and the options now.
  void follow(const Sequence& sequence, std::span<const std::int32_t> changed,
              std::span<const std::int32_t> options) {
    for (const std::int32_t p : changed) {
      auto& now = now_[sequence.order()[p]];
      if (now == options[p]) continue;
      if (now >= 0) key_.remove(problem_.options[now].key);
      key_.add(problem_.options[options[p]].key);
      state_.change(now, options[p]);
      now = options[p];
    }
  }
  const ProposalKey& key() const { return key_; }
  const State& state() const { return state_; }

 private:
  const Problem& problem_;
  State state_;
  ProposalKey key_;
  std::vector<std::int32_t> now_;  // by table
};

}  // namespace fastplan
