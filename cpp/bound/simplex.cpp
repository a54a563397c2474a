#include "bound/simplex.h"

#include <algorithm>

namespace fastplan {
namespace {

// Smaller pivots would blow up errors of the inverse.
constexpr double kSmallestPivot = 1e-9;
// Columns that help less are taken for none, else rounding could keep the pivots going.
constexpr double kSmallestGain = 1e-9;

}  // namespace

Simplex::Simplex(std::span<const double> right, std::span<const double> unit_cost)
    : rows_(right.size()),
      value_(right.begin(), right.end()),
      inverse_(rows_ * rows_, 0.0),
      multipliers_(rows_),
      direction_(rows_) {
  for (std::size_t i = 0; i < rows_; ++i) {
    inverse_[i * rows_ + i] = 1;
    basis_.push_back(static_cast<std::int32_t>(i));
    add({{static_cast<std::int32_t>(i), 1.0}}, unit_cost[i]);
    is_basic_[i] = 1;
  }
}

void Simplex::add(Column column, double cost) {
  columns_.push_back(std::move(column));
  cost_.push_back(cost);
  is_basic_.push_back(0);
}

double Simplex::objective() const {
  double sum = 0;
  for (std::size_t i = 0; i < rows_; ++i) sum += cost_[basis_[i]] * value_[i];
  return sum;
}

// y = c_B B^-1
std::span<const double> Simplex::multipliers() {
  std::fill(multipliers_.begin(), multipliers_.end(), 0.0);
  for (std::size_t i = 0; i < rows_; ++i) {
    const double cost = cost_[basis_[i]];
    if (cost == 0) continue;
    for (std::size_t j = 0; j < rows_; ++j) multipliers_[j] += cost * inverse_[i * rows_ + j];
  }
  return multipliers_;
}

// c_j - y a_j: negative for a column that lowers the objective.
double Simplex::reduced_cost(std::size_t column) const {
  double cost = cost_[column];
  for (const auto& [row, coefficient] : columns_[column]) cost -= multipliers_[row] * coefficient;
  return cost;
}

// Dantzig's rule: the column with the least reduced cost enters. It may cycle in theory, which the
// limit of pivots ends. A starting variable that costs something stands for what is still missing,
// and does not come back.
bool Simplex::solve(std::int64_t pivots) {
  for (std::int64_t n = 0; n < pivots; ++n) {
    multipliers();
    std::size_t entering = columns_.size();
    double least = -kSmallestGain;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (is_basic_[c] || (c < rows_ && cost_[c] > 0)) continue;
      const double cost = reduced_cost(c);
      if (cost >= least) continue;
      least = cost;
      entering = c;
    }
    if (entering == columns_.size()) return true;
    const auto leaving = leaving_row(entering);
    // Unbounded: can't be for these programs but by rounding.
    if (leaving == rows_) return false;
    pivot(entering, leaving);
  }
  return false;
}

// The row whose variable reaches zero first as the entering one grows; leaves that direction
// behind.
std::size_t Simplex::leaving_row(std::size_t entering) {
  std::fill(direction_.begin(), direction_.end(), 0.0);
  for (const auto& [row, coefficient] : columns_[entering]) {
    for (std::size_t i = 0; i < rows_; ++i) {
      direction_[i] += inverse_[i * rows_ + row] * coefficient;
    }
  }
  std::size_t leaving = rows_;
  double step = 0;
  for (std::size_t i = 0; i < rows_; ++i) {
    if (direction_[i] <= kSmallestPivot) continue;
    const double ratio = value_[i] / direction_[i];
    // Among equal ratios the larger pivot is the safer one.
    if (leaving == rows_ || ratio < step ||
        (ratio == step && direction_[i] > direction_[leaving])) {
      leaving = i;
      step = ratio;
    }
  }
  return leaving;
}

// Gauss-Jordan: the leaving row is divided by the pivot and taken from all others.
void Simplex::pivot(std::size_t entering, std::size_t leaving) {
  const double step = value_[leaving] / direction_[leaving];
  double* const pivot_row = &inverse_[leaving * rows_];
  for (std::size_t j = 0; j < rows_; ++j) pivot_row[j] /= direction_[leaving];
  for (std::size_t i = 0; i < rows_; ++i) {
    const double factor = direction_[i];
    if (i == leaving || factor == 0) continue;
    double* const row = &inverse_[i * rows_];
    for (std::size_t j = 0; j < rows_; ++j) row[j] -= factor * pivot_row[j];
    // Below zero can only be rounding.
    value_[i] = std::max(0.0, value_[i] - factor * step);
  }
  value_[leaving] = step;
  is_basic_[basis_[leaving]] = 0;
  is_basic_[entering] = 1;
  basis_[leaving] = static_cast<std::int32_t>(entering);
}

}  // namespace fastplan
