#include "improve/moved_bytes.h"

#include <algorithm>
#include <limits>

#include "core/exact.h"
#include "improve/moved_cells.h"

namespace fastplan {
namespace {

constexpr const char* kMoved = "the bytes that a plan may move";

}  // namespace

// All pieces of all choices, worked out once: a move then looks bytes up.
MovedBytes::MovedBytes(const Choices& choices, const HeldColumns& held)
    : problem_(choices.problem()),
      everywhere_(problem_.options.size(), 0),
      piece_begin_(problem_.options.size(), 0) {
  std::int64_t most_of_all = 0;  // no sum over tables is larger
  for (std::size_t t = 0; t < choices.tables(); ++t) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    __int128 most = 0;
    const TableCells cells(held, static_cast<std::int32_t>(t));
    for (auto c = choices.first(t); c < choices.first(t + 1); ++c) {
      most = std::max<__int128>(most, add(choices[c], cells));
      least = std::min(least, least_of(choices[c]));
    }
    most_of_all = checked_sum(most_of_all + most, kMoved);
    if (choices.first(t) < choices.first(t + 1)) least_ += least;
    held_ = checked_sum(__int128{held_} + cells.held(), kMoved);
  }
}

// Returns what the option moves where nothing is kept.
std::int64_t MovedBytes::add(const Choice& choice, const TableCells& cells) {
  const auto& option = problem_.options[choice.option];
  if (option.type == ShardingType::data_parallel) {
    everywhere_[choice.option] = cells.to_copies(static_cast<std::int64_t>(problem_.ranks()));
    return everywhere_[choice.option];
  }
  if (cells.stays(problem_, option)) return add_staying(choice, cells);
  if (choice.spread == Spread::everywhere && cells.is_by_rows(problem_, option)) {
    return add_by_rows(choice, cells);
  }
  const auto sources = cells.sources(problem_, option);
  std::int64_t all = 0;
  for (const auto& source : sources) all = checked_sum(__int128{all} + source.all, kMoved);
  if (choice.spread == Spread::everywhere) {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      everywhere_[choice.option] +=
          sources[i].all - sources[i].held_by(static_cast<std::int64_t>(i));
    }
    return all;
  }
  piece_begin_[choice.option] = static_cast<std::int32_t>(pieces_.size());
  const auto size = choice.spread == Spread::hosts ? problem_.group_size : 1;
  const auto places = static_cast<std::int64_t>(problem_.ranks()) / size;
  for (std::int32_t piece = 0; piece < choice.pieces; ++piece) {
    Piece entry;
    entry.begin = static_cast<std::int32_t>(kept_.size());
    for (std::int64_t i = 0; i < size; ++i) {
      const auto& source = sources[piece * size + i];
      entry.all += source.all;
      for (const auto& [rank, bytes] : source.by_rank) {
        // Shard i of a block goes to rank i of a host; what others hold of it is no help.
        if (rank % size == i && rank / size < places) {
          keep(entry.begin, static_cast<std::int32_t>(rank / size), bytes);
        }
      }
    }
    std::sort(kept_.begin() + entry.begin, kept_.end());
    entry.end = static_cast<std::int32_t>(kept_.size());
    pieces_.push_back(entry);
  }
  return all;
}

// The same for an option whose shards are the old ones, as those of most tables are: each has one
// holder, and nothing is to be cut.
std::int64_t MovedBytes::add_staying(const Choice& choice, const TableCells& cells) {
  std::int64_t all = 0;
  for (std::int64_t i = 0; i < choice.shards; ++i) {
    all = checked_sum(__int128{all} + cells.old_shard(i).bytes, kMoved);
  }
  if (choice.spread == Spread::everywhere) {
    for (std::int64_t i = 0; i < choice.shards; ++i) {
      const auto [bytes, rank] = cells.old_shard(i);
      if (rank != i) everywhere_[choice.option] += bytes;
    }
    return all;
  }
  piece_begin_[choice.option] = static_cast<std::int32_t>(pieces_.size());
  const auto size = choice.spread == Spread::hosts ? problem_.group_size : 1;
  const auto places = static_cast<std::int64_t>(problem_.ranks()) / size;
  for (std::int32_t piece = 0; piece < choice.pieces; ++piece) {
    Piece entry;
    entry.begin = static_cast<std::int32_t>(kept_.size());
    for (std::int64_t i = 0; i < size; ++i) {
      const auto [bytes, rank] = cells.old_shard(piece * size + i);
      entry.all += bytes;
      if (bytes > 0 && rank % size == i && rank / size < places) {
        keep(entry.begin, static_cast<std::int32_t>(rank / size), bytes);
      }
    }
    std::sort(kept_.begin() + entry.begin, kept_.end());
    entry.end = static_cast<std::int32_t>(kept_.size());
    pieces_.push_back(entry);
  }
  return all;
}

// The same for an option that has some of the rows on every rank: most tables have such options,
// with a shard for each of thousands of ranks.
std::int64_t MovedBytes::add_by_rows(const Choice& choice, const TableCells& cells) {
  std::int64_t all = 0, kept = 0;
  const auto& option = problem_.options[choice.option];
  cells.visit_rows(problem_, option, [&](auto number, auto rank, auto bytes) {
    all = checked_sum(__int128{all} + bytes, kMoved);
    if (rank == number) kept += bytes;
  });
  everywhere_[choice.option] = all - kept;
  return all;
}

// Adds bytes that a place holds of the piece whose places begin at `begin`.
void MovedBytes::keep(std::int32_t begin, std::int32_t place, std::int64_t bytes) {
  const auto known = std::find_if(kept_.begin() + begin, kept_.end(),
                                  [&](const auto& each) { return each.first == place; });
  if (known == kept_.end()) {
    kept_.emplace_back(place, bytes);
  } else {
    known->second += bytes;
  }
}

// Each piece where most of it is, though two pieces may want the same rank: a lower bound.
std::int64_t MovedBytes::least_of(const Choice& choice) const {
  if (choice.spread == Spread::everywhere) return everywhere_[choice.option];
  std::int64_t sum = 0;
  for (std::int32_t piece = 0; piece < choice.pieces; ++piece) {
    const auto& entry = pieces_[piece_begin_[choice.option] + piece];
    std::int64_t most = 0;
    for (auto i = entry.begin; i < entry.end; ++i) most = std::max(most, kept_[i].second);
    sum += entry.all - most;
  }
  return sum;
}

// For one plan, without choices: options that no annealer would take have bytes, too.
std::int64_t moved_bytes(const Problem& problem, const HeldColumns& held,
                         std::span<const std::int32_t> options,
                         std::span<const std::int32_t> ranks) {
  std::int64_t moved = 0;
  std::size_t next = 0;
  for (const auto o : options) {
    const auto& option = problem.options[o];
    const TableCells cells(held, option.table);
    if (option.type == ShardingType::data_parallel) {
      const __int128 copies = cells.to_copies(static_cast<std::int64_t>(problem.ranks()));
      moved = checked_sum(moved + copies, kMoved);
      continue;
    }
    std::int64_t rank = 0;
    for (const auto& source : cells.sources(problem, option)) {
      const auto kept = source.held_by(option.reach == Reach::uniform ? rank++ : ranks[next++]);
      moved = checked_sum(__int128{moved} + source.all - kept, kMoved);
    }
  }
  return moved;
}

}  // namespace fastplan
