#include "search/proposals.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>

#include "search/dynamic_programming.h"

namespace fastplan {
namespace {

double score(const Option& option, bool use_depth) {
  return use_depth ? option.perf_max : option.perf_score;
}

// The options of every table, cheapest first; ties keep the order of the search space.
std::vector<std::vector<std::int32_t>> options_by_score(const Problem& problem, bool use_depth) {
  std::vector<std::vector<std::int32_t>> sorted(problem.tables());
  for (std::size_t t = 0; t < problem.tables(); ++t) {
    auto& options = sorted[t];
    options.resize(problem.table_option_begin[t + 1] - problem.table_option_begin[t]);
    std::iota(options.begin(), options.end(),
              static_cast<std::int32_t>(problem.table_option_begin[t]));
    std::stable_sort(options.begin(), options.end(), [&](std::int32_t a, std::int32_t b) {
      return score(problem.options[a], use_depth) < score(problem.options[b], use_depth);
    });
  }
  return sorted;
}

// Starts with every table's cheapest option; each step moves the table that holds the most memory
// to its next one. Feedback never changes the path, so it is laid out once.
class Greedy final : public Sequence {
 public:
  Greedy(const Problem& problem, bool use_depth)
      : Sequence(problem.tables()), sorted_(options_by_score(problem, use_depth)) {
    lay_out(problem);
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(steps_.size()) + 1; }

  void at(std::int64_t index, std::span<std::int32_t> options) const override {
    for (std::size_t t = 0; t < sorted_.size(); ++t) options[t] = option_at(index, t);
  }

  void move(std::int64_t from, std::int64_t to, std::span<std::int32_t> options) const override {
    const auto [begin, end] = std::minmax(from, to);
    if (end - begin > static_cast<std::int64_t>(sorted_.size())) return at(to, options);
    for (auto step = begin; step < end; ++step) {
      options[steps_[step]] = option_at(to, steps_[step]);
    }
  }

  void walk(const Visit& visit) const override {
    std::vector<std::int32_t> options(sorted_.size());
    at(0, options);
    if (!visit(0, order_, options)) return;
    std::vector<std::int32_t> chosen(sorted_.size(), 0);
    for (std::size_t step = 0; step < steps_.size(); ++step) {
      const std::int32_t table = steps_[step];
      options[table] = sorted_[table][++chosen[table]];
      if (!visit(static_cast<std::int64_t>(step) + 1, {&table, 1}, options)) return;
    }
  }

 private:
  std::int32_t option_at(std::int64_t index, std::size_t table) const {
    const auto& moved = moved_at_[table];
    // The steps before `index` that moved this table: one option further for each.
    const auto done = std::lower_bound(moved.begin(), moved.end(), index) - moved.begin();
    return sorted_[table][done];
  }

  // Largest (max hbm, sum hbm, max ddr, sum ddr) first, the earlier table on ties.
  using Weight = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int32_t>;

  static Weight weight(const Option& option, std::int32_t table) {
    return {option.max_hbm, option.storage_sum.hbm, option.max_ddr, option.storage_sum.ddr, -table};
  }

  // A heap of tables by what they hold. Each step takes the heaviest, moves it on and puts it back,
  // so that n steps cost n log(tables), where TorchRec looks at all tables for each.
  void lay_out(const Problem& problem) {
    moved_at_.resize(sorted_.size());
    std::priority_queue<Weight> heaviest;
    std::vector<std::size_t> chosen(sorted_.size(), 0);
    const auto push = [&](std::int32_t table) {
      if (chosen[table] + 1 >= sorted_[table].size()) return;
      const Weight w = weight(problem.options[sorted_[table][chosen[table]]], table);
      // A table that holds nothing is never moved.
      if (std::get<0>(w) || std::get<1>(w) || std::get<2>(w) || std::get<3>(w)) heaviest.push(w);
    };
    for (std::size_t t = 0; t < sorted_.size(); ++t) push(static_cast<std::int32_t>(t));
    while (!heaviest.empty()) {
      const std::int32_t table = -std::get<4>(heaviest.top());
      heaviest.pop();
      moved_at_[table].push_back(static_cast<std::int64_t>(steps_.size()));
      steps_.push_back(table);
      ++chosen[table];
      push(table);
    }
  }

  std::vector<std::vector<std::int32_t>> sorted_;
  std::vector<std::int32_t> steps_;                  // step -> table moved
  std::vector<std::vector<std::int64_t>> moved_at_;  // table -> its steps
};

// Every combination, the last table turning fastest, unless there are too many.
class Grid final : public Sequence {
 public:
  Grid(const Problem& problem, std::int64_t max_proposals)
      : Sequence(problem.tables()), sorted_(options_by_score(problem, true)) {
    size_ = 1;
    for (const auto& options : sorted_) {
      const auto count = static_cast<std::int64_t>(options.size());
      // TorchRec's grid proposes nothing where it would be too large.
      if (__builtin_mul_overflow(size_, count, &size_) || size_ > max_proposals) {
        size_ = 0;
        return;
      }
    }
  }

  std::int64_t size() const override { return size_; }

  void at(std::int64_t index, std::span<std::int32_t> options) const override {
    for (std::size_t t = sorted_.size(); t-- > 0;) {
      const auto count = static_cast<std::int64_t>(sorted_[t].size());
      options[t] = sorted_[t][index % count];
      index /= count;
    }
  }

 private:
  std::vector<std::vector<std::int32_t>> sorted_;
  std::int64_t size_ = 0;
};

// One proposal per sharding type that every table offers: the cheapest option of that type for each
// table.
class Uniform final : public Sequence {
 public:
  Uniform(const Problem& problem, bool use_depth) : Sequence(problem.tables()) {
    std::vector<ShardingType> types;  // in order of first appearance
    for (const auto& option : problem.options) {
      if (std::find(types.begin(), types.end(), option.type) == types.end()) {
        types.push_back(option.type);
      }
    }
    const auto sorted = options_by_score(problem, use_depth);
    for (ShardingType type : types) {
      std::vector<std::int32_t> proposal;
      for (const auto& options : sorted) {
        const auto first = std::find_if(options.begin(), options.end(), [&](std::int32_t o) {
          return problem.options[o].type == type;
        });
        if (first == options.end()) break;
        proposal.push_back(*first);
      }
      if (proposal.size() == problem.tables()) proposals_.push_back(std::move(proposal));
    }
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(proposals_.size()); }
  void at(std::int64_t index, std::span<std::int32_t> options) const override {
    std::copy(proposals_[index].begin(), proposals_[index].end(), options.begin());
  }

 private:
  std::vector<std::vector<std::int32_t>> proposals_;
};

}  // namespace

Sequence::Sequence(std::size_t tables) : order_(tables) {
  std::iota(order_.begin(), order_.end(), 0);
}

void Sequence::move(std::int64_t, std::int64_t to, std::span<std::int32_t> options) const {
  at(to, options);
}

// What a proposer knows of its steps it says itself (Greedy); otherwise neighbours are compared.
void Sequence::walk(const Visit& visit) const {
  const std::size_t tables = order_.size();
  std::vector<std::int32_t> positions(tables);
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<std::int32_t> options(tables);
  std::vector<std::int32_t> before(tables);
  std::vector<std::int32_t> changed;
  for (std::int64_t i = 0; i < size(); ++i) {
    std::swap(before, options);
    at(i, options);
    if (i == 0) {
      changed = positions;
    } else {
      changed.clear();
      for (std::size_t p = 0; p < tables; ++p) {
        if (options[p] != before[p]) changed.push_back(static_cast<std::int32_t>(p));
      }
    }
    if (!visit(i, changed, options)) return;
  }
}

std::unique_ptr<Sequence> make_sequence(const Problem& problem, const ProposerSettings& settings,
                                        const Interrupt& interrupted) {
  switch (settings.kind) {
    case ProposerKind::grid:
      return std::make_unique<Grid>(problem, settings.max_proposals);
    case ProposerKind::greedy:
      return std::make_unique<Greedy>(problem, settings.use_depth);
    case ProposerKind::uniform:
      return std::make_unique<Uniform>(problem, settings.use_depth);
    case ProposerKind::dynamic_programming:
      return make_dynamic_programming(problem, settings, interrupted);
  }
  throw std::invalid_argument("unknown proposer");
}

}  // namespace fastplan
