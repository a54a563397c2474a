#include "search/proposal_bound.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace fastplan {

ProposalBound::ProposalBound(const Problem& problem)
    : problem_(problem),
      option_all_(problem.options.size()),
      option_uniform_(problem.options.size()),
      leaves_(std::bit_ceil(std::max<std::size_t>(1, problem.tables()))) {
  double largest = 0;
  for (const auto& option : problem.options) {
    largest = std::max(largest, option.perf_max * static_cast<double>(option.shards));
  }
  // The largest option takes 2^90, which leaves room for 2^36 of them.
  if (largest > 0) shift_ = 90 - std::ilogb(largest);
  for (std::size_t o = 0; o < problem.options.size(); ++o) {
    const auto& option = problem.options[o];
    for (auto r = option.run_begin; r < option.run_end; ++r) {
      option_all_[o] += fixed(problem.runs[r].total) * problem.runs[r].count;
    }
    if (option.reach == Reach::uniform) option_uniform_[o] = fixed(option.perf_min);
  }
  largest_.assign(2 * leaves_, 0.0);
}

// x 2^shift, rounded down: no sum is larger than the real one, so that the bound stays a bound.
ProposalBound::Fixed ProposalBound::fixed(double x) const {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  const auto digits = static_cast<Fixed>(static_cast<std::int64_t>(std::ldexp(fraction, 53)));
  const int shift = exponent - 53 + shift_;
  if (shift >= 0) return digits << shift;
  return -shift < 64 ? digits >> -shift : 0;
}

double ProposalBound::real(Fixed x) const { return std::ldexp(static_cast<double>(x), -shift_); }

void ProposalBound::change(std::int32_t before, std::int32_t after) {
  if (before >= 0) {
    all_ -= option_all_[before];
    uniform_ -= option_uniform_[before];
    storage_ -= problem_.options[before].storage_sum;
  }
  const auto& option = problem_.options[after];
  all_ += option_all_[after];
  uniform_ += option_uniform_[after];
  storage_ += option.storage_sum;
  // A tournament: the path from the table's leaf to the root is played again.
  std::size_t node = leaves_ + option.table;
  largest_[node] = option.reach == Reach::uniform ? 0.0 : option.perf_max;
  for (node /= 2; node > 0; node /= 2) {
    const double larger = std::max(largest_[2 * node], largest_[2 * node + 1]);
    if (larger == largest_[node]) break;
    largest_[node] = larger;
  }
}

double ProposalBound::value() const {
  const double average = real(all_) / static_cast<double>(problem_.ranks());
  return std::max(average, real(uniform_) + largest_[1]);
}

double ProposalBound::least() const {
  Fixed all = 0;
  double largest = 0;
  for (std::size_t t = 0; t < problem_.tables(); ++t) {
    Fixed cheapest = 0;
    double smallest = 0;
    const auto begin = problem_.table_option_begin[t], end = problem_.table_option_begin[t + 1];
    for (auto o = begin; o < end; ++o) {
      // Some rank has the largest shard; every rank has one of a uniform option.
      const auto& option = problem_.options[o];
      const double shard = option.reach == Reach::uniform ? option.perf_min : option.perf_max;
      cheapest = o == begin ? option_all_[o] : std::min(cheapest, option_all_[o]);
      smallest = o == begin ? shard : std::min(smallest, shard);
    }
    all += cheapest;
    largest = std::max(largest, smallest);
  }
  return std::max(real(all) / static_cast<double>(problem_.ranks()), largest);
}

}  // namespace fastplan
