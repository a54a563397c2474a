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
class Tournament {
 public:
  static constexpr double kOut = std::numeric_limits<double>::infinity();  // the load of no place

  explicit Tournament(std::size_t places)
      : places_(places),
        leaves_(std::bit_ceil(places)),
        load_(2 * leaves_, kOut),
        first_(2 * leaves_) {
    for (std::size_t leaf = 0; leaf < leaves_; ++leaf) {
      first_[leaves_ + leaf] = static_cast<std::int32_t>(leaf);
    }
  }

  // Sets all loads at once: load_of(place).
  template <typename LoadOf>
  void set_all(LoadOf&& load_of) {
    for (std::size_t place = 0; place < places_; ++place) load_[leaves_ + place] = load_of(place);
    for (std::size_t node = leaves_ - 1; node > 0; --node) {
      const bool right = load_[2 * node + 1] < load_[2 * node];
      load_[node] = load_[2 * node + right];
      first_[node] = first_[2 * node + right];
    }
  }

  // Plays the path from the place's leaf to the root again, without branches on loads, which no
  // processor can predict.
  void set(std::size_t place, double load) {
    std::size_t node = leaves_ + place;
    auto first = static_cast<std::int32_t>(place);
    load_[node] = load;
    while (node > 1) {
      const std::size_t other = node ^ 1;
      const bool take = (load_[other] < load) | ((load_[other] == load) & (first_[other] < first));
      load = take ? load_[other] : load;
      first = take ? first_[other] : first;
      node /= 2;
      load_[node] = load;
      first_[node] = first;
    }
  }

  std::int32_t first() const { return first_[1]; }
  double least() const { return load_[1]; }

 private:
  std::size_t places_, leaves_;
  // By node, the root is 1: the least load below, and the place that has it.
  std::vector<double> load_;
  std::vector<std::int32_t> first_;
};

}  // namespace fastplan
