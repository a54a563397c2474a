// A lower bound on the rating of every plan of a problem, with the multipliers that prove it.
//
// Take any plan rated T, and call U what every rank carries of options that are on all ranks. Then
// no other shard costs more than T - U, ranks cost T at most on average, and the options together
// fit the memory of all ranks. For plans with U in some interval, a slab, multipliers of these
// conditions bound T from below; slabs that cover all U bound every plan. No condition speaks of
// single ranks or hosts, so the bound holds for uneven ranks, for towers and for grids too.
#pragma once

#include <array>
#include <vector>

namespace fastplan {

// The multipliers for plans with U in [low, high).
struct Slab {
  double low = 0;
  double high = 0;
  std::array<double, 3> memory{};  // price of a byte of hbm, ddr and ssd
  double uniform = 0;              // price of U; negative when there must be some
  // By option: what each of its shards on a rank is worth. Empty when it is the shard's cost, so
  // that the average over ranks counts; otherwise what fits on one rank together does.
  std::vector<double> reward;
};

// No plan is rated below `value`. The slabs prove it by ruling out plans rated below `threshold`,
// which is `value` or slightly more.
struct Certificate {
  double value = 0;
  double threshold = 0;
  std::vector<Slab> slabs;
};

// How much of a proof is left to rounding: ratings and prices are sums that are far more exact.
inline constexpr double kRounding = 1e-11;
// What a bound is lowered by, to stay clear of ties that rounding could turn.
inline constexpr double kClearance = 1e-9;

}  // namespace fastplan
