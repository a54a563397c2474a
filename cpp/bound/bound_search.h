// The search for a certificate: which slabs of U to tell apart, and by which bound to rule out
// each.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bound/certificate.h"
#include "bound/packing.h"
#include "bound/relaxation.h"

namespace fastplan {

// Keeps what it has proven: the bound only ever rises.
class BoundSearch {
 public:
  explicit BoundSearch(const Problem& problem);

  const Relaxation& relaxation() const { return relaxation_; }

  // Bounds by averages: fast, and near the truth when there are many shards per rank. `upper` is
  // the rating of a plan, or infinite.
  void bound_averages(double upper, std::int64_t evaluations, const std::function<bool()>& stopped);
  // Bounds by what fits on a rank together, where that is worthwhile.
  void bound_packing(double upper, std::int64_t knapsacks, const std::function<bool()>& stopped);
  bool packing_worthwhile() const { return packing_.worthwhile(); }

  const Certificate& certificate() const { return certificate_; }
  // The same for others, with no more than they find when they check it.
  Certificate checked() const;
  // The slabs by averages, whatever the certificate is made of.
  std::span<const Slab> average_slabs() const { return average_slabs_; }

 private:
  struct Proven {
    Slab slab;
    double rating = 0;
  };
  static bool weaker(const Proven& a, const Proven& b) { return a.rating < b.rating; }

  void split_weakest(double upper, std::int64_t& evaluations, const std::function<bool()>& stopped);
  bool promising(std::span<const Proven> slabs, double threshold, std::int64_t& knapsacks,
                 const std::function<bool()>& stopped);
  std::array<Proven, 2> split(const Slab& slab, double threshold,
                              const std::function<bool()>& stopped) const;
  bool raise(std::vector<Proven>& slabs, double threshold, std::int64_t& knapsacks,
             const std::function<bool()>& stopped);
  void keep(std::vector<Proven> slabs, double rating);

  Relaxation relaxation_;
  Packing packing_;
  Certificate certificate_;
  std::vector<Slab> average_slabs_;
};

}  // namespace fastplan
