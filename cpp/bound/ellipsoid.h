// Finding the top of a concave function of few variables.
#pragma once

#include <array>
#include <cmath>

namespace fastplan {

// The ellipsoid method. What may hold the top is kept in E = {x : (x - c)' P^-1 (x - c) <= 1}, and
// every slope g cuts off the part where the function can't be higher. A deep cut keeps {x : g'(x -
// c) >= depth}; with n dimensions, r = sqrt(g'P g) and alpha = depth / r, the smallest ellipsoid
// around what is left has
//     c <- c + (1 + n alpha) / (n + 1) P g / r
//     P <- n^2 (1 - alpha^2) / (n^2 - 1) (P - 2 (1 + n alpha) / ((n + 1)(1 + alpha)) P g (P g)' /
//     r^2)
// Its volume shrinks by a constant factor, so some dozens of cuts are enough for 2 to 4 dimensions,
// the only ones it takes.
class Ellipsoid {
 public:
  using Point = std::array<double, 4>;

  Ellipsoid(int dimensions, const Point& center, const Point& radius)
      : n_(dimensions), center_(center) {
    for (int i = 0; i < n_; ++i) shape_[i][i] = radius[i] * radius[i];
  }

  const Point& center() const { return center_; }

  // sqrt(g'P g): how far from the center it reaches along `normal`, in units of the function.
  double reach(const Point& normal) const {
    double square = 0;
    for (int i = 0; i < n_; ++i) {
      for (int j = 0; j < n_; ++j) square += normal[i] * shape_[i][j] * normal[j];
    }
    return square > 0 ? std::sqrt(square) : 0.0;
  }

  // Keeps where `normal` rises by at least `depth` from the center on. False: nothing is left.
  bool cut(const Point& normal, double depth) {
    const double far = reach(normal);
    if (!(depth < far)) return false;
    const double alpha = depth / far;
    const double along = (1 + n_ * alpha) / (n_ + 1);
    const double grow = n_ * n_ * (1 - alpha * alpha) / (n_ * n_ - 1.0);
    const double shrink = 2 * (1 + n_ * alpha) / ((n_ + 1) * (1 + alpha));
    Point step{};
    for (int i = 0; i < n_; ++i) {
      for (int j = 0; j < n_; ++j) step[i] += shape_[i][j] * normal[j];
      step[i] /= far;
    }
    for (int i = 0; i < n_; ++i) {
      center_[i] += along * step[i];
      for (int j = 0; j < n_; ++j) {
        shape_[i][j] = grow * (shape_[i][j] - shrink * step[i] * step[j]);
      }
    }
    return true;
  }

 private:
  int n_;
  Point center_;
  // P, symmetric.
  std::array<Point, 4> shape_{};
};

}  // namespace fastplan
