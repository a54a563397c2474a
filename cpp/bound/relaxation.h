// The choice of options under a slab's conditions, relaxed by multipliers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bound/certificate.h"
#include "core/problem.h"

namespace fastplan {

// An option as the bounds see it.
struct OptionRow {
  double average = 0;   // cost per rank
  double uniform = 0;   // least that every rank has of it
  double largest = 0;   // of the shards that not every rank has: the largest,
  double smallest = 0;  // and the smallest
  std::array<double, 3> memory{};
  std::int64_t shards = 0;
  std::int64_t most = 0;  // such shards on one rank; 0 when every rank has one anyway
  std::int32_t option = 0;
};

// price(o) of certificate.h.
inline double price_of(const OptionRow& row, const Slab& slab) {
  return row.average + slab.memory[0] * row.memory[0] + slab.memory[1] * row.memory[1] +
         slab.memory[2] * row.memory[2] + slab.uniform * row.uniform;
}

// The bound by averages (certificate.h): for fixed multipliers, every table takes its cheapest
// option for itself, which is what makes it fast. The best multipliers are the top of a concave
// function of at most four variables.
class Relaxation {
 public:
  explicit Relaxation(const Problem& problem);

  // Every option that fits somewhere, table by table: [first(t), first(t + 1)).
  std::span<const OptionRow> rows() const { return rows_; }
  std::int32_t first(std::size_t table) const { return row_begin_[table]; }
  const std::array<double, 3>& capacity() const { return capacity_; }
  bool scarce(int tier) const { return scarce_[tier]; }
  // What no plan costs more than.
  double most() const { return most_; }

  // The least rating of plans with U in the slab; leaves the multipliers there. Ratings from
  // `upper` on are not told apart. Evaluations are counted down.
  double least_rating(Slab& slab, double upper, std::int64_t& evaluations,
                      const std::function<bool()>& stopped) const;

  // What a slab's multipliers prove of plans rated below `threshold`.
  double proven(const Slab& slab, double threshold, double rounding = kRounding) const;

  // By option: whether a plan rated below `upper` can have it, as far as the slabs tell.
  std::vector<std::uint8_t> useful(std::span<const Slab> slabs, double upper) const;
  // By table: the option that a slab's multipliers make cheapest; -1 when none is small enough.
  std::vector<std::int32_t> cheapest(const Slab& slab, double threshold) const;

 private:
  struct Effort;
  using Ends = std::vector<std::int32_t>;

  bool fits(const Option& option) const;
  OptionRow row_of(const Option& option, std::int32_t number) const;
  void keep_leading(std::span<const OptionRow> own);
  Ends allowed(double largest) const;
  double evaluate(const Slab& slab, double ceiling, const Ends& ends, Slab* slope,
                  double rounding = kRounding) const;
  int free_axes(std::array<int, 4>& axis) const;
  double maximise(Slab& slab, double ceiling, const Ends& ends, double enough, double hopeless,
                  Effort& effort) const;

  const Problem& problem_;
  std::array<double, 3> capacity_{};
  std::array<bool, 3> scarce_{};
  double most_ = 0;
  std::vector<OptionRow> rows_;
  std::vector<std::int32_t> row_begin_{0};
  // Those that can be cheapest, by table, smallest largest shard first: the options of A for some
  // threshold are then a prefix of each table's rows.
  std::vector<OptionRow> leading_;
  std::vector<std::int32_t> leading_begin_{0};
  std::vector<double> steps_;  // distinct largest shards of these
};

}  // namespace fastplan
