#include "search/reachable.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "search/measure.h"

namespace fastplan {
namespace {

// Proposals that are placed of one proposer: to double up to a million takes twenty.
constexpr int kProbes = 32;
// Greedy ones begin with the fastest options, so their first plan is a good one.
constexpr ProposerKind kKinds[] = {ProposerKind::greedy, ProposerKind::uniform, ProposerKind::grid};

// Places and rates single proposals of a sequence.
class Probe {
 public:
  Probe(const Problem& problem, const SearchSettings& settings)
      : partitioner_(problem, settings.partitioner),
        measure_(problem, settings),
        options_(problem.tables()) {}

  // The rating of a proposal, or what the search compares instead, if it fits.
  std::optional<double> rate(const Sequence& sequence, std::int64_t index) {
    sequence.at(index, options_);
    if (partitioner_.place(options_, Partitioner::kNoLimit) != Outcome::placed) return std::nullopt;
    return measure_.of(options_, partitioner_);
  }

 private:
  Partitioner partitioner_;
  Measure measure_;
  std::vector<std::int32_t> options_;
};

// Greedy proposals need less and less memory and cost more and more, so the first that fits is
// about the best. Strides double until one fits, then bisection goes back.
double first_that_fits(Probe& probe, const Sequence& sequence, const Interrupt& interrupted) {
  double best = std::numeric_limits<double>::infinity();
  std::int64_t begin = 0, end = sequence.size(), stride = 1;
  bool found = false;
  for (int i = 0; i < kProbes && begin < end; ++i) {
    if (interrupted()) throw Interrupted();
    const std::int64_t at =
        found ? begin + (end - begin) / 2 : std::min(begin + stride - 1, end - 1);
    if (const auto rating = probe.rate(sequence, at)) {
      best = std::min(best, *rating);
      found = true;
      end = at;
    } else {
      begin = at + 1;
      stride *= 2;
    }
  }
  return best;
}

}  // namespace

// Greedy proposals first. The other kinds are only asked while there is no rating.
double reachable_rating(const Problem& problem, const SearchSettings& settings) {
  Probe probe(problem, settings);
  double best = std::numeric_limits<double>::infinity();
  for (const auto kind : kKinds) {
    for (const auto& proposer : settings.proposers) {
      // One that listens to ratings may end before it gets that far.
      if (proposer.kind != kind || proposer.threshold || proposer.exhausted) continue;
      const auto sequence = make_sequence(problem, proposer, settings.interrupted);
      best = std::min(best, first_that_fits(probe, *sequence, settings.interrupted));
    }
    if (std::isfinite(best)) break;
  }
  return best;
}

}  // namespace fastplan
