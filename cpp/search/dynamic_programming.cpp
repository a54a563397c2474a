#include "search/dynamic_programming.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

namespace fastplan {
namespace {

constexpr double kUnreached = std::numeric_limits<double>::infinity();
// A cell takes 2 bytes at most, so all of them 6 GiB; per bin of the widest row, the sums of two
// rows and what is kept of a proposal take some 48 cells.
constexpr double kMostCells = 3 * 0x1p30;
constexpr double kCellsPerBin = 48;
// A cell's number: an option of the table, and the step to its bin.
constexpr int kStepBits = 2;
constexpr std::size_t kMostOptions = std::size_t{1} << (16 - kStepBits);
constexpr std::size_t kFewOptions = std::size_t{1} << (8 - kStepBits);  // one byte is enough

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
    for (std::size_t t = options.size(); t-- > 0;) options[t] = step_back(t, bin);
  }

  // Neighbours mostly come from the same bin after some tables, and agree in all tables before.
  void walk(const Visit& visit) const override {
    if (size_ == 0) return;
    std::vector<std::int32_t> options(order_.size());
    std::vector<std::int32_t> positions(order_.size());
    std::iota(positions.begin(), positions.end(), 0);
    at(0, options);
    if (!visit(0, positions, options)) return;
    std::vector<std::int64_t> bins(order_.size(), -1);  // by position, of the proposal before
    std::vector<std::int32_t> changed;
    for (std::int64_t i = 1; i < size_; ++i) {
      changed.clear();
      std::int64_t bin = ends_[i - 1];
      for (std::size_t t = order_.size(); t-- > 0 && bins[t] != bin;) {
        bins[t] = bin;
        const std::int32_t option = step_back(t, bin);
        if (options[t] == option) continue;
        options[t] = option;
        changed.push_back(static_cast<std::int32_t>(t));
      }
      // TorchRec's order of plan positions, as in Sequence::walk().
      std::reverse(changed.begin(), changed.end());
      if (!visit(i, changed, options)) return;
    }
  }

 private:
  // The bins that totals of the first tables can be in: [first, first + size).
  struct Row {
    std::int64_t first = 0;
    std::int64_t size = 0;
    // How a bin was reached last: the table's option, and by how many bins more than its hbm in
    // whole bins, 0 to 2. Without a meaning where it was not reached. Rows are most of the memory,
    // and few tables have so many options that a number needs a second byte.
    std::unique_ptr<std::uint8_t[]> low, high;

    void allocate(std::size_t options) {
      low = std::make_unique_for_overwrite<std::uint8_t[]>(size);
      if (options > kFewOptions) high = std::make_unique_for_overwrite<std::uint8_t[]>(size);
    }
    void set(std::int64_t cell, std::size_t number) {
      low[cell] = static_cast<std::uint8_t>(number);
      if (high) high[cell] = static_cast<std::uint8_t>(number >> 8);
    }
    std::size_t get(std::int64_t cell) const {
      return high ? std::size_t{high[cell]} << 8 | low[cell] : low[cell];
    }
  };
  // The sums that bins were reached with: cost, and hbm in bins.
  struct Totals {
    std::vector<double> perf, hbm;
    void resize(std::size_t bins) {
      perf.assign(bins, kUnreached);
      hbm.resize(bins);
    }
  };

  // The option at plan position `t` of the proposal that is in `bin` there. Goes to the bin of the
  // position before.
  std::int32_t step_back(std::size_t t, std::int64_t& bin) const {
    const std::size_t reached = rows_[t].get(bin - rows_[t].first);
    const std::int32_t option = by_position_[t][reached >> kStepBits];
    bin -= whole_bins_[option] + static_cast<std::int64_t>(reached & ((1 << kStepBits) - 1));
    return option;
  }

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
      auto& kept = by_position_[position[table]];
      if (kept.empty() || !is_never_better(problem, o, kept.back())) kept.push_back(o);
    }
  }

  // Whether every bin is reached as well with `other`, an earlier option: both reach the same bins
  // with the same hbm, and of equals the first stays. A table that has one shard by column, too,
  // has several such options.
  static bool is_never_better(const Problem& problem, std::int32_t o, std::int32_t other) {
    const auto& option = problem.options[o];
    const auto& earlier = problem.options[other];
    return option.storage_sum.hbm == earlier.storage_sum.hbm && option.perf_sum >= earlier.perf_sum;
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
      if (options.size() > kMostOptions) {
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
    whole_bins_.resize(problem.options.size());
    // Only two rows of totals are needed; how cells were reached is kept for all, to read proposals
    // back.
    Totals before, totals;
    before.perf = before.hbm = {0};  // of no tables
    std::int64_t before_first = 0;
    for (std::size_t t = 0; t < rows_.size(); ++t) {
      auto& row = rows_[t];
      row.allocate(by_position_[t].size());
      totals.resize(row.size);
      for (std::size_t j = 0; j < by_position_[t].size(); ++j) {
        poll.after(static_cast<std::int64_t>(before.perf.size()));
        add_option(problem, t, j, before, before_first, totals);
      }
      std::swap(before, totals);
      before_first = row.first;
    }
    for (std::size_t b = before.perf.size(); b-- > 0;) {
      if (before.perf[b] == kUnreached) continue;
      ends_.push_back(static_cast<std::int32_t>(before_first + static_cast<std::int64_t>(b)));
    }
    size_ += static_cast<std::int64_t>(ends_.size());
  }

  // What the bins before reach with the table's option `j`.
  void add_option(const Problem& problem, std::size_t t, std::size_t j, const Totals& before,
                  std::int64_t before_first, Totals& totals) {
    auto& row = rows_[t];
    const auto option = by_position_[t][j];
    const double option_perf = problem.options[option].perf_sum;
    const double option_hbm = hbm_of(problem, option);
    const auto last = static_cast<double>(bins_);
    // Beyond all bins it reaches none, and a whole number may not hold it.
    if (!(option_hbm < last)) return;
    const auto whole = static_cast<std::int64_t>(option_hbm);
    whole_bins_[option] = static_cast<std::int32_t>(whole);
    for (std::size_t b = 0; b < before.perf.size(); ++b) {
      if (before.perf[b] == kUnreached) continue;
      const double hbm = before.hbm[b] + option_hbm;
      if (!(hbm < last)) return;  // later bins have more
      const double perf = before.perf[b] + option_perf;
      const auto bin = static_cast<std::int64_t>(hbm);
      const auto cell = bin - row.first;
      // Strictly better only: TorchRec keeps the first of equals.
      if (!(totals.perf[cell] > perf)) continue;
      totals.perf[cell] = perf;
      totals.hbm[cell] = hbm;
      const auto step = bin - whole - before_first - static_cast<std::int64_t>(b);
      row.set(cell, j << kStepBits | static_cast<std::size_t>(step));
    }
  }

  std::int64_t bins_ = 0;
  double bin_size_ = 0;
  std::vector<std::vector<std::int32_t>> by_position_;  // plan position -> options by hbm
  std::vector<std::int32_t> whole_bins_;                // option -> its hbm in whole bins
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
