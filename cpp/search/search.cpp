#include "search/search.h"

#include <chrono>
#include <limits>
#include <optional>
#include <unordered_map>

#include "search/measure.h"
#include "search/proposal_bound.h"
#include "search/pruned.h"
#include "search/references.h"
#include "search/tracker.h"

namespace fastplan {
namespace {

using Clock = std::chrono::steady_clock;

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
    return pruned_search(problem, timed);
  } catch (const Interrupted&) {
    if (!late) throw;
    return std::nullopt;
  }
}

}  // namespace

SearchResult search(const Problem& problem, const SearchSettings& settings) {
  if (!settings.exhaustive && settings.timeout_seconds <= 0)
    return pruned_search(problem, settings);
  if (!settings.exhaustive) {
    if (auto found = pruned_in_time(problem, settings)) return *std::move(found);
  }
  return Exhaustive(problem, settings).run();
}

}  // namespace fastplan
