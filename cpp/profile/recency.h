// Items in the order of their last use: how many were used since.
#pragma once

#include <cstdint>
#include <vector>

namespace fastplan {

// How many hot and how many cold ids.
struct Marks {
  std::uint32_t hot = 0;
  std::uint32_t cold = 0;
};

// A Fenwick tree over slots. A slot is a point in time; an id has a mark in the slot of its last
// use. Unsigned differences wrap around and back, so a mark is removed by adding its complement.
class Recency {
 public:
  void resize(std::uint32_t slots) { tree_.assign(slots + 1, {}); }
  std::uint32_t slots() const { return static_cast<std::uint32_t>(tree_.size()) - 1; }

  void add(std::uint32_t slot, std::uint32_t hot, std::uint32_t cold) {
    total_.hot += hot;
    total_.cold += cold;
    const auto end = static_cast<std::uint32_t>(tree_.size());
    for (std::uint32_t i = slot + 1; i < end; i += i & (~i + 1)) {
      tree_[i].hot += hot;
      tree_[i].cold += cold;
    }
  }
  void clear() {
    total_ = {};
    tree_.assign(tree_.size(), {});
  }
  // The marks in slots after this one.
  Marks after(std::uint32_t slot) const {
    Marks found = total_;
    for (std::uint32_t i = slot + 1; i > 0; i &= i - 1) {
      found.hot -= tree_[i].hot;
      found.cold -= tree_[i].cold;
    }
    return found;
  }

 private:
  std::vector<Marks> tree_ = std::vector<Marks>(1);
  Marks total_;
};

}  // namespace fastplan
