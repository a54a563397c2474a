// Bytes that ranks must fetch for an option, given what they hold: to the byte what
// fastplan/planning/flows.py counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/problem.h"
#include "improve/choices.h"

namespace fastplan {

// Old shards by table of the problem. Ranks are numbered as the problem numbers them; a rank that
// is lost has a number beyond its ranks.
struct HeldColumns {
  std::span<const std::int64_t> table_held_begin;
  std::span<const std::int64_t> held_row, held_column, held_rows, held_columns, held_rank;
  std::span<const std::uint8_t> table_held_type, table_held_kernel;  // 255: a new table
  std::span<const std::int64_t> table_rows, table_dim, table_element_size;
  std::span<const double> table_state;  // optimizer state, relative to the weights
};

class TableCells;

// Bytes that a plan moves, whatever its options: by plan position, then ranks of the shards that
// are not uniform.
std::int64_t moved_bytes(const Problem& problem, const HeldColumns& held,
                         std::span<const std::int32_t> options,
                         std::span<const std::int32_t> ranks);

// Bytes by piece and place. Most places hold nothing of a piece and must fetch all of it; the few
// that hold something are listed.
class MovedBytes {
 public:
  MovedBytes(const Choices& choices, const HeldColumns& held);

  // Of an option that is on all ranks.
  std::int64_t everywhere(std::int32_t option) const { return everywhere_[option]; }
  // Of a piece of a choice's option, on a rank or host.
  std::int64_t of_piece(std::int32_t option, std::int32_t piece, std::int32_t place) const {
    const auto& entry = pieces_[piece_begin_[option] + piece];
    const auto end = kept_.begin() + entry.end;
    const auto kept = std::lower_bound(kept_.begin() + entry.begin, end, std::pair{place, kNone});
    return kept != end && kept->first == place ? entry.all - kept->second : entry.all;
  }
  // Places that hold something of the piece, in order, and how many bytes.
  std::span<const std::pair<std::int32_t, std::int64_t>> kept(std::int32_t option,
                                                              std::int32_t piece) const {
    const auto& entry = pieces_[piece_begin_[option] + piece];
    return std::span(kept_).subspan(entry.begin, entry.end - entry.begin);
  }
  // No plan moves less: each table where it holds most, whatever else is there.
  std::int64_t least() const { return least_; }
  // All bytes of the tables that somebody holds: weights and optimizer state.
  std::int64_t held() const { return held_; }

 private:
  static constexpr std::int64_t kNone = 0;
  struct Piece {
    std::int64_t all = 0;             // bytes that somebody holds
    std::int32_t begin = 0, end = 0;  // into kept_
  };
  std::int64_t add(const Choice& choice, const TableCells& cells);
  std::int64_t add_staying(const Choice& choice, const TableCells& cells);
  std::int64_t add_by_rows(const Choice& choice, const TableCells& cells);
  void keep(std::int32_t begin, std::int32_t place, std::int64_t bytes);
  std::int64_t least_of(const Choice& choice) const;

  const Problem& problem_;
  std::vector<std::int64_t> everywhere_;
  std::vector<std::int32_t> piece_begin_;
  std::vector<Piece> pieces_;
  std::vector<std::pair<std::int32_t, std::int64_t>> kept_;  // place, bytes it holds
  std::int64_t least_ = 0, held_ = 0;
};

}  // namespace fastplan
