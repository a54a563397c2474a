#include "search/pruned.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "search/goal_bound.h"
#include "search/key_set.h"
#include "search/measure.h"
#include "search/proposal_bound.h"
#include "search/references.h"
#include "search/tracker.h"

namespace fastplan {
namespace {

// Ratings and bounds are sums of the same doubles in other orders; they differ by less than this.
constexpr double kMargin = 1 + 1e-9;

std::size_t expected_keys(const Sequences& sequences) {
  constexpr std::int64_t kMost = std::int64_t{1} << 22;  // further ones make the set grow
  std::int64_t count = 0;
  for (const auto& sequence : sequences) count += std::min(sequence->size(), kMost - count);
  return static_cast<std::size_t>(count);
}

struct Candidate {
  double bound = 0;
  Reference reference;
};

// All distinct proposals that total storage and bound leave in the race, best bound first. Without
// feedback a failure is only known by storage, and TorchRec's message is about proposals that
// failed: all are noted, in order. `most` is the bound of the worst proposal that is wanted.
template <typename Bound>
std::vector<Candidate> list_candidates(const Problem& problem, const Sequences& sequences,
                                       Bound bound, double most, const Interrupt& interrupted,
                                       Failures& failures, SearchResult& result) {
  std::vector<Candidate> candidates;
  KeySet seen(expected_keys(sequences));
  Tracker tracker(problem, std::move(bound));
  Poll poll(interrupted);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    auto& report = result.reports[s];
    sequences[s]->walk([&](std::int64_t index, auto changed, auto options) {
      poll.after(static_cast<std::int64_t>(options.size()));
      tracker.follow(*sequences[s], changed, options);
      if (!seen.insert(tracker.key())) {
        ++report.repeats;
        return true;
      }
      ++report.proposals;
      const Reference reference{static_cast<std::int32_t>(s), index};
      failures.note(tracker.state().storage(), reference);
      const auto value = static_cast<double>(tracker.state().value());
      if (value <= most && tracker.state().storage().fits_in(problem.room)) {
        candidates.push_back({value, reference});
      }
      return true;
    });
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
  return candidates;
}

// TorchRec asks its proposers in order, each until it is done.
bool earlier(const Reference& a, const Reference& b) {
  return a.proposer != b.proposer ? a.proposer < b.proposer : a.index < b.index;
}

// Best bound first, until no proposal left can be as good as the best plan: every one that is left
// out has a rating (or comes by the goal to a value) above the best, so the minimum is the same.
// Among equals the proposal that TorchRec sees first wins, so that the order decides only how many
// are placed.
class Pruned {
 public:
  // Only plans that are better than `worst` count.
  Pruned(const Problem& problem, const SearchSettings& settings, double worst = kWorstRating)
      : problem_(problem),
        settings_(settings),
        sequences_(make_sequences(problem, settings)),
        measure_(problem, settings),
        partitioner_(problem, settings.partitioner, measure_.follow_placements()),
        options_(problem.tables()),
        positions_(problem.tables()),
        best_(worst) {
    std::iota(positions_.begin(), positions_.end(), 0);
    result_.reports.resize(sequences_.size());
  }

  SearchResult run() {
    Failures failures;
    auto candidates = listed(std::numeric_limits<double>::infinity(), failures);
    place_all(candidates, [] { return false; });
    if (result_.found) {
      result_.best = choose(problem_, sequences_, best_at_);
    } else {
      report_failures(problem_, sequences_, failures, result_);
    }
    return std::move(result_);
  }

  // The first plan that is better than `worst`, by what the search compares; none if there is none.
  std::optional<double> first() {
    Failures failures;
    // A bound on the rating is none on an objective: the proposals that it puts first are tried.
    auto candidates =
        listed(settings_.objective ? std::numeric_limits<double>::infinity() : limit(), failures);
    if (settings_.objective && candidates.size() > kObjectiveTries) {
      candidates.resize(kObjectiveTries);
    }
    if (settings_.objective) {
      for (auto& candidate : candidates) candidate.bound = 0;
    }
    place_all(candidates, [&] { return result_.found; });
    return result_.found ? std::optional(best_) : std::nullopt;
  }

 private:
  static constexpr std::size_t kTogether = 4;
  static constexpr std::size_t kMany = 1024;
  static constexpr std::size_t kObjectiveTries = 64;

  std::vector<Candidate> listed(double most, Failures& failures) {
    const auto list = [&](auto bound) {
      return list_candidates(problem_, sequences_, std::move(bound), most, settings_.interrupted,
                             failures, result_);
    };
    return settings_.goal ? list(GoalMean(problem_, *settings_.goal))
                          : list(ProposalBound(problem_));
  }

  template <typename Done>
  void place_all(std::vector<Candidate>& candidates, Done done) {
    // Of more and more candidates at a time, those that follow each other in a sequence come one
    // after another: they are alike, and both bound and placement go on from the one before. For
    // the rating this begins late: most searches have their plan by then, and others place
    // thousands of proposals whose bounds hardly differ.
    for (std::size_t begin = 0, end = 0; begin < candidates.size(); begin = end) {
      if (candidates[begin].bound > limit()) break;
      const bool in_batches = settings_.goal || begin >= kMany;
      const std::size_t together = in_batches ? begin / kTogether : 0;
      end = std::min(candidates.size(), begin + std::max<std::size_t>(1, together));
      const auto some = std::span(candidates).subspan(begin, end - begin);
      std::ranges::sort(some, earlier, &Candidate::reference);
      for (const auto& candidate : some) {
        if (candidate.bound <= limit()) consider(candidate.reference);
        if (done()) return;
      }
    }
  }

  // Bounds and ratings add the same costs in other orders: only what is above by more than the
  // margin is surely worse.
  double limit() const { return best_ * kMargin; }

  void consider(const Reference& reference) {
    if (considered_++ % kPollEvery == 0 && settings_.interrupted()) throw Interrupted{};
    const auto& sequence = *sequences_[reference.proposer];
    if (at_.proposer == reference.proposer) {
      sequence.move(at_.index, reference.index, options_);
    } else {
      sequence.at(reference.index, options_);
    }
    at_ = reference;
    if (settings_.goal && !may_reach_goal(sequence)) return;
    ++result_.evaluated;
    if (partitioner_.place(options_, measure_.rating_limit(limit())) != Outcome::placed) return;
    const double value = measure_.of(options_, partitioner_);
    const bool tied = result_.found && value == best_;
    if (value < best_ || (tied && earlier(reference, best_at_))) {
      best_ = value;
      best_at_ = reference;
      result_.rating = partitioner_.rating();
      result_.ranks.assign(partitioner_.ranks().begin(), partitioner_.ranks().end());
      result_.found = true;
    }
  }

  // By a closer bound than the one that all proposals are listed with. Tells the counter what the
  // placement comes to at least.
  bool may_reach_goal(const Sequence& sequence) {
    if (best_ < kWorstRating && !goal_bound_) {
      goal_bound_.emplace(problem_, GoalBound(problem_, *settings_.goal));
    }
    if (!goal_bound_) {
      measure_.expect(options_, {}, limit());
      return true;
    }
    goal_bound_->follow(sequence, positions_, options_);
    const auto& bound = goal_bound_->state();
    if (static_cast<double>(bound.value()) > limit()) return false;
    measure_.expect(options_, bound.by_channel(), limit());
    return true;
  }

  const Problem& problem_;
  const SearchSettings& settings_;
  Sequences sequences_;
  Measure measure_;
  Partitioner partitioner_;
  std::vector<std::int32_t> options_, positions_;
  Reference at_{-1, 0};  // where options_ are
  std::optional<Tracker<GoalBound>> goal_bound_;
  double best_;
  Reference best_at_;
  std::int64_t considered_ = 0;
  SearchResult result_;
};

}  // namespace

SearchResult pruned_search(const Problem& problem, const SearchSettings& settings) {
  return Pruned(problem, settings).run();
}

std::optional<double> better_proposal(const Problem& problem, const SearchSettings& settings,
                                      double limit) {
  SearchSettings known = settings;
  std::erase_if(known.proposers, [](const ProposerSettings& proposer) {
    return proposer.threshold || proposer.kind == ProposerKind::dynamic_programming;
  });
  // Most good plans are near perfect balance, which needs no look at any proposal.
  const bool by_rating = !settings.goal && !settings.objective;
  if (by_rating && ProposalBound(problem).least() > limit * kMargin) return std::nullopt;
  return Pruned(problem, known, limit).first();
}

}  // namespace fastplan
