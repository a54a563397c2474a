#include "replan/match.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

namespace fastplan {
namespace {

// What each place of a draft would keep in the place of another.
class Gains {
 public:
  explicit Gains(std::size_t places) : places_(places), gain_(places * places, 0) {}

  std::int64_t& at(std::size_t from, std::size_t to) { return gain_[from * places_ + to]; }
  std::int64_t at(std::size_t from, std::size_t to) const { return gain_[from * places_ + to]; }

 private:
  std::size_t places_;
  std::vector<std::int64_t> gain_;
};

// Pairs of [from, from + count) and [to, to + count), largest gain first; among equals, the same
// number, then the smaller ones.
std::int64_t pair_up(const Gains& gains, std::int32_t from, std::int32_t to, std::int32_t count,
                     std::vector<std::int32_t>& number) {
  using Pair = std::tuple<std::int64_t, bool, std::int32_t, std::int32_t>;
  std::vector<Pair> pairs;
  for (auto a = from; a < from + count; ++a) {
    number[a] = -1;
    for (auto b = to; b < to + count; ++b) {
      pairs.emplace_back(-gains.at(a, b), a - from != b - to, a, b);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  std::vector<std::uint8_t> taken(count, 0);
  std::int64_t sum = 0;
  for (const auto& [loss, _, a, b] : pairs) {
    if (number[a] >= 0 || taken[b - to]) continue;
    number[a] = b;
    taken[b - to] = 1;
    sum -= loss;
  }
  return sum;
}

}  // namespace

// A plan from scratch numbers its ranks as it likes: any renumbering of hosts, and of ranks within
// hosts, is as good where ranks are equal. The gain of giving place a the number b is what b holds
// of the pieces on a. Hosts are matched by what their ranks gain when those are matched; both
// matchings are greedy, largest gain first, which is within half of the best.
Draft matched(const Choices& choices, const MovedBytes& bytes, const Draft& draft) {
  const auto& problem = choices.problem();
  const auto size = static_cast<std::int32_t>(problem.group_size);
  const auto hosts = static_cast<std::int32_t>(problem.hosts);
  Gains by_rank(problem.ranks()), by_host(hosts);
  for (std::size_t t = 0; t < choices.tables(); ++t) {
    const auto& choice = choices[draft.choice[t]];
    auto& gains = choice.spread == Spread::hosts ? by_host : by_rank;
    for (std::int32_t piece = 0; piece < choice.pieces; ++piece) {
      for (const auto& [place, kept] : bytes.kept(choice.option, piece)) {
        gains.at(draft.places[t][piece], place) += kept;
      }
    }
  }
  std::vector<std::int32_t> rank_number(problem.ranks()), host_number(hosts);
  for (std::int32_t a = 0; a < hosts; ++a) {
    for (std::int32_t b = 0; b < hosts; ++b) {
      by_host.at(a, b) += pair_up(by_rank, a * size, b * size, size, rank_number);
    }
  }
  pair_up(by_host, 0, 0, hosts, host_number);
  for (std::int32_t a = 0; a < hosts; ++a) {
    pair_up(by_rank, a * size, host_number[a] * size, size, rank_number);
  }
  std::iota(rank_number.begin() + hosts * size, rank_number.end(), hosts * size);
  Draft result = draft;
  for (std::size_t t = 0; t < choices.tables(); ++t) {
    const bool blocks = choices[draft.choice[t]].spread == Spread::hosts;
    for (auto& place : result.places[t]) place = (blocks ? host_number : rank_number)[place];
  }
  return result;
}

}  // namespace fastplan
