#include "replan/match.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace fastplan {
namespace {

// What a place of a draft would keep in the place of another. Most would keep nothing, which is not
// listed: thousands of places make millions of pairs.
struct Gain {
  std::int32_t from = 0, to = 0;
  std::int64_t bytes = 0;
};

using Gains = std::vector<Gain>;

auto pair_of(const Gain& gain) { return std::pair{gain.from, gain.to}; }

// In order, with one gain for a pair.
void add_up(Gains& gains) {
  std::ranges::sort(gains, {}, pair_of);
  std::size_t last = 0;
  for (std::size_t i = 1; i < gains.size(); ++i) {
    if (pair_of(gains[i]) == pair_of(gains[last])) {
      gains[last].bytes += gains[i].bytes;
    } else {
      gains[++last] = gains[i];
    }
  }
  if (!gains.empty()) gains.resize(last + 1);
}

// Pairs of [from, from + count) and [to, to + count), largest gain first; among equals, the same
// number, then the smaller ones. `gains` are between these places.
std::int64_t pair_up(std::span<const Gain> gains, std::int32_t from, std::int32_t to,
                     std::int32_t count, std::vector<std::int32_t>& number) {
  using Pair = std::tuple<std::int64_t, bool, std::int32_t, std::int32_t>;
  std::vector<Pair> pairs;
  for (const auto& gain : gains) {
    pairs.emplace_back(-gain.bytes, gain.from - from != gain.to - to, gain.from, gain.to);
  }
  std::sort(pairs.begin(), pairs.end());
  std::fill_n(number.begin() + from, count, -1);
  std::vector<std::uint8_t> taken(count, 0);
  const auto pair = [&](std::int32_t a, std::int32_t b) {
    if (number[a] >= 0 || taken[b - to]) return false;
    number[a] = b;
    taken[b - to] = 1;
    return true;
  };
  std::int64_t sum = 0;
  for (const auto& [loss, _, a, b] : pairs) sum -= pair(a, b) ? loss : 0;
  for (std::int32_t i = 0; i < count; ++i) pair(from + i, to + i);
  std::int32_t free = 0;
  for (auto a = from; a < from + count; ++a) {
    if (number[a] >= 0) continue;
    while (taken[free]) ++free;
    pair(a, to + free);
  }
  return sum;
}

// The gains between ranks, by host and host.
class Blocks {
 public:
  Blocks(Gains gains, std::int32_t size, std::int32_t hosts)
      : size_(size), gains_(std::move(gains)) {
    std::erase_if(gains_, [&](const Gain& gain) {
      return gain.from / size >= hosts || gain.to / size >= hosts;
    });
    add_up(gains_);
    std::ranges::stable_sort(gains_, {}, [&](const Gain& gain) { return hosts_of(gain); });
  }

  // Calls visit(host, other, gains) for every two hosts with gains.
  template <typename Visit>
  void visit(const Visit& visit) const {
    for (auto begin = gains_.begin(); begin != gains_.end();) {
      const auto [from, to] = hosts_of(*begin);
      const auto block = between(from, to);
      visit(from, to, block);
      begin += static_cast<std::ptrdiff_t>(block.size());
    }
  }

  std::span<const Gain> between(std::int32_t from, std::int32_t to) const {
    const auto found = std::ranges::equal_range(gains_, std::pair{from, to}, {},
                                                [&](const Gain& gain) { return hosts_of(gain); });
    return {found.begin(), found.end()};
  }

 private:
  std::pair<std::int32_t, std::int32_t> hosts_of(const Gain& gain) const {
    return {gain.from / size_, gain.to / size_};
  }

  std::int32_t size_;
  Gains gains_;
};

}  // namespace

// A plan from scratch numbers its ranks as it likes: any renumbering of hosts, and of ranks within
// hosts, is as good where ranks are equal. The gain of giving place a the number b is what b holds
// of the pieces on a. Hosts are matched by what their ranks gain when those are matched; both
// matchings are greedy, largest gain first, which is within half of the best.
Draft matched(const Choices& choices, const MovedBytes& bytes, const Draft& draft) {
  const auto& problem = choices.problem();
  const auto size = static_cast<std::int32_t>(problem.group_size);
  const auto hosts = static_cast<std::int32_t>(problem.hosts);
  Gains by_rank, by_host;
  for (std::size_t t = 0; t < choices.tables(); ++t) {
    const auto& choice = choices[draft.choice[t]];
    auto& gains = choice.spread == Spread::hosts ? by_host : by_rank;
    for (std::int32_t piece = 0; piece < choice.pieces; ++piece) {
      for (const auto& [place, kept] : bytes.kept(choice.option, piece)) {
        if (kept > 0) gains.push_back({draft.places[t][piece], place, kept});
      }
    }
  }
  std::vector<std::int32_t> rank_number(problem.ranks()), host_number(hosts);
  const Blocks blocks(std::move(by_rank), size, hosts);
  blocks.visit([&](std::int32_t a, std::int32_t b, std::span<const Gain> gains) {
    by_host.push_back({a, b, pair_up(gains, a * size, b * size, size, rank_number)});
  });
  add_up(by_host);
  pair_up(by_host, 0, 0, hosts, host_number);
  for (std::int32_t a = 0; a < hosts; ++a) {
    const auto b = host_number[a];
    pair_up(blocks.between(a, b), a * size, b * size, size, rank_number);
  }
  std::iota(rank_number.begin() + hosts * size, rank_number.end(), hosts * size);
  Draft result = draft;
  for (std::size_t t = 0; t < choices.tables(); ++t) {
    const bool by_blocks = choices[draft.choice[t]].spread == Spread::hosts;
    for (auto& place : result.places[t]) place = (by_blocks ? host_number : rank_number)[place];
  }
  return result;
}

}  // namespace fastplan
