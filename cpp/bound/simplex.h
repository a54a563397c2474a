// A small linear program that gains columns: min cost x, A x = right, x >= 0.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace fastplan {

// The revised simplex method. With the basis B, the multipliers are y = c_B B^-1, a column a_j of
// cost c_j would lower the objective by y a_j - c_j per unit, and B^-1 a_j is the direction in
// which the basic variables fall. The inverse is kept as a matrix, which is right for some hundred
// rows. What it answers is a guide, never a proof: the multipliers are checked by their user, so no
// care is taken of small errors that add up.
class Simplex {
 public:
  using Column = std::vector<std::pair<std::int32_t, double>>;  // row, coefficient

  // Starts from one variable per row, with coefficient 1 and this cost. `right` is not negative.
  // Of these variables, those that cost something leave for good.
  Simplex(std::span<const double> right, std::span<const double> unit_cost);

  void add(Column column, double cost);
  // Pivots until no column helps. False when it does not come to an end.
  bool solve(std::int64_t pivots);

  double objective() const;
  // By row: what the objective changes by per unit of the right side.
  std::span<const double> multipliers();

 private:
  double reduced_cost(std::size_t column) const;
  std::size_t leaving_row(std::size_t entering);
  void pivot(std::size_t entering, std::size_t leaving);

  std::size_t rows_;
  std::vector<Column> columns_;
  std::vector<double> cost_;
  std::vector<std::uint8_t> is_basic_;
  std::vector<std::int32_t> basis_;  // by row: a column
  std::vector<double> value_;        // by row: of that column
  std::vector<double> inverse_;      // rows x rows
  std::vector<double> multipliers_, direction_;
};

}  // namespace fastplan
