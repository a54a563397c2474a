// A lower bound on the rating of a proposal, kept up to date while one table changes after another.
#pragma once

#include <cstdint>
#include <vector>

#include "core/problem.h"

namespace fastplan {

// A plan of options o(t) is rated at least
//     max( sum_t sum_s c(s) / R,  U + max_t l(o(t)) ),
// the average rank, and the rank of the largest shard that not all ranks hold, which carries U of
// uniform options beside it (certificate.h has the same conditions).
class ProposalBound {
 public:
  explicit ProposalBound(const Problem& problem);

  // Table `t` goes from option `before` (-1: none yet) to `after`.
  void change(std::int32_t before, std::int32_t after);

  // No placement of the present proposal is rated lower, up to the error of adding doubles.
  double value() const;
  const Storage& storage() const { return storage_; }
  // No proposal is rated lower: every table has the option that is best for it alone.
  double least() const;

 private:
  // Sums go up and down millions of times: fixed point does not drift where doubles would.
  using Fixed = __int128;
  Fixed fixed(double x) const;
  double real(Fixed x) const;

  const Problem& problem_;
  int shift_ = 0;
  Fixed all_ = 0;      // cost of all shards
  Fixed uniform_ = 0;  // least cost any rank has from uniform options
  Storage storage_;
  std::vector<Fixed> option_all_, option_uniform_;
  std::vector<double> largest_;  // tournament over tables: largest shard that is not uniform
  std::size_t leaves_ = 1;
};

}  // namespace fastplan
