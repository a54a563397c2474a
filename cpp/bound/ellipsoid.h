// Finding the top of a concave function of few variables.
#pragma once

#include <array>
#include <cmath>

namespace fastplan {

// The ellipsoid method: what may hold the top is kept in an ellipsoid, and every slope cuts off a
// part of it. Takes 2 to 4 dimensions.
class Ellipsoid {
 public:
  using Point = std::array<double, 4>;

  Ellipsoid(int dimensions, const Point& center, const Point& radius)
      : n_(dimensions), center_(center) {
    for (int i = 0; i < n_; ++i) shape_[i][i] = radius[i] * radius[i];
  }

  const Point& center() const { return center_; }

  // How far from the center it reaches along `normal`, in units of the function.
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
  std::array<Point, 4> shape_{};
};

}  // namespace fastplan
