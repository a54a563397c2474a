// The proposals that a search has seen.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "search/tracker.h"

namespace fastplan {

// A set of keys in one array, with linear probing. Keys are well mixed sums, so that their own bits
// are the hash. A set that knows how many proposals to expect neither allocates nor moves anything
// while proposals are listed, which takes half of the time with std::unordered_set.
class KeySet {
 public:
  explicit KeySet(std::size_t expected = 0) { resize(std::bit_ceil(2 * expected + kLeast)); }

  // Returns whether the key is new.
  bool insert(const ProposalKey& key) {
    if (key == kFree) return !std::exchange(has_free_, true);
    if (2 * (size_ + 1) > slots_.size()) grow();
    ProposalKey& slot = find(key);
    if (slot == key) return false;
    slot = key;
    ++size_;
    return true;
  }

 private:
  static constexpr std::size_t kLeast = 64;
  static constexpr ProposalKey kFree{};

  // The key's slot, or the free one where it belongs.
  ProposalKey& find(const ProposalKey& key) {
    std::size_t at = (key.a ^ (key.b << 1)) & mask_;
    while (slots_[at] != key && slots_[at] != kFree) at = (at + 1) & mask_;
    return slots_[at];
  }

  void resize(std::size_t count) {
    slots_.assign(count, kFree);
    mask_ = count - 1;
  }

  void grow() {
    const std::vector<ProposalKey> before = std::move(slots_);
    resize(2 * before.size());
    for (const auto& key : before) {
      if (key != kFree) find(key) = key;
    }
  }

  std::vector<ProposalKey> slots_;
  std::size_t mask_ = 0;
  std::size_t size_ = 0;   // without kFree
  bool has_free_ = false;  // whether the key that marks free slots is in the set
};

}  // namespace fastplan
