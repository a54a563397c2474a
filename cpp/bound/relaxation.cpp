#include "bound/relaxation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bound/ellipsoid.h"

namespace fastplan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kUniform = 3;  // the axis after the three of memory
// The top is found to this part of the rating.
constexpr double kPrecision = 1e-6;

}  // namespace

// Evaluations left, and whether to stop. Passed along instead of kept: the relaxation itself is
// const, and threads may share it.
struct Relaxation::Effort {
  std::int64_t& evaluations;
  const std::function<bool()>& stopped;
  bool spent() const { return evaluations <= 0 || stopped(); }
};

Relaxation::Relaxation(const Problem& problem) : problem_(problem) {
  const auto& sum = problem.room;
  capacity_ = {static_cast<double>(sum.hbm), static_cast<double>(sum.ddr),
               static_cast<double>(sum.ssd)};
  std::array<double, 3> most{};
  for (std::size_t t = 0; t < problem.tables(); ++t) {
    std::vector<OptionRow> own;
    double costliest = 0;
    std::array<double, 3> largest{};
    for (auto o = problem.table_option_begin[t]; o < problem.table_option_begin[t + 1]; ++o) {
      const auto& option = problem.options[o];
      if (!fits(option)) continue;
      own.push_back(row_of(option, static_cast<std::int32_t>(o)));
      costliest = std::max(costliest, option.perf_sum);
      for (int m = 0; m < 3; ++m) largest[m] = std::max(largest[m], own.back().memory[m]);
    }
    // Every table's costliest option, all on one rank.
    most_ += costliest;
    for (int m = 0; m < 3; ++m) most[m] += largest[m];
    rows_.insert(rows_.end(), own.begin(), own.end());
    row_begin_.push_back(static_cast<std::int32_t>(rows_.size()));
    std::stable_sort(own.begin(), own.end(),
                     [](const OptionRow& a, const OptionRow& b) { return a.largest < b.largest; });
    keep_leading(own);
  }
  std::sort(steps_.begin(), steps_.end());
  steps_.erase(std::unique(steps_.begin(), steps_.end()), steps_.end());
  for (int m = 0; m < 3; ++m) scarce_[m] = most[m] > capacity_[m];
}

// Drops rows that no multipliers make cheaper than one with smaller shards.
void Relaxation::keep_leading(std::span<const OptionRow> own) {
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto leads = [&](const OptionRow& other) {
      return other.uniform == own[i].uniform && other.average <= own[i].average &&
             other.memory[0] <= own[i].memory[0] && other.memory[1] <= own[i].memory[1] &&
             other.memory[2] <= own[i].memory[2];
    };
    if (std::any_of(own.begin(), own.begin() + i, leads)) continue;
    leading_.push_back(own[i]);
    steps_.push_back(own[i].largest);
  }
  leading_begin_.push_back(static_cast<std::int32_t>(leading_.size()));
}

// Whether each shard fits some rank that is empty. An option that does not is in no plan, and
// leaving it out raises the bound.
bool Relaxation::fits(const Option& option) const {
  const auto ranks = static_cast<std::int64_t>(problem_.ranks());
  if (option.reach == Reach::uniform && option.shards != ranks) return false;
  const auto fits_some = [&](const Run& run) {
    return std::any_of(problem_.capacity.begin(), problem_.capacity.end(),
                       [&](const Storage& own) { return run.storage.fits_in(own); });
  };
  return std::all_of(problem_.runs.begin() + option.run_begin,
                     problem_.runs.begin() + option.run_end, fits_some);
}

OptionRow Relaxation::row_of(const Option& option, std::int32_t number) const {
  OptionRow row;
  row.option = number;
  row.shards = option.shards;
  // (1): all shards, over all ranks.
  row.average = option.perf_sum / static_cast<double>(problem_.ranks());
  row.memory = {static_cast<double>(option.storage_sum.hbm),
                static_cast<double>(option.storage_sum.ddr),
                static_cast<double>(option.storage_sum.ssd)};
  const bool blocks =
      option.type == ShardingType::table_row_wise || option.type == ShardingType::grid_shard;
  const std::int64_t columns = option.shards / problem_.group_size;
  if (option.reach == Reach::uniform) {
    // Every rank has one shard, at least the smallest.
    row.uniform = option.perf_min;
  } else if (blocks && static_cast<std::int64_t>(problem_.ranks()) == problem_.group_size) {
    // On a single host, a block is on every rank.
    row.uniform = option.perf_min * static_cast<double>(columns);
  } else {
    row.largest = option.perf_max;
    row.smallest = option.perf_min;
    // On one rank: a shard of each block, or all shards, whatever memory says.
    row.most = blocks ? std::max<std::int64_t>(columns, 1) : option.shards;
    // The partitioner puts these on ranks of their own.
    if (option.kernel == Kernel::key_value && option.type == ShardingType::column_wise)
      row.most = 1;
  }
  return row;
}

// By table, the end of the leading rows whose shards cost at most `largest`: the set A.
Relaxation::Ends Relaxation::allowed(double largest) const {
  Ends ends(problem_.tables());
  for (std::size_t t = 0; t < ends.size(); ++t) {
    const auto end = std::upper_bound(
        leading_.begin() + leading_begin_[t], leading_.begin() + leading_begin_[t + 1], largest,
        [](double x, const OptionRow& row) { return x < row.largest; });
    ends[t] = static_cast<std::int32_t>(end - leading_.begin());
  }
  return ends;
}

// The last line of the bound by averages, after all rounding, and its slope. The function is
// concave and piecewise linear in (lambda, mu): a minimum over options of functions that are linear
// in them. A slope is what the chosen options leave of each condition,
//     d / d lambda = sum_t m(o(t)) - M,    d / d mu = sum_t u(o(t)) - edge.
// `rounding` is a part of the sizes of all that is added up.
double Relaxation::evaluate(const Slab& slab, double ceiling, const Ends& ends, Slab* slope,
                            double rounding) const {
  // Where mu U is largest in the slab.
  const double edge = slab.uniform > 0 ? std::min(slab.high, ceiling) : slab.low;
  double sum = -slab.uniform * edge;
  double size = std::fabs(sum);
  for (int m = 0; m < 3; ++m) {
    sum -= slab.memory[m] * capacity_[m];
    size += slab.memory[m] * capacity_[m];
  }
  std::array<double, 3> used{};
  double uniform = 0;
  for (std::size_t t = 0; t < ends.size(); ++t) {
    double least = kInfinity;
    const OptionRow* chosen = nullptr;
    for (auto i = leading_begin_[t]; i < ends[t]; ++i) {
      const double price = price_of(leading_[i], slab);
      if (price < least) {
        least = price;
        chosen = &leading_[i];
      }
    }
    // A table without an option in A: the slab has no plan below the ceiling.
    if (chosen == nullptr) return kInfinity;
    sum += least;
    // A negative mu can cancel what a price adds up, so its size counts twice.
    size += std::fabs(least) + 2 * std::fabs(slab.uniform) * chosen->uniform;
    if (slope == nullptr) continue;
    for (int m = 0; m < 3; ++m) used[m] += chosen->memory[m];
    uniform += chosen->uniform;
  }
  if (slope != nullptr) {
    for (int m = 0; m < 3; ++m) slope->memory[m] = used[m] - capacity_[m];
    slope->uniform = uniform - edge;
  }
  return sum - rounding * size;
}

double Relaxation::proven(const Slab& slab, double threshold, double rounding) const {
  const double ceiling = threshold * (1 + kRounding);
  const auto ends = allowed(ceiling - slab.low);
  return evaluate(slab, ceiling, ends, nullptr, rounding) * (1 - kRounding);
}

// The multipliers that matter: memory that no plan can run out of has price 0.
int Relaxation::free_axes(std::array<int, 4>& axis) const {
  int n = 0;
  for (int m = 0; m < 3; ++m) {
    if (scarce_[m]) axis[n++] = m;
  }
  axis[n++] = kUniform;
  if (n == 1) axis[n++] = 0;  // the ellipsoid method needs two
  return n;
}

// Leaves the best multipliers in `slab`. Ends early above `enough`, or when `hopeless` is out of
// reach.
double Relaxation::maximise(Slab& slab, double ceiling, const Ends& ends, double enough,
                            double hopeless, Effort& effort) const {
  std::array<int, 4> axis{};
  const int n = free_axes(axis);
  // Memory is priced by capacity: a price of 1 makes all of it worth the rating.
  const auto scale = [&](int a) {
    return a == kUniform ? 1.0 : std::max(ceiling, 1e-300) / std::max(capacity_[a], 1.0);
  };
  // Wide enough for all multipliers that make sense; a warm start is near the top already.
  Ellipsoid::Point center{}, radius{};
  for (int i = 0; i < n; ++i) {
    const int a = axis[i];
    center[i] = (a == kUniform ? slab.uniform : slab.memory[a]) / scale(a);
    radius[i] = a == kUniform ? 4.0 : 64.0 + 4 * center[i];
  }
  Ellipsoid left(n, center, radius);
  double best = evaluate(slab, ceiling, ends, nullptr);
  --effort.evaluations;
  Slab at = slab;
  Slab slope;
  while (best <= enough && !effort.spent()) {
    Ellipsoid::Point normal{};
    // Prices of memory must not be negative. A center that has one is cut off by that condition
    // itself, which needs no evaluation.
    int negative = -1;
    for (int i = 0; i < n; ++i) {
      if (axis[i] != kUniform && left.center()[i] < 0) negative = i;
    }
    if (negative >= 0) {
      normal[negative] = 1;
      if (!left.cut(normal, -left.center()[negative])) break;
      continue;
    }
    for (int i = 0; i < n; ++i) {
      auto& value = axis[i] == kUniform ? at.uniform : at.memory[axis[i]];
      value = left.center()[i] * scale(axis[i]);
    }
    const double value = evaluate(at, ceiling, ends, &slope);
    --effort.evaluations;
    if (value > best) {
      best = value;
      slab = at;
    }
    for (int i = 0; i < n; ++i) {
      const int a = axis[i];
      normal[i] = (a == kUniform ? slope.uniform : slope.memory[a]) * scale(a);
    }
    // The slope bounds the function over what the ellipsoid still holds: no multipliers give more.
    const double most = value + left.reach(normal);
    if (most <= std::max(hopeless, best + kPrecision * ceiling)) break;
    // Deep cut: points worse than the best one are of no use either.
    if (!left.cut(normal, best - value)) break;
  }
  return best;
}

// With a higher threshold come larger shards into A, and with them cheaper options, so the bound
// f(theta) falls where theta crosses the cost of a shard, and is flat between. The least rating is
// the least theta with f(theta) <= theta. Bisection over the sizes finds the first flat part that
// reaches its own end; where a part falls below its begin, that begin is the bound.
double Relaxation::least_rating(Slab& slab, double upper, std::int64_t& evaluations,
                                const std::function<bool()>& stopped) const {
  Effort effort{evaluations, stopped};
  // The rating from which on shards larger than the k-th size are possible.
  const auto next = [&](std::size_t k) {
    return k + 1 < steps_.size() ? std::min(upper, steps_[k + 1] + slab.low) : upper;
  };
  std::size_t low = 0;
  std::size_t high =
      std::lower_bound(steps_.begin(), steps_.end(), upper - slab.low) - steps_.begin();
  if (high == 0) return upper;
  --high;
  while (low < high) {
    const auto middle = (low + high) / 2;
    const double enough = next(middle);
    Slab tried = slab;
    if (maximise(tried, enough, allowed(steps_[middle]), enough, enough, effort) > enough) {
      low = middle + 1;
      slab = tried;
    } else {
      high = middle;
    }
    if (effort.spent()) break;
  }
  const Slab before = slab;
  const double value = maximise(slab, next(low), allowed(steps_[low]), upper, 0, effort);
  const double step = steps_[low] + slab.low;
  if (low == 0 || value >= step) return std::min(value, upper);
  // Up to the step itself, the multipliers of the sizes before count.
  slab = before;
  return step;
}

// Reduced costs: a plan with option o instead of the cheapest one of its table costs at least total
// + price(o) - least. Where that is above `upper` in every slab, o is in no better plan.
std::vector<std::uint8_t> Relaxation::useful(std::span<const Slab> slabs, double upper) const {
  std::vector<std::uint8_t> result(problem_.options.size(), 0);
  const double ceiling = upper * (1 + kClearance);
  for (const auto& slab : slabs) {
    const auto ends = allowed(ceiling - slab.low);
    const double total = evaluate(slab, ceiling, ends, nullptr);
    if (total > ceiling) continue;
    for (std::size_t t = 0; t < ends.size(); ++t) {
      double least = kInfinity;
      for (auto i = leading_begin_[t]; i < ends[t]; ++i) {
        least = std::min(least, price_of(leading_[i], slab));
      }
      for (auto i = row_begin_[t]; i < row_begin_[t + 1]; ++i) {
        const auto& row = rows_[i];
        const bool affordable = total + price_of(row, slab) - least <= ceiling;
        if (affordable && row.largest <= ceiling - slab.low) result[row.option] = 1;
      }
    }
  }
  return result;
}

// The options that attain the minimum of the bound: not a plan, but near one.
std::vector<std::int32_t> Relaxation::cheapest(const Slab& slab, double threshold) const {
  std::vector<std::int32_t> result(problem_.tables(), -1);
  const auto ends = allowed(threshold - slab.low);
  for (std::size_t t = 0; t < ends.size(); ++t) {
    double least = kInfinity;
    for (auto i = leading_begin_[t]; i < ends[t]; ++i) {
      const double price = price_of(leading_[i], slab);
      if (price >= least) continue;
      least = price;
      result[t] = leading_[i].option;
    }
  }
  return result;
}

}  // namespace fastplan
