// Histograms of whole numbers with eight bins per octave.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastplan {

// Numbers below 16 have bins of their own. Above, a bin spans an eighth of an octave, so that a
// curve is known exactly at the lower edges of bins and to 9 % of x between them.
inline constexpr std::size_t kBins = 16 + 59 * 8;

inline std::size_t bin_of(std::uint64_t value) {
  if (value < 16) return static_cast<std::size_t>(value);
  const int octave = std::min(static_cast<int>(std::bit_width(value)) - 1, 62);
  return 16 + static_cast<std::size_t>(octave - 4) * 8 + ((value >> (octave - 3)) & 7);
}

// The smallest number of a bin.
inline std::uint64_t lower_edge(std::size_t bin) {
  if (bin < 16) return bin;
  const std::size_t octave = 4 + (bin - 16) / 8;
  return (8 + (bin - 16) % 8) << (octave - 3);
}

// Weights by bin, and the sums of weight x value.
struct Histogram {
  std::vector<double> weight = std::vector<double>(kBins);
  std::vector<double> sum = std::vector<double>(kBins);

  void add(std::uint64_t value, double by) {
    const auto bin = bin_of(value);
    weight[bin] += by;
    sum[bin] += by * static_cast<double>(value);
  }
};

}  // namespace fastplan
