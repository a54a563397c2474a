#include "search/search.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "search/goal_bound.h"
#include "search/key_set.h"
#include "search/measure.h"
#include "search/proposal_bound.h"
#include "search/tracker.h"

namespace fastplan {
namespace {

// Ratings and bounds are sums of the same doubles in other orders; they differ by less than this.
constexpr double kMargin = 1 + 1e-9;
constexpr std::int64_t kPollEvery = 64;  // proposals that are placed

using Clock = std::chrono::steady_clock;

using Sequences = std::vector<std::unique_ptr<Sequence>>;

Sequences make_sequences(const Problem& problem, const SearchSettings& settings) {
  Sequences sequences;
  for (const auto& proposer : settings.proposers) {
    sequences.push_back(make_sequence(problem, proposer, settings.interrupted));
  }
  return sequences;
}

// A proposal is referred to by proposer and index until its options are needed: sixteen bytes
// instead of one number per table.
struct Reference {
  std::int32_t proposer = 0;
  std::int64_t index = 0;
};

Chosen choose(const Problem& problem, const Sequences& sequences, const Reference& reference) {
  Chosen chosen;
  chosen.options.resize(problem.tables());
  chosen.proposer = reference.proposer;
  sequences[reference.proposer]->at(reference.index, chosen.options);
  return chosen;
}

// What TorchRec's error message tells of proposals that failed.
struct Failures {
  Storage lowest{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::max(),
                 std::numeric_limits<std::int64_t>::max()};
  Reference lowest_at, last_at;
  bool any = false;

  void note(const Storage& storage, const Reference& reference) {
    if (storage < lowest) {
      lowest = storage;
      lowest_at = reference;
    }
    last_at = reference;
    any = true;
  }
};

void report_failures(const Problem& problem, const Sequences& sequences, const Failures& failures,
                     SearchResult& result) {
  if (!failures.any) return;
  result.lowest = choose(problem, sequences, failures.lowest_at);
  result.last = choose(problem, sequences, failures.last_at);
}

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
// failed: all are noted, in order.
template <typename Bound>
std::vector<Candidate> list_candidates(const Problem& problem, const Sequences& sequences,
                                       Bound bound, const Interrupt& interrupted,
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
      if (tracker.state().storage().fits_in(problem.room)) {
        candidates.push_back({static_cast<double>(tracker.state().value()), reference});
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
  Pruned(const Problem& problem, const SearchSettings& settings)
      : problem_(problem),
        settings_(settings),
        sequences_(make_sequences(problem, settings)),
        measure_(problem, settings),
        partitioner_(problem, settings.partitioner, measure_.follow_placements()),
        options_(problem.tables()),
        positions_(problem.tables()) {
    std::iota(positions_.begin(), positions_.end(), 0);
    result_.reports.resize(sequences_.size());
  }

  SearchResult run() {
    Failures failures;
    auto candidates = settings_.goal ? listed(GoalMean(problem_, *settings_.goal), failures)
                                     : listed(ProposalBound(problem_), failures);
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
      }
    }
    if (result_.found) {
      result_.best = choose(problem_, sequences_, best_at_);
    } else {
      report_failures(problem_, sequences_, failures, result_);
    }
    return std::move(result_);
  }

 private:
  static constexpr std::size_t kTogether = 4;
  static constexpr std::size_t kMany = 1024;

  template <typename Bound>
  std::vector<Candidate> listed(Bound bound, Failures& failures) {
    return list_candidates(problem_, sequences_, std::move(bound), settings_.interrupted, failures,
                           result_);
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
    if (result_.found && !goal_bound_) {
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
  double best_ = kWorstRating;
  Reference best_at_;
  std::int64_t considered_ = 0;
  SearchResult result_;
};

SearchResult pruned(const Problem& problem, const SearchSettings& settings) {
  return Pruned(problem, settings).run();
}

// TorchRec's loop as it stands: every proposal in order, each distinct one placed once. For
// thresholds, objectives and time-outs that pass, where the order of ratings matters.
class Exhaustive {
 public:
  Exhaustive(const Problem& problem, const SearchSettings& settings)
      : problem_(problem),
        settings_(settings),
        sequences_(make_sequences(problem, settings)),
        partitioner_(problem, settings.partitioner),
        measure_(problem, settings),
        tracker_(problem, ProposalBound(problem)) {
    result_.reports.resize(sequences_.size());
  }

  SearchResult run() {
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      auto& report = result_.reports[s];
      report.best_rating = std::numeric_limits<double>::quiet_NaN();
      report.state_best_rating = settings_.proposers[s].best_rating;
      report.state_inferior = settings_.proposers[s].inferior;
      sequences_[s]->walk([&](std::int64_t index, auto changed, auto options) {
        return visit({static_cast<std::int32_t>(s), index}, changed, options);
      });
    }
    if (best_ < kWorstRating) {
      result_.found = true;
      result_.best = choose(problem_, sequences_, best_at_);
    } else {
      report_failures(problem_, sequences_, failures_, result_);
    }
    result_.exhaustive = true;
    return std::move(result_);
  }

 private:
  // NaN stands for a proposal that could not be placed.
  static constexpr double kFailed = std::numeric_limits<double>::quiet_NaN();

  // One step of TorchRec's loop. Ratings are kept by key: a proposal that was made before is not
  // placed again, but its rating is fed back.
  bool visit(const Reference& reference, std::span<const std::int32_t> changed,
             std::span<const std::int32_t> options) {
    auto& report = result_.reports[reference.proposer];
    if (timed_out()) {
      report.timed_out = true;
      return false;
    }
    if (polls_++ % kPollEvery == 0 && settings_.interrupted()) throw Interrupted{};
    tracker_.follow(*sequences_[reference.proposer], changed, options);
    auto [entry, fresh] = ratings_.try_emplace(tracker_.key(), kFailed);
    if (fresh) {
      ++report.proposals;
      entry->second = evaluate(reference, options, report);
    } else {
      ++report.repeats;
    }
    return feedback(settings_.proposers[reference.proposer], report, entry->second);
  }

  // Places and rates a proposal that is new; the first of equal ratings stays the best.
  double evaluate(const Reference& reference, std::span<const std::int32_t> options,
                  ProposerReport& report) {
    ++result_.evaluated;
    if (partitioner_.place(options, Partitioner::kNoLimit) != Outcome::placed) {
      failures_.note(tracker_.state().storage(), reference);
      return kFailed;
    }
    ++report.plans;
    const double rating = measure_.of(options, partitioner_);
    if (!(report.best_rating <= rating)) report.best_rating = rating;
    if (rating < best_) {
      best_ = rating;
      best_at_ = reference;
      result_.rating = settings_.goal ? partitioner_.rating() : rating;
      result_.ranks.assign(partitioner_.ranks().begin(), partitioner_.ranks().end());
    }
    return rating;
  }

  // A greedy proposer with a threshold stops after that many ratings without a better one.
  static bool feedback(const ProposerSettings& proposer, ProposerReport& report, double rating) {
    // TorchRec asks `if perf_rating`: what can't be placed and what costs nothing both count as
    // none.
    const bool rated = rating == rating && rating != 0;
    if (proposer.kind != ProposerKind::greedy || !proposer.threshold || !rated) return true;
    ++report.state_inferior;
    if (rating < report.state_best_rating) {
      report.state_best_rating = rating;
      report.state_inferior = 0;
    }
    return report.state_inferior <= proposer.threshold;
  }

  bool timed_out() const {
    if (settings_.timeout_seconds <= 0) return false;
    const std::chrono::duration<double> elapsed = Clock::now() - start_;
    return elapsed.count() > settings_.timeout_seconds;
  }

  const Problem& problem_;
  const SearchSettings& settings_;
  Sequences sequences_;
  Partitioner partitioner_;
  Measure measure_;
  Tracker<ProposalBound> tracker_;
  Clock::time_point start_ = Clock::now();
  std::unordered_map<ProposalKey, double, ProposalKeyHash> ratings_;
  Failures failures_;
  double best_ = kWorstRating;
  Reference best_at_;
  std::int64_t polls_ = 0;
  SearchResult result_;
};

// TorchRec's loop ends at a time-out with the best plan so far. A search that leaves out what can't
// win looks at all proposals in a fraction of that time; TorchRec's loop runs only if even this
// search is not done in time.
std::optional<SearchResult> pruned_in_time(const Problem& problem, const SearchSettings& settings) {
  const auto start = Clock::now();
  bool late = false;
  SearchSettings timed = settings;
  timed.interrupted = [&] {
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    late = elapsed.count() > settings.timeout_seconds;
    return late || settings.interrupted();
  };
  try {
    return pruned(problem, timed);
  } catch (const Interrupted&) {
    if (!late) throw;
    return std::nullopt;
  }
}

}  // namespace

SearchResult search(const Problem& problem, const SearchSettings& settings) {
  if (!settings.exhaustive && settings.timeout_seconds <= 0) return pruned(problem, settings);
  if (!settings.exhaustive) {
    if (auto found = pruned_in_time(problem, settings)) return *std::move(found);
  }
  return Exhaustive(problem, settings).run();
}

}  // namespace fastplan
