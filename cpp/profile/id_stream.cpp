#include "profile/id_stream.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fastplan {

namespace {

constexpr std::uint32_t kLeastPlaces = 64;
constexpr std::uint32_t kWindowPerLimit = 8;
// Uses in a window that make an id hot; at most limit * kWindowPerLimit / kHot ids can have them.
constexpr std::uint32_t kHot = 32;
constexpr std::uint32_t kNotHot = kHot / 4;  // after a halving
// Uses in the sketch that make an id a candidate: known, but not followed. The other half must be
// its own, because others may share its counter.
constexpr std::uint32_t kCandidate = kHot / 2;
constexpr std::uint32_t kNoCandidate = kCandidate / 2;  // after a halving
constexpr std::uint64_t kAll = ~std::uint64_t{0};

}  // namespace

IdStream::IdStream(std::uint32_t limit)
    : limit_(std::bit_ceil(std::max(limit, kLeastPlaces))),
      window_(std::uint64_t{limit_} * kWindowPerLimit),
      table_(kLeastPlaces) {
  recency_.resize(kLeastPlaces);
}

// The finalizer of splitmix64: every bit of the id changes every bit of the hash.
std::uint64_t IdStream::hash(std::int64_t id) {
  auto x = static_cast<std::uint64_t>(id) + 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

double IdStream::rate() const {
  return totals_.threshold == kAll ? 1.0 : std::ldexp(static_cast<double>(totals_.threshold), -64);
}

void IdStream::add(std::span<const std::int64_t> ids) {
  for (const auto id : ids) use(id);
}

// Low bits choose the place, high bits the sample, so that the sample fills the table evenly.
KnownId& IdStream::find(std::int64_t id, std::uint64_t hash) {
  const auto mask = table_.size() - 1;
  auto at = hash & mask;
  while (table_[at].state != Following::none && table_[at].id != id) at = (at + 1) & mask;
  return table_[at];
}

void IdStream::use(std::int64_t id) {
  if (totals_.ids % window_ == 0 && totals_.ids > 0) end_window();
  const auto key = hash(id);
  auto& place = find(id, key);
  if (place.state != Following::none) {
    use_known(place);
  } else {
    use_unknown(place, id, key);
  }
  ++totals_.ids;
}

void IdStream::use_known(KnownId& own) {
  ++own.count;
  ++own.recent;
  const bool is_frequent = totals_.threshold != kAll && own.recent >= kHot;
  switch (own.state) {
    case Following::hot:
      record(own);
      break;
    case Following::cold:
      ++totals_.cold_ids;
      record(own);
      if (is_frequent) {
        heat(own);
      }
      break;
    default:
      ++totals_.cold_ids;
      if (is_frequent) {
        --retired_;
        mark(own, Following::hot);
      }
  }
}

void IdStream::use_unknown(KnownId& place, std::int64_t id, std::uint64_t key) {
  ++totals_.cold_ids;
  std::uint32_t uses = 1;
  const bool is_sampled = key <= totals_.threshold;
  if (!is_sampled) {
    // The sample takes the low bits of a table and the high bits of the hash; this takes others.
    auto& counter = sketch_[(key >> 20) & (sketch_.size() - 1)];
    if (counter < 255) ++counter;
    uses = counter;
    if (uses < kCandidate) return;
    counter = 0;
  } else {
    totals_.cold_weight += weight_;
    totals_.first_weight += weight_;
    totals_.cold_times.add(totals_.ids + 1, weight_);
  }
  place.id = id;
  place.count = place.recent = uses;
  ++known_;
  if (is_sampled) {
    mark(place, Following::cold);
  } else {
    place.state = Following::retired;
    ++retired_;
  }
  keep_room();
}

void IdStream::record(KnownId& own) {
  const bool is_hot = own.state == Following::hot;
  const double weight = is_hot ? 1.0 : weight_;
  if (!is_hot) totals_.cold_weight += weight;
  const auto time = totals_.ids - own.last;
  (is_hot ? totals_.hot_times : totals_.cold_times).add(time, weight);
  auto& distances = is_hot ? totals_.hot_distances : totals_.cold_distances;
  own.last = totals_.ids;
  if (own.slot + 1 == next_slot_) {
    distances.add(0, weight);
    return;
  }
  const auto between = recency_.after(own.slot);
  const double distinct = between.hot + between.cold * weight_;
  distances.add(static_cast<std::uint64_t>(distinct + 0.5), weight);
  const Following state = own.state;
  unmark(own);
  mark(own, state);
}

// A cold id becomes hot where it is.
void IdStream::heat(KnownId& own) {
  recency_.add(own.slot, 1, ~0u);
  own.state = Following::hot;
  own.was_hot = true;
  --cold_;
}

// Gives an id the newest slot. The table may move in `renumber`, but not its entries.
void IdStream::mark(KnownId& own, Following state) {
  if (next_slot_ == recency_.slots()) renumber();
  own.state = state;
  own.was_hot |= state == Following::hot;
  own.last = totals_.ids;
  own.slot = next_slot_++;
  cold_ += state == Following::cold;
  recency_.add(own.slot, state == Following::hot, state == Following::cold);
}

// The id keeps its place in the table, with a state that has no mark.
void IdStream::unmark(KnownId& own) {
  recency_.add(own.slot, own.state == Following::hot ? ~0u : 0u,
               own.state == Following::cold ? ~0u : 0u);
  cold_ -= own.state == Following::cold;
  own.state = Following::retired;
}

// New slots for the ids that are followed, in the order of the old ones.
void IdStream::renumber() {
  std::vector<KnownId*> marked;
  for (auto& own : table_) {
    if (own.state == Following::cold || own.state == Following::hot) marked.push_back(&own);
  }
  std::sort(marked.begin(), marked.end(),
            [](const auto* a, const auto* b) { return a->slot < b->slot; });
  const auto needed = static_cast<std::uint32_t>(marked.size()) * 2 + kLeastPlaces;
  recency_.resize(std::bit_ceil(needed));
  recency_.clear();
  next_slot_ = 0;
  for (auto* own : marked) {
    own->slot = next_slot_++;
    recency_.add(own->slot, own->state == Following::hot, own->state == Following::cold);
  }
}

void IdStream::keep_room() {
  if (cold_ > limit_) lower_threshold();
  if (known_ * 4 > table_.size() * 3) rebuild(table_.size() * 2);
}

void IdStream::end_window() {
  for (auto& count : sketch_) count /= 2;
  const auto before = known_;
  for (auto& own : table_) {
    own.recent /= 2;
    if (own.state == Following::retired && !own.was_hot && own.recent < kNoCandidate) {
      own = {};
      --retired_;
      --known_;
    }
    if (own.state != Following::hot || own.recent >= kNotHot) continue;
    unmark(own);
    ++retired_;
    if (hash(own.id) > totals_.threshold) continue;
    // It is in the sample again; its mark stays where it was.
    --retired_;
    ++cold_;
    own.state = Following::cold;
    recency_.add(own.slot, 0, 1);
  }
  if (known_ < before) rebuild(table_.size());
}

// Leaves an eighth of the sample out. Ids that are frequent become hot instead.
void IdStream::lower_threshold() {
  if (sketch_.empty()) sketch_.resize(window_);
  totals_.threshold -= totals_.threshold / 8;
  weight_ = 1 / rate();
  for (auto& own : table_) {
    if (own.state != Following::cold) continue;
    if (own.recent >= kHot) {
      heat(own);
    } else if (hash(own.id) > totals_.threshold) {
      unmark(own);
      // An id that was hot keeps its count.
      if (own.was_hot) {
        ++retired_;
      } else {
        own = {};
        --known_;
      }
    }
  }
  if (retired_ > limit_ / 4) forget_retired();
  rebuild(table_.size());
}

// Halves the ids that were hot, by their counts. Those of the sample are no different from then on.
void IdStream::forget_retired() {
  std::vector<std::uint64_t> counts;
  for (const auto& own : table_) {
    if (own.state == Following::retired) counts.push_back(own.count);
  }
  const auto middle = counts.begin() + static_cast<std::ptrdiff_t>(counts.size() / 2);
  std::nth_element(counts.begin(), middle, counts.end());
  for (auto& own : table_) {
    if (own.count > *middle || own.state == Following::hot) continue;
    own.was_hot = false;
    if (own.state != Following::retired) continue;
    own = {};
    --retired_;
    --known_;
  }
}

// Entries that were removed leave gaps, which `find` would stop at: every one gets a new place.
void IdStream::rebuild(std::size_t places) {
  std::vector<KnownId> old(places);
  std::swap(old, table_);
  for (const auto& own : old) {
    if (own.state != Following::none) find(own.id, hash(own.id)) = own;
  }
}

std::vector<KnownId> IdStream::known() const {
  std::vector<KnownId> found;
  for (const auto& own : table_) {
    if (own.state != Following::none) found.push_back(own);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    const bool a_retired = a.state == Following::retired, b_retired = b.state == Following::retired;
    if (a_retired != b_retired) return b_retired;
    return a_retired ? a.id < b.id : a.last < b.last;
  });
  return found;
}

const char* IdStream::restore(StreamTotals totals, std::span<const KnownId> known,
                              std::span<const std::uint8_t> sketch) {
  const bool samples = totals.threshold != kAll;
  if (known.size() > std::size_t{limit_} * 4) return "has too many known ids";
  if (sketch.size() != (samples ? window_ : 0)) return "has a sketch of the wrong size";
  if (totals.cold_ids > totals.ids || totals.ids > kAll / 4) return "has counts that can't be";
  if (totals.threshold == 0) return "has a threshold that can't be";
  IdStream made(limit_);
  made.totals_ = std::move(totals);
  made.weight_ = 1 / made.rate();
  made.sketch_.assign(sketch.begin(), sketch.end());
  made.table_.resize(std::max<std::size_t>(std::bit_ceil(known.size() * 2), kLeastPlaces));
  made.recency_.resize(std::bit_ceil(static_cast<std::uint32_t>(known.size()) * 2 + kLeastPlaces));
  std::uint64_t next = 0;  // the smallest position that the next id may have
  for (const auto& each : known) {
    const bool is_sampled = hash(each.id) <= made.totals_.threshold;
    const bool is_retired = each.state == Following::retired;
    if (each.state == Following::none) return "has an id with no state";
    if (each.count == 0 || each.recent > each.count) return "has an id with counts that can't be";
    if (!samples && each.state != Following::cold) return "has a hot id and no sample";
    if (each.state == Following::cold && !is_sampled) return "has an id that is not in its sample";
    if (is_retired && is_sampled) return "has a retired id that is in its sample";
    if (!is_retired && (each.last < next || each.last >= made.totals_.ids)) {
      return "has ids that are not in the order of their last use";
    }
    auto& place = made.find(each.id, hash(each.id));
    if (place.state != Following::none) return "has an id twice";
    place = each;
    ++made.known_;
    made.retired_ += is_retired;
    if (is_retired) continue;
    next = each.last + 1;
    place.slot = made.next_slot_++;
    made.cold_ += each.state == Following::cold;
    made.recency_.add(place.slot, each.state == Following::hot, each.state == Following::cold);
  }
  if (made.cold_ > limit_) return "has too many ids in its sample";
  *this = std::move(made);
  return nullptr;
}

}  // namespace fastplan
