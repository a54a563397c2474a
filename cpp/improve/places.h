// The places of a table's pieces.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace fastplan {

// Most tables have one piece: drafts are copied often, and few pieces need no memory of their own.
class Places {
 public:
  Places() = default;
  Places(std::int32_t count, std::int32_t place) { assign(count, place); }
  Places(std::span<const std::int32_t> places) { assign(places); }

  void assign(std::span<const std::int32_t> places) {
    resize(places.size());
    std::ranges::copy(places, begin());
  }
  void assign(std::int32_t count, std::int32_t place) {
    resize(count);
    std::fill(begin(), end(), place);
  }
  void push_back(std::int32_t place) {
    const auto last = size_;
    resize(size_ + 1);
    begin()[last] = place;
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int32_t* begin() { return is_few() ? few_.data() : many_.data(); }
  std::int32_t* end() { return begin() + size_; }
  const std::int32_t* begin() const { return is_few() ? few_.data() : many_.data(); }
  const std::int32_t* end() const { return begin() + size_; }
  std::int32_t& operator[](std::size_t piece) { return begin()[piece]; }
  std::int32_t operator[](std::size_t piece) const { return begin()[piece]; }

 private:
  bool is_few() const { return size_ <= few_.size(); }
  // Keeps what is there.
  void resize(std::size_t size) {
    const bool was_few = is_few();
    const auto before = std::min(size_, size);
    if (size > few_.size()) {
      many_.resize(size);
      if (was_few) std::copy_n(few_.begin(), before, many_.begin());
    } else if (!was_few) {
      std::copy_n(many_.begin(), before, few_.begin());
    }
    size_ = size;
  }

  std::size_t size_ = 0;
  std::array<std::int32_t, 2> few_{};
  std::vector<std::int32_t> many_;
};

}  // namespace fastplan
