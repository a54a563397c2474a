// The proposals a TorchRec proposer makes, in its order: known in advance for the static ones.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/problem.h"

namespace fastplan {

enum class ProposerKind : std::uint8_t { grid, greedy, uniform, dynamic_programming };
inline constexpr auto kLastProposerKind = ProposerKind::dynamic_programming;

struct ProposerSettings {
  ProposerKind kind = ProposerKind::greedy;
  bool use_depth = true;             // greedy, uniform: score by largest shard, else by sum
  std::int64_t threshold = 0;        // greedy: stop after so many worse ratings; 0 is never
  double best_rating = 0;            // greedy with a threshold: state it brings along
  std::int64_t inferior = 0;         // and takes away
  std::int64_t max_proposals = 0;    // grid
  std::int64_t bins_per_device = 1;  // dynamic programming
  bool exhausted = false;  // a dynamic-programming proposer proposes in its first run only
};

// A proposer's proposals by index. A proposal is one option per table, in plan order. TorchRec's
// proposers hear the rating of each proposal, but only the threshold of a greedy one listens, so
// the whole sequence is known before anything is rated; the search can then go through it in any
// order.
class Sequence {
 public:
  virtual ~Sequence() = default;
  virtual std::int64_t size() const = 0;
  // Position in the plan -> table.
  std::span<const std::int32_t> order() const { return order_; }
  // Writes the options of proposal `index` by plan position.
  virtual void at(std::int64_t index, std::span<std::int32_t> options) const = 0;
  // Goes on from the options of proposal `from` to those of proposal `to`.
  virtual void move(std::int64_t from, std::int64_t to, std::span<std::int32_t> options) const;
  // Calls visit(index, changed positions, options now) for every proposal in order; the first call
  // lists every position. Stops when visit returns false.
  using Visit = std::function<bool(std::int64_t, std::span<const std::int32_t>,
                                   std::span<const std::int32_t>)>;
  virtual void walk(const Visit& visit) const;

 protected:
  explicit Sequence(std::size_t tables);
  std::vector<std::int32_t> order_;
};

// Whether the caller wants an end; asked now and then by whatever may take long, which then throws.
using Interrupt = std::function<bool()>;
struct Interrupted {};

// Asks once in so much work, and throws when an end is wanted: often enough for Ctrl-C, seldom
// enough not to matter.
class Poll {
 public:
  explicit Poll(const Interrupt& interrupted) : interrupted_(interrupted) {}
  // A unit is a table or a cell looked at: some nanoseconds.
  void after(std::int64_t units) {
    left_ -= units;
    if (left_ > 0) return;
    left_ = kEvery;
    if (interrupted_()) throw Interrupted{};
  }

 private:
  static constexpr std::int64_t kEvery = std::int64_t{1} << 20;
  const Interrupt& interrupted_;
  std::int64_t left_ = kEvery;
};

std::unique_ptr<Sequence> make_sequence(const Problem& problem, const ProposerSettings& settings,
                                        const Interrupt& interrupted);

}  // namespace fastplan
