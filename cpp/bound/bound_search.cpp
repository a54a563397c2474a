#include "bound/bound_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace fastplan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Slabs as parts of the rating: how fine averages get, from which width on packing is tried, and
// how fine it gets.
constexpr double kFinestAverage = 1.0 / 8192;
constexpr double kWidestPacking = 1.0 / 16;
constexpr double kFinestPacking = 1.0 / 512;
// A gap this small is not worth more work.
constexpr double kClose = 2e-4;
// Nor is this part of the gap there was.
constexpr double kCloser = 0.1;
constexpr std::int64_t kEvaluationsPerSlab = 2000;
// Whoever checks a proof leaves this much of what is added up to rounding: once for the price of
// each option, twice for the sum of all. It counts where memory is worth far more than the rating.
constexpr double kCheckRounding = 3 * kRounding;

}  // namespace

BoundSearch::BoundSearch(const Problem& problem)
    : relaxation_(problem), packing_(problem, relaxation_) {}

void BoundSearch::bound_averages(double upper, std::int64_t evaluations,
                                 const std::function<bool()>& stopped) {
  if (!std::isinf(upper)) return split_weakest(upper, evaluations, stopped);
  // Without a plan, a first bound tells where to look closer. Above what any plan can cost, a bound
  // tells that there is none.
  const double hopeless = 1 + 2 * relaxation_.most();
  Slab all;
  all.high = kInfinity;
  upper = relaxation_.least_rating(all, hopeless, evaluations, stopped);
  do {
    upper = std::min(std::max(4 * upper, 1e-6 * hopeless), hopeless);
    split_weakest(upper, evaluations, stopped);
  } while (upper < hopeless && certificate_.value >= upper * (1 - 4 * kClearance));
}

// Splits the slab that holds the bound back, again and again, until the bound reaches `upper`. A
// narrower slab has a closer edge of mu U and fewer options in A, so its halves prove at least as
// much.
void BoundSearch::split_weakest(double upper, std::int64_t& evaluations,
                                const std::function<bool()>& stopped) {
  std::vector<Proven> slabs(1);
  slabs[0].slab.high = kInfinity;
  slabs[0].rating = relaxation_.least_rating(slabs[0].slab, upper, evaluations, stopped);
  while (evaluations > 0 && !stopped()) {
    const auto weakest = std::min_element(slabs.begin(), slabs.end(), weaker);
    const double high = std::min(weakest->slab.high, upper);
    const double low = weakest->slab.low;
    if (weakest->rating >= upper || high - low < kFinestAverage * upper) break;
    Proven above = *weakest;
    above.slab.low = weakest->slab.high = (low + high) / 2;
    for (auto* half : {&*weakest, &above}) {
      half->rating = relaxation_.least_rating(half->slab, upper, evaluations, stopped);
    }
    slabs.push_back(std::move(above));
  }
  average_slabs_.clear();
  for (const auto& proven : slabs) average_slabs_.push_back(proven.slab);
  const double rating = std::min_element(slabs.begin(), slabs.end(), weaker)->rating;
  keep(std::move(slabs), rating);
}

// Bisects between what is proven and the plan's rating for the highest threshold that every slab
// can be proven for. Slabs that averages settle up to `upper` need no packing.
void BoundSearch::bound_packing(double upper, std::int64_t knapsacks,
                                const std::function<bool()>& stopped) {
  if (std::isinf(upper) || !packing_.worthwhile() || certificate_.slabs.empty()) return;
  std::vector<Proven> slabs;
  for (const auto& slab : certificate_.slabs) {
    const bool settled = slab.reward.empty() && relaxation_.proven(slab, upper) >= upper;
    slabs.push_back({slab, settled ? upper : certificate_.value});
  }
  double low = certificate_.value;
  double high = upper;
  const double close = std::max(kClose * upper, kCloser * (high - low));
  if (!promising(slabs, low + kCloser * (high - low), knapsacks, stopped)) return;
  while (high - low > close && knapsacks > 0 && !stopped()) {
    const double threshold = (low + high) / 2;
    (raise(slabs, threshold, knapsacks, stopped) ? low : high) = threshold;
  }
  if (low > certificate_.value) keep(std::move(slabs), low);
}

// Whether packing rules out the weakest U at all; where it does not, the rest is wasted effort.
// Follows the weaker half of the weakest slab down to the finest width.
bool BoundSearch::promising(std::span<const Proven> slabs, double threshold,
                            std::int64_t& knapsacks, const std::function<bool()>& stopped) {
  Proven now = *std::min_element(slabs.begin(), slabs.end(), weaker);
  while (now.rating < threshold) {
    const double high = std::min(now.slab.high, threshold);
    if (high - now.slab.low < kFinestPacking * threshold) {
      return packing_.prove(now.slab, threshold, knapsacks, stopped);
    }
    auto halves = split(now.slab, threshold, stopped);
    now = std::move(weaker(halves[1], halves[0]) ? halves[1] : halves[0]);
  }
  return true;
}

// The two halves of a slab, as far as it is below the threshold, bounded by averages.
std::array<BoundSearch::Proven, 2> BoundSearch::split(const Slab& slab, double threshold,
                                                      const std::function<bool()>& stopped) const {
  std::array<Proven, 2> halves;
  const double middle = (slab.low + std::min(slab.high, threshold)) / 2;
  halves[0].slab.low = slab.low;
  halves[0].slab.high = halves[1].slab.low = middle;
  halves[1].slab.high = slab.high;
  for (auto& half : halves) {
    std::int64_t evaluations = kEvaluationsPerSlab;
    half.rating = relaxation_.least_rating(half.slab, threshold, evaluations, stopped);
  }
  return halves;
}

// Replaces slabs that fall short of the threshold by ones that do not, each proven by averages or
// by packing, or split. False: some can't be proven.
bool BoundSearch::raise(std::vector<Proven>& slabs, double threshold, std::int64_t& knapsacks,
                        const std::function<bool()>& stopped) {
  std::vector<Proven> done, waiting;
  for (const auto& proven : slabs) (proven.rating < threshold ? waiting : done).push_back(proven);
  // The weakest is taken first: a failure shows early.
  const auto stronger = [](const Proven& a, const Proven& b) { return weaker(b, a); };
  std::make_heap(waiting.begin(), waiting.end(), stronger);
  while (!waiting.empty()) {
    if (knapsacks <= 0 || stopped()) return false;
    std::pop_heap(waiting.begin(), waiting.end(), stronger);
    Proven now = std::move(waiting.back());
    waiting.pop_back();
    const double high = std::min(now.slab.high, threshold);
    const double width = (high - now.slab.low) / threshold;
    if (width <= kWidestPacking && packing_.prove(now.slab, threshold, knapsacks, stopped)) {
      done.push_back({std::move(now.slab), threshold});
      continue;
    }
    if (width < kFinestPacking) return false;
    for (auto& half : split(now.slab, threshold, stopped)) {
      if (half.rating >= threshold) {
        done.push_back(std::move(half));
      } else {
        waiting.push_back(std::move(half));
        std::push_heap(waiting.begin(), waiting.end(), stronger);
      }
    }
  }
  slabs = std::move(done);
  return true;
}

// Takes over slabs that prove a rating, when they prove more than what there is.
void BoundSearch::keep(std::vector<Proven> slabs, double rating) {
  Certificate next;
  // Below what the search has found, so that the rounding of proven() does not matter.
  next.threshold = next.value = rating * (1 - 2 * kClearance);
  std::sort(slabs.begin(), slabs.end(),
            [](const Proven& a, const Proven& b) { return a.slab.low < b.slab.low; });
  for (auto& proven : slabs) {
    // Packing is proven where it is found; averages are once more, with all rounding.
    if (proven.slab.reward.empty()) {
      const double least = relaxation_.proven(proven.slab, next.threshold);
      next.value = std::min(next.value, least * (1 - kClearance));
    }
    next.slabs.push_back(std::move(proven.slab));
  }
  if (next.value > certificate_.value) certificate_ = std::move(next);
}

// Lowers the value to what the checker in Python will find with its own, coarser rounding, so that
// a bound that is shown can be confirmed to the bit.
Certificate BoundSearch::checked() const {
  Certificate given = certificate_;
  for (const auto& slab : given.slabs) {
    if (!slab.reward.empty()) continue;
    const double least = relaxation_.proven(slab, given.threshold, kCheckRounding);
    given.value = std::min(given.value, least * (1 - kClearance));
  }
  given.value = std::max(given.value, 0.0);
  return given;
}

}  // namespace fastplan
