// What one table's old shards hold of its new ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/problem.h"
#include "improve/moved_bytes.h"

namespace fastplan {

// Of one new shard: bytes that somebody holds, and who holds how much.
struct ShardSource {
  std::int64_t all = 0;
  std::vector<std::pair<std::int32_t, std::int64_t>> by_rank;

  void add(std::int64_t rank, std::int64_t bytes);
  std::int64_t held_by(std::int64_t rank) const;
};

struct ShardPlace {
  std::int64_t bytes = 0, rank = 0;
};

struct Rectangle {
  std::int64_t row = 0, column = 0, rows = 0, columns = 0;
  bool operator==(const Rectangle&) const = default;
};

// Old and new shards are rectangles of the table. All their borders make a grid, each cell of which
// has one old owner and one new one. Throws OutOfRange where bytes would be beyond exact
// arithmetic.
class TableCells {
 public:
  TableCells(const HeldColumns& held, std::int32_t table);
  // Refers to the columns.
  TableCells(HeldColumns&&, std::int32_t) = delete;

  // The option's shards in order. Not for copies.
  std::vector<ShardSource> sources(const Problem& problem, const Option& option) const;
  // Whether the option's shards are the old ones, in order, and are cut by rows or by columns only:
  // all that somebody holds of a shard is then on its old rank.
  bool stays(const Problem& problem, const Option& option) const;
  // Whether the old shards and the option's are both cut by rows only, as most are: no grid is then
  // needed to see what they share.
  bool is_by_rows(const Problem& problem, const Option& option) const;
  // Calls visit(number, rank, bytes) for every part of one of the option's shards that an old one
  // has. Only if is_by_rows().
  template <typename Visit>
  void visit_rows(const Problem& problem, const Option& option, const Visit& visit) const;
  // Bytes of an old shard, and the rank that holds it.
  ShardPlace old_shard(std::int64_t number) const {
    const auto old = shard(number);
    return {size(old.rows, old.columns), rank(number)};
  }
  // Bytes that all ranks together must fetch to have a copy each.
  std::int64_t to_copies(std::int64_t ranks) const;
  // Bytes of the table that somebody holds.
  std::int64_t held() const;

 private:
  std::int64_t size(std::int64_t rows, std::int64_t columns) const;
  std::int64_t size_inside(const Rectangle& shard, std::int64_t rows, std::int64_t columns) const;
  std::vector<Rectangle> cut(const Problem& problem, const Option& option) const;
  std::vector<ShardSource> from_copies(const std::vector<Rectangle>& needed) const;
  std::vector<ShardSource> from_shards(const std::vector<Rectangle>& needed) const;

  // The old shards, read from the columns: most tables have one, and a copy would take longer.
  std::int64_t shards() const { return end_ - begin_; }
  Rectangle shard(std::int64_t i) const {
    return {held_.held_row[begin_ + i], held_.held_column[begin_ + i], held_.held_rows[begin_ + i],
            held_.held_columns[begin_ + i]};
  }
  std::int64_t rank(std::int64_t i) const { return held_.held_rank[begin_ + i]; }

  const HeldColumns& held_;
  std::int64_t begin_, end_;  // of the table's shards
  bool copies_;
  std::int64_t rows_, dim_, element_size_;
  double state_;
};

template <typename Visit>
void TableCells::visit_rows(const Problem& problem, const Option& option,
                            const Visit& visit) const {
  std::int64_t old = 0, number = 0, row = 0;
  for (auto run = option.run_begin; run < option.run_end; ++run) {
    for (std::int64_t i = 0; i < problem.runs[run].count; ++i, ++number) {
      const auto end = row + problem.run_rows[run];
      while (row < end && old < shards()) {
        const auto until = shard(old).row + shard(old).rows;
        const auto next = std::min(end, until);
        if (next > row) visit(number, rank(old), size(next - row, dim_));
        row = std::max(row, next);
        if (row >= until) ++old;
      }
      row = end;
    }
  }
}

}  // namespace fastplan
