// Finds the least loaded of many places.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace fastplan {

// A binary tree over places: each inner node knows the least loaded place below it. Of equal loads,
// the smaller place comes first. A change costs O(log places).
//
// Loads are never negative, so that their bits, read as whole numbers, are in the same order. Whole
// numbers are compared and selected without branches, which no processor could predict here.
class Tournament {
 public:
  static constexpr double kOut = std::numeric_limits<double>::infinity();  // the load of no place

  explicit Tournament(std::size_t places)
      : places_(places),
        leaves_(std::bit_ceil(places)),
        load_(2 * leaves_, std::bit_cast<std::int64_t>(kOut)),
        first_(2 * leaves_) {
    for (std::size_t leaf = 0; leaf < leaves_; ++leaf) {
      first_[leaves_ + leaf] = static_cast<std::int32_t>(leaf);
    }
  }

  // Sets all loads at once: load_of(place).
  template <typename LoadOf>
  void set_all(LoadOf&& load_of) {
    for (std::size_t place = 0; place < places_; ++place) {
      load_[leaves_ + place] = std::bit_cast<std::int64_t>(load_of(place));
    }
    for (std::size_t node = leaves_ - 1; node > 0; --node) {
      const bool right = load_[2 * node + 1] < load_[2 * node];
      load_[node] = load_[2 * node + right];
      first_[node] = first_[2 * node + right];
    }
  }

  // Plays the path from the place's leaf to the root again.
  void set(std::size_t place, double value) {
    std::size_t node = leaves_ + place;
    auto load = std::bit_cast<std::int64_t>(value);
    auto first = static_cast<std::int32_t>(place);
    load_[node] = load;
    while (node > 1) {
      const std::int64_t other = load_[node ^ 1];
      const std::int32_t other_first = first_[node ^ 1];
      // A right node gives way to an equal load on its left.
      const bool take = other < load + static_cast<std::int64_t>(node & 1);
      load = take ? other : load;
      first = take ? other_first : first;
      node /= 2;
      load_[node] = load;
      first_[node] = first;
    }
  }

  std::int32_t first() const { return first_[1]; }
  double least() const { return std::bit_cast<double>(load_[1]); }

 private:
  std::size_t places_, leaves_;
  // By node, the root is 1: the bits of the least load below, and the place that has it.
  std::vector<std::int64_t> load_;
  std::vector<std::int32_t> first_;
};

}  // namespace fastplan
