// Integer and rounding arithmetic that agrees with Python's to the last bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/types.h"

namespace fastplan {

// Sizes stay below this, so that every one is exact as a double and sums of many fit an int64.
inline constexpr std::int64_t kLargestSize = std::int64_t{1} << 51;

// Sums of many sizes stay below this, so that two of them can still be added.
inline constexpr std::int64_t kLargestSum = std::int64_t{1} << 61;

// A sum or product of two numbers that are not negative. It is taken in 128 bits, so that it can't
// wrap around before it is looked at.
inline std::int64_t checked_sum(__int128 sum, const char* what) {
  if (sum >= kLargestSum) {
    throw OutOfRange(std::string(what) + " come to 2^61 or more");
  }
  return static_cast<std::int64_t>(sum);
}

// A double that is to become a size. NaN fails the comparison, too.
inline std::int64_t checked_size(double value, const char* what) {
  if (!(value >= 0 && value < static_cast<double>(kLargestSize))) {
    throw OutOfRange(std::string(what) +
                     " is not a size the core can hold: " + std::to_string(value));
  }
  return static_cast<std::int64_t>(value);
}

// math.ceil of a float.
inline std::int64_t ceil_size(double value, const char* what) {
  return checked_size(std::ceil(value), what);
}

// math.ceil(a * b / c) as Python computes it: the product is exact, the quotient is rounded once
// to the nearest double, and only then taken up. A remainder too small to survive that rounding is
// lost, which plain doubles and plain integers both get wrong.
inline std::int64_t ceil_of_rounded_ratio(std::int64_t a, std::int64_t b, std::int64_t c) {
  if (c <= 0) throw OutOfRange("division by an empty shape");
  const auto product = static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b);
  const auto divisor = static_cast<unsigned __int128>(c);
  const auto quotient = product / divisor;
  const auto remainder = product % divisor;
  if (quotient >= static_cast<unsigned __int128>(kLargestSize)) {
    throw OutOfRange("a shard is larger than the core can hold");
  }
  const auto whole = static_cast<std::int64_t>(quotient);
  if (remainder == 0) return whole;
  if (whole == 0) return 1;
  const int exponent = std::bit_width(static_cast<std::uint64_t>(whole)) - 1;
  // Half a unit in the last place of `whole` is 2^(exponent - 53); ties go to `whole`, whose last
  // place is even.
  const bool lost = (remainder << (53 - exponent)) <= divisor;
  return lost ? whole : whole + 1;
}

}  // namespace fastplan
