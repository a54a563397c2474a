// Random numbers for the annealers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastplan {

// Splitmix64: small, fast, and the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ull;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }
  // In [0, end), for `end` below 2^32. A product and a shift instead of a division; the bias is
  // below end / 2^32.
  std::int32_t below(std::size_t end) {
    return static_cast<std::int32_t>(((next() >> 32) * end) >> 32);
  }
  // In [0, 1).
  double real() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace fastplan
