#include "improve/moved_cells.h"

#include <algorithm>
#include <cmath>

#include "core/exact.h"

namespace fastplan {
namespace {

constexpr std::int64_t kNobody = -1;
constexpr const char* kBytes = "the bytes of a table's shards";
constexpr const char* kBorders = "the borders of a table's shards";
constexpr std::size_t kMostCells = std::size_t{1} << 28;

using Edges = std::vector<std::int64_t>;

void sort_unique(Edges& edges) {
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
}

std::size_t at(const Edges& edges, std::int64_t edge) {
  return static_cast<std::size_t>(std::lower_bound(edges.begin(), edges.end(), edge) -
                                  edges.begin());
}

// The grid that all shard borders make: every shard is a set of whole cells.
struct Grid {
  Edges rows, columns;

  void add(const Rectangle& shard) {
    rows.insert(rows.end(), {shard.row, shard.row + shard.rows});
    columns.insert(columns.end(), {shard.column, shard.column + shard.columns});
  }

  // To be called once, when all shards are added.
  void finish() {
    sort_unique(rows);
    sort_unique(columns);
    if (rows.size() > kMostCells / columns.size()) {
      throw OutOfRange("the shards of a table cut it into more than 2^28 pieces");
    }
  }

  template <typename Visit>
  void visit(const Rectangle& shard, const Visit& visit_cell) const {
    const auto bottom = at(rows, shard.row + shard.rows);
    const auto right = at(columns, shard.column + shard.columns);
    for (auto r = at(rows, shard.row); r < bottom; ++r) {
      for (auto c = at(columns, shard.column); c < right; ++c) {
        visit_cell(r * columns.size() + c, rows[r + 1] - rows[r], columns[c + 1] - columns[c]);
      }
    }
  }
};

}  // namespace

void ShardSource::add(std::int64_t rank, std::int64_t bytes) {
  all = checked_sum(__int128{all} + bytes, kBytes);
  for (auto& [known, sum] : by_rank) {
    if (known == rank) {
      sum += bytes;
      return;
    }
  }
  by_rank.emplace_back(static_cast<std::int32_t>(rank), bytes);
}

std::int64_t ShardSource::held_by(std::int64_t rank) const {
  for (const auto& [known, bytes] : by_rank) {
    if (known == rank) return bytes;
  }
  return 0;
}

TableCells::TableCells(const HeldColumns& held, std::int32_t table)
    : held_(held),
      begin_(held.table_held_begin[table]),
      end_(held.table_held_begin[table + 1]),
      copies_(held.table_held_type[table] ==
              static_cast<std::uint8_t>(ShardingType::data_parallel)),
      rows_(held.table_rows[table]),
      dim_(held.table_dim[table]),
      element_size_(held.table_element_size[table]),
      state_(held.table_state[table]) {}

// Weights and optimizer state; the state is rounded as numpy's rint() rounds.
std::int64_t TableCells::size(std::int64_t rows, std::int64_t columns) const {
  const auto weights =
      static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(element_size_);
  checked_size(weights * (1 + state_), kBytes);
  // Below 2^51 every number on the way was exact.
  return static_cast<std::int64_t>(weights) +
         static_cast<std::int64_t>(std::nearbyint(weights * state_));
}

// Of a shard, what lies inside a table of so many rows and columns: a table that was resized keeps
// the part both have.
std::int64_t TableCells::size_inside(const Rectangle& shard, std::int64_t rows,
                                     std::int64_t columns) const {
  const auto height = std::min(shard.row + shard.rows, rows) - shard.row;
  const auto width = std::min(shard.column + shard.columns, columns) - shard.column;
  return size(std::max<std::int64_t>(height, 0), std::max<std::int64_t>(width, 0));
}

// The option's shards as rectangles, column by column. A grid has whole columns of row shards.
std::vector<Rectangle> TableCells::cut(const Problem& problem, const Option& option) const {
  std::int64_t per_column = option.shards;
  if (option.type == ShardingType::column_wise || option.type == ShardingType::table_column_wise) {
    per_column = 1;
  } else if (option.type == ShardingType::grid_shard) {
    const auto columns = dim_ / std::max<std::int64_t>(problem.run_cols[option.run_begin], 1);
    per_column = std::max<std::int64_t>(per_column / std::max<std::int64_t>(columns, 1), 1);
  }
  std::vector<Rectangle> shards;
  shards.reserve(option.shards);
  std::int64_t row = 0;
  for (auto run = option.run_begin; run < option.run_end; ++run) {
    for (std::int64_t i = 0; i < problem.runs[run].count; ++i) {
      const auto number = static_cast<std::int64_t>(shards.size());
      if (number % per_column == 0) row = 0;
      const auto column =
          checked_sum(__int128{number / per_column} * problem.run_cols[run], kBorders);
      shards.push_back({row, column, problem.run_rows[run], problem.run_cols[run]});
      row = checked_sum(__int128{row} + problem.run_rows[run], kBorders);
    }
  }
  return shards;
}

bool TableCells::stays(const Problem& problem, const Option& option) const {
  if (copies_ || shards() != option.shards || option.type == ShardingType::grid_shard) return false;
  const bool by_column =
      option.type == ShardingType::column_wise || option.type == ShardingType::table_column_wise;
  Rectangle next = shard(0);
  if (next.row != 0 || next.column != 0) return false;
  std::int64_t number = 0;
  for (auto run = option.run_begin; run < option.run_end; ++run) {
    next.rows = by_column ? next.rows : problem.run_rows[run];
    next.columns = by_column ? problem.run_cols[run] : next.columns;
    if (next.rows != problem.run_rows[run] || next.columns != problem.run_cols[run]) return false;
    for (std::int64_t i = 0; i < problem.runs[run].count; ++i, ++number) {
      // cut() puts column i where i columns as wide as its own end.
      if (by_column && next.column != __int128{number} * next.columns) return false;
      if (!(shard(number) == next)) return false;
      (by_column ? next.column : next.row) += by_column ? next.columns : next.rows;
    }
  }
  return true;
}

bool TableCells::is_by_rows(const Problem& problem, const Option& option) const {
  if (copies_ || option.type != ShardingType::row_wise) return false;
  __int128 rows = 0;
  for (std::int64_t i = 0; i < shards(); ++i) {
    const auto old = shard(i);
    if (old.row != rows || old.column != 0 || old.columns != dim_ || old.rows < 0) return false;
    rows += old.rows;
  }
  rows = 0;
  for (auto run = option.run_begin; run < option.run_end; ++run) {
    if (problem.run_cols[run] != dim_) return false;
    rows += __int128{problem.runs[run].count} * problem.run_rows[run];
  }
  return rows == rows_;
}

std::vector<ShardSource> TableCells::sources(const Problem& problem, const Option& option) const {
  const auto needed = cut(problem, option);
  if (shards() == 0) return std::vector<ShardSource>(needed.size());
  return copies_ ? from_copies(needed) : from_shards(needed);
}

// Every rank with a copy has all of every shard.
std::vector<ShardSource> TableCells::from_copies(const std::vector<Rectangle>& needed) const {
  std::vector<ShardSource> sources(needed.size());
  for (std::size_t i = 0; i < needed.size(); ++i) {
    sources[i].all = size_inside(needed[i], shard(0).rows, shard(0).columns);
    for (std::int64_t copy = 0; copy < shards(); ++copy) {
      sources[i].by_rank.emplace_back(static_cast<std::int32_t>(rank(copy)), sources[i].all);
    }
  }
  return sources;
}

std::vector<ShardSource> TableCells::from_shards(const std::vector<Rectangle>& needed) const {
  std::vector<ShardSource> sources(needed.size());
  Grid grid;
  for (std::int64_t i = 0; i < shards(); ++i) grid.add(shard(i));
  for (const auto& each : needed) grid.add(each);
  grid.finish();
  std::vector<std::int64_t> owner(grid.rows.size() * grid.columns.size(), kNobody);
  for (std::int64_t i = 0; i < shards(); ++i) {
    grid.visit(shard(i), [&](std::size_t cell, auto...) { owner[cell] = rank(i); });
  }
  for (std::size_t i = 0; i < needed.size(); ++i) {
    grid.visit(needed[i], [&](std::size_t cell, std::int64_t rows, std::int64_t columns) {
      if (owner[cell] != kNobody) sources[i].add(owner[cell], size(rows, columns));
    });
  }
  return sources;
}

// A rank that has a copy needs nothing; any other needs all but its own shard.
std::int64_t TableCells::to_copies(std::int64_t ranks) const {
  if (shards() == 0) return 0;
  if (copies_) {
    const auto whole = size_inside({0, 0, rows_, dim_}, shard(0).rows, shard(0).columns);
    const auto holders = held_.held_rank.subspan(begin_, shards());
    std::vector<std::uint8_t> has_copy(ranks, 0);
    for (const auto holder : holders) {
      if (holder < ranks) has_copy[holder] = 1;
    }
    return checked_sum(__int128{whole} * std::ranges::count(has_copy, 0), kBytes);
  }
  std::int64_t missing = 0;
  for (std::int64_t i = 0; i < shards(); ++i) {
    const __int128 bytes = size_inside(shard(i), rows_, dim_);
    missing = checked_sum(missing + bytes * (ranks - (rank(i) < ranks ? 1 : 0)), kBytes);
  }
  return missing;
}

std::int64_t TableCells::held() const {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < shards(); ++i) {
    sum = checked_sum(__int128{sum} + size_inside(shard(i), rows_, dim_), kBytes);
    if (copies_) break;
  }
  return sum;
}

}  // namespace fastplan
