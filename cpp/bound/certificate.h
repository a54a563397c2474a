// A lower bound on the rating of every plan of a problem, with the multipliers that prove it.
//
// The words. A plan takes one option o(t) for each table t and puts its shards on R ranks; its
// rating T is the cost of the costliest rank. Of an option o, with c(s) the cost of its shard s:
//
//   avg(o)    = sum_s c(s) / R    its cost per rank, on average                OptionRow::average
//   u(o)      the least that any rank carries of it; 0 unless all ranks do     OptionRow::uniform
//   l(o)      = max_s c(s)        unless all ranks carry some of it, else 0    OptionRow::largest
//   m(o)      bytes of hbm, ddr and ssd of all its shards                      OptionRow::memory
//   M         bytes of hbm, ddr and ssd of all ranks, none of a negative one   Relaxation::capacity
//   U         = sum_t u(o(t))     what every rank carries at least
//
// Every plan meets three conditions:
//
//   (1)  T >= sum_t avg(o(t))     the costliest rank costs at least the average
//   (2)  l(o(t)) <= T - U         the rank of the largest shard carries U beside it, for each t
//   (3)  sum_t m(o(t)) <= M       the options fit the memory of all ranks together
//
// The bound by averages. A slab is an interval [low, high) of U. Take a plan with T < theta, the
// threshold, and U in the slab. By (2) it has only options of A = {o : l(o) <= theta - low}. For
// multipliers lambda >= 0 (a price for each tier of memory) and mu of any sign (a price of U):
//
//   T >= sum_t avg(o(t))                                                                    by (1)
//     >= sum_t avg(o(t)) + lambda (sum_t m(o(t)) - M) + mu (sum_t u(o(t)) - U)              by (3)
//      = sum_t price(o(t)) - lambda M - mu U,    price(o) = avg(o) + lambda m(o) + mu u(o)
//     >= sum_t min { price(o) : o in A, o of t } - lambda M - max { mu U : U in the slab }
//
// and the last maximum is mu min(high, theta) for mu > 0, since U <= T < theta, and mu low
// otherwise. The last line no longer speaks of the plan: it bounds all plans of the slab
// (Relaxation::evaluate).
//
// The bound by packing. Each shard of an option that is not on every rank is worth a reward
// w(o) >= 0. A rank that carries U or more has theta - low left for such shards, so the rewards on
// one rank come to at most the value of a knapsack,
//
//   K = max sum n(o) w(o)  with  sum n(o) min_s c(s) <= theta - low,  n(o) <= most(o),
//                                and options of one kind for each table
//
// and those of a plan to R K. As before, now for a contradiction,
//
//   0 >= sum_t min { w(o) shards(o) + lambda m(o) + mu u(o) : o in A, o of t }
//        - R K - lambda M - max { mu U : U in the slab }
//
// so that where the right side is above 0, no plan of the slab is rated below theta
// (Packing::surplus).
//
// Slabs that cover [0, theta) together bound every plan: U <= T, so a plan rated below theta is in
// one of them. No condition speaks of a single rank or host, so the bound holds for uneven ranks,
// for towers and for grids too. Whoever checks a proof needs one pass over slabs and options,
// without any search (fastplan/engine/certificate.py).
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
// which is `value` or slightly more: rounding takes from what slabs prove, not from what they
// cover.
struct Certificate {
  double value = 0;
  double threshold = 0;
  std::vector<Slab> slabs;
};

// The part of what is added up that a proof leaves to rounding. A sum of n doubles is off by at
// most n 2^-53 of the sum of their sizes. Sums here have a few terms per table, which comes to
// 1e-12 for ten thousand tables.
inline constexpr double kRounding = 1e-11;
// What a bound is lowered by, to stay clear of ties that rounding could turn. It is a hundred times
// kRounding, so that a check by other sums in another order still succeeds.
inline constexpr double kClearance = 1e-9;

}  // namespace fastplan
