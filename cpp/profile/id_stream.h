// What a stream of ids looks like, with bounded memory: reuse times, reuse distances, frequencies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "profile/histogram.h"
#include "profile/recency.h"

namespace fastplan {

// The numbers are part of the boundary: fastplan/profile/table.py lists the names in this order.
enum class Following : std::uint8_t {
  none,     // an empty place of the table
  cold,     // followed because its hash is in the sample
  hot,      // followed because it is frequent, whatever its hash
  retired,  // counted, and not followed: it was hot, or may become so
};
inline constexpr auto kLastFollowing = Following::retired;

// An id that is known.
struct KnownId {
  std::int64_t id = 0;
  std::uint64_t last = 0;   // position of its last use, while it is followed
  std::uint64_t count = 0;  // uses
  std::uint32_t slot = 0;
  std::uint32_t recent = 0;  // uses, halved at the end of every window
  Following state = Following::none;
  bool was_hot = false;  // or is
};

// Everything but the known ids.
struct StreamTotals {
  std::uint64_t ids = 0;                        // positions: ids seen
  std::uint64_t cold_ids = 0;                   // those that were not hot when they were seen
  std::uint64_t threshold = ~std::uint64_t{0};  // the largest hash of the sample
  double cold_weight = 0;                       // of cold ids in the sample; estimates cold_ids
  double first_weight = 0;                      // of first uses; estimates the distinct ids
  // A reuse time is the distance of an id's use to its last use in ids, or to the position before
  // the first one. A reuse distance is the number of distinct ids since the last use.
  Histogram hot_times, cold_times, hot_distances, cold_distances;
};

// Spatially hashed sampling with bounded memory and exact treatment of frequent ids.
//
// An id is followed if its hash is at most `threshold`. The threshold falls as soon as more than
// `limit` ids would be followed, so the rate R = threshold / 2^64 is 1 for small streams, and these
// are exact. A use of a followed id has weight 1 / R, and a followed id between two uses of another
// one stands for 1 / R distinct ids.
//
// Whether a frequent id is in the sample would decide the whole result. Ids with kHot uses in a
// window are therefore followed with weight 1, whatever their hash, until they are frequent no
// longer. At every position an id is either hot, with weight 1, or in the sample with probability
// R, with weight 1 / R: sums of weights are estimates without bias.
class IdStream {
 public:
  explicit IdStream(std::uint32_t limit);

  void add(std::span<const std::int64_t> ids);

  std::uint32_t limit() const { return limit_; }
  double rate() const;
  const StreamTotals& totals() const { return totals_; }
  std::span<const std::uint8_t> sketch() const { return sketch_; }
  // The known ids: those that are followed, in the order of their last use, then the retired ones.
  std::vector<KnownId> known() const;
  // Goes on where another stream ended. Returns what is wrong with it, or null.
  const char* restore(StreamTotals totals, std::span<const KnownId> known,
                      std::span<const std::uint8_t> sketch);

  static std::uint64_t hash(std::int64_t id);

 private:
  KnownId& find(std::int64_t id, std::uint64_t hash);
  void use(std::int64_t id);
  void use_known(KnownId& own);
  void use_unknown(KnownId& place, std::int64_t id, std::uint64_t hash);
  void record(KnownId& own);
  void heat(KnownId& own);
  void mark(KnownId& own, Following state);
  void unmark(KnownId& own);
  void keep_room();
  void end_window();
  void lower_threshold();
  void forget_retired();
  void rebuild(std::size_t places);
  void renumber();

  std::uint32_t limit_;
  std::uint64_t window_;  // ids between two halvings of recent counts
  StreamTotals totals_;
  std::vector<KnownId> table_;        // open addressing; a power of two
  std::vector<std::uint8_t> sketch_;  // recent uses of unknown ids, by hash
  Recency recency_;
  std::uint32_t next_slot_ = 0;
  std::uint32_t known_ = 0, cold_ = 0, retired_ = 0;
  double weight_ = 1;  // 1 / R
};

}  // namespace fastplan
