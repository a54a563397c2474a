#include "search/dynamic_programming.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

namespace fastplan {
namespace {

constexpr double kUnreached = std::numeric_limits<double>::infinity();
// A cell takes 6 bytes; per bin of the widest row, what is kept of a proposal takes some 16 cells.
constexpr double kMostCells = 0x1p30;
constexpr double kCellsPerBin = 16;

// Least total cost for every total of hbm, the totals taken in bins. With f(t, b) the least cost of
// the first t tables whose hbm comes to bin b,
//     f(t, floor(h + hbm(o))) = min over options o of table t of f(t - 1, floor(h)) + cost(o),
// where h is the exact total that f(t - 1, .) was reached with. The first proposal is the smallest
// option of every table, then come the totals, largest first.
class DynamicProgramming final : public Sequence {
 public:
  DynamicProgramming(const Problem& problem, const ProposerSettings& settings,
                     const Interrupt& interrupted)
      : Sequence(problem.tables()) {
    if (settings.exhausted) return;
    sort_by_hbm(problem);
    size_ = 1;
    lay_out(problem, settings);
    solve(problem, interrupted);
  }

  std::int64_t size() const override { return size_; }

  void at(std::int64_t index, std::span<std::int32_t> options) const override {
    if (index == 0) {
      for (std::size_t t = 0; t < options.size(); ++t) options[t] = by_position_[t].front();
      return;
    }
    std::int64_t bin = ends_[index - 1];
    for (std::size_t t = options.size(); t-- > 0;) {
      const auto cell = bin - rows_[t].first;
      options[t] = by_position_[t][rows_[t].option[cell]];
      bin = rows_[t].from[cell];
    }
  }

 private:
  // The bins that totals of the first tables can be in: [first, first + size).
  struct Row {
    std::int64_t first = 0;
    std::int64_t size = 0;
    // How a bin was reached last; without a meaning where it was not.
    std::unique_ptr<std::uint16_t[]> option;
    std::unique_ptr<std::int32_t[]> from;  // bin of the row before
  };
  struct Total {
    double perf = kUnreached;
    double hbm = 0;  // in bins
  };

  void sort_by_hbm(const Problem& problem) {
    std::vector<std::int32_t> options(problem.options.size());
    std::iota(options.begin(), options.end(), 0);
    // Stable, as Python's sort is: equal options keep the order of the search space.
    std::stable_sort(options.begin(), options.end(), [&](std::int32_t a, std::int32_t b) {
      return problem.options[a].storage_sum.hbm < problem.options[b].storage_sum.hbm;
    });
    // Tables take the place of their smallest option.
    std::vector<std::int32_t> position(problem.tables(), -1);
    std::int32_t next = 0;
    by_position_.resize(problem.tables());
    for (std::int32_t o : options) {
      const std::int32_t table = problem.options[o].table;
      if (position[table] < 0) {
        position[table] = next;
        order_[next++] = table;
      }
      by_position_[position[table]].push_back(o);
    }
  }

  double hbm_of(const Problem& problem, std::int32_t option) const {
    return static_cast<double>(problem.options[option].storage_sum.hbm) / bin_size_;
  }

  // Tables come smallest first, so most rows are far narrower than all bins.
  void lay_out(const Problem& problem, const ProposerSettings& settings) {
    bins_ = settings.bins_per_device * static_cast<std::int64_t>(problem.ranks());
    bin_size_ = static_cast<double>(problem.capacity_sum.hbm) / static_cast<double>(bins_);
    if (!(bin_size_ > 0)) throw OutOfRange("dynamic programming needs hbm to divide");
    const auto last = static_cast<double>(bins_ - 1);
    double least = 0, most = 0, cells = 0, widest = 0;
    for (const auto& options : by_position_) {
      if (options.size() > std::numeric_limits<std::uint16_t>::max()) {
        throw OutOfRange("a table has more options than dynamic programming can tell apart");
      }
      // Options are sorted by hbm, and rounded sums keep that order.
      least += hbm_of(problem, options.front());
      most += hbm_of(problem, options.back());
      Row row;
      if (least <= last + 1) {
        row.first = static_cast<std::int64_t>(least);
        row.size = static_cast<std::int64_t>(std::min(most, last)) - row.first + 1;
        row.size = std::max<std::int64_t>(row.size, 0);
      }
      cells += static_cast<double>(row.size);
      widest = std::max(widest, static_cast<double>(row.size));
      rows_.push_back(std::move(row));
    }
    if (cells + kCellsPerBin * widest > kMostCells) {
      throw OutOfRange("dynamic programming with " + std::to_string(settings.bins_per_device) +
                       " `bins_per_device` needs more than 6 GiB for " +
                       std::to_string(by_position_.size()) + " tables on " +
                       std::to_string(problem.ranks()) + " ranks; fewer bins need less");
    }
  }

  void solve(const Problem& problem, const Interrupt& interrupted) {
    Poll poll(interrupted);
    // Only two rows of totals are needed; how cells were reached is kept for all, to read proposals
    // back.
    std::vector<Total> before(1, Total{0, 0});  // of no tables
    std::vector<Total> totals;
    std::int64_t before_first = -1;
    for (std::size_t t = 0; t < rows_.size(); ++t) {
      auto& row = rows_[t];
      row.option = std::make_unique_for_overwrite<std::uint16_t[]>(row.size);
      row.from = std::make_unique_for_overwrite<std::int32_t[]>(row.size);
      totals.assign(row.size, Total{});
      for (std::size_t j = 0; j < by_position_[t].size(); ++j) {
        const auto option = by_position_[t][j];
        const double perf = problem.options[option].perf_sum;
        const double hbm = hbm_of(problem, option);
        for (std::size_t b = 0; b < before.size(); ++b) {
          poll.after(1);
          if (before[b].perf == kUnreached) continue;
          const Total total{before[b].perf + perf, before[b].hbm + hbm};
          if (!(total.hbm < static_cast<double>(bins_))) continue;
          const auto cell = static_cast<std::int64_t>(total.hbm) - row.first;
          // Strictly better only: TorchRec keeps the first of equals.
          if (!(totals[cell].perf > total.perf)) continue;
          totals[cell] = total;
          row.option[cell] = static_cast<std::uint16_t>(j);
          row.from[cell] = static_cast<std::int32_t>(before_first + static_cast<std::int64_t>(b));
        }
      }
      std::swap(before, totals);
      before_first = row.first;
    }
    for (std::size_t b = before.size(); b-- > 0;) {
      if (before[b].perf == kUnreached) continue;
      ends_.push_back(static_cast<std::int32_t>(before_first + static_cast<std::int64_t>(b)));
    }
    size_ += static_cast<std::int64_t>(ends_.size());
  }

  std::int64_t bins_ = 0;
  double bin_size_ = 0;
  std::vector<std::vector<std::int32_t>> by_position_;  // plan position -> options by hbm
  std::vector<Row> rows_;
  std::vector<std::int32_t> ends_;  // bins of all tables
  std::int64_t size_ = 0;
};

}  // namespace

std::unique_ptr<Sequence> make_dynamic_programming(const Problem& problem,
                                                   const ProposerSettings& settings,
                                                   const Interrupt& interrupted) {
  return std::make_unique<DynamicProgramming>(problem, settings, interrupted);
}

}  // namespace fastplan
